"""A node's ids, step by step: above the log, above the floor, and only what is reserved."""

from __future__ import annotations

import random

from penstock.cluster.idfloor import NodeIds
from penstock.ids.guid import make, parse, tick_of
from penstock.limits import ID_RESERVE_TICKS, MS, SECOND

NOW_NS = 1_700_000_000 * SECOND
TICK = tick_of(NOW_NS)


def test_nothing_is_made_before_it_is_reserved() -> None:
    ids = NodeIds(3, 0)
    assert ids.take(1, NOW_NS) is None
    wanted = ids.wanted(NOW_NS)
    assert wanted == TICK + ID_RESERVE_TICKS
    ids.written(wanted)
    assert ids.take(1, NOW_NS) == make(TICK, 3, 0)
    assert ids.wanted(NOW_NS) is None


def test_a_refused_batch_uses_no_id() -> None:
    ids = NodeIds(3, 0)
    assert ids.take(10, NOW_NS) is None
    ids.written(TICK + 1)
    assert ids.take(1, NOW_NS) == make(TICK, 3, 0)


def test_a_replacement_with_a_slow_clock_begins_at_the_floor() -> None:
    floor = TICK + ID_RESERVE_TICKS
    ids = NodeIds(3, floor)
    assert ids.take(1, NOW_NS) is None  # its floor is where what was reserved ends
    ids.written(ids.wanted(NOW_NS) or 0)
    base_id = ids.take(1, NOW_NS)
    assert base_id is not None
    assert parse(base_id)[:3] == (floor, 3, 0)


def test_a_leader_goes_on_above_its_log() -> None:
    ids = NodeIds(3, 0)
    ids.written(TICK + ID_RESERVE_TICKS)
    last_id = make(TICK + 7, 5, 2)
    ids.lead(last_id)
    assert ids.take(1, NOW_NS) == make(TICK + 8, 3, 0)
    ids.lead(last_id)  # of another partition, below
    assert ids.take(1, NOW_NS) == make(TICK + 8, 3, 1)


def test_more_is_wanted_when_half_is_left() -> None:
    ids = NodeIds(3, 0)
    ids.written(TICK + ID_RESERVE_TICKS // 2)
    assert ids.wanted(NOW_NS) is None
    assert ids.wanted(NOW_NS + SECOND) is not None


class Nodes:
    """Three nodes with clocks of their own make the ids of three partitions, whose logs all have.
    What a node asks the coordinator to write comes later, or its answer is lost."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.now_ns = NOW_NS
        self.floors = [0] * 3
        self.clocks = [self.skew() for _ in range(3)]
        self.ids = [NodeIds(number, 0) for number in range(3)]
        self.leaders = [0, 1, 2]
        self.logs: list[list[int]] = [[], [], []]
        self.asked: list[tuple[int, NodeIds, int]] = []
        self.made: set[int] = set()

    def skew(self) -> int:
        return self.dice.randint(-60 * SECOND, 60 * SECOND)

    def wall_ns(self, number: int) -> int:
        return self.now_ns + self.clocks[number]

    def publish(self, partition: int) -> bool:
        number, log = self.leaders[partition], self.logs[partition]
        count = self.dice.randint(1, 3)
        base_id = self.ids[number].take(count, self.wall_ns(number))
        if base_id is None:
            return False
        ids = range(base_id, base_id + count)
        assert not log or base_id > log[-1], f"{base_id} follows {log[-1]}"
        assert self.made.isdisjoint(ids), f"node {number} makes {base_id} once more"
        self.made.update(ids)
        log.extend(ids)
        return True

    def step(self) -> None:
        number, partition = self.dice.randrange(3), self.dice.randrange(3)
        acts = ("publish", "pass", "ask", "write", "lose", "elect", "restart", "replace", "set")
        match self.dice.choices(acts, (30, 20, 10, 10, 1, 5, 2, 2, 2))[0]:
            case "publish":
                self.publish(partition)
            case "pass":
                self.now_ns += self.dice.choice((MS // 10, 2 * MS, 100 * MS, 2 * SECOND))
            case "ask":
                wanted = self.ids[number].wanted(self.wall_ns(number))
                if wanted is not None:
                    self.asked.append((number, self.ids[number], wanted))
            case "write" | "lose" as what if self.asked:
                number, ids, wanted = self.asked.pop(self.dice.randrange(len(self.asked)))
                if self.ids[number] is ids:  # a later start has moved the revision
                    self.floors[number] = max(self.floors[number], wanted)
                    if what == "write":
                        ids.written(wanted)
            case "elect":
                self.lead(partition, number)
            case "restart" | "replace" as what:
                if what == "replace":
                    self.clocks[number] = self.skew()
                self.ids[number] = NodeIds(number, self.floors[number])
                for led in [one for one, leader in enumerate(self.leaders) if leader == number]:
                    self.lead(led, self.dice.randrange(3))
            case "set":
                self.clocks[number] = self.skew()

    def lead(self, partition: int, number: int) -> None:
        self.leaders[partition] = number
        self.ids[number].lead(self.logs[partition][-1] if self.logs[partition] else 0)


def test_ids_rise_and_are_unique_over_clocks_failovers_and_replacements() -> None:
    for seed in range(500):
        nodes = Nodes(seed)
        for _ in range(150):
            nodes.step()
        for number, ids in enumerate(nodes.ids):
            ids.written(ids.wanted(nodes.wall_ns(number)) or 0)
        assert all(nodes.publish(partition) for partition in range(3)), f"seed {seed}"
