"""Timers are exact.

A timeout comes no earlier than it is due, and no more than 10 ms later, however many messages are
in flight and however they were touched.
"""

import random
from pathlib import Path

from penstock import kernel, limits
from penstock.nsqd.options import read_options
from penstock.wire.frames import Message, encode_bodies, with_size

from .in_process import Client, World

MS = limits.MS
SECOND = limits.SECOND
LATE_NS_MAX = 10 * MS
RDY = limits.RDY_COUNT_MAX
TOUCHED_SHARE = 20  # one message in so many is touched at a moment of its own


class Holder:
    """Takes its share of messages and keeps them, each until its deadline."""

    def __init__(self, world: World, timeout_ms: int, rdy: int) -> None:
        self.world = world
        self.timeout_ns = timeout_ms * MS
        self.due_ns: dict[bytes, int] = {}
        self.client: Client = world.connect()
        self.client.on_message = self.take
        text = with_size(b'{"msg_timeout":%d}' % timeout_ms)
        world.say(self.client, b"IDENTIFY\n" + text + b"SUB t c\nRDY %d\n" % rdy)

    def take(self, message: Message) -> None:
        self.due_ns[message.id] = self.world.clock.mono_ns() + self.timeout_ns

    def touch(self, message_id: bytes) -> None:
        self.world.say(self.client, b"TOUCH %s\n" % message_id)
        self.due_ns[message_id] = self.world.clock.mono_ns() + self.timeout_ns


class Catcher:
    """Gets each message the instant it has timed out, and finishes it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.fired_ns: dict[bytes, int] = {}
        self.client: Client = world.connect()
        self.client.on_message = self.take
        world.say(self.client, b"SUB t c\nRDY %d\n" % RDY)

    def take(self, message: Message) -> None:
        assert message.attempts == 2
        self.fired_ns[message.id] = self.world.clock.mono_ns()
        self.client.conn.feed(b"FIN %s\n" % message.id)
        self.world.turn.soon()


def test_each_of_many_timeouts_fires_when_it_is_due(tmp_path: Path) -> None:
    count = 100_000
    chance = random.Random(count)
    world = World(tmp_path / "data", kernel, read_options(["-data-path=."], {}))
    world.validates = False
    holders = [
        Holder(world, chance.randrange(1_000, 4_000), min(RDY, count // 40)) for _ in range(40)
    ]
    producer = world.connect()
    for _ in range(40):
        bodies = encode_bodies([b"x"] * (count // 40))
        world.say(producer, b"MPUB t\n" + with_size(bodies))
    world.pass_ns(5 * MS)  # small refills of a large RDY may wait that long
    assert sum(len(holder.due_ns) for holder in holders) == count
    for holder in holders:
        world.say(holder.client, b"RDY 0\n")
    catcher = Catcher(world)
    for _ in range(50):  # touches, spread over half a second
        world.pass_ns(chance.randrange(20 * MS))
        for _ in range(count // TOUCHED_SHARE // 50):
            holder = chance.choice(holders)
            holder.touch(chance.choice(list(holder.due_ns)))
    world.pass_ns(6 * SECOND)
    world.stop()
    due_ns = {id: due for holder in holders for id, due in holder.due_ns.items()}
    assert catcher.fired_ns.keys() == due_ns.keys()
    late_ns = [catcher.fired_ns[id] - due for id, due in due_ns.items()]
    assert min(late_ns) >= 0
    assert max(late_ns) <= LATE_NS_MAX
