"""How the daemon ends, and how it starts again on what it left."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .daemon import Daemon, DaemonFailed

MIB = 1024 * 1024
START_BYTES_MAX = 40 * MIB  # Python is some 4 MB; the last batches of 4 MB are read a few times
BIG_LOG_BYTES = 300 * MIB


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with Daemon(tmp_path / "data") as daemon:
        yield daemon


# --- orderly ends ---


def test_a_second_signal_ends_it_at_once(daemon: Daemon) -> None:
    with daemon.client() as stuck, daemon.client() as publisher:
        # A consumer that does not read, with far more on its way than its socket takes: the stop
        # waits for it.
        publisher.mpub("t", [b"x" * 500_000] * 9)
        for _ in range(10):
            publisher.mpub("t", [b"x" * 500_000] * 9)
        stuck.sub("t", "ch")
        stuck.rdy(2500)
        wait_for(lambda: daemon.channel_stats("t", "ch")["in_flight_count"] > 0)
        daemon.signal(signal.SIGTERM)
        wait_for(lambda: "NSQ: stopping" in daemon.stderr())
        assert daemon.running
        daemon.signal(signal.SIGTERM)
        assert daemon.wait() == 128 + signal.SIGTERM
    assert "NSQ: bye" not in daemon.stderr()


# --- two of them ---


def test_a_second_daemon_on_the_same_data_is_refused(daemon: Daemon) -> None:
    second = Daemon(daemon.data_path, stderr=daemon.data_path.with_name("second.stderr"))
    with pytest.raises(DaemonFailed, match="ended with 1"):
        second.start()
    said = second.stderr()
    assert "FATAL: " in said
    assert str(daemon.data_path) in said
    assert "failed to lock data-path" in said  # nsqd's words
    assert "(possibly in use by another instance of nsqd)" in said
    assert "Traceback" not in said
    with daemon.client() as client:
        client.pub("t", b"the first one is not disturbed")


# --- a large log ---


def test_a_start_after_a_kill_reads_only_the_tail(daemon: Daemon) -> None:
    body = bytes(range(256)) * 4096  # 1 MiB
    bodies = [body[number:] + body[:number] for number in range(4)]
    partition = daemon.data_path / "topics" / "big" / "0"
    daemon.post("/topic/create?topic=big")
    daemon.post("/channel/create?topic=big&channel=ch")
    with daemon.client() as publisher:
        for _ in range(BIG_LOG_BYTES // (4 * MIB)):
            publisher.mpub("big", bodies)
        # Every two seconds the daemon notes how far the log is synced.
        newest = max(partition.glob("*.log"))
        wait_for(lambda: newest.with_suffix(".index").exists())
        publisher.mpub("big", bodies)
    daemon.kill()
    segments = list(partition.glob("*.log"))
    assert sum(segment.stat().st_size for segment in segments) >= BIG_LOG_BYTES
    assert len(segments) >= 4

    daemon.start()  # some 0.3 s where nothing else runs
    assert daemon.bytes_read() < START_BYTES_MAX
    assert daemon.channel_stats("big", "ch")["depth"] == BIG_LOG_BYTES // MIB + 4
    with daemon.client() as consumer:
        consumer.sub("big", "ch")
        consumer.rdy(4)
        assert [message.body for message in consumer.messages(4)] == bodies


def wait_for(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise AssertionError("it did not come true in time")
        time.sleep(0.01)
