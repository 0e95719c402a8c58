"""PUB_EXT and MPUB_EXT of a daemon: what is stored where, traced answers, errors and bounds."""

from pathlib import Path

from kernel.turns import mpub_ext, pub_ext
from penstock.kernel import Section, murmur3_32
from penstock.wire.trace_ids import decode_reply

from .world import Running, error, ok, running_with, stored

PARTITIONS = 3

keyed_node = running_with(f"/topic/create?topic=t&partition_num={PARTITIONS}&extend=true")


def keyed(key: bytes) -> bytes:
    return b'{"key":"%b"}' % key


def keys_apart() -> list[bytes]:
    """One for each partition."""
    found: dict[int, bytes] = {}
    for number in range(100):
        key = b"%d" % number
        found.setdefault(murmur3_32(key) % PARTITIONS, key)
    return [found[number] for number in range(PARTITIONS)]


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


def test_clients_that_ask_get_headers(keyed_node: Running) -> None:
    keyed_node.post("/topic/create?topic=with&extend=true")
    with keyed_node.client(extend_support=True) as client:
        for headers, body in ((b'{"a":"1"}', b"one"), (b"", b"two"), (b'{"a":"3"}', b"three")):
            assert client.ask(pub_ext(b"with", headers, body)) == ok()
        client.consume("with", "c", 10)
        behind_id = [client.read().data[8 + 2 + 16 :] for _ in range(3)]
    assert behind_id == [b'\4\0\x09{"a":"1"}one', b"\0two", b'\4\0\x09{"a":"3"}three']


def test_a_daemon_may_require_clients_to_ask(tmp_path: Path) -> None:
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
