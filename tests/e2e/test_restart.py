"""How the daemon ends, and how it starts again on what it left."""

import contextlib
import http.client
import os
import signal
from pathlib import Path

from .daemon import Daemon
from .lookupd import eventually
from .v2client import Closed, V2Client

# --- orderly ends ---


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with (
        Daemon(tmp_path / "data") as daemon,
        daemon.client() as stuck,
        daemon.client() as publisher,
    ):
        # A consumer that does not read, with far more on its way than its socket takes: the stop
        # waits for it.
        publisher.mpub("t", [b"x" * 500_000] * 9)
        for _ in range(10):
            publisher.mpub("t", [b"x" * 500_000] * 9)
        stuck.sub("t", "ch")
        stuck.rdy(2500)
        eventually(lambda: daemon.channel_stats("t", "ch")["in_flight_count"] > 0)
        daemon.signal(signal.SIGTERM)
        eventually(lambda: "NSQ: stopping" in daemon.stderr())
        assert daemon.running
        daemon.signal(signal.SIGTERM)
        assert daemon.wait() == 128 + signal.SIGTERM
        assert "NSQ: bye" not in daemon.stderr()


# --- A node with more topics than descriptors, and more clients: the log goes on ---


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
            daemon.make(f"t{number}", "c")
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


# --- A drain of a real daemon ---


def test_a_drain_ends_when_the_last_message_is_finished(tmp_path: Path) -> None:
    """What it refuses and waits for: `tests/nsqd/test_drain.py`."""
    with Daemon(tmp_path / "data") as daemon:
        with daemon.client() as consumer:
            consumer.sub("t", "c")
            consumer.pub("t", b"last")
            daemon.signal(signal.SIGUSR1)
            eventually(lambda: daemon.topic_stats("t")["refusal"] == "draining")
            consumer.rdy(1)
            (last,) = consumer.messages(1)
            assert daemon.running
            consumer.fin(last.id)
            assert daemon.wait() == 0
        assert "DRAIN: no messages are left" in daemon.stderr()
        assert daemon.stderr().rstrip().endswith("NSQ: bye")
        daemon.start()
        assert daemon.channel_stats("t", "c")["depth"] == 0
