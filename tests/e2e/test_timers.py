"""Timers are exact.

A timeout comes no earlier than it is due, and no more than 10 ms later, however many messages are
in flight and however they were touched.
"""

from __future__ import annotations

import random
import statistics
import time
from pathlib import Path

from penstock import kernel, limits
from penstock.nsqd.options import read_options
from penstock.wire.frames import Message, encode_bodies, with_size

from .daemon import Daemon, starved_s
from .in_process import Client, World
from .v2client import V2Client

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


HELD = 40 * RDY
PROBES = 200
PROBE_TIMEOUT_MS = 2_000
TRIES = 10  # others may use the machine in some of them
HEARTBEAT_S = 60
TRIES_S_MAX = 1.5 * HEARTBEAT_S


def hold(daemon: Daemon) -> V2Client:
    """A consumer that keeps what it gets, for longer than the test lasts. It reads nothing: what is
    sent to it fits its socket's buffer, and after two heartbeats it is hung up on."""
    client = daemon.client()
    client.identify(msg_timeout=900_000, heartbeat_interval=HEARTBEAT_S * 1_000)
    client.sub("timers", "c")
    client.rdy(RDY)
    return client


def round_trip_s(client: V2Client) -> float:
    started_s = time.monotonic()
    client.fin(b"0" * 16)
    client.error()
    return time.monotonic() - started_s


def wait_for_in_flight(daemon: Daemon, count: int) -> None:
    deadline_s = time.monotonic() + 60
    while daemon.channel_stats("timers", "c")["in_flight_count"] < count:
        assert time.monotonic() < deadline_s, daemon.channel_stats("timers", "c")
        time.sleep(0.05)


def touched_and_caught(probe: V2Client, ids: list[bytes]) -> list[float]:
    """Touch each message at a moment of its own; how late each came again, in seconds."""
    chance = random.Random(PROBES)
    start_s = time.monotonic()
    plan = sorted((start_s + chance.uniform(0, 0.7), message_id) for message_id in ids)
    due_s: dict[bytes, float] = {}
    late_s: list[float] = []
    for at_s, message_id in plan:
        time.sleep(max(0.0, at_s - time.monotonic()))
        due_s[message_id] = time.monotonic() + PROBE_TIMEOUT_MS / 1_000
        probe.touch(message_id)
    while len(late_s) < len(ids):
        message = probe.message()
        assert message is not None
        assert message.attempts == 2
        late_s.append(time.monotonic() - due_s[message.id])
        probe.fin(message.id)
    return late_s


def test_timeouts_are_seen_in_time_beside_a_hundred_thousand_in_flight(tmp_path: Path) -> None:
    with Daemon(tmp_path / "data") as daemon:
        patience_s = time.monotonic() + TRIES_S_MAX
        holders = [hold(daemon) for _ in range(40)]
        with daemon.client() as producer:
            for _ in range(HELD // 2_500):
                producer.mpub("timers", [b"x"] * 2_500)
            wait_for_in_flight(daemon, HELD)
            with daemon.client() as probe, daemon.client() as noise:
                probe.identify(msg_timeout=PROBE_TIMEOUT_MS)
                probe.sub("timers", "c")
                probe.rdy(PROBES)
                noise.sub("noise", "c")
                told = ""
                for _ in range(TRIES):
                    producer.mpub("timers", [b"probe"] * PROBES)
                    ids = [message.id for message in probe.messages(PROBES)]
                    before_s = waited_s(daemon)
                    late_s = touched_and_caught(probe, ids)
                    noise_s = max(round_trip_s(noise) for _ in range(300))
                    told = what_is_wrong(late_s, noise_s + waited_s(daemon) - before_s)
                    if not told or time.monotonic() > patience_s:
                        break
        for holder in holders:
            holder.close()
    assert not told


def waited_s(daemon: Daemon) -> float:
    """For a processor: the daemon and this thread. It is the machine's doing."""
    return starved_s(str(daemon.pid)) + starved_s("thread-self")


def what_is_wrong(late_s: list[float], noise_s: float) -> str:
    """Where nothing else runs, nothing is, at the first try."""
    if min(late_s) < -0.001:  # a turn of the daemon reads the clock before it reads sockets
        return f"{-min(late_s) * 1e3:.1f} ms too early"
    p99_s = statistics.quantiles(late_s, n=100)[98]
    if p99_s > 0.010 + noise_s:
        return f"p99 {p99_s * 1e3:.1f} ms late, noise {noise_s * 1e3:.2f} ms"
    return ""
