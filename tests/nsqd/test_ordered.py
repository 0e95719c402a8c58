"""SUB_ORDERED, as Youzan's clients say it, and topics that want nothing else.

What is no SUB_ORDERED stands in `tests/conformance/tcp.toml`.
"""

import json
import struct
from typing import Any

import pytest

from penstock.wire.frames import with_size

from .world import V2, Running, error, ok, running_with

CONFIG = "/channel/config?topic=t&channel=c"
nsqd = running_with("/topic/create?topic=t&partition_num=2", flags=["--durability=os"])


def pub(nsqd: Running, partition: int, *bodies: bytes) -> None:
    for body in bodies:
        target = f"/pub?topic=t&partition={partition}"
        assert nsqd.request("POST", target, body).status == 200


def config(nsqd: Running, target: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(nsqd.request("GET", target).body)
    return found


def test_one_message_after_the_other_of_one_partition(nsqd: Running) -> None:
    pub(nsqd, 0, b"other")
    pub(nsqd, 1, b"one", b"two")
    with nsqd.client() as client:
        assert client.ask(b"SUB_ORDERED t c 1\n") == ok()
        client.send(b"RDY 10\n")
        first = client.message()
        assert struct.unpack(">qi", first.body[:12]) == (0, 4 + len(b"one"))  # where it stands
        assert first.body[12:] == b"one"
        assert client.is_silent()
        client.send(b"REQ " + first.id + b" 0\n")
        assert client.message().id == first.id  # what comes back comes first
        client.send(b"FIN " + first.id + b"\n")
        second = client.message()
        assert (struct.unpack(">q", second.body[:8])[0], second.body[12:]) == (1, b"two")
        client.send(b"FIN " + second.id + b"\n")
        assert client.is_silent()  # the other partition is not its own


def test_a_refused_consumer_changes_nothing(nsqd: Running) -> None:
    assert nsqd.request("POST", "/channel/create?topic=t&channel=c").status == 200
    for channel in (b"c", b"other"):
        with nsqd.client(extend_support=True) as client:
            received = client.ask(b"SUB_ORDERED t " + channel + b" 0\n")
            assert b"E_SUB_EXTEND_FORBIDDON" in received.data
    with nsqd.client(extend_support=True) as client:
        assert b"E_SUB_EXTEND_FORBIDDON" in client.ask(b"SUB fresh c\n").data
    assert b"E_BAD_PARTITION" in nsqd.answer_to(b"SUB fresh c 1\n").data
    assert [one["topic_name"] for one in nsqd.stats()["topics"]] == ["t"]
    assert config(nsqd, CONFIG)["order"] != "strict"
    assert [one["channel_name"] for one in nsqd.stats()["topics"][0]["channels"]] == ["c"]


def test_an_ordered_topic_has_only_sub_ordered(nsqd: Running) -> None:
    assert nsqd.request("POST", "/topic/config?topic=t&ordered=true").status == 200
    assert config(nsqd, "/topic/config?topic=t")["ordered"] is True
    with nsqd.client() as client:
        text = client.ask(b"SUB t c\n")
    assert text == error(b"E_SUB_ORDER_IS_MUST SUB topic t has only SUB_ORDERED")
    assert nsqd.answer_to(b"SUB_ORDERED t c 0\n") == ok()


MISSING = "needs a partition or a key on this topic"
KEYED = with_size(struct.pack(">H", 11) + b'{"key":"k"}' + b"x")
KEYLESS = with_size(struct.pack(">H", 2) + b"{}" + b"x")


@pytest.mark.parametrize(
    ("verb", "command"),
    [
        ("PUB", b"PUB t\n" + with_size(b"x")),
        ("PUB", b"PUB t -1\n" + with_size(b"x")),
        ("MPUB", b"MPUB t\n" + with_size(struct.pack(">I", 1) + with_size(b"x"))),
        ("DPUB", b"DPUB t 0\n" + with_size(b"x")),
        ("PUB_TRACE", b"PUB_TRACE t\n" + with_size(bytes(7) + b"1x")),
        ("PUB_EXT", b"PUB_EXT t\n" + KEYLESS),
        ("MPUB_EXT", b"MPUB_EXT t\n" + with_size(struct.pack(">I", 2) + KEYED + KEYLESS)),
    ],
)
def test_a_publish_says_where_it_belongs(nsqd: Running, verb: str, command: bytes) -> None:
    assert nsqd.request("POST", "/topic/config?topic=t&ordered=true").status == 200
    assert nsqd.answer_to(command) == error(f"E_BAD_PARTITION {verb} {MISSING}".encode())
    assert nsqd.request("POST", "/topic/config?topic=t&ordered=false").status == 200
    assert nsqd.answer_to(command)[0] == 0


@pytest.mark.parametrize(
    ("path", "query"),
    [("/pub", ""), ("/mpub", ""), ("/pubtrace", "&trace_id=7"), ("/pub_ext", "&ext=%7B%7D")],
)
def test_the_same_over_http(nsqd: Running, path: str, query: str) -> None:
    assert nsqd.request("POST", "/topic/config?topic=t&ordered=true").status == 200
    refused = nsqd.request("POST", f"{path}?topic=t{query}", b"x")
    assert refused.status == 400
    assert json.loads(refused.body) == {
        "message": "E_BAD_PARTITION",
        "reason": "partition '': a publish to this topic needs a partition or a key",
    }
    assert nsqd.request("POST", f"{path}?topic=t&partition=1{query}", b"x").status == 200
    stamped = "&producer_id=9&sequence=0"
    assert nsqd.request("POST", f"/pub?topic=t{stamped}", b"x").status == 200
    assert nsqd.request("POST", "/pub?topic=t&key=k", b"x").status == 200


def test_one_partition_is_order_enough(nsqd: Running) -> None:
    nsqd.post("/topic/create?topic=one", "/topic/config?topic=one&ordered=true")
    with nsqd.client() as client:
        assert client.ask(b"PUB one\n" + with_size(b"x")) == ok()
        grown = nsqd.request("POST", "/topic/partition/expand?topic=one&partition_num=2")
        assert grown.status == 200
        missing = error(f"E_BAD_PARTITION PUB {MISSING}".encode())
        assert client.ask(b"PUB one\n" + with_size(b"x")) == missing


# --- SUB_ADVANCED: positions in the frames, and a place to begin at ---


@pytest.fixture
def node(node: Running) -> Running:
    for number in range(8):
        path = "/pub?topic=t&partition=0"
        assert node.request("POST", path, b"%d" % number).status == 200
    return node


def subscribed(node: Running, place: bytes) -> V2:
    client = node.client()
    assert client.ask(b"SUB_ADVANCED t ch %b\n" % place) == ok()
    client.send(b"RDY 100\n")
    return client


def detail(client: V2) -> tuple[int, int, bytes]:
    """Offset, stored bytes and body of the next message."""
    data = client.read().data[8 + 2 + 16 :]
    offset, stored_bytes = struct.unpack(">qi", data[:12])
    return offset, stored_bytes, data[12:]


def test_the_first_consumer_chooses_where_it_begins(node: Running) -> None:
    with subscribed(node, b"0 virtual_queue:5") as first:
        assert [detail(first)[0] for _ in range(3)] == [5, 6, 7]
        with subscribed(node, b"0 virtual_queue:0") as second:
            assert second.is_silent()
        assert first.is_silent()


def test_from_a_time(node: Running) -> None:
    with subscribed(node, b"-1 special:-1") as client:
        client.ask(b"CLS\n")
    with subscribed(node, b"-1 timestamp:1000000000") as client:
        found = [detail(client) for _ in range(8)]
    assert found == [(offset, 5, b"%d" % offset) for offset in range(8)]


def test_an_offset_is_of_one_partition(node: Running) -> None:
    several = len(node.daemon.broker.find_topic("t").leaders) > 1
    with node.client() as client:
        answer = client.ask(b"SUB_ADVANCED t ch -1 msgcount:2\n")
        if several:
            assert answer == error(b'E_BAD_PARTITION SUB_ADVANCED partition "-1" is not valid')
        else:
            assert answer == ok()
