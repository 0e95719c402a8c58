"""Long work of the loop in slices: between two of them everything else has a turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator
from typing import TypeVar

from penstock import limits
from penstock.clock import Clock
from penstock.net.api import Answer, Guard
from penstock.net.exchange import Request

_Result = TypeVar("_Result")


def in_slices(
    request: Request,
    answer: Answer,
    guard: Guard,
    parts: Iterator[bytes],
    done: Callable[[bytes], None],
    clock: Clock,
) -> None:
    """Gather all `parts` and give them to `done`. What fits into one slice is done at once. An
    error on the way is answered by `guard`."""
    gathered: list[bytes] = []
    loop = asyncio.get_running_loop()

    def step() -> None:
        end_ns = clock.mono_ns() + limits.STATS_SLICE_NS
        for part in parts:
            gathered.append(part)
            if clock.mono_ns() >= end_ns:
                loop.call_soon(guard, request, answer, step)
                return
        done(b"".join(gathered))

    step()


def in_turns(
    request: Request,
    answer: Answer,
    guard: Guard,
    work: Generator[None, None, _Result],
    done: Callable[[_Result], None],
) -> None:
    """Run `work`, which yields between pieces that each take a few milliseconds at most, one piece
    a turn of the loop, and give what it returns to `done`. Errors are answered by `guard`."""
    loop = asyncio.get_running_loop()

    def step() -> None:
        try:
            next(work)
        except StopIteration as ended:
            done(ended.value)
        else:
            loop.call_soon(guard, request, answer, step)

    step()
