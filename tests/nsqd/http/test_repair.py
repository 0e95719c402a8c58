"""Youzan's verbs for channels that are stuck: on a topic with one partition and with four."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import limits

from ..world import V2, Running, ok, pub

HERE = "topic=t&channel=ch"
HOUR_MS = 3_600_000


@pytest.fixture(params=[1, 4])
def nsqd(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Running]:
    with Running(tmp_path / "data", "--max-req-timeout=72h") as running:
        made = f"/topic/create?topic=t&partition_num={request.param}"
        assert running.request("POST", made).status == 200
        assert running.request("POST", f"/channel/create?{HERE}").status == 200
        yield running


def ask(nsqd: Running, path: str, query: str = "") -> tuple[int, Any]:
    answer = nsqd.request("POST", f"{path}?{HERE}{query}")
    return answer.status, json.loads(answer.body) if answer.body else None


def settled(nsqd: Running, verb: str, query: str = "") -> tuple[int, int]:
    status, found = ask(nsqd, f"/channel/{verb}", query)
    assert (status, found["topic_name"], found["channel_name"]) == (200, "t", "ch")
    return found["settled"], found["left"]


def publish(nsqd: Running, count: int = 4, defer_ms: int = 0) -> None:
    for number in range(count):
        path = f"/pub?topic=t&defer={defer_ms}"
        assert nsqd.request("POST", path, b"%d" % number).status == 200


def consumer(nsqd: Running, rdy: int = 100) -> V2:
    client = nsqd.client()
    assert client.ask(b"SUB t ch\n") == ok()
    client.send(b"RDY %d\n" % rdy)
    return client


def depth(nsqd: Running) -> tuple[int, int, int]:
    row = nsqd.channel("t", "ch")
    return row["depth"], row["in_flight_count"], row["deferred_count"]


def test_what_is_in_flight_is_finished(nsqd: Running) -> None:
    publish(nsqd)
    with consumer(nsqd) as client:
        ids = [client.message().id for _ in range(4)]
        for id in ids:
            assert ask(nsqd, "/message/finish", f"&msgid={id.decode()}") == (200, None)
            assert ask(nsqd, "/message/finish", f"&msgid={id.decode()}")[0] == 404
        assert depth(nsqd) == (0, 0, 0)
        frame = client.ask(b"FIN %b\n" % ids[0])
        assert frame.data == b"E_FIN_FAILED FIN %b failed ID not in flight" % ids[0]


def test_what_was_not_delivered_yet_is_stepped_over(nsqd: Running) -> None:
    found = []
    for number in range(8):
        answer = nsqd.request("POST", "/pubtrace?topic=t&trace_id=1", b"%d" % number)
        found.append(json.loads(answer.body)["id"])
    for id in found[1::2]:  # as numbers, as they were answered
        assert ask(nsqd, "/message/finish", f"&msgid={id}") == (200, None)
    assert depth(nsqd) == (4, 0, 0)
    with consumer(nsqd) as client:
        bodies = sorted(client.message().body for _ in range(4))
        assert bodies == [b"0", b"2", b"4", b"6"]
        assert client.is_silent()


def test_all_that_is_delayed(nsqd: Running) -> None:
    publish(nsqd, 4)
    publish(nsqd, 3, HOUR_MS)
    with consumer(nsqd) as client:
        for _ in range(4):
            client.send(b"REQ %b %d\n" % (client.message().id, HOUR_MS))
        client.ask(b"CLS\n")
        assert depth(nsqd) == (0, 0, 7)
        assert settled(nsqd, "finishmemdelayed") == (4, 3)
        assert settled(nsqd, "finishmemdelayed") == (0, 3)
        assert settled(nsqd, "emptydelayed") == (3, 0)
        assert depth(nsqd) == (0, 0, 0)


def test_what_is_due_soon_is_sent_now(nsqd: Running) -> None:
    publish(nsqd, 4, HOUR_MS)
    publish(nsqd, 2, 5 * HOUR_MS)
    assert settled(nsqd, "requeuedelayed", "&offset=0") == (0, 6)
    assert settled(nsqd, "requeuedelayed", "&offset=2") == (4, 2)
    with consumer(nsqd) as client:
        assert sorted(client.message().body for _ in range(4)) == [b"0", b"1", b"2", b"3"]
        assert client.is_silent()


def test_one_partition(nsqd: Running) -> None:
    count = len(nsqd.daemon.broker.find_topic("t").leaders)
    publish(nsqd, 8, HOUR_MS)
    assert settled(nsqd, "emptydelayed", "&partition=0") == (8 // count, 8 - 8 // count)
    status, answer = ask(nsqd, "/channel/fixconfirmed", f"&partition={count - 1}")
    assert (status, list(answer["partitions"])) == (200, [str(count - 1)])
    assert ask(nsqd, "/channel/fixconfirmed", f"&partition={count}") == (
        400,
        {
            "message": "E_BAD_PARTITION",
            "reason": f"partition '{count}': topic t has 0 to {count - 1}",
        },
    )


def test_where_it_stands(nsqd: Running) -> None:
    publish(nsqd, 8)
    count = len(nsqd.daemon.broker.find_topic("t").leaders)
    status, answer = ask(nsqd, "/channel/fixconfirmed")
    place = {"low": 0, "next": 0, "floor": 0}
    partitions = {str(number): place for number in range(count)}
    assert (status, answer) == (
        200, {"topic_name": "t", "channel_name": "ch", "partitions": partitions},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("path", "query", "status", "said"),
    [
        ("/message/finish", "", 400, "MISSING_ARG_MSGID"),
        ("/message/finish", "&msgid=x", 400, "INVALID_ARG_MSGID 'x'"),
        ("/message/finish", "&msgid=000000000000000g", 400, "INVALID_ARG_ID"),
        ("/message/finish", "&msgid=7", 404, "MESSAGE_NOT_FOUND"),
        ("/message/finish", "&msgid=7&partition=x", 400, "E_BAD_PARTITION"),
        ("/channel/requeuedelayed", "", 400, "MISSING_ARG_OFFSET"),
        ("/channel/requeuedelayed", "&offset=-1", 400, "INVALID_ARG_OFFSET '-1': a whole number"),
        ("/channel/emptydelayed", "&channel=no", 404, "CHANNEL_NOT_FOUND"),
    ],
)
def test_what_is_refused(nsqd: Running, path: str, query: str, status: int, said: str) -> None:
    where = HERE.replace("channel=ch", "") if "channel=" in query else HERE
    answer = nsqd.request("POST", f"{path}?{where}{query}")
    assert answer.status == status
    assert json.loads(answer.body)["message"].startswith(said)


def test_very_many_are_settled_in_turns(nsqd: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SETTLED_TOGETHER", 2)
    publish(nsqd, 9, HOUR_MS)
    assert settled(nsqd, "emptydelayed") == (9, 0)
    with nsqd.client() as client:
        assert client.ask(pub(b"t", b"x")) == ok()
