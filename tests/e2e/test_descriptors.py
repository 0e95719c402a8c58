"""A node with more topics than descriptors, and more clients: the log goes on."""

from __future__ import annotations

import contextlib
import http.client
import os
from pathlib import Path

from .daemon import Daemon
from .v2client import Closed, V2Client

LIMIT = 96
TOPICS = 150


def open_files(daemon: Daemon) -> int:
    assert daemon.process is not None
    return len(os.listdir(f"/proc/{daemon.process.pid}/fd"))


def publish_to_all(connection: http.client.HTTPConnection, body: bytes) -> None:
    for number in range(TOPICS):
        connection.request("POST", f"/pub?topic=t{number}", body)
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b"OK")


def crowd(daemon: Daemon, held: contextlib.ExitStack) -> int:
    """How many clients get in."""
    for count in range(LIMIT):
        try:
            held.enter_context(V2Client(daemon.tcp_port)).identify()
        except (Closed, ConnectionError):
            return count
    raise AssertionError("as many connections as descriptors")


def test_more_topics_than_descriptors(tmp_path: Path) -> None:
    with Daemon(tmp_path / "data", descriptors=LIMIT) as daemon, contextlib.ExitStack() as held:
        for number in range(TOPICS):
            daemon.post(f"/topic/create?topic=t{number}")
            daemon.post(f"/channel/create?topic=t{number}&channel=c")
        publisher = http.client.HTTPConnection("127.0.0.1", daemon.http_port, timeout=40)
        held.callback(publisher.close)
        for body in (b"first", b"second"):
            publish_to_all(publisher, body)
            assert open_files(daemon) < 3 * LIMIT // 4
        assert crowd(daemon, held) > 10
        assert f"of {LIMIT} descriptors all but {LIMIT // 8} are in use" in daemon.stderr()
        publish_to_all(publisher, b"third")
        assert open_files(daemon) > 3 * LIMIT // 4
        daemon.kill()
        daemon.start()
        for number in range(0, TOPICS, 10):
            with daemon.client() as consumer:
                consumer.sub(f"t{number}", "c")
                consumer.rdy(3)
                bodies = [message.body for message in consumer.messages(3)]
                assert bodies == [b"first", b"second", b"third"]
