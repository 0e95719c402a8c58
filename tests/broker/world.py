"""A broker without a daemon: the daemon's turn, a clock that stands still, sync jobs that end when
the test says so, and consumers on connections without sockets."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from penstock import limits
from penstock.broker.broker import Broker
from penstock.broker.channel import Channel
from penstock.broker.options import BrokerOptions
from penstock.errors import PenstockError
from penstock.log.disk import OsDisk
from penstock.net.order import NEVER_NS, TurnOrder
from penstock.sim.clock import FakeClock
from penstock.sim.threads import Threads

MESSAGE_TIMEOUT_NS = 60 * limits.SECOND
TURNS_MAX = 100  # at one instant


class Message(NamedTuple):
    id: bytes
    attempts: int
    body: bytes


def bodies(given: list[Message]) -> list[bytes]:
    return [message.body for message in given]


class Consumer:
    """A V2 connection, subscribed."""

    def __init__(self, world: World, channel: Channel, rdy: int) -> None:
        self._world = world
        self.channel = channel
        self.conn = world.engine.open_detached()
        self.conn.timeout_ns = MESSAGE_TIMEOUT_NS
        self.conn.feed(b"  V2")
        channel.subscribe(self.conn)
        self.received: list[Message] = []
        self.errors: list[bytes] = []
        self.ready(rdy)

    def ready(self, rdy: int) -> None:
        self._world.turn()
        self.conn.rdy = rdy
        self._world.turn()

    def take(self) -> list[Message]:
        """What has come since the last call."""
        self._world.turn()
        taken = list(messages(self.conn.take_output()))
        self.received += taken
        return taken

    def finish(self, *given: Message) -> None:
        self.conn.feed(b"".join(b"FIN " + message.id + b"\n" for message in given))
        self._world.turn()

    def requeue(self, message: Message, delay_ns: int = 0) -> None:
        id, wall_ns = int(message.id, 16), self._world.clock.wall_ns()
        window = self.conn.find(id)
        if window is not None:  # else it has timed out, and a real client gets an error
            window.requeue(self.conn.serial, id, delay_ns, wall_ns)
        self._world.turn()

    def leave(self) -> None:
        self.channel.leave(self.conn)
        self.conn.close()
        self._world.turn()


def messages(data: bytes) -> Iterator[Message]:
    position = 0
    while position < len(data):
        size = int.from_bytes(data[position : position + 4], "big")
        kind = int.from_bytes(data[position + 4 : position + 8], "big")
        frame = data[position + 8 : position + 4 + size]
        if kind == 2:
            yield Message(frame[10:26], int.from_bytes(frame[8:10], "big"), frame[26:])
        position += 4 + size


LIVE: list[World] = []  # of the present test: each engine has descriptors


class World:
    def __init__(
        self,
        path: Path,
        kernel: SimpleNamespace,
        family: list[World],
        disk: Any = None,
        clock: FakeClock | None = None,
        threads: Threads | None = None,
        **options: Any,
    ) -> None:
        self.path = path
        self.kernel = kernel
        self.family = family
        self.closed = False
        self.trace_due = True  # events are stored in every turn
        self.disk = disk if disk is not None else OsDisk()
        self.clock = clock or FakeClock()
        self.options = BrokerOptions(**{"disk_free_bytes_min": 0, **options})
        self.threads = threads or Threads()
        self.engine = kernel.Engine(1 << 20, 5 << 20, 2500)
        LIVE.append(self)
        self.broker = Broker(self.engine, self.disk, path, self.options, self.clock, self.threads)
        self.events: list[tuple[Any, ...]] = []  # other than NEED
        self.order = TurnOrder(
            self.engine,
            self.broker,
            NoLinks(),
            self.clock,
            self.threads.done,
            self._handle,
        )
        self.changes: list[tuple[str, str, str]] = []
        self.broker.on_topic_changed.append(
            lambda change, topic, channel: self.changes.append(
                (change.name, topic.name, channel.name if channel else "")
            )
        )

    @classmethod
    def start(
        cls, path: Path, kernel: SimpleNamespace, family: list[World], **options: Any
    ) -> World:
        world = cls(path, kernel, family, **options)
        world.broker.open()
        family.append(world)
        world.broker.validate()
        return world

    def _handle(self, event: tuple[Any, ...]) -> None:
        self.events.append(event)

    def turn(self) -> None:
        """The daemon's, until it has nothing more to do at this instant."""
        self.threads.between_turns()
        for _ in range(TURNS_MAX):
            self.order.trace_due_ns = 0 if self.trace_due else NEVER_NS
            more, _ = self.order.tick()
            if not more:
                break
        else:
            raise AssertionError("a turn that does not end")
        self.broker.validate()

    def turns(self) -> None:
        """Until what was submitted is through."""
        self.turn()
        self.turn()

    def pass_ns(self, ns: int) -> None:
        """Time goes by, and the second's housekeeping with it."""
        self.clock.pass_ns(ns)
        self.turn()
        self.broker.housekeeping()
        while self.broker.search():
            self.turn()
        self.turn()

    def publish(self, topic: str, *bodies: bytes, due_ns: int = 0) -> Outcome:
        outcome = Outcome()
        self.broker.topic(topic).publish(list(bodies), due_ns, outcome)
        self.turns()
        return outcome

    def consumer(self, topic: str, channel: str, rdy: int = 100) -> Consumer:
        return Consumer(self, self.broker.topic(topic).channel(channel), rdy)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.broker.close()
            self.engine.close()

    def restart(self, **options: Any) -> World:
        """An orderly stop and a start."""
        self.close()
        return self._again(self.path, options)

    def killed(self, **options: Any) -> World:
        """A start on what the files hold at this instant, as after kill -9."""
        image = self.path.with_name(self.path.name + "+")
        shutil.copytree(self.path, image)
        self.close()
        return self._again(image, options)

    def _again(self, path: Path, options: dict[str, Any]) -> World:
        chosen = {name: getattr(self.options, name) for name in self.options.__slots__}
        return World.start(
            path,
            self.kernel,
            self.family,
            disk=self.disk,
            clock=self.clock,
            **{**chosen, **options},
        )


class NoLinks:
    """Consumers take their output themselves."""

    def __init__(self) -> None:
        self.again: dict[Any, None] = {}

    def serve(self, conns: list[Any]) -> None:
        pass


class Outcome:
    """What a publisher is told, once."""

    def __init__(self) -> None:
        self.told: list[PenstockError | None] = []

    def __call__(self, error: PenstockError | None) -> None:
        self.told.append(error)

    @property
    def stored(self) -> bool:
        return self.told == [None]
