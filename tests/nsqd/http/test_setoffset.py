"""`/channel/setoffset`: what it takes, says and does."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.channels.dead_letters import REDRIVE_CHANNEL

from ..skewed import COUNTS, HEAVY, put, skewed
from ..world import Running, eventually

HERE = "/channel/setoffset?topic=t&channel=c"
ALL = sum(COUNTS)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Running]:
    """All messages are finished."""
    with Running(tmp_path / "data") as running:
        skewed(running, "t")
        running.post("/channel/create?topic=t&channel=c", "/channel/empty?topic=t&channel=c")
        yield running


def post(node: Running, more: str, body: str) -> tuple[int, Any]:
    return node.ask("POST", HERE + more, body.encode())


def again(document: dict[str, Any]) -> dict[int, int]:
    return {row["partition"]: row["messages_again"] for row in document["partitions"]}


def depth(node: Running) -> int:
    found: int = node.channel("t", "c")["depth"]
    return found


def test_offsets_of_one_partition(node: Running) -> None:
    node.post("/topic/create?topic=one", "/channel/create?topic=one&channel=c")
    node.publish("one", *[b"x"] * 5)
    node.post("/channel/empty?topic=one&channel=c")
    assert node.ask("POST", "/channel/setoffset?topic=one&channel=c", b"back:2") == (
        200,
        {
            "topic_name": "one",
            "channel_name": "c",
            "offset": 3,
            "messages_again": 2,
            "messages_skipped": 0,
            "messages_given_up": 0,
            "dry_run": False,
        },
    )
    assert node.channel("one", "c")["depth"] == 2


@pytest.mark.parametrize("place", ["earliest", "timestamp:0"])
def test_all_are_moved(node: Running, place: str) -> None:
    status, document = post(node, "&dry_run=true", place)
    assert (status, document["messages_again"], document["offset"]) == (200, ALL, None)
    assert again(document) == dict(enumerate(COUNTS))
    assert depth(node) == 0
    assert post(node, "", place)[0] == 200
    assert depth(node) == ALL
    status, document = post(node, "", "latest")
    assert (document["messages_skipped"], document["messages_again"]) == (ALL, 0)
    assert [row["offset"] for row in document["partitions"]] == list(COUNTS)
    assert depth(node) == 0


def test_an_id_moves_the_partition_that_has_it(node: Running) -> None:
    place = f"/message/get?topic=t&partition={HEAVY}&offset=30"
    id = json.loads(node.request("GET", place).body)["id"]
    status, document = post(node, "", f"id:{id}")
    assert (status, document["offset"], again(document)) == (200, 30, {HEAVY: 6})
    assert depth(node) == 6


def listed(node: Running, state: str) -> list[dict[str, Any]]:
    target = f"/channel/messages?topic=t&channel=c&state={state}&limit=1000"
    found: list[dict[str, Any]] = json.loads(node.request("GET", target).body)["messages"]
    return found


def test_messages_name_their_partitions(node: Running) -> None:
    post(node, "", "earliest")
    with node.client() as client:
        client.consume("t", "c", 100)
        first, *others = [client.message() for _ in range(ALL)]
        rows = listed(node, "in_flight")
        assert [row["partition"] for row in rows].count(HEAVY) == COUNTS[HEAVY]
        client.send(b"RDY 0\nREQ " + first.id + b" 600000\n")
        eventually(lambda: len(listed(node, "deferred")) == 1)
        row = listed(node, "deferred")[0]
        assert first.body == b"%d:%d" % (row["partition"], row["offset"])
        client.send(b"".join(b"REQ %b 0\n" % one.id for one in others))
        eventually(lambda: len(listed(node, "requeued")) == ALL - 1)
    places = [(row["offset"], row["partition"]) for row in listed(node, "requeued")]
    assert places == sorted(places)


def test_dead_letters_name_their_partition_too(node: Running) -> None:
    skewed(node, "t.c.dead", (0, 9, 0))
    node.request("POST", f"/channel/create?topic=t.c.dead&channel={REDRIVE_CHANNEL}")
    headers = {"dead_letter": {"topic": "t", "channel": "c", "attempts": 3}}
    put(node, "t.c.dead", 2, [b"dead"], {65: json.dumps(headers).encode()})
    rows = listed(node, "dead")
    assert [(row["partition"], row["offset"], row["attempts"]) for row in rows] == [(2, 0, 3)]
    redriven = node.request("POST", "/channel/redrive?topic=t&channel=c").body
    assert json.loads(redriven) == {"redriven": 1}
