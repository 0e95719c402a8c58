"""Bounds of a real daemon: a topic that is full, messages that expire, a drain."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .daemon import Daemon
from .v2client import ERROR, Closed, V2Client, mpub_bytes, pub_bytes

LIMIT = 300
PUBLISHERS = 4
PIPELINED = 200


def wait_for(holds: Callable[[], bool], timeout_s: float = 60.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline_s, "it did not happen"
        time.sleep(0.02)


def answers(publisher: V2Client) -> tuple[int, bytes]:
    """How many OKs came until the error, or until all was answered."""
    for accepted in range(PIPELINED):
        try:
            frame = publisher.frame()
        except Closed:
            return accepted, b""
        assert frame is not None
        if frame.kind == ERROR:
            return accepted, frame.data
    return PIPELINED, b""


@pytest.mark.parametrize("durability", ["disk", "os"])
def test_pipelined_publishers_never_overfill_a_topic(tmp_path: Path, durability: str) -> None:
    flags = (f"--durability={durability}", f"--max-depth={LIMIT}")
    with Daemon(tmp_path / "data", *flags) as daemon:
        daemon.post("/topic/create?topic=t")
        daemon.post("/channel/create?topic=t&channel=c")
        publishers = [daemon.client() for _ in range(PUBLISHERS)]
        for number, publisher in enumerate(publishers):
            publisher.send(
                b"".join(pub_bytes("t", b"%d %d" % (number, n)) for n in range(PIPELINED))
            )
        told = [answers(publisher) for publisher in publishers]
        for publisher in publishers:
            publisher.close()
        accepted = sum(count for count, _ in told)
        assert accepted == LIMIT
        said = b"E_PUB_FAILED PUB failed topic depth limit of %d messages is reached" % LIMIT
        assert {error for count, error in told if count < PIPELINED} == {said}
        assert daemon.channel_stats("t", "c")["depth"] == LIMIT
        with daemon.client() as publisher, daemon.client() as consumer:
            consumer.sub("t", "c")
            consumer.rdy(LIMIT)
            got = consumer.messages(LIMIT)
            assert {message.body for message in got} == {
                b"%d %d" % (number, n) for number, (count, _) in enumerate(told)
                for n in range(count)
            }  # fmt: skip
            consumer.fin(*(message.id for message in got[:10]))
            consumer.settle()
            publisher.send(mpub_bytes("t", [b"x"] * 10))  # at once, not at the next look
            publisher.ok()
            publisher.send(pub_bytes("t", b"x"))
            assert publisher.error() == said


def test_what_expired_does_not_return(tmp_path: Path) -> None:
    with Daemon(tmp_path / "data", "--max-age=1s") as daemon:
        with daemon.client() as client:
            client.sub("t", "c")
            client.mpub("t", [b"old"] * 10)
        wait_for(lambda: daemon.channel_stats("t", "c")["expired_count"] == 10)
        daemon.kill()
        daemon.flags.clear()
        daemon.start()
        assert daemon.channel_stats("t", "c")["depth"] == 0
        with daemon.client() as client:
            client.pub("t", b"new")
            client.sub("t", "c")
            client.rdy(10)
            assert [message.body for message in client.drain(0.3)] == [b"new"]


@pytest.mark.parametrize("how", ["signal", "http"])
def test_a_drain_ends_when_the_last_message_is_finished(tmp_path: Path, how: str) -> None:
    with Daemon(tmp_path / "data") as daemon:
        with daemon.client() as consumer:
            consumer.sub("t", "c")
            consumer.mpub("t", [b"%d" % n for n in range(100)])
            consumer.dpub("t", 1500, b"late")
            with daemon.client() as orphan:
                orphan.pub("nobody", b"kept")
            if how == "signal":
                daemon.signal(signal.SIGUSR1)
            else:
                assert json.loads(daemon.post("/drain"))["left"] == 101
            wait_for(lambda: daemon.topic_stats("t")["refusal"] == "draining")
            with daemon.client() as publisher:
                publisher.send(pub_bytes("t", b"x"))
                assert publisher.error() == b"E_PUB_FAILED PUB failed draining"
            consumer.rdy(101)
            got = consumer.messages(101)
            assert daemon.running
            consumer.fin(*(message.id for message in got))
            assert daemon.wait() == 0
        assert b"late" in {message.body for message in got}
        assert "DRAIN: nothing is left" in daemon.stderr()
        assert daemon.stderr().rstrip().endswith("NSQ: bye")
        daemon.start()
        assert daemon.channel_stats("t", "c")["depth"] == 0
        assert daemon.topic_stats("nobody")["depth"] == 1
