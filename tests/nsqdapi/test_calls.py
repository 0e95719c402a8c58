"""What is sent, and what answers mean; without I/O."""

import json
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from cases import each
from penstock import limits
from penstock.errors import RangeCorrupt
from penstock.net.outgoing import code_of
from penstock.nsqdapi import calls
from penstock.nsqdapi.calls import AnswerInvalid, Call, Committed, LogSpan, Move, Positions, Stage

RANGE = {"x-penstock-base-offset": "4", "x-penstock-next-offset": "9"}


def answered(call: Call[Any], document: object, headers: dict[str, str] | None = None) -> Any:
    return call.decode(json.dumps(document).encode(), headers or {})


def query_of(call: Call[Any]) -> list[tuple[str, str]]:
    return parse_qsl(urlsplit(call.target).query, keep_blank_values=True)


# --- positions ---


def test_many_topics_take_several_calls() -> None:
    names = [f"t{number}" for number in range(2 * limits.SPARK_NAMES_MAX + 1)]
    asked = list(calls.positions_of_many(names, {"t0": 7}))
    assert [name for call in asked for key, name in query_of(call) if key == "topic"] == names
    assert len(asked) == 3
    assert query_of(asked[0])[:3] == [("topic", "t0"), ("from", "7"), ("topic", "t1")]
    assert [call.target for call in calls.positions_of_many([])] == ["/log/positions"]


def test_a_from_names_its_partition() -> None:
    asked = calls.positions(["a", "b", "c"], froms={"a": {2: 5, 0: 7}, "b": 3})
    assert query_of(asked) == [
        ("topic", "a"), ("from", "7"), ("from", "2:5"),
        ("topic", "b"), ("from", "3"), ("topic", "c"),
    ]  # fmt: skip
    many = {name: dict.fromkeys(range(60), 0) for name in ("a", "b", "c")}
    parts = list(calls.positions_of_many(many, many))
    assert [len(query_of(call)) for call in parts] == [61, 61, 61]


def test_parts_are_joined() -> None:
    spans, ends = calls.TopicSpans("x", {0: LogSpan(0, 1)}), {"c": {"y": {0: 4}}}
    first = Positions({"a": spans}, ("c",), {"c": {"y": 4}}, ends)
    parts = [first, Positions({"b": spans}, ("d",))]
    whole = Positions({"a": spans, "b": spans}, ("c", "d"), {"c": {"y": 4}}, ends)
    assert calls.joined(parts) == whole


@each(
    ("body", "reason"),
    [
        (b"", "no JSON object"),
        (b"<html>", "no JSON object"),
        (b'{"topics":{', "no JSON object"),
        (b'{"topics":{"\xff":1}}', "no JSON object"),
        (b'{"status_txt":"OK"}', "`topics`"),
        (b'{"topics":{"t":{"identity":"x","partitions":{"first":{}}}}}', "int"),
        (b'{"topics":{"t":{"identity":"x","partitions":{"0":{"earliest":0}}}}}', "`end`"),
    ],
)
def test_invalid_answers(body: bytes, reason: str) -> None:
    with pytest.raises(AnswerInvalid, match=reason):
        calls.positions().decode(body, {})


# --- ranges and messages ---


def test_a_range_is_asked_for_with_its_identity() -> None:
    call = calls.fetch("a&b", 4, 9, 1000, 2, "x")
    assert (call.method, call.path) == ("GET", "/log/fetch")
    assert query_of(call) == [
        ("topic", "a&b"), ("partition", "2"), ("identity", "x"),
        ("from", "4"), ("to", "9"), ("bytes_max", "1000"),
    ]  # fmt: skip
    assert call.decode(b"raw", RANGE) == (b"raw", 4, 9)
    assert call.decode(b"raw", {**RANGE, "x-penstock-identity": "x"}) == (b"raw", 4, 9)
    assert "identity" not in dict(query_of(calls.fetch("t", 4, 9, 1000)))


def test_a_range_of_another_log_is_refused() -> None:
    with pytest.raises(RangeCorrupt, match="identity y, not x"):
        calls.fetch("t", 4, 9, 1, 0, "x").decode(b"", {**RANGE, "x-penstock-identity": "y"})


@each("name", RANGE)
@each("text", [None, "", "4x"])
def test_a_range_says_its_offsets(name: str, text: str | None) -> None:
    headers = {key: value for key, value in {**RANGE, name: text}.items() if value is not None}
    with pytest.raises(AnswerInvalid, match="names no offsets"):
        calls.fetch("t", 4, 9, 1).decode(b"", headers)


def test_offsets() -> None:
    at = calls.offset_at("t", 1500, committed=True)
    assert query_of(at)[2:] == [("timestamp_ms", "1500"), ("committed", "true")]
    assert answered(at, {"offset": 7}) == 7
    after = calls.offset_after("t", 7, 1000, 1)
    assert query_of(after)[1:] == [("partition", "1"), ("from", "7"), ("bytes", "1000")]
    with pytest.raises(AnswerInvalid):
        answered(after, {"offset": "seven"})


def test_a_message_is_looked_for_in_all_partitions() -> None:
    assert query_of(calls.message("t", "id", "0c")) == [("topic", "t"), ("id", "0c")]
    assert query_of(calls.message("t", "id", "0c", 2))[1] == ("partition", "2")
    assert query_of(calls.message("t", "offset", 7))[1] == ("partition", "0")


def test_a_message_may_hold_half_a_character() -> None:
    call = calls.message("t", "offset", 7)
    assert query_of(call)[2:] == [("offset", "7")]
    assert call.decode(b'{"body":"\\ud83d"}', {}) == {"body": "\ud83d"}
    with pytest.raises(AnswerInvalid):
        call.decode(b"[]", {})


# --- writing ---


def test_a_long_list_is_committed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "COMMIT_PART_STAGES_MAX", 2)
    stages = [Stage("t", 0, f"s{number}") for number in range(3)]
    first, last = calls.commits("app", 4, stages)
    assert query_of(first)[2:] == [("part", "0"), ("parts", "2")]
    assert [one["stage"] for one in json.loads(last.body or b"")["stages"]] == ["s2"]
    assert answered(first, {"committed": False, "part": 0}) is None
    done = {"committed": True, "repeated": False, "messages": 3}
    assert answered(last, done) == Committed(False, 3)
    (alone,) = calls.commits("app", 4, [])
    assert (alone.method, query_of(alone)) == ("POST", [("app", "app"), ("version", "4")])
    assert [len(json.loads(call.body or b"")["stages"]) for call in calls.aborts(stages)] == [2, 1]
    assert list(calls.aborts([])) == []


def test_other_answers() -> None:
    owner = calls.Owner("app", 4, "1-2")
    staged = calls.stage(Stage("t", 1, "s"), b"raw", owner)
    assert query_of(staged)[1:4] == [("partition", "1"), ("stage", "s"), ("app", "app")]
    assert (staged.body, answered(staged, {"messages": 5})) == (b"raw", 5)
    assert answered(calls.last_version("app"), {"version": None}) is None
    assert answered(calls.last_version("app"), {"version": 3}) == 3
    move = {"messages_again": 1, "messages_skipped": 2, "messages_given_up": 3, "offset": 9}
    asked = calls.move("t", "c", "back:9", dry_run=True)
    assert answered(asked, move) == Move(1, 2, 3)
    assert query_of(asked)[2:] == [("position", "back:9"), ("dry_run", "true")]
    listed = [{"broadcast_address": "::1", "http_port": 2, "hostname": "h"}]
    (one,) = answered(calls.nodes(), {"producers": listed})
    assert one.http_address == "[::1]:2"
    calls.publish("t", b"x").decode(b"OK", {})
    numbered = calls.publish("t", b"x", "/mpub", [("sequence", "3")])
    assert numbered.target == "/mpub?topic=t&sequence=3"
    assert calls.positions().is_answered(b'{"topics":{}}', {})
    no_path = b'{"message":"NOT_FOUND"}'
    assert not calls.positions().is_answered(no_path, {})
    assert "is it another's?" in str(calls.refusal("u", 404, no_path))


def test_refusals_have_a_status_and_a_name() -> None:
    refused = calls.refusal("http://a/log/fetch", 410, b'{"message":"OFFSET_GONE","earliest":7}')
    assert (refused.status, refused.code) == (410, "OFFSET_GONE")
    assert refused.document["earliest"] == 7
    for body in (b"", b"oh no", b"[1]", b'{"message":7}', b"[" * 100_000):
        assert code_of(body) == ""
    assert calls.refusal("u", 500, b"oh no").document == {}
