"""Reading a topic of several partitions without a channel, one of them with most messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cases import each
from penstock import limits
from penstock.kernel import Section

from ..skewed import COUNTS, put, skewed
from ..world import Running

OWN_ID = "0000000000000abc"
TRACE_ID = 99


@pytest.fixture(scope="module")
def nsqd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("nsqd")) as running:
        skewed(running, "t")
        skewed(running, "moved", (1, 9, 0))
        put(running, "moved", 2, [b"moved"], {Section.ID: 0xABC, Section.TRACE: TRACE_ID})
        running.request("POST", "/topic/create?topic=one")
        running.request("POST", "/pub?topic=one", b"x")
        yield running


def partitions(nsqd: Running, query: str) -> dict[str, Any]:
    status, document = nsqd.ask("GET", f"/log/positions?{query}")
    assert status == 200
    found: dict[str, Any] = document["topics"]["t"]["partitions"]
    return found


def test_positions_of_each(nsqd: Running) -> None:
    found = partitions(nsqd, "topic=t")
    assert list(found) == ["0", "1", "2"]
    assert tuple(one["end"] for one in found.values()) == COUNTS
    assert [one["earliest"] for one in found.values()] == [0, 0, 0]
    assert found["1"]["bytes"] > found["0"]["bytes"] > 0
    assert all("bytes_from" not in one for one in found.values())


def test_a_from_is_of_the_partition_that_it_names(nsqd: Running) -> None:
    found = partitions(nsqd, "topic=t&from=1:0&from=2:2")
    assert "bytes_from" not in found["0"]
    assert found["1"]["bytes_from"] > 36
    assert found["2"]["bytes_from"] == 0
    found = partitions(nsqd, "topic=t&from=0")
    assert [name for name, one in found.items() if "bytes_from" in one] == ["0"]


@each("text", ["x:1", "255:1", ":1", "1:", "1:x", "-1:5", "1:2:3"])
def test_a_from_that_is_none(nsqd: Running, text: str) -> None:
    status, document = nsqd.ask("GET", f"/log/positions?topic=t&from={text}")
    assert (status, document["message"][:16]) == (400, "INVALID_ARG_FROM")
    assert repr(text) in document["message"] or repr(text.partition(":")[2]) in document["message"]


@each(
    "target",
    [
        "/log/fetch?topic=t&from=0&partition=3",
        "/log/offset?topic=t&timestamp_ms=0&partition=3",
        "/message/get?topic=t&offset=0&partition=3",
        "/message/get?topic=t&id=0000000000000001&partition=3",
        "/log/fetch?topic=one&from=0&partition=1",
    ],
)
def test_one_that_there_is_not(nsqd: Running, target: str) -> None:
    status, document = nsqd.ask("GET", target)
    assert (status, document["message"]) == (404, "PARTITION_NOT_FOUND")


def test_offsets_of_times_and_bytes(nsqd: Running) -> None:
    far_ms = 1 << 42
    for partition, count in enumerate(COUNTS):
        place = f"/log/offset?topic=t&partition={partition}"
        assert nsqd.ask("GET", f"{place}&timestamp_ms={far_ms}") == (200, {"offset": count})
        assert nsqd.ask("GET", f"{place}&timestamp_ms=0") == (200, {"offset": 0})
        assert nsqd.ask("GET", f"{place}&from=0&bytes={limits.MIB}") == (200, {"offset": count})


def test_an_offset_alone_says_too_little(nsqd: Running) -> None:
    status, document = nsqd.ask("GET", "/message/get?topic=t&offset=0")
    assert (status, document["message"]) == (400, "MISSING_ARG_PARTITION")
    assert nsqd.ask("GET", "/message/get?topic=one&offset=0")[1]["partition"] == 0


def test_a_message_by_its_id_wherever_it_is(nsqd: Running) -> None:
    for partition, count in enumerate(COUNTS):
        place = f"/message/get?topic=t&partition={partition}&offset={count - 1}"
        _, document = nsqd.ask("GET", place)
        assert nsqd.ask("GET", f"/message/get?topic=t&id={document['id']}") == (200, document)
        other = (partition + 1) % len(COUNTS)
        elsewhere = f"/message/get?topic=t&id={document['id']}&partition={other}"
        assert nsqd.ask("GET", elsewhere)[1]["message"] == "MESSAGE_NOT_FOUND"


@pytest.mark.parametrize("asked", [f"id={OWN_ID}", f"trace_id={TRACE_ID}"])
def test_a_message_by_what_it_brought_along(nsqd: Running, asked: str) -> None:
    status, document = nsqd.ask("GET", f"/message/get?topic=moved&{asked}")
    assert (status, document["partition"], document["offset"]) == (200, 2, 0)
    assert document["body"] == "moved"
    assert nsqd.ask("GET", f"/message/get?topic=moved&{asked}&partition=1")[0] == 404


def test_where_the_logs_of_a_deleted_topic_ended(nsqd: Running) -> None:
    skewed(nsqd, "gone", (1, 9))
    before = nsqd.ask("GET", "/log/positions?topic=gone")[1]["topics"]["gone"]["identity"]
    assert nsqd.request("POST", "/topic/delete?topic=gone").status == 200
    document = nsqd.ask("GET", "/log/positions?topic=gone")[1]
    assert document["ended"] == {"gone": {before: 1}}
    assert document["ended_partitions"] == {"gone": {before: {"0": 1, "1": 9}}}
