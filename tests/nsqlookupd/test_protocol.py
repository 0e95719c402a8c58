"""nsqlookupd's TCP protocol, byte by byte: each command in each state with each bad value."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import each, examples
from penstock import limits
from penstock.nsqlookupd.protocol import Client, Refusal, read_peer
from penstock.nsqlookupd.registry import Meta

from .world import ABOUT_JSON, NSQD, World, answers, identify

JSON_FAULT = b"E_BAD_BODY IDENTIFY failed to decode JSON body"
FIELDS_FAULT = b"E_BAD_BODY IDENTIFY missing fields"
BODY_FAULT = b"E_BAD_BODY IDENTIFY failed to read body"
LONG = b"x" * 65


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in NSQD.items() if name != key}


# what is sent after the magic, and the answers; an answer that begins with E_ is the last
NEW = [
    (b"PING\n", [b"OK"]),
    (b"PING\r\n", [b"OK"]),
    (b" \t PING more words \n", [b"OK"]),
    (b"PING\nPING\n", [b"OK", b"OK"]),
    (b"\n", [b"E_INVALID invalid command "]),
    (b"ping\n", [b"E_INVALID invalid command ping"]),
    (b"P\xffNG x\n", [b"E_INVALID invalid command P\xffNG"]),
    (b"REGISTER t c\n", [b"E_INVALID client must IDENTIFY"]),
    (b"REGISTER\n", [b"E_INVALID client must IDENTIFY"]),
    (b"UNREGISTER t c\n", [b"E_INVALID client must IDENTIFY"]),
    (b"PING\nFOO\nPING\n", [b"OK", b"E_INVALID invalid command FOO"]),
    (identify(), [ABOUT_JSON]),
    (identify() + b"PING\n", [ABOUT_JSON, b"OK"]),
    (b"IDENTIFY with words\n" + identify()[9:], [ABOUT_JSON]),
    (identify({k.upper(): v for k, v in NSQD.items()}), [ABOUT_JSON]),
    (identify(NSQD | {"other": [1]}), [ABOUT_JSON]),
    (identify(NSQD | {"http_port": -1, "tcp_port": -1}), [ABOUT_JSON]),
    (identify(NSQD | {"hostname": None}), [ABOUT_JSON]),
    (identify(without("hostname")), [ABOUT_JSON]),
    *[(identify(without(key)), [FIELDS_FAULT])
      for key in ("broadcast_address", "tcp_port", "http_port", "version")],
    *[(identify(NSQD | {key: empty}), [FIELDS_FAULT])
      for key, empty in (("broadcast_address", ""), ("tcp_port", 0), ("version", None))],
    *[(identify(NSQD | {key: bad}), [JSON_FAULT])
      for key, bad in (("broadcast_address", 1), ("tcp_port", "4150"), ("http_port", 1.5),
                       ("tcp_port", True), ("version", ["1"]), ("http_port", 1 << 31))],
    (identify(b"null"), [FIELDS_FAULT]),
    (identify(b"{}"), [FIELDS_FAULT]),
    (identify(b"[]"), [JSON_FAULT]),
    (identify(b"1"), [JSON_FAULT]),
    (identify(b""), [JSON_FAULT]),
    (identify(b"{"), [JSON_FAULT]),
    (identify(b"\xff\xfe"), [JSON_FAULT]),
    (identify(b"[" * 100_000), [JSON_FAULT]),
    (b"IDENTIFY\n\xff\xff\xff\xff", [BODY_FAULT]),
    (b"IDENTIFY\n\x80\x00\x00\x00", [BODY_FAULT]),
    (b"IDENTIFY\n\x00\x10\x00\x01", [BODY_FAULT]),
    (b"\x00" * limits.LINE_BYTES_MAX, [b"E_INVALID command line too long"]),
]  # fmt: skip

IDENTIFIED = [
    (b"PING\n", [b"OK"]),
    (identify(), [b"E_INVALID cannot IDENTIFY again"]),
    (b"REGISTER t\n", [b"OK"]),
    (b"REGISTER t c\n", [b"OK"]),
    (b"REGISTER t c more\n", [b"OK"]),
    (b"REGISTER t#ephemeral c#ephemeral\n", [b"OK"]),
    (b"UNREGISTER t\n", [b"OK"]),
    (b"UNREGISTER t c\n", [b"OK"]),
    *[(verb + rest, [error % verb])
      for verb in (b"REGISTER", b"UNREGISTER")
      for rest, error in (
          (b"\n", b"E_INVALID %b insufficient number of params"),
          (b" \n", b"E_INVALID %b insufficient number of params"),
          (b" t$\n", b"E_BAD_TOPIC %b topic name 't$' is not valid"),
          (b" t$ c$\n", b"E_BAD_TOPIC %b topic name 't$' is not valid"),
          (b" t c$\n", b"E_BAD_CHANNEL %b channel name 'c$' is not valid"),
          (b" " + LONG + b"\n", b"E_BAD_TOPIC %b topic name '" + LONG + b"' is not valid"),
          (b" t " + LONG + b"\n", b"E_BAD_CHANNEL %b channel name '" + LONG + b"' is not valid"),
          (b"  c\n", b"E_BAD_TOPIC %b topic name '' is not valid"),
          (b" \xff\n", b"E_BAD_TOPIC %b topic name '\xff' is not valid"),
          (b" #ephemeral\n", b"E_BAD_TOPIC %b topic name '#ephemeral' is not valid"),
      )],
    (b"REGISTER t  c\n", [b"OK"]),
    (b"FOO\n", [b"E_INVALID invalid command FOO"]),
]  # fmt: skip


def check(client: Client, sent: bytes, expected: list[bytes]) -> None:
    assert answers(client.feed(sent)) == expected
    assert client.closed == expected[-1].startswith(b"E_")
    if client.closed:
        assert client.feed(b"PING\n") == b""


@pytest.mark.parametrize("name", ["hostname", "broadcast_address", "version"])
def test_a_text_of_identify_is_bounded(name: str) -> None:
    length = limits.IDENTIFY_TEXT_CHARS_MAX
    body = {"broadcast_address": "h", "version": "1", "tcp_port": 1, "http_port": 2}
    assert getattr(read_peer(json.dumps(body | {name: "x" * length}).encode(), "r"), name)
    with pytest.raises(Refusal, match="at most 4096 characters"):
        read_peer(json.dumps(body | {name: "x" * (length + 1)}).encode(), "r")


@each(("sent", "expected"), NEW)
def test_before_identify(sent: bytes, expected: list[bytes]) -> None:
    check(World().client(), b"  V1" + sent, expected)


@each(("sent", "expected"), IDENTIFIED)
def test_after_identify(sent: bytes, expected: list[bytes]) -> None:
    check(World().identified(), sent, expected)


@each(
    ("sent", "expected"),
    [
        (b"", []),
        (b"  V", []),
        (b"  V1", []),
        (b"  V1PIN", []),
        (b"  V1IDENTIFY\n", [b"E_BAD_BODY IDENTIFY failed to read body size"]),
        (b"  V1IDENTIFY\n\0\0", [b"E_BAD_BODY IDENTIFY failed to read body size"]),
        (b"  V1IDENTIFY\n\0\0\0\5abc", [BODY_FAULT]),
        (b"GET ", []),
    ],
)
def test_the_end_in_the_middle(sent: bytes, expected: list[bytes]) -> None:
    client = World().client()
    client.feed(sent)
    assert answers(client.end()) == expected
    assert client.closed


def test_registrations() -> None:
    world = World()
    client = world.identified()
    client.feed(b"REGISTER t c\nREGISTER u\nREGISTER v d\nUNREGISTER v\nUNREGISTER t c\n")
    registry = world.registry
    assert registry.topic_names() == ["t", "u", "v"]
    assert [registry.channel_names(t) for t in ("t", "v")] == [["c"], ["d"]]
    assert [len(registry.producers_of(t)) for t in ("t", "u", "v")] == [1, 1, 0]
    (producer,) = registry.nodes()
    assert producer.peer.remote_address == "1.2.3.4:5"
    assert (producer.peer.topology_zone, producer.peer.topology_region) == ("z", "r")
    registry.validate()
    client.lost()
    client.lost()
    assert registry.nodes() == []
    assert registry.topic_names() == ["t", "u", "v"]
    registry.validate()


def test_too_many_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOOKUP_NAMES_MAX", 2)
    client = World().identified()
    check(client, b"REGISTER t c\n", [b"OK"])
    check(client, b"REGISTER u\n", [b"E_INVALID REGISTER too many topics and channels"])


COMMANDS = st.sampled_from(
    [b"PING\n", b"REGISTER t c\n", b"REGISTER t\n", b"UNREGISTER t\n", b"UNREGISTER t c\n",
     b"REGISTER e#ephemeral\n", b"IDENTIFY\n", identify(), identify(b"{}"), b"\n", b"  V1"]
)  # fmt: skip
PIECES = st.lists(st.one_of(COMMANDS, st.binary(max_size=20)), max_size=12)


@settings(max_examples=examples(300), deadline=None)
@given(begins=st.booleans(), pieces=PIECES, cuts=st.integers(1, 50))
def test_any_bytes(begins: bool, pieces: list[bytes], cuts: int) -> None:
    """Nothing crashes or grows; how the bytes are cut makes no difference."""
    sent = (b"  V1" if begins else b"") + b"".join(pieces)
    whole_world, cut_world = World(), World()
    whole, cut = whole_world.client(), cut_world.client()
    text = whole.feed(sent)
    in_parts = b"".join(cut.feed(sent[i : i + cuts]) for i in range(0, len(sent), cuts))
    assert text == in_parts
    assert whole.closed == cut.closed
    assert all(answers(text))
    for world, client in ((whole_world, whole), (cut_world, cut)):
        world.registry.validate()
        assert len(client._buffer) <= len(sent)
        client.lost()
        assert not client._buffer
        assert not world.registry.producers
        world.registry.validate()


def test_a_declared_body_size_is_not_preallocated() -> None:
    client = World().client()
    client.feed(b"  V1IDENTIFY\n" + (1 << 20).to_bytes(4, "big") + b"x")
    assert not client.closed
    assert len(client._buffer) == 1


# --- partitions ---

SPLIT_JSON = ABOUT_JSON[:-1].replace(b'"tcp_port"', b'"partitions":true,"tcp_port"') + b"}"


def speaker(world: World, **text: Any) -> Client:
    """A client whose IDENTIFY says that it names partitions."""
    client = world.client()
    assert answers(client.feed(b"  V1" + identify(NSQD | text))) == [SPLIT_JSON]
    return client


@pytest.mark.parametrize("text", [{"partitions": True}, {"distributed_id": "10.0.0.1:4250:4150:7"}])
def test_a_number_is_a_partition_for_peers_that_name_partitions(text: dict[str, Any]) -> None:
    world = World()
    client = speaker(world, **text)
    check(client, b"REGISTER t 0\nREGISTER t 1 c\nREGISTER t 2 7\n", [b"OK"] * 3)
    assert world.registry.channel_names("t") == ["7", "c"]
    assert list(world.registry.partitions_of("t")) == [0, 1, 2]
    check(client, b"UNREGISTER t 2 7\nUNREGISTER t 0\n", [b"OK"] * 2)
    assert world.registry.channel_names("t") == ["7", "c"]  # listed, as it was known
    assert list(world.registry.partitions_of("t")) == [1, 2]


def test_a_number_is_a_channel_for_other_peers() -> None:
    world = World()
    client = world.identified()
    check(client, b"REGISTER t 0\nREGISTER u 1 c\n", [b"OK"] * 2)
    assert world.registry.channel_names("t") == ["0"]
    assert world.registry.channel_names("u") == ["1"]
    assert world.registry.partitions_of("t") == {}
    check(client, b"META t partition_num=8\n", [b"E_INVALID invalid command META"])


@each(
    ("line", "refusal"),
    [
        (b"REGISTER t 255", b"E_BAD_PARTITION REGISTER partition '255' is not valid"),
        (b"UNREGISTER t 99999", b"E_BAD_PARTITION UNREGISTER partition '99999' is not valid"),
        (b"REGISTER t 1 c$", b"E_BAD_CHANNEL REGISTER channel name 'c$' is not valid"),
        (b"META t partition_num=0", b"E_INVALID META partition_num is not 1 to 255"),
        (b"META t partition_num=x", b"E_INVALID META partition_num is not 1 to 255"),
        (b"META t$", b"E_BAD_TOPIC META topic name 't$' is not valid"),
        (b"META", b"E_INVALID META insufficient number of params"),
    ],
)
def test_invalid_registrations_of_partitions(line: bytes, refusal: bytes) -> None:
    check(speaker(World(), partitions=True), line + b"\n", [refusal])


def test_the_shape_of_a_topic() -> None:
    world = World()
    client = speaker(world, partitions=True)
    check(client, b"META t partition_num=8\nREGISTER t 0\n", [b"OK"] * 2)
    assert world.registry.meta_of("t") == Meta()  # it was not there yet
    check(client, b"META t partition_num=8 extend_support=true other=1\n", [b"OK"])
    assert world.registry.meta_of("t") == Meta(8, True)
    check(client, b"META t ordered=true disable_channel_auto_create=true\n", [b"OK"])
    assert world.registry.meta_of("t") == Meta(1, False, True, True)
    client.lost()
    assert world.registry.meta_of("t") == Meta()
