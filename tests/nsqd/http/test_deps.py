"""Long work of a request: the loop is for others in between."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

from penstock.nsqd.http.deps import Call

from ..asked import nothing, request


def test_others_have_their_turn_between_two_pieces() -> None:
    done: list[str] = []

    def guard(request: Any, answer: Any, act: Any) -> None:
        act()

    def work() -> Generator[None, None, str]:
        for piece in ("one", "two"):
            done.append(piece)
            yield
        return "result"

    async def main() -> None:
        deps: Any = None
        Call(deps, guard, request("/"), nothing).in_turns(work(), done.append)
        for turn in range(4):
            done.append(f"turn {turn}")
            await asyncio.sleep(0)

    asyncio.run(main())
    assert done == ["one", "turn 0", "two", "turn 1", "result", "turn 2", "turn 3"]
