"""Youzan's figures, and room on the disk by hand: with one partition and with four."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..world import Running, ok


@pytest.fixture(params=[1, 4])
def nsqd(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Running]:
    with Running(tmp_path / "data", "--durability=os", "--node-id=7") as running:
        made = f"/topic/create?topic=t&partition_num={request.param}"
        assert running.request("POST", made).status == 200
        assert running.request("POST", "/channel/create?topic=t&channel=ch").status == 200
        yield running


def count_of(nsqd: Running) -> int:
    return len(nsqd.daemon.broker.find_topic("t").leaders)


def publish(nsqd: Running, count: int, body: bytes = b"12345") -> None:
    for _ in range(count):
        assert nsqd.request("POST", "/pub?topic=t", body).status == 200


def test_where_a_channel_stands(nsqd: Running) -> None:
    publish(nsqd, 8)
    with nsqd.client() as client:
        assert client.ask(b"SUB t ch\n") == ok()
        client.send(b"RDY 1\n")
        client.message()
        status, told = nsqd.ask("GET", "/message/stats?topic=t&channel=ch")
    rows = told["channels"]
    assert (status, len(rows)) == (200, count_of(nsqd))
    assert [row["partition"] for row in rows] == list(range(count_of(nsqd)))
    assert sum(row["in_flight"] for row in rows) == 1
    assert sum(row["end"] - row["next"] for row in rows) == 7
    assert all(row["requeued"] == row["delayed"] == row["exhausted"] == 0 for row in rows)
    one = nsqd.ask("GET", "/message/stats?topic=t&partition=0")[1]["channels"]
    assert [row["partition"] for row in one] == [0]


def test_bytes_by_the_hour(nsqd: Running) -> None:
    publish(nsqd, 4)
    status, told = nsqd.ask("GET", "/message/historystats?topic=t")
    assert status == 200
    hours = told["hourly_pub_size"]
    assert (len(hours), sum(hours)) == (24, 20)
    each = [
        sum(nsqd.ask("GET", f"/message/historystats?topic=t&partition={n}")[1]["hourly_pub_size"])
        for n in range(count_of(nsqd))
    ]
    assert sum(each) == 20


def test_refused_publishes_are_counted(nsqd: Running) -> None:
    assert nsqd.ask("GET", "/serverstats") == (200, {"server_pub_failed_cnt": 0})
    nsqd.request("POST", "/disable/write?type=all")
    nsqd.request("POST", "/pub?topic=t", b"x")
    assert nsqd.ask("GET", "/serverstats") == (200, {"server_pub_failed_cnt": 1})


def test_every_copy_is_here(nsqd: Running) -> None:
    status, told = nsqd.ask("GET", "/coordinator/stats?topic=t")
    assert status == 200
    rows = told["topic_coord_stats"]
    assert [row["partition"] for row in rows] == list(range(count_of(nsqd)))
    assert {row["node"] for row in rows} == {"7"}
    assert all(len(row["isr_stats"]) == 1 and row["catchup_stats"] == [] for row in rows)


def test_room_is_made_at_once(nsqd: Running) -> None:
    publish(nsqd, 8)
    assert nsqd.request("POST", "/topic/greedyclean?topic=t").status == 200
    status, told = nsqd.ask("POST", "/topic/greedyclean?topic=t")
    assert (status, sum(row["earliest"] for row in told["partitions"])) == (200, 0)  # it is wanted
    assert nsqd.request("POST", "/channel/empty?topic=t&channel=ch").status == 200

    told = nsqd.ask("POST", "/topic/greedyclean?topic=t")[1]
    assert len(told["partitions"]) == count_of(nsqd)
    assert sum(row["earliest"] for row in told["partitions"]) == 8


def test_nothing_is_left_of_what_was_deleted(nsqd: Running) -> None:
    nsqd.request("POST", "/topic/delete?topic=t")
    assert nsqd.ask("POST", "/topic/cleanunused?dryrun=true") == (200, {"removed": [], "left": []})
    assert nsqd.ask("POST", "/topic/cleanunused") == (200, {"removed": [], "left": []})


@pytest.mark.parametrize(
    ("method", "path", "status", "said"),
    [
        ("GET", "/message/stats", 400, "MISSING_ARG_TOPIC"),
        ("GET", "/message/stats?topic=no", 404, "TOPIC_NOT_FOUND"),
        ("GET", "/message/stats?topic=t&channel=no", 404, "CHANNEL_NOT_FOUND"),
        ("GET", "/message/historystats?topic=t&partition=9", 400, "E_BAD_PARTITION"),
        ("GET", "/coordinator/stats?topic=no", 404, "TOPIC_NOT_FOUND"),
        ("POST", "/topic/greedyclean", 400, "MISSING_ARG_TOPIC"),
        ("POST", "/topic/greedyclean?topic=t&bytes=x", 400, "INVALID_ARG_BYTES 'x'"),
        ("POST", "/topic/cleanunused?dryrun=x", 400, "INVALID_ARG_DRYRUN 'x': true or false"),
    ],
)
def test_what_is_refused(nsqd: Running, method: str, path: str, status: int, said: str) -> None:
    answered, told = nsqd.ask(method, path)
    assert answered == status
    assert told["message"].startswith(said)
