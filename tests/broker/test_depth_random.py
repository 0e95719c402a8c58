"""The bound under random traffic: never exceeded, and never refusing while there is room."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from penstock import limits
from penstock.errors import Refused
from penstock.kernel import Event

from .faults import FaultyDisk
from .world import Consumer, Outcome, World

Start = Callable[..., World]
SECOND = limits.SECOND
LIMIT = 12
STEPS = 120
CHANNELS = ("a", "b", "tail#ephemeral")


class Traffic:
    def __init__(self, world: World, disk: FaultyDisk, dice: random.Random) -> None:
        self.world = world
        self.disk = disk
        self.dice = dice
        self.topic = world.broker.topic("t")
        self.consumers: list[Consumer] = []
        self.publishers = [self.connect() for _ in range(3)]
        self.accepted = 0
        self.refused = 0

    def connect(self) -> Any:
        conn = self.world.engine.open_detached()
        conn.feed(b"  V2")
        return conn

    # --- steps ---

    def publish(self) -> None:
        conn = self.dice.choice(self.publishers)
        for _ in range(self.dice.randrange(1, 8)):
            count = self.dice.randrange(1, 4)
            if count == 1:
                conn.feed(b"PUB t\n\0\0\0\1x")
            else:
                body = count.to_bytes(4, "big") + b"\0\0\0\1x" * count
                conn.feed(b"MPUB t\n" + len(body).to_bytes(4, "big") + body)

    def publish_by_http(self) -> None:
        delay_ns = self.dice.choice([0, 0, 2 * SECOND])
        due_ns = self.world.clock.wall_ns() + delay_ns if delay_ns else 0
        try:
            self.topic.publish([b"x"] * self.dice.randrange(1, 5), due_ns, Outcome())
        except Refused:
            self.refused += 1

    def consume(self) -> None:
        if len(self.consumers) < 3:
            name = self.dice.choice(CHANNELS)
            self.consumers.append(self.world.consumer("t", name, rdy=self.dice.randrange(1, 9)))
        else:
            self.consumers.pop(0).leave()

    def answer(self) -> None:
        for consumer in self.consumers:
            for message in consumer.take():
                kind = self.dice.randrange(4)
                if kind < 2:
                    consumer.finish(message)
                elif kind == 2:
                    consumer.requeue(message, self.dice.choice([0, SECOND]))

    def pass_time(self) -> None:
        self.world.clock.pass_ns(self.dice.choice([SECOND, 61 * SECOND]))

    def hold_syncs(self) -> None:
        threads = self.world.threads
        threads.held = not threads.held
        if not threads.held:
            threads.run()

    def fail_writes(self) -> None:
        self.disk.fail.add(("write", ".log"))
        self.turn()
        self.disk.fail.clear()

    def operate(self) -> None:
        topic = self.topic
        act = self.dice.choice(
            [topic.pause, topic.unpause, topic.unpause, topic.empty, self.delete_channel]
        )
        act()

    def delete_channel(self) -> None:
        free = [channel for channel in self.topic.channels.values() if not channel.consumers]
        if free:
            self.topic.delete_channel(self.dice.choice(free).name)

    # --- the world ---

    def turn(self) -> None:
        self.world.turn()
        events, self.world.events = self.world.events, []
        for event in events:
            conn = event[1]
            if event[0] == Event.REFUSED and not self.topic.refusal_of(event[4]):
                conn.resume()
            elif event[0] in (Event.REFUSED, Event.PUB_FAILED):
                self.refused += 1
                self.accepted += conn.take_output().count(b"OK")  # those that came before it
                conn.close()
                self.publishers[self.publishers.index(conn)] = self.connect()
        for conn in self.publishers:
            self.accepted += conn.take_output().count(b"OK")

    def check(self) -> None:
        assert self.topic.depth_bound.depth <= LIMIT
        assert self.topic.leader().tail.append_end_max > 0

    def check_room(self) -> None:
        """When all is quiet, exactly as many fit as the depth says."""
        self.world.threads.held = False
        self.world.threads.run()
        for _ in range(5):
            self.turn()
        for channel in self.topic.channels.values():
            channel.pause()
        room = LIMIT - self.topic.depth_bound.depth
        conn = self.publishers[0] = self.connect()
        conn.feed(b"PUB t\n\0\0\0\1x" * (room + 1))
        before = (self.accepted, self.refused)
        for _ in range(5):
            self.turn()
        assert (self.accepted - before[0], self.refused - before[1]) == (room, 1)
        assert self.topic.depth_bound.depth == LIMIT


WEIGHTS = {
    Traffic.publish: 8,
    Traffic.publish_by_http: 5,
    Traffic.consume: 3,
    Traffic.answer: 8,
    Traffic.pass_time: 3,
    Traffic.hold_syncs: 2,
    Traffic.fail_writes: 1,
    Traffic.operate: 2,
}


@pytest.mark.parametrize("fixed_seed", [*range(8), None])
def test_random_traffic(
    start: Start, fixed_seed: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None: a seed that no run had before. It is printed, and shown when the test fails."""
    seed = random.SystemRandom().getrandbits(32) if fixed_seed is None else fixed_seed
    print(f"seed {seed}")
    dice = random.Random(seed)
    monkeypatch.setattr(limits, "BATCH_BYTES_MAX", dice.choice([2, 1 << 20]))
    disk = FaultyDisk()
    options = {"durability": dice.choice(["disk", "os"]), "mem_queue_size": 5}
    traffic = Traffic(start(disk=disk, max_depth=LIMIT, **options), disk, dice)
    for _ in range(STEPS):
        (act,) = dice.choices(list(WEIGHTS), list(WEIGHTS.values()))
        act(traffic)
        for _ in range(3):
            traffic.check()
            traffic.turn()
    assert traffic.accepted, f"seed {seed}"
    assert traffic.refused, f"seed {seed}"
    traffic.topic.unpause()
    traffic.topic.channel("a")
    traffic.check_room()
