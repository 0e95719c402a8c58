"""A drain of a real daemon."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .daemon import Daemon
from .v2client import pub_bytes


def wait_for(holds: Callable[[], bool], timeout_s: float = 60.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline_s, "it did not happen"
        time.sleep(0.02)


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
