"""SUB_ADVANCED: positions in the frames, and a place to begin at."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from .world import V2, Running, error, ok


@pytest.fixture(params=[1, 4])
def nsqd(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Running]:
    with Running(tmp_path / "data") as running:
        made = f"/topic/create?topic=t&partition_num={request.param}"
        assert running.request("POST", made).status == 200
        assert running.request("POST", "/channel/create?topic=t&channel=ch").status == 200
        for number in range(8):
            path = "/pub?topic=t&partition=0"
            assert running.request("POST", path, b"%d" % number).status == 200
        yield running


def subscribed(nsqd: Running, place: bytes, channel: bytes = b"ch") -> V2:
    client = nsqd.client()
    assert client.ask(b"SUB_ADVANCED t %b %b\n" % (channel, place)) == ok()
    client.send(b"RDY 100\n")
    return client


def detail(client: V2) -> tuple[int, int, bytes]:
    """Offset, stored bytes and body of the next message."""
    data = client.read().data[8 + 2 + 16 :]
    offset, stored_bytes = struct.unpack(">qi", data[:12])
    return offset, stored_bytes, data[12:]


def test_frames_have_positions(nsqd: Running) -> None:
    with subscribed(nsqd, b"0") as client:
        found = [detail(client) for _ in range(8)]
    assert [(offset, body) for offset, _, body in found] == [(n, b"%d" % n) for n in range(8)]
    assert {stored_bytes for _, stored_bytes, _ in found} == {5}


def test_the_first_consumer_chooses_where_it_begins(nsqd: Running) -> None:
    with subscribed(nsqd, b"0 virtual_queue:5") as first:
        assert [detail(first)[0] for _ in range(3)] == [5, 6, 7]
        with subscribed(nsqd, b"0 virtual_queue:0") as second:
            assert second.is_silent()
        assert first.is_silent()


@pytest.mark.parametrize("place", [b"-1 special:-1", b"0 special:-1"])
def test_from_the_end(nsqd: Running, place: bytes) -> None:
    with subscribed(nsqd, place) as client:
        assert client.is_silent()
        assert nsqd.request("POST", "/pub?topic=t&partition=0", b"new").status == 200
        assert detail(client)[2] == b"new"


def test_from_a_time(nsqd: Running) -> None:
    with subscribed(nsqd, b"-1 special:-1") as client:
        client.ask(b"CLS\n")
    with subscribed(nsqd, b"-1 timestamp:1000000000") as client:
        assert [detail(client)[0] for _ in range(8)] == list(range(8))


def test_an_offset_is_of_one_partition(nsqd: Running) -> None:
    several = len(nsqd.daemon.broker.find_topic("t").leaders) > 1
    with nsqd.client() as client:
        answer = client.ask(b"SUB_ADVANCED t ch -1 msgcount:2\n")
        if several:
            assert answer == error(b'E_BAD_PARTITION SUB_ADVANCED partition "-1" is not valid')
        else:
            assert answer == ok()
