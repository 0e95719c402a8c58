"""Long work of the loop in slices: between two of them everything else has a turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from penstock import limits
from penstock.net.api import Answer, Guard
from penstock.net.http import Request


def in_slices(
    request: Request,
    answer: Answer,
    guard: Guard,
    parts: Iterator[bytes],
    done: Callable[[bytes], None],
    mono_ns: Callable[[], int],
) -> None:
    """Gather all `parts` and give them to `done`. What fits into one slice is done at once. An
    error on the way is answered by `guard`."""
    gathered: list[bytes] = []
    loop = asyncio.get_running_loop()

    def step() -> None:
        end_ns = mono_ns() + limits.STATS_SLICE_NS
        for part in parts:
            gathered.append(part)
            if mono_ns() >= end_ns:
                loop.call_soon(guard, request, answer, step)
                return
        done(b"".join(gathered))

    step()
