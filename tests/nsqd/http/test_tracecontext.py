"""A request's `traceparent` becomes a header of its message, and traces it where it is recorded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from penstock import limits
from penstock.kernel import Section
from penstock.log.reader import Message

from ..world import Running

CONTEXT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
CONTEXT_ID = 0xA3CE929D0E0E4736
OTHER = "00-11112222333344445555666677778888-00f067aa0ba902b7-01"
OTHER_ID = 0x5555666677778888
REQUEST = {"Traceparent": CONTEXT}


@pytest.fixture
def nsqd(tmp_path: Path) -> Iterator[Running]:
    with Running(tmp_path / "data", "--durability=os") as running:
        running.request("POST", "/topic/create?topic=e&extend=true")
        running.request("POST", "/topic/create?topic=plain")
        yield running


def sections(nsqd: Running, topic: str = "e") -> list[dict[int, int | bytes]]:
    leader = nsqd.daemon.broker.topics[topic].leader()
    found: list[Message] = [leader.log.message(n) for n in range(leader.tail.committed_end)]
    return [message.sections for message in found]


def post(nsqd: Running, target: str, headers: dict[str, str]) -> bytes:
    answer = nsqd.request("POST", target, b"x", headers)
    assert answer.status == 200
    return answer.body


def headers_of(said: dict[int, int | bytes]) -> dict[str, str]:
    found: dict[str, str] = json.loads(said[Section.HEADERS])  # type: ignore[arg-type]
    return found


def test_pub_stores_it_and_traces_the_message(nsqd: Running) -> None:
    for target in ("/pub?topic=e", "/pub?topic=e&partition=0", "/pub?topic=e&defer=1"):
        assert post(nsqd, target, REQUEST) == b"OK"
    for said in sections(nsqd):
        assert headers_of(said) == {"traceparent": CONTEXT}
        assert said[Section.TRACE] == CONTEXT_ID


def test_pub_with_a_key_has_both(nsqd: Running) -> None:
    post(nsqd, "/pub?topic=e&key=k", REQUEST)
    (said,) = sections(nsqd)
    assert said[Section.KEY] == b"k"
    assert headers_of(said) == {"key": "k", "traceparent": CONTEXT}


def test_a_numbered_pub_has_it_too(nsqd: Running) -> None:
    for _ in range(2):
        post(nsqd, "/pub?topic=e&producer_id=7&sequence=0", REQUEST)
    post(nsqd, "/pub?topic=e&producer_id=7&sequence=1", {})
    first, second = sections(nsqd)
    assert headers_of(first) == {"traceparent": CONTEXT}
    assert second == {}


def test_pub_ext_adds_it_to_its_headers_and_its_own_wins(nsqd: Running) -> None:
    ext = quote('{"a": "b"}')
    assert post(nsqd, f"/pub_ext?topic=e&ext={ext}", REQUEST) == b"OK"
    own = quote(json.dumps({"traceparent": OTHER}))
    assert post(nsqd, f"/pub_ext?topic=e&ext={own}", REQUEST) == b"OK"
    post(nsqd, "/pub_ext?topic=e", {"X-Nsqext-Traceparent": OTHER, **REQUEST})
    said = sections(nsqd)
    assert [headers_of(one) for one in said] == [
        {"a": "b", "traceparent": CONTEXT},
        {"traceparent": OTHER},
        {"traceparent": OTHER},
    ]
    assert [one[Section.TRACE] for one in said] == [CONTEXT_ID, OTHER_ID, OTHER_ID]


def test_a_trace_id_of_the_publisher_wins(nsqd: Running) -> None:
    for trace_id in ("9", "0"):
        ext = quote(json.dumps({"##trace_id": trace_id}))
        post(nsqd, f"/pub_ext?topic=e&ext={ext}", REQUEST)
    traced, untraced = sections(nsqd)
    assert traced[Section.TRACE] == 9
    assert Section.TRACE not in untraced
    assert headers_of(traced)["traceparent"] == CONTEXT


def test_one_that_its_caller_does_not_record_is_a_header_alone(nsqd: Running) -> None:
    post(nsqd, "/pub?topic=e", {"traceparent": CONTEXT[:-2] + "00"})
    (said,) = sections(nsqd)
    assert headers_of(said) == {"traceparent": CONTEXT[:-2] + "00"}
    assert Section.TRACE not in said


@pytest.mark.parametrize("value", ["", "x", CONTEXT.upper(), CONTEXT + "-1", "a\xe9"])
def test_what_is_none_is_left_out(nsqd: Running, value: str) -> None:
    post(nsqd, "/pub?topic=e", {"traceparent": value})
    post(nsqd, "/pub_ext?topic=e&ext=%7B%7D", {"traceparent": value})
    assert sections(nsqd) == [{}, {Section.HEADERS: b"{}"}]


def test_headers_without_room_for_it_stay_as_they_are(nsqd: Running) -> None:
    value = "\\" * (limits.HEADERS_BYTES_MAX // 2 - 30)  # each is two bytes of JSON
    post(nsqd, "/pub_ext?topic=e", {"X-Nsqext-A": value, **REQUEST})
    assert headers_of(sections(nsqd)[0]) == {"a": value}


def test_a_topic_without_headers_has_none(nsqd: Running) -> None:
    post(nsqd, "/pub?topic=plain", REQUEST)
    post(nsqd, "/pub_ext?topic=plain&ext=%7B%7D", REQUEST)
    assert sections(nsqd, "plain") == [{}, {}]


def test_a_pack_has_none(nsqd: Running) -> None:
    post(nsqd, "/mpub?topic=e", REQUEST)
    assert sections(nsqd) == [{}]
