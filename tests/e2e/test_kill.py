"""kill -9 in the middle of everything, and what must be true after it."""

import itertools
import random
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cases import fresh_seed, seeds
from penstock.wire.frames import Message, decode_message

from .daemon import Daemon
from .lookupd import eventually
from .v2client import ERROR, MESSAGE, Closed, V2Client, pub

TOPIC = "t"
HISTORIES = seeds(1, 5)  # of each durability
KILLS = len(seeds(3, 5))  # in one history
ENOUGH = 300  # messages that were acknowledged in a round, and deliveries
ROUND_S_MAX = 60.0  # on a loaded machine
TIMEOUT_MS = 700
RDY = 50
STYLES = ("one by one", "pipelined", "many", "delayed")


@dataclass
class Books:
    """What the clients of one history have said and heard."""

    round: int = 0
    numbers: Iterator[int] = field(default_factory=itertools.count)  # of publishes
    sent: dict[bytes, int] = field(default_factory=dict)  # body: the publish that it is part of
    many: set[int] = field(default_factory=set)  # publishes of which all or nothing is stored
    acked: list[list[bytes]] = field(default_factory=list)  # of each publisher, in its order
    owed: dict[str, set[bytes]] = field(default_factory=dict)  # to each channel
    got: dict[str, dict[bytes, bytes]] = field(default_factory=dict)  # to each channel: body, id
    finished: dict[str, dict[bytes, tuple[int, int]]] = field(default_factory=dict)
    came_again: list[str] = field(default_factory=list)

    def take(self, channel: str, message: Message) -> None:
        """What was confirmed as finished does not come again, be it in another life. An earlier
        attempt may have lain in a socket meanwhile."""
        self.got[channel][message.body] = message.id
        finished = self.finished[channel].get(message.body)
        if finished and (finished[0] < self.round or finished[1] < message.attempts):
            self.came_again.append(f"{channel}: came again: {message.body[:20]!r}")

    def broken(self) -> list[str]:
        wrong = list(self.came_again)
        for channel, got in self.got.items():
            wrong += [f"{channel}: lost: {b[:20]!r}" for b in self.owed[channel] - got.keys()]
            wrong += [f"{channel}: invented: {b[:20]!r}" for b in got.keys() - self.sent.keys()]
            whole = {number for body, number in self.sent.items() if body in got}
            wrong += [
                f"{channel}: half of it came: {body[:20]!r}"
                for body, number in self.sent.items()
                if number in whole & self.many and body not in got
            ]
            for acked in self.acked:
                ids = [got[body] for body in acked if body in got]
                pairs = itertools.pairwise(ids)
                wrong += [f"{channel}: {a!r} before {b!r}" for a, b in pairs if a >= b]
        return wrong


class Publisher(threading.Thread):
    """Publishes in its own way until nobody answers any more."""

    def __init__(self, books: Books, daemon: Daemon, style: str, seed: float) -> None:
        super().__init__(daemon=True)
        self.acked: list[bytes] = []
        books.acked.append(self.acked)
        self._books, self._daemon, self._style = books, daemon, style
        self._channels = list(books.owed)  # later ones are owed only what comes later
        self._rng = random.Random(seed)

    def run(self) -> None:
        with suppress(OSError, Closed), self._daemon.client() as client:
            while True:
                self._publish(client)
                time.sleep(0.002)

    def _publish(self, client: V2Client) -> None:
        bodies = [self._new_body() for _ in range(self._rng.randint(1, 40))]
        match self._style:
            case "many":
                self._send(bodies, many=True)
                client.mpub(TOPIC, bodies)
                self._note(*bodies)
            case "pipelined":
                self._send(bodies)
                client.send(b"".join(pub(TOPIC, body) for body in bodies))
                for body in bodies:
                    client.ok()
                    self._note(body)
            case "delayed":
                self._send(bodies[:1])
                client.dpub(TOPIC, self._rng.randint(1, 400), bodies[0])
                self._note(bodies[0])
            case _:
                self._send(bodies[:1])
                client.pub(TOPIC, bodies[0])
                self._note(bodies[0])

    def _new_body(self) -> bytes:
        """Mostly small, now and then as large as a batch of others."""
        size = self._rng.choice((0, 10, 100, 1000)) if self._rng.random() > 0.003 else 100_000
        return b"%016x" % self._rng.getrandbits(64) + self._rng.randbytes(size)

    def _send(self, bodies: list[bytes], many: bool = False) -> None:
        number = next(self._books.numbers)
        self._books.sent |= dict.fromkeys(bodies, number)
        if many:
            self._books.many.add(number)

    def _note(self, *bodies: bytes) -> None:
        self.acked += bodies
        for channel in self._channels:
            self._books.owed[channel].update(bodies)


class Consumer(threading.Thread):
    """Finishes most of what it gets, requeues some, lets some time out, and hangs up now and then,
    until nobody answers any more."""

    def __init__(self, books: Books, daemon: Daemon, channel: str, seed: float) -> None:
        super().__init__(daemon=True)
        self._books, self._daemon, self._channel = books, daemon, channel
        self._rng = random.Random(seed)

    def run(self) -> None:
        with suppress(OSError, Closed):
            while True:
                with self._daemon.client() as client:
                    client.sub(TOPIC, self._channel)
                    while self._rng.random() > 0.05:
                        self._work(client)

    def _work(self, client: V2Client) -> None:
        client.rdy(RDY)
        batch: dict[bytes, Message] = {}
        for _ in range(RDY):
            message = client.message(0.1)
            if message is None:
                break
            self._books.take(self._channel, message)
            batch[message.id] = message
        client.rdy(0)
        for message in list(batch.values()):
            dice = self._rng.random() if message.attempts < 3 else 1.0
            if dice < 0.06:
                del batch[message.id]
            if 0.02 < dice < 0.06:
                client.req(message.id, self._rng.choice((0, 1, 50, 200)))
        client.fin(*batch)
        self._confirm(client, batch)

    def _confirm(self, client: V2Client, batch: dict[bytes, Message]) -> None:
        """The first answer to a FIN of nobody's shows that a turn has seen those before it, the
        second that this turn is over, and its journal written. What had timed out is refused."""
        for number in (1, 2):
            nobody = b"%016x" % number
            client.fin(nobody)
            while (frame := client.frame()) is not None:
                if frame.type == MESSAGE:
                    self._books.take(self._channel, decode_message(frame.data))
                    continue
                assert frame.type == ERROR, frame
                refused = frame.data.split()[2]
                if refused == nobody:
                    break
                batch.pop(refused, None)
        for message in batch.values():
            finished = self._books.round, message.attempts
            self._books.finished[self._channel][message.body] = finished


def make_channel(books: Books, daemon: Daemon, name: str) -> None:
    daemon.make(TOPIC, name)
    books.owed[name], books.got[name], books.finished[name] = set(), {}, {}


def one_round(books: Books, daemon: Daemon, rng: random.Random) -> None:
    """Load until the kill, and until there was enough of it, which a loaded machine needs longer
    for. Sometimes the next start is killed too."""
    books.round += 1
    clients: list[threading.Thread] = [
        Publisher(books, daemon, style, rng.random()) for style in STYLES
    ]
    clients += [Consumer(books, daemon, name, rng.random()) for name in books.owed for _ in "ab"]
    before = [len(books.owed["first"]), len(books.finished["first"])]
    for client in clients:
        client.start()
    time.sleep(rng.uniform(0.08, 0.6))
    eventually(
        lambda: (
            len(books.owed["first"]) > before[0] + ENOUGH
            and len(books.finished["first"]) > before[1] + ENOUGH // 3
        ),
        ROUND_S_MAX,
    )
    daemon.kill()
    for client in clients:
        client.join(30)
        assert not client.is_alive()
    if rng.random() < 0.25:
        daemon.spawn()
        time.sleep(rng.uniform(0.05, 0.3))
        daemon.kill()
    daemon.start()


def counts(daemon: Daemon, channel: str) -> tuple[int, int, int]:
    row = daemon.channel_stats(TOPIC, channel)
    return row["depth"], row["in_flight_count"], row["deferred_count"]


def drain(books: Books, daemon: Daemon) -> None:
    """Finish all that is left; the daemon's own numbers say when that is done."""
    for channel in books.owed:
        with daemon.client() as client:
            client.identify(msg_timeout=60_000)  # a busy machine finishes them late
            client.sub(TOPIC, channel)
            client.rdy(500)
            while any(counts(daemon, channel)):
                for message in client.drain(0.1):
                    books.take(channel, message)


@pytest.mark.parametrize("number", HISTORIES)
@pytest.mark.parametrize("durability", ["disk", "os"])
def test_nothing_acknowledged_is_lost(tmp_path: Path, durability: str, number: int) -> None:
    seed = fresh_seed()
    print(f"PENSTOCK_TEST_SEED={seed}")  # shown when it fails
    rng = random.Random(f"{seed} {durability} {number}")
    books = Books()
    flags = (f"--msg-timeout={TIMEOUT_MS}ms", f"--durability={durability}")
    with Daemon(tmp_path / "data", *flags) as daemon:
        make_channel(books, daemon, "first")
        make_channel(books, daemon, "second")
        for kill in range(KILLS):
            one_round(books, daemon, rng)
            if kill == 1:
                make_channel(books, daemon, "third")  # it gets only what comes from now on
        books.round += 1
        drain(books, daemon)
        assert daemon.stop() == 0
    assert books.broken() == []


def test_the_check_finds_broken_promises() -> None:
    books = Books(2, sent={b"a": 1, b"b": 2, b"c": 2, b"d": 3}, many={2}, acked=[[b"d", b"a"]])
    books.owed["ch"], books.got["ch"], books.finished["ch"] = {b"a", b"d", b"e"}, {}, {}
    books.finished["ch"] = {b"a": (2, 1), b"d": (1, 1)}
    for id, body in enumerate((b"a", b"b", b"d", b"x")):
        books.take("ch", Message(0, 1, b"%d" % id, body))
    assert books.broken() == [
        "ch: came again: b'd'",
        "ch: lost: b'e'",
        "ch: invented: b'x'",
        "ch: half of it came: b'c'",
        "ch: b'2' before b'0'",
    ]
