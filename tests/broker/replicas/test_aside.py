"""Files that are not wanted any more: how long they stay."""

import pytest

from penstock.broker.replicas.aside import Aside
from penstock.limits import ASIDE_KEPT_NS
from sim.clock import FakeClock
from sim.disk import Fault, SimDisk


class Node:
    def __init__(self) -> None:
        self.disk, self.clock = SimDisk(), FakeClock()
        self.disk.mkdir("/d")
        self.aside = Aside(self.disk, "/d", self.clock)

    def move(self, kept_ns: int = ASIDE_KEPT_NS) -> str:
        self.disk.mkdir("/d/r")
        self.disk.create("/d/r/log").close()
        self.disk.mkdir("/d/r/inner")
        return self.aside.move("/d/r", "r", kept_ns)


@pytest.fixture
def node() -> Node:
    return Node()


def test_of_a_deleted_topic_nothing_stays(node: Node) -> None:
    found = node.move(0)
    node.aside.settle(False)
    assert not node.disk.exists(found)


def test_anything_else_stays_for_a_day_or_until_the_disk_is_full(node: Node) -> None:
    first, second = node.move(), node.move()
    assert first != second
    node.clock.pass_ns(ASIDE_KEPT_NS - 1)
    third = node.move()
    node.aside.settle(False)
    assert node.disk.exists(first)
    node.clock.pass_ns(1)
    node.aside.settle(False)
    assert [node.disk.exists(one) for one in (first, second, third)] == [False, False, True]
    node.aside.settle(True)
    assert not node.disk.exists(third)


def test_what_a_start_finds_stays_for_a_day_from_then_on(node: Node) -> None:
    found = node.move()
    again = Aside(node.disk, "/d", node.clock)
    again.settle(False)
    node.clock.pass_ns(ASIDE_KEPT_NS)
    again.settle(False)
    assert not node.disk.exists(found)


def test_what_cannot_be_removed_is_tried_again(node: Node) -> None:
    first, second = node.move(0), node.move(0)
    fault = node.disk.inject(Fault("unlink", path_part="r/log", times=0))
    for _ in range(2):
        node.aside.settle(False)
    assert [node.disk.exists(one) for one in (first, second)] == [True, False]
    node.disk.faults.remove(fault)
    node.aside.settle(False)
    assert not node.disk.exists(first)
