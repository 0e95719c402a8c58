"""Clients of a broker without a daemon: consumers on connections without sockets, and what a
publisher was answered."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from penstock import limits
from penstock.broker.channels.channel import Channel
from penstock.clock import Clock
from penstock.errors import PenstockError
from penstock.kernel import Engine

MESSAGE_TIMEOUT_NS = 60 * limits.SECOND


class Turning(Protocol):
    """What a consumer needs of its broker's process."""

    engine: Engine

    @property
    def clock(self) -> Clock: ...

    def turn(self) -> None: ...


class Message(NamedTuple):
    id: bytes
    attempts: int
    body: bytes


def bodies(given: list[Message]) -> list[bytes]:
    return [message.body for message in given]


class Consumer:
    """A V2 connection, subscribed."""

    def __init__(
        self, world: Turning, channel: Channel, rdy: int, timeout_ns: int = MESSAGE_TIMEOUT_NS
    ) -> None:
        self._world = world
        self.channel = channel
        self.conn = world.engine.open_detached()
        self.conn.timeout_ns = timeout_ns
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


class Outcome:
    """The answer that a publisher gets, once."""

    def __init__(self) -> None:
        self.answers: list[PenstockError | None] = []

    def __call__(self, error: PenstockError | None) -> None:
        self.answers.append(error)

    @property
    def stored(self) -> bool:
        return self.answers == [None]
