"""The switches of the trace over HTTP, and what /stats says of them."""

import json
from typing import Any
from urllib.parse import quote

import pytest

from penstock import limits
from penstock.kernel import Section
from penstock.trace.events import ABOUT_NO_MESSAGE, TOPIC, Kind, decode

from ..world import Running, eventually, ok, pub, running_with, stored

nsqd = running_with("/topic/create?topic=orders", "/channel/create?topic=orders&channel=mail")


def rates(nsqd: Running) -> tuple[Any, Any]:
    (topic,) = nsqd.stats("&topic=orders")["topics"]
    return topic["trace_rate"], topic["channels"][0]["trace_rate"]


def test_the_switches_of_youzan(nsqd: Running) -> None:
    assert nsqd.request("POST", "/message/trace/enable?topic=orders").status == 200
    assert rates(nsqd) == (1.0, 1.0)
    nsqd.request("POST", "/message/trace/disable?topic=orders&channel=mail")
    assert rates(nsqd) == (1.0, 0.0)
    nsqd.request("POST", "/message/trace/disable?topic=orders")
    nsqd.request("POST", "/message/trace/enable?topic=orders&channel=mail&rate=0.1")
    assert rates(nsqd) == (0.0, 0.1)


def test_events_name_the_clients(nsqd: Running) -> None:
    nsqd.request("POST", "/message/trace/enable?topic=orders")
    with nsqd.client(client_id="worker-7") as consumer, nsqd.client() as publisher:
        assert publisher.ask(pub("orders", b"a")) == ok()
        consumer.consume("orders", "mail", 1)
        message = consumer.message()
        consumer.send(b"FIN %b\n" % message.id)

        def events() -> list[Any]:
            topic = nsqd.daemon.broker.topics.get(TOPIC)
            if topic is None:  # made with the first events that are stored
                return []
            log = topic.leader().log
            found = [e for at in range(log.written_end) for e in decode(log.message(at).body)]
            return [event for event in found if event.kind not in ABOUT_NO_MESSAGE]

        eventually(lambda: len(nsqd.call(events)) == 3)
        published, sent, finished = nsqd.call(events)
        host, port = publisher.socket.getsockname()
        assert (published.kind, published.client) == (Kind.PUBLISHED, f"{host}:{port}")
        host, port = consumer.socket.getsockname()
        assert sent.client == finished.client == f"worker-7 {host}:{port}"
        assert finished.message_id == int(message.id, 16)


# --- A request's `traceparent` becomes a header of its message ---


CONTEXT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
CONTEXT_ID = 0xA3CE929D0E0E4736
OTHER = "00-11112222333344445555666677778888-00f067aa0ba902b7-01"
OTHER_ID = 0x5555666677778888
REQUEST = {"Traceparent": CONTEXT}

node = running_with(
    "/topic/create?topic=e&extend=true", "/topic/create?topic=plain", flags=["--durability=os"]
)


def sections(node: Running, topic: str = "e") -> list[dict[int, int | bytes]]:
    return [message.sections for message in stored(node, topic)[0]]


def post(node: Running, target: str, headers: dict[str, str]) -> bytes:
    answer = node.request("POST", target, b"x", headers)
    assert answer.status == 200
    return answer.body


def headers_of(text: dict[int, int | bytes]) -> dict[str, str]:
    found: dict[str, str] = json.loads(text[Section.HEADERS])  # type: ignore[arg-type]
    return found


def test_pub_stores_it_and_traces_the_message(node: Running) -> None:
    for target in ("/pub?topic=e", "/pub?topic=e&partition=0", "/pub?topic=e&defer=1"):
        assert post(node, target, REQUEST) == b"OK"
    for text in sections(node):
        assert headers_of(text) == {"traceparent": CONTEXT}
        assert text[Section.TRACE] == CONTEXT_ID


def test_pub_ext_adds_it_to_its_headers_and_its_own_wins(node: Running) -> None:
    ext = quote('{"a": "b"}')
    assert post(node, f"/pub_ext?topic=e&ext={ext}", REQUEST) == b"OK"
    own = quote(json.dumps({"traceparent": OTHER}))
    assert post(node, f"/pub_ext?topic=e&ext={own}", REQUEST) == b"OK"
    post(node, "/pub_ext?topic=e", {"X-Nsqext-Traceparent": OTHER, **REQUEST})
    text = sections(node)
    assert [headers_of(one) for one in text] == [
        {"a": "b", "traceparent": CONTEXT},
        {"traceparent": OTHER},
        {"traceparent": OTHER},
    ]
    assert [one[Section.TRACE] for one in text] == [CONTEXT_ID, OTHER_ID, OTHER_ID]


def test_a_trace_id_of_the_publisher_wins(node: Running) -> None:
    for trace_id in ("9", "0"):
        ext = quote(json.dumps({"##trace_id": trace_id}))
        post(node, f"/pub_ext?topic=e&ext={ext}", REQUEST)
    traced, untraced = sections(node)
    assert traced[Section.TRACE] == 9
    assert Section.TRACE not in untraced
    assert headers_of(traced)["traceparent"] == CONTEXT


def test_an_unsampled_trace_parent_is_only_a_header(node: Running) -> None:
    post(node, "/pub?topic=e", {"traceparent": CONTEXT[:-2] + "00"})
    (text,) = sections(node)
    assert headers_of(text) == {"traceparent": CONTEXT[:-2] + "00"}
    assert Section.TRACE not in text


@pytest.mark.parametrize("value", ["", "x", CONTEXT.upper(), CONTEXT + "-1", "a\xe9"])
def test_invalid_trace_parents_are_left_out(node: Running, value: str) -> None:
    post(node, "/pub?topic=e", {"traceparent": value})
    post(node, "/pub_ext?topic=e&ext=%7B%7D", {"traceparent": value})
    assert sections(node) == [{}, {Section.HEADERS: b"{}"}]


def test_full_headers_get_no_trace_parent(node: Running) -> None:
    value = "\\" * (limits.HEADERS_BYTES_MAX // 2 - 30)  # each is two bytes of JSON
    post(node, "/pub_ext?topic=e", {"X-Nsqext-A": value, **REQUEST})
    assert headers_of(sections(node)[0]) == {"a": value}
