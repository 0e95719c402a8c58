"""A topic of several partitions: which tail takes a publish."""

import random
from typing import Any

import pytest

from penstock import kernel, limits
from penstock.kernel import BadPub, Event, Verb

from .turns import OK, Side, frames, mpub, pub


@pytest.fixture
def tails(side: Side) -> list[Any]:
    """Made out of order: the numbers count."""
    made = {number: side.tail(partition=number) for number in (2, 0, 1)}
    return [made[number] for number in range(3)]


def counts(tails: list[Any]) -> list[int]:
    return [tail.message_count for tail in tails]


def test_publishes_of_a_turn_share_a_batch_and_appends_rotate(side: Side, tails: list[Any]) -> None:
    conns = [side.connect() for _ in range(3)]
    side.poll()
    seen = []
    for _ in range(6):
        for conn in conns:
            conn.feed(pub(b"t", b"x") * 4 + mpub(b"t", [b"y"] * 2))
        assert side.turn() == []
        seen.append(counts(tails))
    first = [18 * (number == 2) for number in range(3)]  # the first tail made was the current one
    assert seen[0] == first
    assert seen[1:3] == [[18, 0, 18], [18, 18, 18]]
    assert seen[5] == [36, 36, 36]
    assert [tail.committed_end for tail in tails] == [36, 36, 36]
    assert conns[0].published == {b"t": 36}
    assert all(frames(conn.take_output()) == [OK] * 30 for conn in conns)


def test_the_route_says_where_the_next_publish_goes(
    side: Side, tails: list[Any], conn: Any
) -> None:
    for _ in range(7):
        tail = side.engine.route(b"t")
        assert tail is side.engine.route(b"t")
        before = tail.message_count
        side.fed(conn, pub(b"t", b"x"))
        assert tail.message_count == before + 1
    with pytest.raises(KeyError):
        side.engine.route(b"u")


def test_a_tail_that_writes_is_passed_by_while_another_does_not(
    side: Side, tails: list[Any], conn: Any
) -> None:
    side.poll()
    for number in (2, 0, 1):
        conn.feed(pub(b"t", b"x"))
        side.poll()
        assert tails[number].open_count == 1
        side.seal(tails[number])
    tails[0].commit_to(1)
    conn.feed(pub(b"t", b"x"))  # 2 would be next, and writes
    side.poll()
    assert [tail.open_count for tail in tails] == [1, 0, 0]
    side.seal(tails[0])
    conn.feed(pub(b"t", b"x") * 2)  # all write: in turn, and both publishes into one batch
    side.poll()
    assert [tail.open_count for tail in tails] == [0, 2, 0]
    for tail in (*tails, tails[1]):
        if not tail.sealed_count:
            side.seal(tail)
        tail.commit_to(tail.written_end)
    side.flush()
    assert frames(conn.take_output()) == [OK] * 6


def test_a_tail_whose_sync_is_slow_holds_up_no_publish_that_another_could_take(
    side: Side, tails: list[Any], conn: Any
) -> None:
    side.poll()
    for tail in tails:
        tail.append(b"before")
        side.seal(tail)
    conn.feed(pub(b"t", b"x"))  # all write: it waits behind one of them
    side.poll()
    (waiting,) = (tail for tail in tails if tail.open_count)
    free = tails[waiting.partition - 1]
    free.commit_to(free.written_end)
    conn.feed(pub(b"t", b"x") * 2)
    side.poll()
    assert (waiting.open_count, free.open_count) == (1, 2)
    side.store(free)
    conn.feed(pub(b"t", b"x"))  # it stays with what is quick
    side.poll()
    assert (waiting.open_count, free.open_count) == (1, 1)


def test_a_refusing_tail_is_passed_by(side: Side, tails: list[Any], conn: Any) -> None:
    tails[0].refusing = True
    tails[1].append_end_max = 1
    side.poll()
    for _ in range(6):
        conn.feed(pub(b"t", b"x"))
        side.turn()
    assert counts(tails) == [0, 1, 5]
    tails[2].refusing = True
    (event,) = side.fed(conn, pub(b"t", b"x"))
    assert event == (Event.REFUSED, conn, Verb.PUB, tails[2], 1)
    tails[0].refusing = False
    conn.resume()
    assert side.settle() == []
    assert counts(tails) == [1, 1, 5]


def test_a_tail_that_writes_nothing_comes_last(side: Side, tails: list[Any], conn: Any) -> None:
    tails[2].sealed_max = 0  # it was chosen first
    tails[1].refusing = True
    side.poll()
    for _ in range(3):
        conn.feed(pub(b"t", b"x"))
        side.turn()
    tails[0].append(b"before")
    side.seal(tails[0])
    side.fed(conn, pub(b"t", b"x"))  # behind what is being written
    assert counts(tails) == [5, 0, 0]
    tails[0].refusing = True
    side.fed(conn, pub(b"t", b"x"))
    assert (counts(tails), side.engine.dirty_tails()) == ([5, 0, 1], [])
    tails[2].sealed_max = 1
    assert side.engine.dirty_tails() == [tails[2]]


def test_a_forgotten_tail_leaves_the_route(side: Side, tails: list[Any], conn: Any) -> None:
    side.fed(conn, pub(b"t 2", b"x"))
    side.engine.forget_tail(b"t", 2)
    side.engine.forget_tail(b"t", 2)  # again: nothing
    for _ in range(4):
        side.fed(conn, pub(b"t", b"x"))
    assert counts(tails) == [2, 2, 1]
    (event,) = side.fed(conn, pub(b"t 2", b"x"))
    assert event[:4] == (Event.BAD_PUB, conn, Verb.PUB, BadPub.PARTITION)
    side.engine.forget_tail(b"t")
    side.engine.forget_tail(b"t", 1)
    other = side.connect()
    assert side.fed(other, pub(b"t", b"x")) == [(Event.TOPIC, other, Verb.PUB, b"t")]


def large(bytes_count: int) -> bytes:
    """A publish that makes a row of so many bytes of bodies."""
    return mpub(b"t", [bytes(16 * limits.KIB)] * (bytes_count // (16 * limits.KIB)))


@pytest.mark.parametrize(
    ("row", "rows", "pause_ns"),
    [
        (limits.ROUTE_STAY_BYTES // 4, 4, 0),
        (limits.ROUTE_APPEND_BYTES_MIN, 2, limits.ROUTE_STAY_NS // 2),
    ],
)
def test_large_appends_stay_with_a_partition_for_some_bytes_or_time(
    side: Side, tails: list[Any], conn: Any, row: int, rows: int, pause_ns: int
) -> None:
    side.fed(conn, pub(b"t", b"x"))
    for number in (0, 1, 2, 0):
        before = tails[number].message_bytes
        for _ in range(rows):
            assert side.fed(conn, large(row)) == []
            side.pass_time(pause_ns)
        assert tails[number].message_bytes == before + rows * row


def test_large_appends_leave_a_refusing_partition(side: Side, tails: list[Any], conn: Any) -> None:
    side.fed(conn, pub(b"t", b"x"))
    row = large(limits.ROUTE_APPEND_BYTES_MIN)
    side.fed(conn, row)
    tails[0].refusing = True
    side.fed(conn, row)
    conn.feed(row)
    side.poll()
    side.seal(tails[1])  # it writes
    conn.feed(row)
    side.poll()
    assert counts(tails) == [1, 2, 2]


@pytest.mark.parametrize("seed", range(20))
def test_bytes_are_spread_evenly_for_any_appends(side: Side, seed: int, conn: Any) -> None:
    """Rows of any size at any pace: none gets twice what another gets."""
    dice = random.Random(seed)
    number = dice.randrange(2, 5)
    tails = [side.tail(partition=place) for place in range(number)]
    pause_ns = dice.choice([0, limits.ROUTE_STAY_NS // 8, 2 * limits.ROUTE_STAY_NS])
    largest = dice.choice([limits.ROUTE_APPEND_BYTES_MIN, limits.ROUTE_STAY_BYTES // 8])
    least = number * (6 * limits.ROUTE_STAY_BYTES if largest > limits.MIB // 8 else limits.MIB)
    sent = 0
    while sent < least:
        length = dice.randint(1, largest)
        side.fed(conn, pub(b"t", bytes(length)))
        side.pass_time(dice.randint(0, pause_ns))
        sent += length
    spread = [tail.message_bytes for tail in tails]
    assert sum(spread) == sent
    assert max(spread) <= 2 * min(spread)


@pytest.mark.parametrize("command", [pub(b"t", b"x"), mpub(b"t", [b"x", b"y"])])
def test_a_held_publish_is_routed_again(side: Side, command: bytes) -> None:
    """The topic came to ask for one meanwhile."""
    tail, conn = side.tail(), side.connect()
    conn.feed(pub(b"t", b"x"))
    assert side.poll() == []
    tail.refusing = True
    conn.feed(command)
    assert side.poll() == []  # its answer would overtake that of the first
    tail.refusing = False
    side.engine.require_partition(b"t", True)
    side.commit()
    verb = Verb.PUB if command.startswith(b"PUB") else Verb.MPUB
    assert side.settle() == [(Event.BAD_PUB, conn, verb, BadPub.PARTITION, b"", 0, 0)]
    assert frames(conn.take_output()) == [OK]
    assert tail.written_end == 1


def test_a_wait_for_several_batches_ends_with_the_last(side: Side) -> None:
    """Those who wait for fewer come first, though they came later."""
    tails = [side.tail(partition=number) for number in range(2)]
    one, two = side.connect(), side.connect()
    for number in range(2):
        one.feed(pub(b"t %d" % number, b"one"))
    assert side.poll() == []
    two.feed(pub(b"t 0", b"two"))
    assert side.poll() == []
    tails[0].refusing = True
    for conn, body in ((one, b"1"), (two, b"2")):
        conn.feed(pub(b"t 0", body))
    assert side.poll() == []
    tails[0].refusing = False
    side.commit()
    side.flush()
    assert side.poll() == []
    assert kernel.decode_bodies(side.seal(tails[0]), 0) == [b"2", b"1"]
