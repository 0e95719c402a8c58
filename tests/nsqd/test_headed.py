"""PUB_EXT and MPUB_EXT of a daemon: what is stored where, traced answers, errors and bounds."""

import json
import struct
from pathlib import Path
from typing import Any

from penstock.broker.channels.dead_letter import DeadLetterContent
from penstock.kernel import Section, murmur3_32
from penstock.wire import frames
from penstock.wire.frames import FrameType
from penstock.wire.traced import decode_reply

from .world import V2, Running, error, eventually, ok, running_with, stored, u32

PARTITIONS = 3

keyed_node = running_with(f"/topic/create?topic=t&partition_num={PARTITIONS}&extend=true")


def headed(headers: bytes, body: bytes) -> bytes:
    return frames.with_size(struct.pack(">H", len(headers)) + headers + body)


def pub_ext(target: bytes, headers: bytes, body: bytes) -> bytes:
    return b"PUB_EXT %b\n" % target + headed(headers, body)


def mpub_ext(target: bytes, messages: list[tuple[bytes, bytes]]) -> bytes:
    packed = b"".join(headed(*message) for message in messages)
    return b"MPUB_EXT %b\n" % target + frames.with_size(u32(len(messages)) + packed)


def keyed(key: bytes) -> bytes:
    return b'{"key":"%b"}' % key


def keys_apart() -> list[bytes]:
    """One for each partition."""
    found: dict[int, bytes] = {}
    for number in range(100):
        key = b"%d" % number
        found.setdefault(murmur3_32(key) % PARTITIONS, key)
    return [found[number] for number in range(PARTITIONS)]


def test_keys_choose_partitions_and_headers_are_stored(keyed_node: Running) -> None:
    keys = keys_apart()
    with keyed_node.client() as client:
        assert client.ask(mpub_ext(b"t", [(keyed(key), key) for key in keys])) == ok()
        assert client.ask(pub_ext(b"t 1", keyed(keys[0]), b"named")) == ok()
    found = stored(keyed_node, "t")
    assert [[message.body for message in part] for part in found] == [
        [keys[0]],
        [keys[1], b"named"],
        [keys[2]],
    ]
    assert found[1][1].sections[Section.HEADERS] == keyed(keys[0])
    assert found[1][1].sections[Section.KEY] == keys[0]


def test_a_trace_id_gets_the_traced_reply(keyed_node: Running) -> None:
    key = keys_apart()[1]
    headers = b'{"key":"%b","##trace_id":"77"}' % key
    with keyed_node.client() as client:
        client.ask(pub_ext(b"t", keyed(key), b"first"))
        answer = client.ask(pub_ext(b"t", headers, b"hello"))
        message_id, trace_id, offset, stored_bytes = decode_reply(answer.data)
        assert client.ask(pub_ext(b"t", keyed(key), b"last")) == ok()
        (session,) = keyed_node.daemon.protocol.sessions.values()
        assert session.conn.published == {b"t": 3}
    found = stored(keyed_node, "t")[1][1]
    assert (found.id, found.body) == (message_id, b"hello")
    assert (trace_id, offset) == (77, 1)
    assert stored_bytes == 4 + 5 + 12 + 8 + len(key) + 8 + len(headers)
    assert found.sections == {Section.TRACE: 77, Section.KEY: key, Section.HEADERS: headers}


def test_a_bound_on_the_depth_is_exact_for_keys(keyed_node: Running) -> None:
    """Its room is shared out among the partitions, and given to those that are asked for."""
    keys = keys_apart()
    topic = keyed_node.daemon.broker.topics["t"]
    assert keyed_node.request("POST", "/channel/create?topic=t&channel=c").status == 200
    keyed_node.call(lambda: topic.configure({"max_depth": 8}))
    with keyed_node.client() as client:
        for number in range(5):
            assert client.ask(pub_ext(b"t", keyed(keys[1]), b"%d" % number)) == ok()
        spread = [(keyed(keys[0]), b"x"), (keyed(keys[0]), b"x"), (keyed(keys[2]), b"x")]
        assert client.ask(mpub_ext(b"t", spread)) == ok()
        refused = client.ask(pub_ext(b"t", keyed(keys[1]), b"too many"))
        assert refused.data.startswith(b"E_PUB_FAILED PUB failed topic depth limit of 8")
    assert [len(part) for part in stored(keyed_node, "t")] == [2, 5, 1]


# --- consumers of topics with headers, over real sockets ---

extended = running_with(
    "/topic/create?topic=with&extend=true",
    "/topic/create?topic=without&extend=false",
    flags=["--durability=os"],
)


def publish(nsqd: Running, topic: str, *said: tuple[bytes, dict[str, str] | None]) -> None:
    """One batch: bodies with their headers."""
    letters = [
        DeadLetterContent(body, {Section.HEADERS: json.dumps(headers).encode()} if headers else {})
        for body, headers in said
    ]
    failures: list[Any] = []
    nsqd.call(
        lambda: nsqd.daemon.broker.topics[topic].publish_dead_letters(
            letters, lambda error, position: failures.append(error)
        )
    )
    eventually(lambda: len(failures) == 1)
    assert failures == [None]


def read_long(client: V2) -> tuple[dict[str, str] | None, bytes]:
    """Headers and body of the next message."""
    frame = client.read()
    assert frame.type == FrameType.MESSAGE
    version, rest = frame.data[26], frame.data[27:]
    if version == 0:
        return None, rest
    assert version == 4
    (size,) = struct.unpack_from(">H", rest)
    return json.loads(rest[2 : 2 + size]), rest[2 + size :]


MESSAGES = ((b"one", {"color": "red"}), (b"two", None), (b"three", {"color": "blue"}))


def test_headers_come_to_those_who_ask(extended: Running) -> None:
    publish(extended, "with", *MESSAGES)
    with extended.client(extend_support=True) as client:
        client.consume("with", "c", 10)
        assert [read_long(client) for _ in MESSAGES] == [
            ({"color": "red"}, b"one"),
            (None, b"two"),
            ({"color": "blue"}, b"three"),
        ]


def test_a_daemon_may_want_all_to_ask(tmp_path: Path) -> None:
    with Running(tmp_path / "data", "--sub-extend-must=true") as nsqd:
        assert nsqd.request("POST", "/topic/create?topic=with&extend=true").status == 200
        with nsqd.client() as client:
            assert client.ask(b"SUB with c\n") == error(
                b'E_SUB_EXTEND_NEED SUB topic "with" is extended: IDENTIFY has to say '
                b"extend_support"
            )
            assert client.is_closed()
        with nsqd.client(extend_support=True) as client:
            assert client.ask(b"SUB with c\n") == ok()
        assert nsqd.answer_to(b"SUB other c\n") == ok()
