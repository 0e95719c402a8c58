"""Power losses of the real daemon: its system calls are recorded, and played up to any of them onto
a disk that loses, tears and reorders what was not synced. A daemon starts on what is left.

What has to be there is what its clients had been told by then, with durability `disk`: the trace's
size when an answer came says which calls were before it.
"""

import itertools
import json
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest

from cases import fresh_seed
from penstock.kernel import encode_batch

from .daemon import Daemon
from .syscalls import ROOT, LosesAll, Trace, compile_library, write_out
from .v2client import V2Client, pub

IMAGES = int(os.environ.get("PENSTOCK_TEST_ROUNDS", "20"))
STEPS = 60
STEPS_MAX = 1000
STEP_S = 0.03  # retention acts about once a second, the journal is synced every two
KEPT, WORKED = "kept", "worked"  # topics: nobody consumes the first, all of the second is consumed
CHANNEL = "ch"
FLAGS = ("--msg-timeout=60s", "--segment-bytes=65536", "--retain-bytes=0", "--retain-age=1h")
QUIET_S = 0.1
SYNC_WAIT_S = 3.0
SYNC_ROUNDS = 10  # it may be synced between the finish and the look at it


class Span(NamedTuple):
    """Sizes of the trace: when something was asked for, and when the answer had come."""

    begun: int
    ended: int


@dataclass
class Books:
    published: dict[str, dict[bytes, Span]] = field(default_factory=lambda: {KEPT: {}, WORKED: {}})
    finished: dict[bytes, Span] = field(default_factory=dict)
    topics: dict[str, Span] = field(default_factory=dict)
    deleted: dict[str, Span] = field(default_factory=dict)


class Clients:
    def __init__(self, daemon: Daemon, trace: Path, rng: random.Random) -> None:
        self.books = Books()
        self._daemon = daemon
        self._trace = trace
        self._rng = rng
        self._numbers = itertools.count(1)

    def _size(self) -> int:
        return self._trace.stat().st_size

    def _span(self, act: Callable[[], object]) -> Span:
        begun = self._size()
        act()
        return Span(begun, self._size())

    def run(self) -> None:
        for topic in (KEPT, WORKED):
            self._make(topic)
        with self._daemon.client() as publisher, self._daemon.client() as consumer:
            consumer.sub(WORKED, CHANNEL)
            consumer.rdy(500)
            for step in itertools.count():
                if step >= STEPS and self._trace.read_bytes().count(b"/spare-0.log") > 1:
                    break  # a segment became a spare, and the spare a segment
                assert step < STEPS_MAX, "no segment was recycled"
                time.sleep(STEP_S)
                self._publish(publisher, self._rng.choice((KEPT, WORKED, WORKED)))
                if step % 5 == 0:
                    self._consume(consumer)
                if step % 12 == 0:
                    self._commit(step)
                    self._make(f"extra{step}")
                if step % 24 == 6:
                    name = f"extra{step - 6}"
                    ask = f"/topic/delete?topic={name}"
                    self.books.deleted[name] = self._span(lambda ask=ask: self._daemon.post(ask))

            self._finish_one_for_good(publisher, consumer)

    def _finish_one_for_good(self, publisher: V2Client, consumer: V2Client) -> None:
        """A message that is still in the log at the end, and whose finish was synced."""
        for _ in range(SYNC_ROUNDS):
            self._publish(publisher, WORKED)
            self._consume(consumer)
            finished = len(self._recorded().calls)
            deadline_s = time.monotonic() + SYNC_WAIT_S
            while time.monotonic() < deadline_s:
                trace = self._recorded()
                syncs = trace.syncs(f"/{WORKED}/0/channels.", len(trace.calls))
                if any(sync >= finished for sync in syncs):
                    return
                time.sleep(STEP_S)
        raise AssertionError("the journal is not synced")

    def _recorded(self) -> Trace:
        return Trace(self._trace.read_bytes(), self._daemon.data_path)

    def _make(self, topic: str) -> None:
        def make() -> None:
            self._daemon.make(topic, CHANNEL)

        self.books.topics[topic] = self._span(make)

    def _bodies(self, count: int) -> list[bytes]:
        size = self._rng.choice((10, 100, 5000, 20000))
        return [b"%d " % next(self._numbers) + self._rng.randbytes(size) for _ in range(count)]

    def _publish(self, publisher: V2Client, topic: str) -> None:
        """Some in one, or several before the first answer."""
        bodies = self._bodies(self._rng.randint(1, 12))
        if self._rng.random() < 0.5:
            span = self._span(lambda: publisher.mpub(topic, bodies))
            self.books.published[topic] |= dict.fromkeys(bodies, span)
            return
        begun = self._size()
        publisher.send(b"".join(pub(topic, body) for body in bodies))
        for body in bodies:
            publisher.ok()
            self.books.published[topic][body] = Span(begun, self._size())

    def _consume(self, consumer: V2Client) -> None:
        begun = self._size()
        messages = consumer.drain(QUIET_S)
        span = Span(begun, self._size())
        self.books.finished |= {message.body: span for message in messages}

    def _commit(self, version: int) -> None:
        bodies = self._bodies(5)
        batch = encode_batch(bodies, 0, 0, 0)
        stages = [{"topic": KEPT, "partition": 0, "stage": f"s{version}"}]
        body = json.dumps({"stages": stages}).encode()

        def commit() -> None:
            self._daemon.post(f"/stage?topic={KEPT}&stage=s{version}", batch)
            self._daemon.post(f"/stage/commit?app=app&version={version}", body)

        self.books.published[KEPT] |= dict.fromkeys(bodies, self._span(commit))


class Found(NamedTuple):
    ping: tuple[int, bytes]
    topics: set[str]
    bodies: dict[str, set[bytes]]


def look(daemon: Daemon) -> Found:
    """All that it has, and that it takes more."""
    ping = daemon.http("GET", "/ping")
    topics = {row["topic_name"] for row in daemon.stats()["topics"]}
    bodies = {}
    for topic in (KEPT, WORKED):
        if topic in topics:
            with daemon.client() as client:
                client.sub(topic, CHANNEL)
                client.rdy(2500)
                bodies[topic] = {message.body for message in client.drain(QUIET_S)}
                client.pub(topic, b"after it")
                assert client.messages(1)[0].body == b"after it"
    return Found(ping, topics, bodies)


def breaches(found: Found, books: Books, trace: Trace, cut: int) -> list[str]:
    """What was promised by the first `cut` calls, and is not so."""

    def known(span: Span) -> bool:
        return trace.number_of(span.ended) <= cut

    def begun(span: Span) -> bool:
        return trace.number_of(span.begun) < cut

    wrong = []
    if found.ping != (200, b"OK"):
        wrong.append(f"/ping: {found.ping}")
    wrong += [
        f"topic {name} is lost"
        for name, span in books.topics.items()
        if known(span)
        and name not in found.topics
        and not (name in books.deleted and begun(books.deleted[name]))
    ]
    wrong += [
        f"topic {name} is back"
        for name, span in books.deleted.items()
        if known(span) and name in found.topics
    ]
    journal_syncs = trace.syncs(f"/{WORKED}/0/channels.", cut)
    for topic, got in found.bodies.items():
        published = books.published[topic]
        for body in got:
            if body not in published or not begun(published[body]):
                wrong.append(f"{topic}: never published: {body[:20]!r}")
        for body, span in published.items():
            finishing = books.finished.get(body) if topic == WORKED else None
            if known(span) and body not in got and not (finishing and begun(finishing)):
                wrong.append(f"{topic}: acknowledged and lost: {body[:20]!r}")
            if finishing and body in got:
                confirmed = trace.number_of(finishing.ended)
                if any(sync >= confirmed for sync in journal_syncs):
                    wrong.append(f"{topic}: its finish was synced: {body[:20]!r}")
    return wrong


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_library(tmp_path_factory.mktemp("syscalls"))


def record(library: Path, tmp_path: Path, rng: random.Random) -> tuple[Trace, Books]:
    data_path, trace = tmp_path / "data", tmp_path / "trace"
    environment = {
        "LD_PRELOAD": str(library),
        "SYSCALLS_ROOT": str(data_path),
        "SYSCALLS_TRACE": str(trace),
    }
    with Daemon(data_path, *FLAGS, environment=environment) as daemon:
        clients = Clients(daemon, trace, rng)
        clients.run()
    found = Trace(trace.read_bytes(), data_path)
    write_out(found.disk_at(len(found.calls)), ROOT, tmp_path / "played")
    assert contents(tmp_path / "played") == contents(data_path)  # nothing was done unseen
    return found, clients.books


def contents(directory: Path) -> dict[Path, bytes]:
    files = [path for path in directory.rglob("*") if path.is_file()]
    return {path.relative_to(directory): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def recorded(library: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Trace, Books]:
    return record(library, tmp_path_factory.mktemp("recorded"), random.Random(fresh_seed()))


def test_power_losses_at_any_system_call(recorded: tuple[Trace, Books], tmp_path: Path) -> None:
    seed = fresh_seed()
    print(f"PENSTOCK_TEST_SEED={seed}")  # shown when it fails
    rng = random.Random(seed)
    trace, books = recorded
    assert trace.syncs(f"/{WORKED}/0/channels.", len(trace.calls))
    for number in range(IMAGES):
        cut = rng.randint(0, len(trace.calls))
        print(f"image {number}: power lost after {cut} of {len(trace.calls)} calls")
        with started_after(trace, cut, rng, tmp_path / f"image{number}") as daemon:
            wrong = breaches(look(daemon), books, trace, cut)
        assert not wrong, wrong


def started_after(trace: Trace, cut: int, rng: random.Random, image: Path) -> Daemon:
    trace.image(cut, rng, image)
    return Daemon(image, *FLAGS)


# --- that a breach is found ---


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (".log", "acknowledged and lost"),
        ("topic.json", "/ping"),
        ("channels.", "its finish was synced"),
    ],
)
def test_a_daemon_that_does_not_sync_is_found(
    recorded: tuple[Trace, Books], tmp_path: Path, part: str, text: str
) -> None:
    trace, books = recorded
    cut = len(trace.calls)
    with trace.without_syncs(part):
        daemon = started_after(trace, cut, LosesAll(), tmp_path / "image")
    with daemon:
        wrong = breaches(look(daemon), books, trace, cut)
    assert any(text in one for one in wrong), wrong


def test_the_check_finds_unexpected_files() -> None:
    trace = Trace(b"", Path("/data"))
    now = Span(0, 0)
    books = Books(topics={"made": now}, deleted={"gone": now})
    found = Found((200, b"OK"), {"gone"}, {KEPT: {b"strange"}})
    assert breaches(found, books, trace, 1) == [
        "topic made is lost",
        "topic gone is back",
        "kept: never published: b'strange'",
    ]
