"""`/channel/setoffset`: what it takes, says and does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..world import Running, ok

HERE = "/channel/setoffset?topic=t&channel=c"
COUNT = 5


@pytest.fixture
def nsqd(tmp_path: Path) -> Iterator[Running]:
    """Five messages, all finished."""
    with Running(tmp_path / "data") as running:
        assert running.request("POST", "/topic/create?topic=t").status == 200
        assert running.request("POST", "/channel/create?topic=t&channel=c").status == 200
        for number in range(COUNT):
            assert running.request("POST", "/pub?topic=t", b"%d" % number).status == 200
        assert running.request("POST", "/channel/empty?topic=t&channel=c").status == 200
        yield running


def moved(offset: int, again: int, skipped: int = 0) -> dict[str, Any]:
    return {
        "topic_name": "t",
        "channel_name": "c",
        "offset": offset,
        "messages_again": again,
        "messages_skipped": skipped,
        "messages_given_up": 0,
        "dry_run": False,
    }


@pytest.mark.parametrize(
    ("position", "offset"),
    [
        ("timestamp:0", 0),
        ("virtual_queue:2", 2),
        ("msgcount:3", 3),
        ("back:1", 4),
        ("earliest", 0),
        ("special:-1", 5),
    ],
)
def test_places(nsqd: Running, position: str, offset: int) -> None:
    expected = (200, moved(offset, COUNT - offset))
    assert nsqd.ask("POST", HERE, position.encode()) == expected
    assert nsqd.channel("t", "c")["depth"] == COUNT - offset


def test_a_consumer_that_waits_gets_them(nsqd: Running) -> None:
    with nsqd.client() as client:
        assert client.ask(b"SUB t c\n") == ok()
        client.send(b"RDY 10\n")
        assert client.is_silent()
        second = json.loads(nsqd.request("GET", "/message/get?topic=t&offset=3").body)["id"]
        assert nsqd.ask("POST", f"{HERE}&position=id:{second}") == (200, moved(3, 2))
        assert [client.message().body for _ in range(2)] == [b"3", b"4"]
        assert client.is_silent()


REFUSED = [
    ("/channel/setoffset?channel=c", b"earliest", 400, "MISSING_ARG_TOPIC"),
    ("/channel/setoffset?topic=t", b"earliest", 400, "MISSING_ARG_CHANNEL"),
    ("/channel/setoffset?topic=u&channel=c", b"earliest", 404, "TOPIC_NOT_FOUND"),
    ("/channel/setoffset?topic=t&channel=d", b"earliest", 404, "CHANNEL_NOT_FOUND"),
    (HERE, b"", 400, "MISSING_ARG_POSITION"),
    (HERE, b"start", 400, "INVALID_ARG_POSITION 'start': one of timestamp:TIME"),
    (HERE + "&dry_run=maybe", b"earliest", 400, "INVALID_ARG_DRY_RUN 'maybe'"),
    (HERE, b"offset:6", 416, "OFFSET_BEYOND_END"),
    (HERE, b"id:0000000000000001", 404, "MESSAGE_NOT_FOUND"),
]


@pytest.mark.parametrize(("target", "body", "status", "text"), REFUSED)
def test_what_is_refused(nsqd: Running, target: str, body: bytes, status: int, text: str) -> None:
    got, document = nsqd.ask("POST", target, body)
    assert (got, document["message"][: len(text)]) == (status, text)
    assert nsqd.channel("t", "c")["depth"] == 0
