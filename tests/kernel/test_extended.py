"""PUB_EXT and MPUB_EXT: what is stored, where it goes, and how it is answered."""

import json
from typing import Any

import pytest

from penstock import kernel, limits
from penstock.kernel import BadPub, Event, Section, Verb

from .turns import OK, Side, frames, mpub_ext, pub, pub_ext

MESSAGE_MAX = 100
BODY_MAX = 3_000
LIMITS = {"message_bytes_max": MESSAGE_MAX, "body_bytes_max": BODY_MAX}
KEYS = [b"a", b"b", b"c", b"d", b"e"]


def of(**members: str) -> bytes:
    return json.dumps(members).encode()


def keyed(key: bytes) -> bytes:
    return b'{"key": "%b"}' % key


def sections(side: Side, name: bytes = b"t") -> list[dict[int, Any]]:
    return [kernel.decode_sections(batch, 0) for batch in side.written[name]]


def spread(side: Side, count: int, extended: bool = True) -> list[Any]:
    tails = [side.tail(partition=number) for number in range(count)]
    side.engine.set_extended(b"t", extended)
    return tails


def number_of(side: Side, key: bytes, count: int) -> int:
    return int(kernel.murmur3_32(key)) % count


# --- what is stored ---


def test_the_trailer_says_key_trace_id_and_headers(side: Side, conn: Any) -> None:
    spread(side, 1)
    first = b'{"key":"\\u00e9","##trace_id":"7", "a":"b"}'
    messages = [(first, b"one"), (b"", b"two"), (b"{}", b"three"), (of(key=""), b"four")]
    assert side.fed(conn, mpub_ext(b"t", messages)) == []
    assert frames(conn.take_output()) == [OK]
    (batch,) = side.written[b"t"]
    assert kernel.decode_bodies(batch, 0) == [b"one", b"two", b"three", b"four"]
    given = {
        Section.TRACE: {0: 7},
        Section.KEY: {0: "é".encode(), 3: b""},
        Section.HEADERS: {0: first, 2: b"{}", 3: of(key="")},
    }
    assert kernel.decode_sections(batch, 0) == given
    bodies = kernel.decode_bodies(batch, 0)
    header = kernel.decode_header(batch, 0)
    assert batch == kernel.encode_batch(
        bodies, 0, header.base_id, header.timestamp_ns, sections=given
    )
    assert conn.published == {b"t": 4}


def test_a_trace_context_is_a_trace_id_and_answered_as_any_publish(side: Side, conn: Any) -> None:
    tail = spread(side, 1)[0]
    context = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0"
    recorded, not_recorded = of(traceparent=context + "1"), of(traceparent=context + "0")
    own = b'{"traceparent":"%b1","##trace_id":"0"}' % context.encode()
    assert side.fed(conn, pub_ext(b"t", recorded, b"one")) == []
    messages = [(not_recorded, b"two"), (recorded, b"three"), (own, b"four")]
    assert side.fed(conn, mpub_ext(b"t", messages)) == []
    assert frames(conn.take_output()) == [OK, OK]
    traced = [given.get(Section.TRACE) for given in sections(side)]
    assert traced == [{0: 0xA3CE929D0E0E4736}, {1: 0xA3CE929D0E0E4736}]
    assert tail.committed_end == 4


def test_every_section_is_written_as_encode_sections_does(side: Side, tail: Any) -> None:
    each: list[dict[int, int | bytes]] = [
        {Section.HEADERS: b"{}", Section.TIMESTAMP: -1, Section.ID: (1 << 64) - 1},
        {},
        {Section.KEY: b"", Section.ATTEMPTS: 3, Section.TRACE: 1 << 63},
        {Section.KEY: b"k" * 300, Section.DUE: -(1 << 63)},
    ]
    expected: dict[int, dict[int, int | bytes]] = {}
    for index, given in enumerate(each):
        tail.append(b"x", 0, given)
        for section, value in given.items():
            expected.setdefault(section, {})[index] = value
    tail.append(b"y", 77)
    expected[Section.DUE][len(each)] = 77
    batch = side.seal(tail)
    header = kernel.decode_header(batch, 0)
    assert batch == kernel.encode_batch(
        [b"x"] * 4 + [b"y"], 0, header.base_id, header.timestamp_ns, sections=expected
    )
    tail.commit_to(tail.written_end)
    tail.append(b"z")
    assert kernel.decode_header(side.seal(tail), 0).flags == 0  # nothing is left over
    tail.commit_to(tail.written_end)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({6: 1}, ValueError),
        ({63: 1}, ValueError),
        ({66: b""}, ValueError),
        ({Section.TRACE: -1}, OverflowError),
        ({Section.ID: 1 << 64}, OverflowError),
        ({Section.DUE: 1 << 63}, OverflowError),
        ({Section.KEY: 1}, TypeError),
        ({Section.TRACE: 1, 99: 1}, ValueError),
    ],
)
def test_invalid_sections_append_nothing(
    side: Side, given: dict[int, Any], error: type[Exception], tail: Any
) -> None:
    with pytest.raises(error):
        tail.append(b"x", 0, given)
    assert tail.open_count == 0


def test_a_topic_that_is_not_extended_keeps_key_and_trace_id_alone(side: Side, conn: Any) -> None:
    spread(side, 1, extended=False)
    messages = [(b'{"key":"k","##trace_id":"5"}', b"x"), (b"{}", b"y"), (b"", b"z")]
    assert side.fed(conn, mpub_ext(b"t", messages)) == []
    assert sections(side) == [{Section.KEY: {0: b"k"}, Section.TRACE: {0: 5}}]


# --- where it goes ---


def test_hash_partitions_are_fixed_while_the_topic_grows(side: Side, conn: Any) -> None:
    tails = spread(side, 2)
    tails += [side.tail(partition=number) for number in (2, 3)]
    for count in (2, 4):
        side.engine.set_hash_partitions(b"t", count)
        for key in KEYS:
            chosen = tails[number_of(side, key, count)]
            before = chosen.message_count
            assert side.fed(conn, pub_ext(b"t", keyed(key), b"x")) == []
            assert chosen.message_count == before + 1
    for count in (0, -1, limits.PARTITIONS_MAX + 1):
        with pytest.raises(ValueError, match="cannot be spread"):
            side.engine.set_hash_partitions(b"t", count)
    for call in (
        lambda: side.engine.set_hash_partitions(b"none", 1),
        lambda: side.engine.set_extended(b"none", True),
    ):
        with pytest.raises(KeyError):
            call()


def test_each_message_of_an_mpub_goes_by_its_own_key(side: Side, conn: Any) -> None:
    tails = spread(side, 4)
    messages = [(keyed(key), key) for key in KEYS] + [(b"", b"none")]
    assert side.fed(conn, mpub_ext(b"t", messages)) == []
    assert frames(conn.take_output()) == [OK]
    assert conn.published == {b"t": 6}
    assert sum(tail.message_count for tail in tails) == 6
    for number in range(4):
        name = b"t %d" % number if number else b"t"
        for batch in side.written[name]:
            bodies = kernel.decode_bodies(batch, 0)
            keys = kernel.decode_sections(batch, 0).get(Section.KEY, {})
            for index, body in enumerate(bodies):
                assert keys.get(index, b"none") == body
                assert body == b"none" or number_of(side, body, 4) == number
    before = tails[1].message_count
    for key in KEYS:  # but a partition that the command names goes before the key
        assert side.fed(conn, pub_ext(b"t 1", keyed(key), key)) == []
    assert tails[1].message_count == before + len(KEYS)


def test_a_key_of_a_partition_led_elsewhere(side: Side, conn: Any) -> None:
    side.tail()
    side.engine.set_hash_partitions(b"t", 200)
    key = next(key for key in KEYS if number_of(side, key, 200))
    (event,) = side.fed(conn, pub_ext(b"t", keyed(key), b"x"))
    word = b"%d" % number_of(side, key, 200)
    assert event == (Event.BAD_PUB, conn, Verb.PUB_EXT, BadPub.PARTITION, word, 0, 0)


# --- how it is answered ---


def keys_apart(side: Side, count: int) -> list[bytes]:
    """One key for each partition."""
    found: dict[int, bytes] = {}
    number = 0
    while len(found) < count:
        key = b"%d" % number
        found.setdefault(number_of(side, key, count), key)
        number += 1
    return [found[partition] for partition in range(count)]


@pytest.mark.parametrize("failing", range(3))
def test_one_batch_that_fails_fails_the_command(side: Side, failing: int, conn: Any) -> None:
    tails = spread(side, 3)
    conn.feed(mpub_ext(b"t", [(keyed(key), b"x") for key in keys_apart(side, 3)]))
    assert side.poll() == []
    events = []
    for tail in tails:
        side.seal(tail)
        if tail is tails[failing]:
            tail.fail_from(0)
        else:
            tail.commit_to(1)
        events += side.flush()
    assert events == [(Event.PUB_FAILED, conn, Verb.MPUB_EXT, tails[failing], False)]
    assert conn.take_output() == b""
    assert [tail.committed_end for tail in tails] == [int(n != failing) for n in range(3)]


def test_nothing_is_appended_where_one_partition_refuses(side: Side, conn: Any) -> None:
    tails = spread(side, 3)
    tails[1].append_end_max = 1
    keys = keys_apart(side, 3)
    command = mpub_ext(b"t", [(keyed(key), b"x") for key in [*keys, keys[1]]])
    assert side.fed(conn, command) == [
        (Event.SPREAD_REFUSED, conn, Verb.MPUB_EXT, [(tails[0], 1), (tails[1], 2), (tails[2], 1)])
    ]
    assert [tail.message_count for tail in tails] == [0, 0, 0]
    tails[1].append_end_max = 2
    conn.resume()
    assert side.settle() == []
    assert [tail.message_count for tail in tails] == [1, 2, 1]
    assert frames(conn.take_output()) == [OK]


def test_many_commands_over_many_partitions_are_all_answered(side: Side, conn: Any) -> None:
    """More batches than a connection may wait for one by one: a command may need them all."""
    count = limits.PARTITIONS_MAX
    tails = spread(side, count)
    keys = [b"%d" % number for number in range(100)]
    command = mpub_ext(b"t", [(keyed(key), b"x") for key in keys])
    other = b"".join(pub_ext(b"t", keyed(key), b"y") + pub(b"t", b"z") for key in keys)
    conn.feed(command * 2 + other + command)
    assert side.settle() == []
    assert frames(conn.take_output()) == [OK] * (3 + 2 * len(keys))
    assert sum(tail.message_count for tail in tails) == 5 * len(keys)
    assert conn.pending == 0
