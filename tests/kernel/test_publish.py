"""Publishes of a connection without a socket, and their answers in order."""

from typing import Any

import pytest

from penstock import kernel, limits
from penstock.kernel import Event, Verb

from .turns import MS, OK, Side, fin, frames, mpub, mpub_ext, pub, pub_ext, size

MESSAGE_MAX = 100
BODY_MAX = 1_000
LIMITS = {"message_bytes_max": MESSAGE_MAX, "body_bytes_max": BODY_MAX}


def line(conn: Any, *params: bytes) -> tuple[Any, ...]:
    return (Event.LINE, conn, list(params))


# --- PUB ---


def test_a_publish_is_answered_when_it_is_committed(side: Side, tail: Any, conn: Any) -> None:
    conn.feed(pub(b"t", b"hello"))
    assert side.poll() == []
    assert (tail.open_count, conn.pending) == (1, 1)
    side.flush()
    side.seal(tail)
    side.flush()
    assert conn.take_output() == b""
    tail.commit_to(tail.written_end)
    assert side.flush() == []
    assert frames(conn.take_output()) == [OK]
    assert conn.pending == 0
    assert conn.published == {b"t": 1}
    assert kernel.decode_bodies(side.written[b"t"][0], 0) == [b"hello"]


@pytest.mark.parametrize("word", [b"0", b"-1", b"+0", b"000", b"", b"+", b"-", b"x5"])
def test_numbers_of_partitions(side: Side, word: bytes, tail: Any, conn: Any) -> None:
    assert side.fed(conn, b"PUB t %b\n" % word + size(1) + b"x") == []
    assert side.fed(conn, b"MPUB t %b 7\r\n" % word + mpub(b"t", [b"y"])[7:]) == []
    assert tail.committed_end == 2


def test_a_bound_is_exact(side: Side, conn: Any) -> None:
    tail = side.tail(start=10)
    tail.append_end_max = 13
    conn.feed(pub(b"t", b"1") + mpub(b"t", [b"2", b"3"]) + pub(b"t", b"4") + pub(b"t", b"5"))
    assert side.poll() == []  # an answer is owed: the error may not overtake it
    assert (tail.open_count, conn.pending) == (3, 2)
    assert side.settle() == [(Event.REFUSED, conn, Verb.PUB, tail, 1)]
    assert frames(conn.take_output()) == [OK, OK]
    assert (tail.committed_end, tail.message_count) == (13, 3)
    tail.append_end_max = 14
    conn.resume()
    assert side.settle() == [(Event.REFUSED, conn, Verb.PUB, tail, 1)]
    assert (tail.committed_end, frames(conn.take_output())) == (14, [OK])


def test_a_bound_counts_sealed_and_open_batches(side: Side, tail: Any) -> None:
    tail.append_end_max = 3
    first, second = side.connect(), side.connect()
    side.poll()
    first.feed(pub(b"t", b"1"))
    side.poll()
    side.seal(tail)
    first.feed(pub(b"t", b"2"))
    assert side.poll() == []
    second.feed(mpub(b"t", [b"3", b"4"]))
    assert side.poll() == [(Event.REFUSED, second, Verb.MPUB, tail, 2)]
    tail.fail_from(tail.committed_end)  # what failed takes no room
    second.resume()
    assert side.poll() == []
    assert tail.open_count == 3


# --- answers in order ---


def test_fin_rdy_and_nop_do_not_wait_for_the_answers(side: Side, tail: Any, window: Any) -> None:
    conn = side.consumer(window, rdy=1)
    id = side.publish(tail, b"a")
    side.received(conn)
    conn.feed(pub(b"t", b"x") + fin(id) + b"RDY 7\nNOP\n")
    assert side.poll() == []
    assert (conn.pending, conn.in_flight, conn.rdy) == (1, 0, 7)


def test_a_failed_batch_is_reported_once(side: Side, conn: Any) -> None:
    one, two = side.tail(b"one"), side.tail(b"two")
    conn.feed(pub(b"one", b"1") + pub(b"two", b"2") + mpub(b"two", [b"3"]) + pub(b"one", b"4"))
    side.poll()
    side.seal(one)
    side.seal(two)
    two.fail_from(two.committed_end)
    assert side.settle() == []
    one.commit_to(one.written_end)
    assert side.settle() == [(Event.PUB_FAILED, conn, Verb.PUB, two, False)]
    assert frames(conn.take_output()) == [OK]  # the last one is not answered any more
    assert conn.pending == 0
    assert (one.committed_end, two.committed_end, two.written_end) == (2, 0, 0)


def test_an_unknown_outcome_is_answered_and_may_still_be_stored(
    side: Side, tail: Any, window: Any
) -> None:
    conn, consumer = side.connect(), side.consumer(window, rdy=1)
    conn.feed(pub(b"t", b"x"))
    side.poll()
    side.seal(tail)
    for _ in range(2):
        tail.doubt()
    assert side.settle() == [(Event.PUB_FAILED, conn, Verb.PUB, tail, True)]
    assert (tail.sealed_batches, conn.pending) == (1, 0)
    tail.commit_to(tail.written_end)
    assert side.settle() == []
    assert [message.body for message in side.received(consumer)] == [b"x"]


def test_a_publish_that_python_appended_is_answered_too(side: Side, tail: Any, conn: Any) -> None:
    assert side.fed(conn, b"DPUB t 100\n" + size(1) + b"x") == [line(conn, b"DPUB", b"t", b"100")]
    conn.read_body(100)
    assert side.settle() == [(Event.BODY, conn, b"x")]
    tail.append(b"x", side.wall_ns + 100 * MS)
    conn.appended(tail, Verb.DPUB)
    conn.resume()
    conn.feed(pub(b"t", b"y"))
    assert conn.pending == 1
    assert side.settle() == []
    assert frames(conn.take_output()) == [OK, OK]
    assert conn.published == {b"t": 2}


# --- publishes that find the open batch full ---


BODY = b"x" * 100


def full(side: Side, bytes_max: int) -> Any:
    """A tail whose open batch takes no more, and cannot be written yet."""
    tail = side.tail()
    tail.append(b"x")
    tail.seal(side.next_id, side.wall_ns, 0)
    tail.sealed_max = 1
    tail.append(bytes(limits.BATCH_BYTES_MAX + 1))
    tail.waiting_bytes_max = bytes_max
    return tail


def say(side: Side, conn: Any, data: bytes) -> list[tuple[Any, ...]]:
    conn.feed(data)
    return side.poll()


def write(side: Side, tail: Any) -> None:
    """There is room again."""
    tail.commit_to(tail.written_end)
    tail.sealed_max = limits.SEALED_BATCHES_MAX
    side.settle()


def test_bytes_waiting_elsewhere_count(side: Side, conn: Any) -> None:
    tail = full(side, 150)
    tail.waiting_bytes += 51
    assert say(side, conn, pub(b"t", BODY)) == [(Event.CROWDED, conn, Verb.PUB, tail, 100)]
    write(side, tail)
    assert tail.waiting_bytes == 51  # who put it there takes it off


def test_an_answer_that_is_owed_comes_first(side: Side, conn: Any) -> None:
    """Nothing overtakes the answer to an earlier publish; by then there is room."""
    tail = full(side, 150)
    tail.waiting_bytes += 100
    other = side.tail(b"u")
    assert say(side, conn, pub(b"u", b"y") + pub(b"t", BODY)) == []
    assert other.open_count == 1
    assert tail.waiting_bytes == 100  # it does not wait for room, but for its answer
    write(side, tail)
    assert frames(conn.take_output()) == [OK, OK]


def test_a_discarded_batch_makes_room(side: Side, conn: Any) -> None:
    tail = full(side, 0)
    assert say(side, conn, pub(b"t", BODY)) == []
    tail.drop_open()
    assert tail.waiting_bytes == 0
    write(side, tail)
    assert frames(conn.take_output()) == [OK]


REFUSED = (1, b"refused")
HEADERS_PASSED = b'{"key":"a","x":"y"}'
COMMANDS_PASSED = {
    Verb.PUB: pub(b"t", b"refused"),
    Verb.MPUB: mpub(b"t", [b"refused", b"PUB t\n\0\0\0\1x"]),
    Verb.PUB_EXT: pub_ext(b"t", HEADERS_PASSED, b"refused"),
    Verb.MPUB_EXT: mpub_ext(b"t", [(HEADERS_PASSED, b"refused"), (b"", b"too")]),
}
each = pytest.mark.parametrize("verb", COMMANDS_PASSED)


def refuse(conn: Any) -> None:
    conn.reply(*REFUSED)
    conn.pass_over()
    conn.resume()


@each
@pytest.mark.parametrize("word", [b"", b" 3"])
def test_a_body_that_has_yet_to_come_is_not_read_as_commands(
    side: Side, verb: Verb, word: bytes, conn: Any
) -> None:
    """A topic that is not known is refused behind its line, where the line names a partition or
    the command has several messages."""
    command = COMMANDS_PASSED[verb].replace(b" t\n", b" t" + word + b"\n", 1)
    line = command.index(b"\n") + 1
    events = side.fed(conn, command[:line])
    for at in range(line, len(command)):
        if events:
            assert events == [(Event.TOPIC, conn, verb, b"t")]
            refuse(conn)
        events = side.fed(conn, command[at : at + 1])
    if events:
        refuse(conn)
        assert side.settle() == []
    assert frames(conn.take_output()) == [REFUSED]
    tail = side.tail()
    assert side.fed(conn, pub(b"t", b"behind")) == []
    assert (frames(conn.take_output()), tail.committed_end) == ([OK], 1)
