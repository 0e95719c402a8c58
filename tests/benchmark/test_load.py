"""The generator counts what a daemon really did, and fails loudly when it did something else."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from bench.daemon import Contender, Daemon
from bench.dialect import Dialect
from bench.load import Load, LoadFailed
from bench.passes import Publishers, join_consumer
from bench.scenarios import BY_NAME, Plan

Fake = Callable[[str], Contender]
PLAN = Plan(body_bytes=100, quick=True, restart_mb=1)
E2E = replace(BY_NAME["e2e"], channels=1)
COUNT = 40_000
HOW = Publishers("t", COUNT, batch=200, window=8, stamped=True)


def loaded(stack: ExitStack, dialect: Dialect, how: Publishers, channels: int) -> Load:
    load = Load()
    names = [f"c{number}" for number in range(channels)]
    dialect.prepare(how.topic, names)
    for name in names:
        join_consumer(load, stack, dialect, E2E, PLAN, how.topic, name)
    how.join(load, stack, dialect, PLAN.body_bytes)
    return load


def test_every_message_is_published_acknowledged_and_received(fake: Fake, tmp_path: Path) -> None:
    with Daemon(fake(""), tmp_path / "data") as daemon, ExitStack() as stack:
        load = loaded(stack, daemon.dialect, HOW, channels=2)
        seconds = load.go(10.0, lag_max=6_000)
        assert load.acked == COUNT
        assert load.received == 2 * COUNT
        assert 0 < seconds < 10
        latencies = load.latencies()
        assert len(latencies) == 2 * COUNT  # each delivery carries the time it was sent
        assert 0 < min(latencies) <= max(latencies) < 10**10
        assert daemon.dialect.stored("t") == 0


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("error", "answered with an error: E_PUB_FAILED the disk is full"),
        ("close", "closed a connection"),
        ("twice", "delivered more than once"),
        ("lose", "nothing moves any more"),
        ("extra", "more answers than publishes"),
    ],
)
def test_a_misbehaving_daemon_fails_the_run(
    fake: Fake, tmp_path: Path, fault: str, reason: str
) -> None:
    with Daemon(fake(fault), tmp_path / "data") as daemon, ExitStack() as stack:
        load = loaded(stack, daemon.dialect, HOW, channels=1)
        with pytest.raises(LoadFailed, match=reason):
            load.go(10.0, lag_max=6_000, stall_seconds_max=0.5)


def test_publishing_stops_when_the_time_is_up(fake: Fake, tmp_path: Path) -> None:
    how = replace(HOW, count=1_000_000_000, batch=1, window=50)
    with Daemon(fake(""), tmp_path / "data") as daemon, ExitStack() as stack:
        load = loaded(stack, daemon.dialect, how, channels=1)
        seconds = load.go(0.3, lag_max=6_000)
        assert 0.25 < seconds < 5
        assert 0 < load.acked == load.received < how.count


def test_a_pace_is_kept(fake: Fake, tmp_path: Path) -> None:
    how = replace(HOW, count=500, batch=1, window=50)
    with Daemon(fake(""), tmp_path / "data") as daemon, ExitStack() as stack:
        load = loaded(stack, daemon.dialect, how, channels=1)
        seconds = load.go(5.0, rate=1_000)
        assert 0.45 < seconds < 1.5
        assert load.received == 500


UNIT = b"PUB t\n\x00\x00\x00\x01x"


def answer_bytewise(sock: socket.socket, count: int, taken: bytearray) -> None:
    """A peer that cuts its frames into single bytes, with a heartbeat between two of them."""
    heartbeat = struct.pack(">II", 15, 0) + b"_heartbeat_"
    for number in range(count):
        while taken.count(UNIT) <= number:
            taken += sock.recv(1000)
        frame = struct.pack(">II", 6, 0) + b"OK"
        for byte in (heartbeat if number == 1 else b"") + frame:
            sock.send(bytes([byte]))


def test_frames_may_come_in_any_chunks_and_heartbeats_between() -> None:
    ours, theirs = socket.socketpair()
    taken = bytearray()
    with ours, theirs:
        load = Load()
        load.publisher(ours.fileno(), UNIT, 1, 5, 1)
        peer = threading.Thread(target=answer_bytewise, args=(theirs, 5, taken))
        peer.start()
        load.go(5.0)
        peer.join()
    assert load.acked == 5
    assert taken == UNIT * 2 + b"NOP\n" + UNIT * 3


def test_a_lag_without_a_consumer_is_refused() -> None:
    with pytest.raises(LoadFailed, match="needs a consumer"):
        Load().go(1.0, lag_max=10)
