"""A setting at its edge survives a restart of the daemon. That what could not be read again is not
written: `tests/broker/topics/test_topic_file.py`."""

from pathlib import Path

from .world import Running


def test_the_largest_depth_is_no_bound_for_a_topic_with_messages(tmp_path: Path) -> None:
    largest = (1 << 63) - 1
    with Running(tmp_path / "data") as nsqd:
        nsqd.request("POST", "/pub?topic=t", b"x")
        assert nsqd.request("POST", f"/topic/config?topic=t&max_depth={largest}").status == 200
        assert nsqd.request("POST", "/pub?topic=t", b"x").body == b"OK"
    with Running(tmp_path / "data") as nsqd:
        assert nsqd.request("POST", "/pub?topic=t", b"x").body == b"OK"
        assert nsqd.ask("GET", "/topic/config?topic=t")[1]["max_depth"] == largest
