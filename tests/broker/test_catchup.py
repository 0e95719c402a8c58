"""Which learners are fed at a time."""

from __future__ import annotations

import random

from cases import each, seeds
from penstock.broker.catchup import CatchUp
from penstock.limits import CATCH_UP_STALL_NS, SECOND
from penstock.replica.frames import Target

NODE, OTHER = 2, 3


class Desk:
    def __init__(self, places: int = 2) -> None:
        self.catch_up = CatchUp(places)
        self.called: list[int] = []

    def ask(self, number: int, spare: int = 1, missing: int = 100, node: int = NODE) -> bool:
        answer = self.catch_up.ask(
            node, Target(number, 0), spare, missing, lambda: self.called.append(number)
        )
        self.catch_up.validate()
        return answer

    def leave(self, number: int) -> list[int]:
        """Returns who is fed instead."""
        self.called.clear()
        self.catch_up.leave(NODE, Target(number, 0))
        self.catch_up.validate()
        return self.called


def test_one_that_stalls_gives_its_place_to_the_next_and_comes_last() -> None:
    desk = Desk(places=1)
    desk.catch_up.tick(0)
    assert desk.ask(1)
    assert not desk.ask(2)
    desk.catch_up.tick(CATCH_UP_STALL_NS - 1)
    desk.catch_up.progressed(NODE, Target(1, 0))
    desk.catch_up.tick(CATCH_UP_STALL_NS + SECOND)
    assert desk.called == []
    desk.catch_up.tick(2 * CATCH_UP_STALL_NS)
    assert desk.called == [2]
    assert not desk.ask(1, spare=0)
    assert not desk.ask(3, spare=5)
    assert desk.leave(2) == [3]


@each("seed", seeds(3, 20))
def test_whatever_happens_places_are_used_and_never_too_many(seed: int) -> None:
    dice, desk = random.Random(seed), Desk(places=3)
    for step in range(400):
        number, node = dice.randrange(8), dice.choice((NODE, OTHER))
        match dice.randrange(5):
            case 0 | 1:
                desk.ask(number, dice.randrange(3), dice.randrange(1000), node)
            case 2:
                desk.catch_up.leave(node, Target(number, 0))
            case 3:
                desk.catch_up.progressed(node, Target(number, 0))
            case 4:
                desk.catch_up.tick(step * SECOND)
        desk.catch_up.validate()
    for number in range(8):
        desk.catch_up.leave_all(Target(number, 0))
    assert desk.ask(9)
