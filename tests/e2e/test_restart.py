"""How the daemon ends, and how it starts again on what it left."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.tools.main import main

from .daemon import Daemon, DaemonFailed
from .lookupd import eventually
from .v2client import Closed, V2Client, pub_bytes


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
        eventually(lambda: daemon.channel_stats("t", "ch")["in_flight_count"] > 0)
        daemon.signal(signal.SIGTERM)
        eventually(lambda: "NSQ: stopping" in daemon.stderr())
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


# --- what a disk or a restore has done to the log of a real daemon ---


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def test_a_corrupt_old_batch_concerns_its_readers_only(tmp_path: Path) -> None:
    """Publishing goes on, `/ping` warns and names the topic, and retention goes past it."""
    flags = ("--segment-bytes=65536", "--retain-age=0s", "--retain-bytes=0")
    with Daemon(tmp_path / "data", *flags) as daemon:
        daemon.post("/topic/create?topic=orders")
        daemon.post("/channel/create?topic=orders&channel=billing")
        with daemon.client() as client:
            for _ in range(40):
                client.mpub("orders", [bytes(300)] * 20)
        segments = sorted((tmp_path / "data/topics/orders/0").glob("*.log"))
        assert len(segments) > 2
        daemon.kill()
        flip(segments[0], segments[0].stat().st_size // 20)  # in a body of the first batch
        daemon.start()
        with daemon.client() as client:
            client.sub("orders", "billing")
            client.rdy(2500)
            got = client.messages(39 * 20)  # all but those of one batch
            reason = f"offsets 0 to 19 are corrupt: {segments[0]}: a batch is not sound"
            said = f"OK - warning: topic orders: {reason}".encode()
            assert daemon.http("GET", "/ping") == (200, said)
            document = daemon.topic_stats("orders")
            assert document["refusal"] == ""
            assert [(row["from"], row["to"]) for row in document["damaged"]] == [(0, 20)]
            assert daemon.post("/pub?topic=orders", b"goes on") == b"OK"
            (last,) = client.messages(1)
            assert last.body == b"goes on"
            client.fin(*[message.id for message in got], last.id)
        eventually(lambda: daemon.http("GET", "/ping") == (200, b"OK"))
        assert daemon.topic_stats("orders")["stored_bytes"] < 65536
        assert "offsets 0 to 19 are corrupt" in daemon.stderr()
        assert daemon.stop() == 0


def test_segments_that_were_swapped_between_topics_are_not_delivered(tmp_path: Path) -> None:
    """As a restore that went wrong leaves them."""
    path = tmp_path / "data"
    topics = ("orders", "bills")
    with Daemon(path, "--segment-bytes=65536") as daemon:
        for topic in topics:
            daemon.post(f"/topic/create?topic={topic}")
            daemon.post(f"/channel/create?topic={topic}&channel=c")
        with daemon.client() as client:
            for _ in range(20):
                for topic in topics:
                    client.mpub(topic, [topic.encode().ljust(300)] * 20)
        assert daemon.stop() == 0
        first = {topic: min((path / "topics" / topic / "0").glob("*.log")) for topic in topics}
        contents = [first[topic].read_bytes() for topic in topics]
        for topic, content in zip(topics, reversed(contents), strict=True):
            first[topic].write_bytes(content)
        assert main(["log", "verify", str(path)]) == 1
        daemon.start()
        for topic in topics:
            lost = sorted((path / "topics" / topic / "0").glob("*.log"))[1].stem
            with daemon.client() as client:
                client.sub(topic, "c")
                client.rdy(2500)
                got = client.messages(400 - int(lost))
                assert {message.body.strip() for message in got} == {topic.encode()}
            assert daemon.post(f"/pub?topic={topic}", b"goes on") == b"OK"
        status, said = daemon.http("GET", "/ping")
        assert status == 200
        for topic in topics:
            assert f"topic {topic}: offsets 0 to ".encode() in said
        assert b"the segment belongs to another log (topic orders, partition 0, log " in said
        assert daemon.stop() == 0


def test_a_corrupt_end_is_repaired_and_publishing_goes_on(tmp_path: Path) -> None:
    data_path = tmp_path / "data"
    with Daemon(data_path) as daemon:
        daemon.post("/topic/create?topic=orders")
        daemon.post("/channel/create?topic=orders&channel=billing")
        for number in range(5):
            daemon.post("/pub?topic=orders", b"message %d" % number)
        assert daemon.stop() == 0
        (path,) = (data_path / "topics/orders/0").glob("*.log")
        flip(path, -20)
        daemon.start()
        status, said = daemon.http("POST", "/pub?topic=orders", b"refused")
        assert (status, b"the end of the log is corrupt" in said) == (503, True)
        assert daemon.stop() == 0
        assert main(["log", "repair", str(data_path), "--yes"]) == 0
        daemon.start()
        assert daemon.http("GET", "/ping") == (200, b"OK")
        daemon.post("/pub?topic=orders", b"taken")
        daemon.kill()
        daemon.start()
        with daemon.client() as client:
            client.sub("orders", "billing")
            client.rdy(10)
            bodies = [message.body for message in client.messages(5)]
        assert bodies == [b"message %d" % number for number in range(4)] + [b"taken"]
        assert daemon.http("GET", "/ping") == (200, b"OK")
        assert main(["log", "verify", str(data_path)]) == 0


# --- A drain of a real daemon ---


def test_a_drain_ends_when_the_last_message_is_finished(tmp_path: Path) -> None:
    with Daemon(tmp_path / "data") as daemon:
        with daemon.client() as consumer:
            consumer.sub("t", "c")
            consumer.mpub("t", [b"%d" % n for n in range(100)])
            consumer.dpub("t", 1500, b"late")
            with daemon.client() as orphan:
                orphan.pub("nobody", b"kept")
            daemon.signal(signal.SIGUSR1)
            eventually(lambda: daemon.topic_stats("t")["refusal"] == "draining")
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
