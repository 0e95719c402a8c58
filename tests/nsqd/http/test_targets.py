"""Publishes into one partition, by its number or by a key, and consumers of one."""

from collections import Counter
from typing import Any
from urllib.parse import quote

import pytest

from penstock.broker.topics.topic import Topic
from penstock.kernel import Section, decode_bodies, decode_sections, murmur3_32
from penstock.wire import frames

from ..world import V2, Running, ok, running_with

COUNT = 4
nsqd = running_with(f"/topic/create?topic=t&partition_num={COUNT}", flags=["--durability=os"])


def post(nsqd: Running, target: str, body: bytes = b"x") -> tuple[int, Any]:
    return nsqd.ask("POST", target, body)


def topic(nsqd: Running, name: str = "t") -> Topic:
    return nsqd.daemon.broker.topics[name]


def batches(nsqd: Running, name: str = "t") -> list[list[bytes]]:
    """Of each partition."""

    def look() -> list[list[bytes]]:
        return [
            [bytes(data) for _, data in leader.log.batches(0)] if leader.log.written_end else []
            for leader in topic(nsqd, name).leaders
        ]

    found: list[list[bytes]] = nsqd.call(look)
    return found


def stored(nsqd: Running, name: str = "t") -> list[list[bytes]]:
    return [[b for data in one for b in decode_bodies(data, 0)] for one in batches(nsqd, name)]


def sections(nsqd: Running, name: str = "t") -> list[dict[int, Any]]:
    """Of the first messages of all batches."""
    return [
        {number: table[0] for number, table in decode_sections(data, 0).items()}
        for one in batches(nsqd, name)
        for data in one
    ]


# --- publishing ---


def test_a_publish_goes_to_the_named_partition(nsqd: Running) -> None:
    for number in (2, 2, 0):
        assert post(nsqd, f"/pub?topic=t&partition={number}")[0] == 200
    assert post(nsqd, "/mpub?topic=t&partition=3", b"a\nb\n")[0] == 200
    packed = frames.encode_bodies([b"c", b"d"])
    assert post(nsqd, "/mpub?topic=t&partition=1&binary=true", packed)[0] == 200
    assert stored(nsqd) == [[b"x"], [b"c", b"d"], [b"x", b"x"], [b"a", b"b"]]


def test_publishes_without_a_partition_rotate(nsqd: Running) -> None:
    for number in range(8):
        assert post(nsqd, "/pub?topic=t" + "&partition=-1" * (number % 2))[0] == 200
    assert [len(one) for one in stored(nsqd)] == [2, 2, 2, 2]


# --- keys ---


@pytest.mark.parametrize("binary", [False, True])
def test_one_key_for_a_pack(nsqd: Running, binary: bool) -> None:
    body = frames.encode_bodies([b"a", b"b"]) if binary else b"a\nb\n"
    assert post(nsqd, "/mpub?topic=t&key=k" + "&binary=true" * binary, body)[0] == 200
    home = murmur3_32(b"k") % COUNT
    assert stored(nsqd)[home] == [b"a", b"b"]
    (data,) = batches(nsqd)[home]
    assert decode_sections(data, 0) == {Section.KEY: {0: b"k", 1: b"k"}}


def test_on_an_extended_topic_the_key_is_a_header_too(nsqd: Running) -> None:
    nsqd.request("POST", "/topic/create?topic=e&extend=true")
    assert post(nsqd, "/pub?topic=e&key=%C3%A9%22")[0] == 200
    assert sections(nsqd, "e") == [
        {Section.KEY: 'é"'.encode(), Section.HEADERS: '{"key":"é\\""}'.encode()}
    ]


def test_an_idempotent_producer_keeps_its_partition(nsqd: Running) -> None:
    for id in range(1, 13):
        for sequence in (0, 0, 1):
            query = f"topic=t&producer_id={id}&sequence={sequence}"
            assert post(nsqd, f"/pub?{query}", b"%d" % id)[0] == 200
    homes = {id: murmur3_32(id.to_bytes(8, "big")) % COUNT for id in range(1, 13)}
    for number, bodies in enumerate(stored(nsqd)):
        assert Counter(bodies) == {b"%d" % id: 2 for id, home in homes.items() if home == number}
    query = "topic=t&producer_id=1&sequence=2&partition="
    assert post(nsqd, f"/pub?{query}{(homes[1] + 1) % COUNT}")[0] == 400
    assert post(nsqd, f"/pub?{query}{homes[1]}")[0] == 200


def ext(nsqd: Running, name: str, headers: str, more: str = "") -> tuple[int, Any]:
    return post(nsqd, f"/pub_ext?topic={name}&ext={quote(headers)}{more}")


def test_headers_are_stored_as_they_came(nsqd: Running) -> None:
    nsqd.request("POST", f"/topic/create?topic=e&extend=true&partition_num={COUNT}")
    text = '{"a":"b", "key":"k","##trace_id":"9"}'
    status, given = ext(nsqd, "e", text)
    assert (status, given["trace_id"], given["queue_offset"]) == (200, "9", 0)
    assert stored(nsqd, "e")[murmur3_32(b"k") % COUNT] == [b"x"]
    whole = {Section.TRACE: 9, Section.KEY: b"k", Section.HEADERS: text.encode()}
    assert sections(nsqd, "e") == [whole]
    assert ext(nsqd, "e", "{}", "&partition=2") == (200, b"OK")
    assert ext(nsqd, "e", '{"key":"k"}', f"&partition={COUNT}")[0] == 400


# --- consuming ---


def taken(client: V2, count: int) -> list[bytes]:
    return sorted(client.message().body for _ in range(count))


def test_consumers_of_one_partition_beside_those_of_all(nsqd: Running) -> None:
    with nsqd.client() as every, nsqd.client() as second, nsqd.client() as other:
        assert every.ask(b"SUB t c -1\n") == ok()
        assert second.ask(b"SUB t c 1\n") == ok()
        assert other.ask(b"SUB t d 2\n") == ok()
        second.send(b"RDY 10\n")
        other.send(b"RDY 10\n")
        for number in range(COUNT):
            post(nsqd, f"/pub?topic=t&partition={number}", b"%d" % number)
        assert taken(second, 1) == [b"1"]
        assert taken(other, 1) == [b"2"]
        assert second.is_silent()
        every.send(b"RDY 10\n")
        assert taken(every, 3) == [b"0", b"2", b"3"]
        row = nsqd.channel("t", "c")
        assert (row["client_count"], row["in_flight_count"], row["depth"]) == (3 - 1, 4, 0)
        counts = sorted(client["in_flight_count"] for client in row["clients"])
        assert counts == [1, 3]


def test_one_partition_stays_one_when_the_topic_grows(nsqd: Running) -> None:
    with nsqd.client() as every, nsqd.client() as one:
        assert every.ask(b"SUB t a\n") == ok()
        assert one.ask(b"SUB t b 1\n") == ok()
        nsqd.request("POST", f"/topic/partition/expand?topic=t&partition_num={COUNT + 2}")
        every.send(b"RDY 10\n")
        one.send(b"RDY 10\n")
        for number in range(COUNT + 2):
            post(nsqd, f"/pub?topic=t&partition={number}", b"%d" % number)
        assert taken(every, COUNT + 2) == [b"%d" % number for number in range(COUNT + 2)]
        assert taken(one, 1) == [b"1"]
        assert one.is_silent()
