"""`/log/positions`, `/log/fetch`, `/log/offset` and `/message/get`: answers and refusals."""

import base64
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cases import each
from penstock import limits
from penstock.broker.partition.appends import Content
from penstock.kernel import Section, decode_columns
from penstock.log.head import HEAD_BYTES

from ..skewed import COUNTS, put, skewed
from ..world import Answer, Running, eventually

END = 3


@pytest.fixture(scope="module")
def nsqd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("nsqd")) as running:
        running.publish("t", b"zero", b"one", b"\xff\x00")
        running.post("/topic/create?topic=t2", "/topic/create?topic=other")
        running.publish("_pipelines", b"{}")
        yield running


def identity(nsqd: Running, topic: str = "t") -> str:
    found: str = nsqd.ask("GET", f"/log/positions?topic={topic}")[1]["topics"][topic]["identity"]
    return found


def test_positions(nsqd: Running) -> None:
    status, document = nsqd.ask("GET", "/log/positions?topic=t&topic=none&topic=t2")
    assert (status, list(document["topics"]), document["missing"]) == (200, ["t", "t2"], ["none"])
    partition = document["topics"]["t"]["partitions"]["0"]
    assert partition.pop("bytes") >= END * 40
    assert partition == {"earliest": 0, "end": END, "committed": END}
    empty = document["topics"]["t2"]["partitions"]["0"]
    assert empty == {"earliest": 0, "end": 0, "committed": 0, "bytes": 0}


@each(
    ("query", "names"),
    [
        ("?pattern=.*[rt2]", ["other", "t", "t2"]),
        ("?pattern=t.*", ["t", "t2"]),
        ("?pattern=t", ["t"]),
        ("?pattern=t%7Coth", ["t"]),
        ("?topic=other&pattern=t[0-9]", ["other", "t2"]),
        ("?topic=none", []),
        ("?pattern=.*pipelines", []),
        ("?pattern=_pipe.*", ["_pipelines"]),
        ("?topic=_pipelines", ["_pipelines"]),
    ],
)
def test_which_topics(nsqd: Running, query: str, names: list[str]) -> None:
    assert list(nsqd.ask("GET", f"/log/positions{query}")[1]["topics"]) == names


def fetched(answer: Answer) -> tuple[int, str, str, int]:
    return (
        answer.status,
        answer.headers["X-Penstock-Base-Offset"],
        answer.headers["X-Penstock-Next-Offset"],
        decode_columns(answer.body).count,
    )


def test_fetch(nsqd: Running) -> None:
    target = f"/log/fetch?topic=t&partition=0&identity={identity(nsqd)}"
    answer = nsqd.request("GET", f"{target}&from=0&to=3&bytes_max=1000000")
    assert fetched(answer) == (200, "0", "3", 3)
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert bytes(decode_columns(answer.body).bodies) == b"zeroone\xff\x00"
    assert fetched(nsqd.request("GET", f"{target}&from=0&bytes_max=1")) == (200, "0", "1", 1)
    assert fetched(nsqd.request("GET", f"{target}&from=1&to=2")) == (200, "1", "2", 1)
    assert fetched(nsqd.request("GET", f"{target}&from=3")) == (200, "3", "3", 0)


def test_no_fetch_is_larger_than_the_bound(nsqd: Running) -> None:
    nsqd.publish("large", *[bytes(limits.MIB)] * 6)
    for bytes_max, bound in [("", limits.LOG_FETCH_BYTES), ("1" + "0" * 15, 4 * limits.MIB)]:
        target = f"/log/fetch?topic=large&from=0&bytes_max={bytes_max}"
        body = nsqd.request("GET", target).body
        assert bound - 2 * limits.MIB < len(body) <= max(bound, limits.MIB + 80)


def test_a_topic_made_again_is_another(nsqd: Running) -> None:
    assert nsqd.request("POST", "/topic/create?topic=again").status == 200
    before = identity(nsqd, "again")
    nsqd.post("/topic/delete?topic=again", "/topic/create?topic=again")
    status, document = nsqd.ask("GET", f"/log/fetch?topic=again&from=0&identity={before}")
    assert (status, document["identity"]) == (409, identity(nsqd, "again"))


def test_the_offset_of_a_time(nsqd: Running) -> None:
    assert nsqd.ask("GET", "/log/offset?topic=t&timestamp_ms=0") == (200, {"offset": 0})
    stored_ms = nsqd.ask("GET", "/message/get?topic=t&offset=1")[1]["timestamp_ns"] // limits.MS
    assert nsqd.ask("GET", f"/log/offset?topic=t&timestamp_ms={stored_ms}")[1]["offset"] <= 1
    ahead_ms = (time.time_ns() + limits.SECOND) // limits.MS
    assert nsqd.ask("GET", f"/log/offset?topic=t&timestamp_ms={ahead_ms}") == (200, {"offset": END})


def test_bytes_and_offsets(tmp_path: Path) -> None:
    with Running(tmp_path / "bytes") as nsqd:
        nsqd.publish("t", *[b"x" * 10_000] * 40)
        nsqd.publish("small", b"x")

        def left(first: int) -> int:
            document = nsqd.ask("GET", f"/log/positions?topic=t&from={first}&topic=small&from=1")[1]
            assert document["topics"]["small"]["partitions"]["0"]["bytes_from"] == 0
            return int(document["topics"]["t"]["partitions"]["0"]["bytes_from"])

        def after(first: int, length: int) -> int:
            return int(
                nsqd.ask("GET", f"/log/offset?topic=t&from={first}&bytes={length}")[1]["offset"]
            )

        for first in (0, 20, 39):
            assert abs(left(first) - (40 - first) * 10_100) <= 10_100
            for length in (0, 1, 100_000, 250_000):
                end = min(first + length // 10_000, 40)
                assert first < after(first, length) <= 40
                assert abs(after(first, length) - end) <= 2  # between entries it is a guess
        assert (after(0, 1 << 40), after(40, 5)) == (40, 40)
        assert nsqd.ask("GET", "/log/offset?topic=t&from=41&bytes=1")[0] == 416


def test_one_message(nsqd: Running) -> None:
    status, document = nsqd.ask("GET", "/message/get?topic=t&offset=1")
    assert (status, document["topic"], document["partition"]) == (200, "t", 0)
    assert (document["offset"], document["body"], document["attempts"]) == (1, "one", 0)
    assert base64.b64decode(document["body_base64"]) == b"one"
    assert nsqd.ask("GET", f"/message/get?topic=t&id={document['id']}") == (200, document)
    binary = nsqd.ask("GET", "/message/get?topic=t&offset=2")[1]
    assert binary["body"] is None
    assert base64.b64decode(binary["body_base64"]) == b"\xff\x00"


def test_a_message_with_all_that_can_be_stored_of_it(nsqd: Running) -> None:
    assert nsqd.request("POST", "/topic/create?topic=full").status == 200
    sections: dict[int, int | bytes] = {
        Section.ID: 0xABC,
        Section.TIMESTAMP: 5,
        Section.ATTEMPTS: 3,
        Section.TRACE: 99,
        Section.KEY: b"key",
        Section.HEADERS: b'{"a":1}',
    }
    topic = nsqd.daemon.broker.topics["full"]
    nsqd.call(
        lambda: topic.publish_dead_letters([Content(b"x", sections)], lambda error, position: None)
    )
    assert nsqd.request("POST", "/pub?topic=full", b"y").status == 200
    status, document = nsqd.ask("GET", "/message/get?topic=full&id=0000000000000abc")
    assert (status, document["timestamp_ns"], document["attempts"]) == (200, 5, 3)
    assert (document["headers"], document["trace_id"]) == ({"a": 1}, 99)
    assert base64.b64decode(document["key_base64"]) == b"key"
    assert nsqd.ask("GET", "/message/get?topic=full&trace_id=99") == (200, document)


def test_removed_and_corrupt_messages(tmp_path: Path) -> None:
    flags = ["--segment-bytes=65536", "--retain-age=0", "--retain-bytes=0"]
    with Running(tmp_path / "data", *flags) as nsqd:
        assert nsqd.request("POST", "/channel/create?topic=t&channel=c").status == 404
        nsqd.post("/topic/create?topic=t", "/channel/create?topic=t&channel=c")
        nsqd.publish("t", *[bytes(40_000)] * 4)
        assert nsqd.request("POST", "/channel/empty?topic=t&channel=c").status == 200
        first = "/log/fetch?topic=t&from=0"
        eventually(lambda: nsqd.request("GET", first).status == 410)
        earliest = nsqd.ask("GET", first)[1]["earliest"]
        assert earliest > 0
        assert nsqd.request("GET", f"/log/fetch?topic=t&from={earliest}").status == 200
        assert nsqd.request("POST", "/pub?topic=t", b"the last one").status == 200
        path = max((tmp_path / "data" / "topics" / "t" / "0").glob("[0-9]*.log"))
        data = bytearray(path.read_bytes())
        data[HEAD_BYTES + 40] ^= 0xFF  # in the first body of the newest segment
        path.write_bytes(data)
        corrupt = int(path.stem)
        status, document = nsqd.ask("GET", f"/log/fetch?topic=t&from={corrupt}")
        assert (status, document["message"], document["from"]) == (422, "LOG_DAMAGED", corrupt)
        assert document["to"] > corrupt


# --- reading a topic of several partitions without a channel, one of them with most messages ---


OWN_ID = "0000000000000abc"
TRACE_ID = 99


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("nsqd")) as running:
        skewed(running, "t")
        skewed(running, "moved", (1, 9, 0))
        put(running, "moved", 2, [b"moved"], {Section.ID: 0xABC, Section.TRACE: TRACE_ID})
        yield running


def partitions(node: Running, query: str) -> dict[str, Any]:
    status, document = node.ask("GET", f"/log/positions?{query}")
    assert status == 200
    found: dict[str, Any] = document["topics"]["t"]["partitions"]
    return found


def test_a_message_by_its_id_in_any_partition(node: Running) -> None:
    for partition, count in enumerate(COUNTS):
        place = f"/message/get?topic=t&partition={partition}&offset={count - 1}"
        _, document = node.ask("GET", place)
        assert node.ask("GET", f"/message/get?topic=t&id={document['id']}") == (200, document)
        other = (partition + 1) % len(COUNTS)
        elsewhere = f"/message/get?topic=t&id={document['id']}&partition={other}"
        assert node.ask("GET", elsewhere)[1]["message"] == "MESSAGE_NOT_FOUND"


@pytest.mark.parametrize("asked", [f"id={OWN_ID}", f"trace_id={TRACE_ID}"])
def test_a_message_by_its_own_id_or_trace_id(node: Running, asked: str) -> None:
    status, document = node.ask("GET", f"/message/get?topic=moved&{asked}")
    assert (status, document["partition"], document["offset"]) == (200, 2, 0)
    assert document["body"] == "moved"
    assert node.ask("GET", f"/message/get?topic=moved&{asked}&partition=1")[0] == 404


def test_where_the_logs_of_a_deleted_topic_ended(node: Running) -> None:
    skewed(node, "gone", (1, 9))
    before = node.ask("GET", "/log/positions?topic=gone")[1]["topics"]["gone"]["identity"]
    assert node.request("POST", "/topic/delete?topic=gone").status == 200
    document = node.ask("GET", "/log/positions?topic=gone")[1]
    assert document["ended"] == {"gone": {before: 1}}
    assert document["ended_partitions"] == {"gone": {before: {"0": 1, "1": 9}}}
