"""Long work of the loop, in turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator

from penstock.net.api import Answer
from penstock.net.exchange import Request, Response
from penstock.net.slices import in_turns

REQUEST = Request("GET", "/", b"", b"", "", "1.1", True, False)


def guard(request: Request, answer: Answer, act: Callable[[], None]) -> None:
    try:
        act()
    except ValueError as error:
        answer(Response(500, str(error).encode()))


def run(
    work: Callable[[list[str]], Generator[None, None, str]],
) -> tuple[list[str], list[Response]]:
    """What was done in which order, and the answers."""
    done: list[str] = []
    answers: list[Response] = []

    async def main() -> None:
        in_turns(REQUEST, answers.append, guard, work(done), done.append)
        for turn in range(4):
            done.append(f"turn {turn}")
            await asyncio.sleep(0)

    asyncio.run(main())
    return done, answers


def test_others_have_their_turn_between_two_pieces() -> None:
    def work(done: list[str]) -> Generator[None, None, str]:
        for piece in ("one", "two"):
            done.append(piece)
            yield
        return "result"

    order = ["one", "turn 0", "two", "turn 1", "result", "turn 2", "turn 3"]
    assert run(work) == (order, [])


def test_an_error_on_the_way_is_answered() -> None:
    def work(done: list[str]) -> Generator[None, None, str]:
        yield
        raise ValueError("broken")

    done, answers = run(work)
    assert "result" not in done
    assert answers == [Response(500, b"broken")]
