"""A disk that fills up: publishes are refused with a reason, the rest goes on, and space that
comes back is used."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from .daemon import Daemon
from .lookupd import eventually
from .v2client import Message, Refused, V2Client, mpub, pub

MIB = 1024 * 1024
TOPIC = "t"
CHANNEL = "ch"
TIMEOUT_MS = 60_000
BODY_BYTES = 64 * 1024
RECOVERY_S_MAX = 60.0  # the disk is looked at, and old segments are dropped, about once a second


class Ledger:
    """One publisher and one consumer that keep books."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.publisher: V2Client | None = None
        self.stored: set[bytes] = set()
        self.refused: set[bytes] = set()
        self.delivered: set[bytes] = set()
        self._numbers = itertools.count(1)
        daemon.make(TOPIC, CHANNEL)

    def close(self) -> None:
        if self.publisher is not None:
            self.publisher.close()
            self.publisher = None

    def publish(self, verb: str = "PUB", size: int = BODY_BYTES, count: int = 1) -> str:
        """ "" when it was stored, or the error's text."""
        number = next(self._numbers)
        bodies = [b"%d.%d " % (number, n) + os.urandom(size) for n in range(count)]
        if self.publisher is None:
            self.publisher = self.daemon.client()
        is_one = verb == "PUB"
        self.publisher.send(pub(TOPIC, bodies[0]) if is_one else mpub(TOPIC, bodies))
        try:
            self.publisher.ok()
        except Refused as error:
            self.close()  # it is fatal, as in NSQ
            self.refused.update(bodies)
            return str(error)
        self.stored.update(bodies)
        return ""

    def fill(self) -> str:
        """Publish until it is refused."""
        for _ in range(2000):
            refusal = self.publish()
            if refusal:
                return refusal
        raise AssertionError("the disk does not get full")

    def consume_all(self) -> list[Message]:
        with self.daemon.client() as consumer:
            consumer.sub(TOPIC, CHANNEL)
            consumer.rdy(100)
            got = consumer.drain(0.5)
        self.delivered |= {message.body for message in got}
        return got

    def crash(self) -> None:
        self.close()
        self.daemon.kill()
        self.daemon.start()

    def judge(self) -> None:
        assert self.stored <= self.delivered
        assert not self.refused & self.delivered


@pytest.fixture
def ballast(small_disk: Path) -> Path:
    """Ten megabytes that an operator can do without."""
    path = small_disk / "ballast"
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 10 * MIB)
    return path


@pytest.fixture
def unguarded(small_disk: Path, ballast: Path) -> Iterator[Ledger]:
    flags = (f"--msg-timeout={TIMEOUT_MS}ms", "--segment-bytes=1048576", "--min-disk-free=0")
    with Daemon(small_disk / "data", *flags, stderr=small_disk.parent / "stderr") as daemon:
        ledger = Ledger(daemon)
        try:
            yield ledger
        finally:
            ledger.close()


def test_a_full_disk_refuses_and_loses_nothing(unguarded: Ledger, ballast: Path) -> None:
    refusals = [unguarded.fill()]
    for size in (BODY_BYTES, 200_000, 30, 5000, BODY_BYTES):
        refusals.append(unguarded.publish(size=size))  # small ones may still fit
    refusals.append(unguarded.publish("MPUB", 50_000, 10))
    for refusal in filter(None, refusals):
        verb = refusal.split()[1]
        assert refusal.startswith(f"E_{verb}_FAILED {verb} failed ")
        assert "No space left on device" in refusal
    assert refusals[-1]
    status, answer = unguarded.daemon.http("POST", "/pub?topic=t", os.urandom(500_000))
    assert status == 503
    assert b"No space left on device" in answer
    assert unguarded.daemon.stats()["health"].startswith("NOK")

    unguarded.crash()
    assert unguarded.publish(size=500_000)
    assert len(unguarded.consume_all()) > 100
    ballast.unlink()
    eventually(lambda: not unguarded.publish(), RECOVERY_S_MAX)
    assert len(unguarded.consume_all()) == 1
    unguarded.crash()
    assert unguarded.consume_all() == []
    unguarded.judge()
    assert unguarded.daemon.stats()["health"] == "OK"
