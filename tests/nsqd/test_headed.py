"""PUB_EXT and MPUB_EXT of a daemon: what is stored where, traced answers, errors and bounds."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.kernel import Section, murmur3_32
from penstock.log.reader import Message
from penstock.wire import frames
from penstock.wire.traced import decode_reply

from .world import Running, ok, u32

PARTITIONS = 3


@pytest.fixture
def nsqd(tmp_path: Path) -> Iterator[Running]:
    with Running(tmp_path / "data") as running:
        query = f"topic=t&partition_num={PARTITIONS}&extend=true"
        assert running.request("POST", f"/topic/create?{query}").status == 200
        yield running


def headed(headers: bytes, body: bytes) -> bytes:
    return frames.with_size(struct.pack(">H", len(headers)) + headers + body)


def pub_ext(target: bytes, headers: bytes, body: bytes) -> bytes:
    return b"PUB_EXT %b\n" % target + headed(headers, body)


def mpub_ext(target: bytes, messages: list[tuple[bytes, bytes]]) -> bytes:
    packed = b"".join(headed(*message) for message in messages)
    return b"MPUB_EXT %b\n" % target + frames.with_size(u32(len(messages)) + packed)


def keyed(key: bytes) -> bytes:
    return b'{"key":"%b"}' % key


def stored(nsqd: Running, topic: str = "t") -> list[list[Message]]:
    """The messages of each partition."""
    return [
        [leader.log.message(offset) for offset in range(leader.tail.committed_end)]
        for leader in nsqd.daemon.broker.topics[topic].leaders
    ]


def keys_apart() -> list[bytes]:
    """One for each partition."""
    found: dict[int, bytes] = {}
    for number in range(100):
        key = b"%d" % number
        found.setdefault(murmur3_32(key) % PARTITIONS, key)
    return [found[number] for number in range(PARTITIONS)]


def test_keys_choose_partitions_and_headers_are_stored(nsqd: Running) -> None:
    keys = keys_apart()
    with nsqd.client() as client:
        assert client.ask(mpub_ext(b"t", [(keyed(key), key) for key in keys])) == ok()
        assert client.ask(pub_ext(b"t 1", keyed(keys[0]), b"named")) == ok()
    found = stored(nsqd)
    assert [[message.body for message in part] for part in found] == [
        [keys[0]],
        [keys[1], b"named"],
        [keys[2]],
    ]
    assert found[1][1].sections[Section.HEADERS] == keyed(keys[0])
    assert found[1][1].sections[Section.KEY] == keys[0]


def test_a_trace_id_gets_the_traced_reply(nsqd: Running) -> None:
    key = keys_apart()[1]
    headers = b'{"key":"%b","##trace_id":"77"}' % key
    with nsqd.client() as client:
        client.ask(pub_ext(b"t", keyed(key), b"first"))
        answer = client.ask(pub_ext(b"t", headers, b"hello"))
        message_id, trace_id, offset, stored_bytes = decode_reply(answer.data)
        assert client.ask(pub_ext(b"t", keyed(key), b"last")) == ok()
        (session,) = nsqd.daemon.protocol.sessions.values()
        assert session.conn.published == {b"t": 3}
    found = stored(nsqd)[1][1]
    assert (found.id, found.body) == (message_id, b"hello")
    assert (trace_id, offset) == (77, 1)
    assert stored_bytes == 4 + 5 + 12 + 8 + len(key) + 8 + len(headers)
    assert found.sections == {
        Section.TRACE: 77,
        Section.KEY: key,
        Section.HEADERS: headers,
    }


def test_a_bound_on_the_depth_is_exact_for_keys(nsqd: Running) -> None:
    """Its room is shared out among the partitions, and given to those that are asked for."""
    keys = keys_apart()
    topic = nsqd.daemon.broker.topics["t"]
    assert nsqd.request("POST", "/channel/create?topic=t&channel=c").status == 200
    nsqd.call(lambda: topic.configure({"max_depth": 8}))
    with nsqd.client() as client:
        for number in range(5):
            assert client.ask(pub_ext(b"t", keyed(keys[1]), b"%d" % number)) == ok()
        spread = [(keyed(keys[0]), b"x"), (keyed(keys[0]), b"x"), (keyed(keys[2]), b"x")]
        assert client.ask(mpub_ext(b"t", spread)) == ok()
        refused = client.ask(pub_ext(b"t", keyed(keys[1]), b"too many"))
        assert refused.data.startswith(b"E_PUB_FAILED PUB failed topic depth limit of 8")
    assert [len(part) for part in stored(nsqd)] == [2, 5, 1]
