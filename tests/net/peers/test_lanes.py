"""Two connections make a link, and a newer session ends an older one first."""

from __future__ import annotations

import pytest

from penstock.broker.ports import Lane
from penstock.net.peers.lanes import Link, Session

FIRST, SECOND, RESTARTED = Session(1, 5), Session(1, 6), Session(2, 1)


class Wire:
    def __init__(self, story: list[str], name: str) -> None:
        self.story, self.name = story, name

    waiting_bytes = 0

    def write(self, frames: object) -> None:
        raise AssertionError("rules write nothing")

    def close(self) -> None:
        self.story.append(f"close {self.name}")

    def go_on(self) -> None:
        self.story.append(f"go on {self.name}")


class Desk:
    def __init__(self) -> None:
        self.story: list[str] = []
        self.link = Link(
            3, lambda node, life: self.story.append(f"linked {life}"),
            lambda node: self.story.append("unlinked"),
        )  # fmt: skip

    def open(self, session: Session, lane: Lane, name: str, life: int = 9) -> Wire:
        wire = Wire(self.story, name)
        self.link.opened(session, lane, life, wire)
        return wire

    def told(self) -> list[str]:
        story = self.story[:]
        self.story.clear()
        return story


def whole() -> tuple[Desk, Wire, Wire]:
    desk = Desk()
    bulk = desk.open(FIRST, Lane.BULK, "bulk")
    assert desk.told() == []
    live = desk.open(FIRST, Lane.LIVE, "live")
    assert desk.told() == ["linked 9", "go on bulk", "go on live"]
    return desk, bulk, live


def test_a_link_needs_both_lanes() -> None:
    desk, bulk, _ = whole()
    desk.link.closed(bulk)
    assert desk.told() == ["close bulk", "close live", "unlinked"]


def test_a_newer_session_ends_the_older_before_it_begins() -> None:
    desk, bulk, live = whole()
    desk.open(SECOND, Lane.LIVE, "new live")
    assert desk.told() == ["close bulk", "close live", "unlinked"]
    desk.link.closed(bulk)
    desk.link.closed(live)  # late: they are of no link any more
    desk.open(SECOND, Lane.BULK, "new bulk")
    assert desk.told() == ["linked 9", "go on new live", "go on new bulk"]


@pytest.mark.parametrize("late", [FIRST, Session(1, 4)])
def test_an_older_session_comes_too_late(late: Session) -> None:
    desk, _, _ = whole()
    desk.open(late, Lane.LIVE, "late")
    assert desk.told() == ["close late"]
    desk.link.end()
    desk.told()
    desk.open(Session(1, 4), Lane.LIVE, "late")
    assert desk.told() == ["close late"]


def test_a_process_that_was_started_again_begins_at_one() -> None:
    desk, _, _ = whole()
    desk.open(RESTARTED, Lane.BULK, "new", life=10)
    assert desk.told() == ["close bulk", "close live", "unlinked"]


def test_half_a_link_that_ends_was_never_one() -> None:
    desk = Desk()
    desk.link.closed(desk.open(FIRST, Lane.BULK, "bulk"))
    assert desk.told() == ["close bulk"]


def test_the_other_process_ended_between_two_lanes() -> None:
    desk = Desk()
    desk.open(FIRST, Lane.BULK, "bulk", life=9)
    desk.open(FIRST, Lane.LIVE, "live", life=10)
    assert desk.told() == ["close live", "close bulk"]
    assert not desk.link.is_whole
