from __future__ import annotations

import asyncio
from typing import cast

import pytest

from penstock.net.soon import Soon
from sim.clock import FakeClock
from sim.loop import FakeLoop


@pytest.fixture
def loop() -> FakeLoop:
    return FakeLoop(FakeClock())


@pytest.fixture
def soon(loop: FakeLoop) -> Soon:
    return Soon(cast(asyncio.AbstractEventLoop, loop))


def test_however_often_a_turn_is_asked_for_there_is_one(loop: FakeLoop, soon: Soon) -> None:
    turns: list[int] = []
    soon.ask()  # before it is known what a turn is
    soon.begin(lambda: turns.append(1))
    soon.ask()
    assert turns == []
    loop.run_ready()
    assert turns == [1]
    soon.ask()
    loop.run_ready()
    assert turns == [1, 1]


def test_a_turn_may_ask_for_another(loop: FakeLoop, soon: Soon) -> None:
    turns: list[int] = []

    def turn() -> None:
        turns.append(1)
        if len(turns) < 3:
            soon.ask()

    soon.begin(turn)
    soon.ask()
    loop.run_ready()
    assert len(turns) == 3


def test_after_the_stop_there_is_none(loop: FakeLoop, soon: Soon) -> None:
    turns: list[int] = []
    soon.begin(lambda: turns.append(1))
    soon.ask()
    soon.stop()
    soon.ask()
    loop.run_ready()
    assert turns == []


def test_a_turn_that_nobody_gave_is_a_fault(loop: FakeLoop, soon: Soon) -> None:
    soon.ask()
    with pytest.raises(RuntimeError, match="there is none"):
        loop.run_ready()
