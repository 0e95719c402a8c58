"""A flipped bit in a sealed segment of a real daemon: publishing goes on, `/ping` warns and names
the topic, and retention goes past it."""

from __future__ import annotations

from pathlib import Path

from .daemon import Daemon
from .lookupd import eventually

FLAGS = ("--segment-bytes=65536", "--retain-age=0s", "--retain-bytes=0")


def test_a_corrupt_old_batch_concerns_its_readers_only(tmp_path: Path) -> None:
    with Daemon(tmp_path / "data", *FLAGS) as daemon:
        daemon.post("/topic/create?topic=orders")
        daemon.post("/channel/create?topic=orders&channel=billing")
        with daemon.client() as client:
            for _ in range(40):
                client.mpub("orders", [bytes(300)] * 20)
        segments = sorted((tmp_path / "data/topics/orders/0").glob("*.log"))
        assert len(segments) > 2
        daemon.kill()
        corrupt(segments[0])
        daemon.start()
        with daemon.client() as client:
            client.sub("orders", "billing")
            client.rdy(2500)
            got = client.messages(39 * 20)  # all but those of one batch
            assert daemon.http("GET", "/ping") == (200, warning(segments[0]))
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


def corrupt(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 20] ^= 1  # in a body of the first batch
    path.write_bytes(data)


def warning(path: Path) -> bytes:
    reason = f"offsets 0 to 19 are corrupt: {path}: a batch is not sound"
    return f"OK - warning: topic orders: {reason}".encode()
