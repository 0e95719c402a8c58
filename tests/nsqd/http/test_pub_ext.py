"""/pub_ext: headers out of the query and of the request, delays, and producers that number."""

import json
from itertools import chain
from typing import Any
from urllib.parse import quote

import pytest

from penstock import limits
from penstock.kernel import Section
from penstock.log.messages import Message

from ..world import Running, running_with, stored

COUNT = 3
nsqd = running_with(
    "/topic/create?topic=e&extend=true",
    f"/topic/create?topic=many&extend=true&partition_num={COUNT}",
    flags=["--durability=os"],
)


def post(nsqd: Running, target: str, headers: dict[str, str] | None = None) -> tuple[int, Any]:
    return nsqd.ask("POST", target, b"x", headers)


def members(message: Message) -> Any:
    return json.loads(bytes(message.sections[Section.HEADERS]))  # type: ignore[arg-type]


# --- headers of the request ---


def test_headers_of_the_request_are_members(nsqd: Running) -> None:
    own = {"X-Nsqext-Source": "shop", "x-NSQEXT-two-Words": 'a "quoted" \\ text', "X-Other": "no"}
    assert post(nsqd, "/pub_ext?topic=e", own) == (200, b"OK")
    (message,) = stored(nsqd, "e")[0]
    assert members(message) == {"source": "shop", "two-words": 'a "quoted" \\ text'}


def test_request_headers_override_members_of_ext(nsqd: Running) -> None:
    ext = '{"a": "query", "b": "stays", "zan_test": true}'
    target = f"/pub_ext?topic=e&ext={quote(ext)}"
    assert post(nsqd, target, {"X-Nsqext-A": "header"}) == (200, b"OK")
    assert post(nsqd, target) == (200, b"OK")
    first, second = stored(nsqd, "e")[0]
    assert members(first) == {"a": "header", "b": "stays", "zan_test": True}
    assert second.sections[Section.HEADERS] == ext.encode()  # as it came


def test_a_key_and_a_trace_id_of_the_request_count(nsqd: Running) -> None:
    own = {"X-Nsqext-Key": "order-7", "X-Nsqext-##trace_id": "42"}
    status, given = post(nsqd, "/pub_ext?topic=many", own)
    assert (status, given["trace_id"], given["queue_offset"]) == (200, "42", 0)
    (message,) = chain(*stored(nsqd, "many"))
    assert (message.sections[Section.KEY], message.sections[Section.TRACE]) == (b"order-7", 42)
    topic = nsqd.daemon.broker.topics["many"]
    assert topic.leader(topic.partition_of_key(b"order-7")).tail.committed_end == 1


@pytest.mark.parametrize(
    ("own", "given"),
    [
        ({}, "MISSING_ARG_EXT"),
        ({"X-Other": "a"}, "MISSING_ARG_EXT"),
        ({"X-Nsqext-": "a"}, "E_INVALID_JSON_HEADER X-Nsqext- has no name behind the dash"),
        ({"X-Nsqext-A": "a\xff"}, "E_INVALID_JSON_HEADER X-Nsqext-a 'a\\xff': it is no UTF-8"),
        (
            {"X-Nsqext-##trace_id": "-1"},
            "E_INVALID_JSON_HEADER X-Nsqext-##trace_id '-1': it is no decimal number of 64 bits",
        ),
        (
            {"X-Nsqext-A": "1", "x-nsqext-a": "2"},
            "E_INVALID_JSON_HEADER X-Nsqext-a '2': it is there twice",
        ),
    ],
)
def test_headers_of_the_request_that_are_refused(
    nsqd: Running, own: dict[str, str], given: str
) -> None:
    assert post(nsqd, "/pub_ext?topic=e", own) == (400, {"message": given})
    assert stored(nsqd, "e")[0] == []


def test_request_headers_count_towards_the_bound(nsqd: Running) -> None:
    text = '{"a":"' + "\\\\" * (limits.HEADERS_BYTES_MAX // 4) + '"}'
    own = {"X-Nsqext-B": "\\" * (limits.HEADERS_BYTES_MAX // 4)}
    status, given = post(nsqd, f"/pub_ext?topic=e&ext={quote(text, safe=chr(92))}", own)
    assert (status, given["message"].split(" ")[0]) == (400, "E_INVALID_JSON_HEADER")
    assert f"more than {limits.HEADERS_BYTES_MAX}" in given["message"]


# --- producers that number ---


def numbered(topic: str, ext: str, sequence: int, more: str = "") -> str:
    stamp = f"producer_id=5&sequence={sequence}"
    return f"/pub_ext?topic={topic}&ext={quote(ext)}&{stamp}{more}"


def test_a_repeat_with_headers_stores_nothing(nsqd: Running) -> None:
    ext = '{"a":"b"}'
    answers = [nsqd.request("POST", numbered("many", ext, 0), b"x") for _ in range(2)]
    assert [(one.status, one.body) for one in answers] == [(200, b"OK")] * 2
    assert ["X-Penstock-Repeated" in one.headers for one in answers] == [False, True]
    (message,) = chain(*stored(nsqd, "many"))
    assert message.sections[Section.HEADERS] == ext.encode()


def test_a_trace_id_of_a_numbered_publish(nsqd: Running) -> None:
    target = numbered("many", '{"##trace_id":"9"}', 0, "&defer=100")
    status, given = post(nsqd, target)
    assert (status, given["trace_id"], given["queue_offset"]) == (200, "9", 0)
    assert post(nsqd, target) == (200, {"status": "OK", "trace_id": "9"})
    (message,) = chain(*stored(nsqd, "many"))
    assert message.id == given["id"]
    assert message.sections[Section.TRACE] == 9
    assert Section.DUE in message.sections


def test_numbers_and_a_key_exclude_each_other(nsqd: Running) -> None:
    status, given = post(nsqd, numbered("many", '{"key":"k"}', 0))
    rule = "a producer that numbers its messages has a partition of its own"
    assert (status, given) == (400, {"message": f"INVALID_ARG_KEY 'k': {rule}"})
    assert stored(nsqd, "many") == [[]] * COUNT
