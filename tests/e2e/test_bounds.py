"""Bounds of a real daemon: a topic that is full."""

from __future__ import annotations

from pathlib import Path

import pytest

from .daemon import Daemon
from .v2client import ERROR, Closed, V2Client, mpub_bytes, pub_bytes

LIMIT = 300
PUBLISHERS = 4
PIPELINED = 200


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
