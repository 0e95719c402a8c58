"""`/channel/setoffset` and `/channel/messages` of a topic with several partitions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.deadletters import REDRIVE_CHANNEL

from ..skewed import COUNTS, HEAVY, put, skewed
from ..world import Running, eventually, ok

HERE = "/channel/setoffset?topic=t&channel=c"
ALL = sum(COUNTS)


@pytest.fixture
def nsqd(tmp_path: Path) -> Iterator[Running]:
    """All messages are finished."""
    with Running(tmp_path / "data") as running:
        skewed(running, "t")
        assert running.request("POST", "/channel/create?topic=t&channel=c").status == 200
        assert running.request("POST", "/channel/empty?topic=t&channel=c").status == 200
        yield running


def post(nsqd: Running, more: str, body: str) -> tuple[int, Any]:
    answer = nsqd.request("POST", HERE + more, body.encode())
    return answer.status, json.loads(answer.body)


def again(document: dict[str, Any]) -> dict[int, int]:
    return {row["partition"]: row["messages_again"] for row in document["partitions"]}


def depth(nsqd: Running) -> int:
    found: int = nsqd.channel("t", "c")["depth"]
    return found


@pytest.mark.parametrize("place", ["earliest", "timestamp:0"])
def test_all_are_moved(nsqd: Running, place: str) -> None:
    status, document = post(nsqd, "&dry_run=true", place)
    assert (status, document["messages_again"], document["offset"]) == (200, ALL, None)
    assert again(document) == dict(enumerate(COUNTS))
    assert depth(nsqd) == 0
    assert post(nsqd, "", place)[0] == 200
    assert depth(nsqd) == ALL
    status, document = post(nsqd, "", "latest")
    assert (document["messages_skipped"], document["messages_again"]) == (ALL, 0)
    assert [row["offset"] for row in document["partitions"]] == list(COUNTS)
    assert depth(nsqd) == 0


@pytest.mark.parametrize(
    ("place", "offset", "count"), [("offset:6", 6, 30), ("back:4", 32, 4), ("earliest", 0, 36)]
)
def test_one_is_moved(nsqd: Running, place: str, offset: int, count: int) -> None:
    status, document = post(nsqd, f"&partition={HEAVY}", place)
    assert (status, document["offset"], again(document)) == (200, offset, {HEAVY: count})
    assert depth(nsqd) == count


def test_an_id_moves_the_partition_that_has_it(nsqd: Running) -> None:
    place = f"/message/get?topic=t&partition={HEAVY}&offset=30"
    id = json.loads(nsqd.request("GET", place).body)["id"]
    status, document = post(nsqd, "", f"id:{id}")
    assert (status, document["offset"], again(document)) == (200, 30, {HEAVY: 6})
    assert depth(nsqd) == 6


@pytest.mark.parametrize(
    ("more", "place", "status", "text"),
    [
        ("", "offset:1", 400, "MISSING_ARG_PARTITION offset is a place in one"),
        ("&partition=-1", "back:1", 400, "MISSING_ARG_PARTITION back is a place in one"),
        ("&partition=3", "earliest", 404, "PARTITION_NOT_FOUND"),
        ("&partition=x", "earliest", 400, "INVALID_ARG_PARTITION 'x'"),
        ("&partition=0", "offset:3", 416, "OFFSET_BEYOND_END"),
        ("", "id:0000000000000001", 404, "MESSAGE_NOT_FOUND"),
    ],
)
def test_what_is_refused(nsqd: Running, more: str, place: str, status: int, text: str) -> None:
    got, document = post(nsqd, more, place)
    assert (got, document["message"][: len(text)]) == (status, text)
    assert depth(nsqd) == 0


def listed(nsqd: Running, state: str) -> list[dict[str, Any]]:
    target = f"/channel/messages?topic=t&channel=c&state={state}&limit=1000"
    found: list[dict[str, Any]] = json.loads(nsqd.request("GET", target).body)["messages"]
    return found


def test_messages_name_their_partitions(nsqd: Running) -> None:
    post(nsqd, "", "earliest")
    with nsqd.client() as client:
        assert client.ask(b"SUB t c\n") == ok()
        client.send(b"RDY 100\n")
        first, *others = [client.message() for _ in range(ALL)]
        rows = listed(nsqd, "in_flight")
        assert [row["partition"] for row in rows].count(HEAVY) == COUNTS[HEAVY]
        client.send(b"RDY 0\nREQ " + first.id + b" 600000\n")
        assert eventually(lambda: len(listed(nsqd, "deferred")) == 1)
        row = listed(nsqd, "deferred")[0]
        assert first.body == b"%d:%d" % (row["partition"], row["offset"])
        client.send(b"".join(b"REQ %b 0\n" % one.id for one in others))
        assert eventually(lambda: len(listed(nsqd, "requeued")) == ALL - 1)
    places = [(row["offset"], row["partition"]) for row in listed(nsqd, "requeued")]
    assert places == sorted(places)


def test_dead_letters_name_their_partition_too(nsqd: Running) -> None:
    skewed(nsqd, "t.c.dead", (0, 9, 0))
    nsqd.request("POST", f"/channel/create?topic=t.c.dead&channel={REDRIVE_CHANNEL}")
    headers = {"dead_letter": {"topic": "t", "channel": "c", "attempts": 3}}
    put(nsqd, "t.c.dead", 2, [b"dead"], {65: json.dumps(headers).encode()})
    rows = listed(nsqd, "dead")
    assert [(row["partition"], row["offset"], row["attempts"]) for row in rows] == [(2, 0, 3)]
    redriven = nsqd.request("POST", "/channel/redrive?topic=t&channel=c").body
    assert json.loads(redriven) == {"redriven": 1}
