"""PUB_TRACE, MPUB_TRACE, /pubtrace and /mpubtrace: their answers, and what is stored."""

import json
import struct

from penstock.kernel import Section
from penstock.log.messages import Message
from penstock.wire import frames
from penstock.wire.trace_ids import decode_reply

from .world import Running, running_with, stored, u32

nsqd = running_with()


TRACE_ID = 0x0102030405060708


def traced(body: bytes, trace_id: int = TRACE_ID) -> bytes:
    return frames.with_size(struct.pack(">Q", trace_id) + body)


def pub_trace(topic: bytes, body: bytes, trace_id: int = TRACE_ID) -> bytes:
    return b"PUB_TRACE %b\n" % topic + traced(body, trace_id)


def mpub_trace(topic: bytes, messages: list[bytes]) -> bytes:
    return b"MPUB_TRACE %b\n" % topic + frames.with_size(u32(len(messages)) + b"".join(messages))


def traces(messages: list[Message]) -> list[int | bytes | None]:
    return [message.sections.get(Section.TRACE) for message in messages]


def test_an_mpub_trace_answers_for_its_first_message(nsqd: Running) -> None:
    with nsqd.client() as client:
        messages = [traced(b"a", 7), traced(b"bb", 8), traced(b"ccc", 0)]
        _, trace_id, offset, stored_bytes = decode_reply(
            client.ask(mpub_trace(b"orders", messages)).data
        )
        assert (trace_id, offset, stored_bytes) == (7, 0, 4 + 1 + 12)
        found = stored(nsqd, "orders")[0]
        assert traces(found) == [7, 8, None]
        assert [message.body for message in found] == [b"a", b"bb", b"ccc"]


def pack(*messages: bytes) -> bytes:
    return u32(len(messages)) + b"".join(messages)


def test_an_idempotent_traced_publish_gets_its_position_but_a_repeat_does_not(
    nsqd: Running,
) -> None:
    nsqd.request("POST", "/pub?topic=t", b"another's")
    stamp = "topic=t&producer_id=5&sequence="
    two = pack(traced(b"a", 7), traced(b"b", 0))
    first, again = (nsqd.request("POST", f"/mpubtrace?{stamp}0", two) for _ in range(2))
    third, repeat = (nsqd.request("POST", f"/pubtrace?trace_id=9&{stamp}2", b"c") for _ in range(2))
    places = [json.loads(one.body).get("queue_offset") for one in (first, again, third, repeat)]
    assert places == [1, None, 3, None]
    repeated = ["X-Penstock-Repeated" in one.headers for one in (first, again, third, repeat)]
    assert repeated == [False, True, False, True]
    assert json.loads(repeat.body) == {"status": "OK", "trace_id": "9"}
    found = stored(nsqd, "t")[0]
    assert json.loads(third.body)["id"] == found[3].id
    assert traces(found) == [None, 7, None, 9]
    gap = nsqd.request("POST", f"/mpubtrace?{stamp}8", two)
    assert (gap.status, json.loads(gap.body)["expected"]) == (409, 3)
