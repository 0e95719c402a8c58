"""A broker on what a take-over made: who gets what."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from broker.world import World
from penstock.takeover.diskqueue import Record
from penstock.takeover.takeover import take_over_at_start
from sim.clock import FakeClock
from sim.disk import SimDisk

PATH = "/p"
Queues = Mapping[str, Sequence[Record]]


def open_world(disk: Any, path: str = PATH, **options: Any) -> World:
    world = World(Path(path), [], disk=disk, clock=FakeClock(), **options)
    world.broker.open(lambda: take_over_at_start(disk, path, world.options, world.clock))
    world.broker.validate()
    return world


def received(world: World, topic: str, channel: str) -> list[Record]:
    """All that the channel has, finished; attempts as they were before this delivery."""
    found = world.broker.find_topic(topic)
    found.set_paused(False)
    found.find_channel(channel).set_paused(False)
    consumer = world.consumer(topic, channel, rdy=2500)
    got: list[Record] = []
    while True:
        world.turn()
        some = list(_records(consumer.conn.take_output()))
        if not some:
            break
        got += some
        consumer.conn.feed(b"".join(b"FIN %016x\n" % one.id for one in some))
    world.turn()
    assert found.find_channel(channel).depth == 0
    consumer.leave()
    return got


def _records(data: bytes) -> Iterator[Record]:
    position = 0
    while position < len(data):
        size = int.from_bytes(data[position : position + 4], "big")
        frame = data[position + 8 : position + 4 + size]
        assert data[position + 4 : position + 8] == b"\0\0\0\2"
        yield Record(
            int.from_bytes(frame[:8], "big", signed=True),
            int.from_bytes(frame[8:10], "big") - 1,
            int(frame[10:26], 16),
            frame[26:],
        )
        position += 4 + size


def everything(world: World) -> dict[str, list[Record]]:
    """What each channel gets, sorted; a topic without channels is given one for that."""
    found: dict[str, list[Record]] = {}
    for topic in list(world.broker.topics.values()):
        channels = list(topic.channels)
        if not channels:
            topic.channel("first")
            found[topic.name] = sorted(received(world, topic.name, "first"))
        for channel in channels:
            found[f"{topic.name}:{channel}"] = sorted(received(world, topic.name, channel))
    return found


def served(disk: Any, path: str = PATH, **options: Any) -> dict[str, list[Record]]:
    """The same, by a broker that is opened for that."""
    world = open_world(disk, path, **options)
    found = everything(world)
    world.close()
    return found


def expected(queues: Queues) -> dict[str, list[Record]]:
    """The same by the rules: what a topic holds goes to all its channels."""
    topics = {name.partition(":")[0] for name in queues}
    found: dict[str, list[Record]] = {}
    for topic in topics:
        own = queues.get(topic, ())
        channels = [name for name in queues if name.startswith(f"{topic}:")]
        if not channels:
            found[topic] = sorted(own)
        for name in channels:
            found[name] = sorted([*queues[name], *own])
    return found


def tree(disk: SimDisk, path: str = "/") -> dict[str, bytes]:
    """Every file below `path`."""
    found: dict[str, bytes] = {}
    for name in disk.listdir(path):
        inner = f"{path.rstrip('/')}/{name}"
        found |= tree(disk, inner) if disk.is_directory(inner) else {inner: disk.content(inner)}
    return found
