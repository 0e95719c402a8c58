"""pynsq with a secret, nsqd and an auth server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.nsqd.authserver import AuthServer

from .daemon import Daemon

CONSUMER = str(Path(__file__).resolve().parent / "pynsq_consumer.py")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with (
        AuthServer() as server,
        Daemon(tmp_path / "data", f"--auth-http-address={server.address}") as daemon,
    ):
        daemon.post("/pub?topic=mine", b"one")
        daemon.post("/pub?topic=other", b"two")
        yield daemon


def consume(daemon: Daemon, topic: str, timeout: float) -> list[str]:
    options = {
        "port": daemon.tcp_port,
        "topic": topic,
        "channel": "c",
        "count": 1,
        "auth_secret": "mine",
    }
    done = subprocess.run(
        [sys.executable, CONSUMER, json.dumps(options)],
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads(line)["body"] for line in done.stdout.splitlines()]


def test_a_reader_with_a_secret(daemon: Daemon) -> None:
    assert consume(daemon, "mine", 30) == ["one"]
    with pytest.raises(subprocess.TimeoutExpired):
        consume(daemon, "other", 2)
    said = daemon.stderr()
    assert 'E_UNAUTHORIZED AUTH failed for SUB on "other" "c"' in said
    assert daemon.topic_stats("other")["channels"] == []
