"""Segment files in the directory of another topic, as a restore that went wrong leaves them."""

from __future__ import annotations

from pathlib import Path

from penstock.tools.main import main

from .daemon import Daemon


def test_segments_that_were_swapped_between_topics_are_not_delivered(tmp_path: Path) -> None:
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
