"""One V2 connection without a socket: commands out of bytes, replies in order, the ways it ends."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.kernel import BadPub, Event, Held, Verb
from penstock.limits import CLOSE_DRAIN_NS, LINE_BYTES_MAX

from .turns import MAGIC, MS, OK, SECOND, Side, bodies, fin, frames, messages, mpub, pub, size

MESSAGE_MAX = 100
BODY_MAX = 1_000


@pytest.fixture
def side(kernel: SimpleNamespace) -> Iterator[Side]:
    side = Side(kernel, message_bytes_max=MESSAGE_MAX, body_bytes_max=BODY_MAX, rdy_count_max=2500)
    yield side
    side.validate()
    side.close()


def line(conn: Any, *params: bytes) -> tuple[Any, ...]:
    return (Event.LINE, conn, list(params))


# --- magic ---


def test_the_magic_says_nothing(side: Side) -> None:
    conn = side.engine.open_detached()
    side.pass_time(SECOND)
    assert side.said(conn, MAGIC) == []
    assert conn.take_output() == b""
    assert conn.last_command_ns == side.mono_ns


@pytest.mark.parametrize("magic", [b"  V1", b"GET ", b"\x00\x00\x00\x00"])
def test_a_wrong_magic_is_reported(side: Side, magic: bytes) -> None:
    conn = side.engine.open_detached()
    assert side.said(conn, magic + b"NOP\nSUB t c\n") == [(Event.BAD_MAGIC, conn, magic)]


def test_an_end_before_the_magic_just_closes(side: Side) -> None:
    conn = side.engine.open_detached()
    conn.feed(b"  V")
    conn.feed_eof()
    (event,) = side.settle()
    assert event[:2] == (Event.CLOSED, conn)


def test_serials_are_never_reused_and_never_zero(side: Side) -> None:
    serials = set()
    for _ in range(10):
        conn = side.engine.open_detached()
        serials.add(conn.serial)
        conn.close()
        side.settle()
    assert len(serials) == 10
    assert 0 not in serials


# --- lines ---


@pytest.mark.parametrize(
    ("text", "params"),
    [
        (b"SUB t c\n", [b"SUB", b"t", b"c"]),
        (b"SUB t c\r\n", [b"SUB", b"t", b"c"]),
        (b"SUB  c\n", [b"SUB", b"", b"c"]),
        (b"SUB t c \n", [b"SUB", b"t", b"c", b""]),
        (b"\n", [b""]),
        (b"\r\n", [b""]),
        (b"\r\r\n", [b"\r"]),
        (b" \n", [b"", b""]),
        (b"sub t c\n", [b"sub", b"t", b"c"]),
        (b"NOPE\n", [b"NOPE"]),
        (b"PUBX t\n", [b"PUBX", b"t"]),
        (b"DPUB t 5\n", [b"DPUB", b"t", b"5"]),
        (b"\xff\x00 \x01\n", [b"\xff\x00", b"\x01"]),
        (b"RDY 5\n", [b"RDY", b"5"]),  # nothing is subscribed: not hot
        (b"FIN 0123456789abcdef\n", [b"FIN", b"0123456789abcdef"]),
    ],
)
def test_a_line_is_split_at_every_space(side: Side, text: bytes, params: list[bytes]) -> None:
    conn = side.connect()
    side.pass_time(SECOND)
    assert side.said(conn, text) == [line(conn, *params)]
    assert conn.last_command_ns == side.mono_ns


def test_a_line_halts_until_resume(side: Side) -> None:
    conn = side.connect()
    assert side.said(conn, b"A\nB\nNOP\nC\n") == [line(conn, b"A")]
    assert side.settle() == []
    conn.resume()
    assert side.settle() == [line(conn, b"B")]
    conn.resume()
    assert side.settle() == [line(conn, b"C")]
    conn.resume()
    assert side.settle() == []


@pytest.mark.parametrize("text", [b"NOP\n", b"NOP\r\n", b"NOP x y\n"])
def test_nop_is_nothing_but_a_sign_of_life(side: Side, text: bytes) -> None:
    conn = side.connect()
    side.settle()
    side.pass_time(SECOND)
    assert side.said(conn, text) == []
    assert conn.last_command_ns == side.mono_ns
    assert conn.take_output() == b""


def test_a_long_line_is_taken_up_to_the_limit(side: Side) -> None:
    conn = side.connect()
    text = b"X" * (LINE_BYTES_MAX - 1)
    assert side.said(conn, text + b"\n") == [line(conn, text)]


@pytest.mark.parametrize("text", [b"X" * (LINE_BYTES_MAX + 1), b"X" * LINE_BYTES_MAX + b"Y\n"])
def test_a_longer_line_drops_the_connection(side: Side, text: bytes) -> None:
    conn = side.connect()
    assert side.said(conn, text) == [(Event.CLOSED, conn, "line too long")]
    assert conn.take_output() == b""


# --- PUB ---


def test_a_publish_is_answered_when_it_is_committed(side: Side) -> None:
    tail = side.tail()
    conn = side.connect()
    conn.feed(pub(b"t", b"hello"))
    assert side.poll() == []
    assert (tail.open_count, conn.pending) == (1, 1)
    side.flush()
    side.seal(tail)
    side.flush()
    assert conn.take_output() == b""
    tail.commit()
    assert side.flush() == []
    assert frames(conn.take_output()) == [OK]
    assert conn.pending == 0
    assert conn.published == {b"t": 1}
    assert side.kernel.decode_bodies(side.written[b"t"][0], 0) == [b"hello"]


def test_extra_parameters_of_pub_are_ignored(side: Side) -> None:
    tail = side.tail()
    conn = side.connect()
    assert side.said(conn, b"PUB t and more\r\n" + size(1) + b"x") == []
    assert tail.committed_end == 1


@pytest.mark.parametrize(
    ("text", "reason", "numbers"),
    [
        (b"PUB\n", BadPub.PARAMS, ()),
        (b"PUB\r\n", BadPub.PARAMS, ()),
        (b"PUB \n", BadPub.TOPIC_NAME, ()),
        (b"PUB  t\n", BadPub.TOPIC_NAME, ()),
        (b"PUB a/b\n", BadPub.TOPIC_NAME, ()),
        (b"PUB \xff\n", BadPub.TOPIC_NAME, ()),
        (b"PUB a\rb\n", BadPub.TOPIC_NAME, ()),
        (b"PUB #ephemeral\n", BadPub.TOPIC_NAME, ()),
        (b"PUB t#ephemera\n", BadPub.TOPIC_NAME, ()),
        (b"PUB t#ephemeral#ephemeral\n", BadPub.TOPIC_NAME, ()),
        (b"PUB " + b"x" * 65 + b"\n", BadPub.TOPIC_NAME, ()),
        (b"PUB " + b"x" * 60 + b"#ephemeral\n", BadPub.TOPIC_NAME, ()),
        (b"PUB t\n" + size(0), BadPub.SIZE_INVALID, (0,)),
        (b"PUB t\n" + size(-1), BadPub.SIZE_INVALID, (-1,)),
        (b"PUB t\n" + size(-(1 << 31)), BadPub.SIZE_INVALID, (-(1 << 31),)),
        (b"PUB t\n" + size(101), BadPub.SIZE_TOO_BIG, (101, 100)),
        (b"PUB t\n" + size((1 << 31) - 1), BadPub.SIZE_TOO_BIG, ((1 << 31) - 1, 100)),
        (b"PUB new\n" + size(101), BadPub.SIZE_TOO_BIG, (101, 100)),
    ],
)
def test_a_malformed_pub(side: Side, text: bytes, reason: BadPub, numbers: tuple[int, ...]) -> None:
    tail = side.tail()
    conn = side.connect()
    (event,) = side.said(conn, text)
    assert event[:4] == (Event.BAD_PUB, conn, Verb.PUB, reason)
    if reason == BadPub.TOPIC_NAME:
        assert event[4] == text[4:].partition(b"\n")[0].partition(b" ")[0]
    assert event[5 : 5 + len(numbers)] == numbers
    assert side.said(conn, pub(b"t", b"x")) == []  # halted
    assert tail.message_count == 0


@pytest.mark.parametrize("verb", [b"PUB", b"MPUB"])
def test_a_missing_topic_is_not_the_topic_before(side: Side, verb: bytes) -> None:
    side.tail()
    conn = side.connect()
    side.said(conn, pub(b"t", b"x"))
    (event,) = side.said(conn, verb + b"\n")
    assert event[3:5] == (BadPub.PARAMS, b"")


@pytest.mark.parametrize(
    "name", [b"a", b"x" * 64, b".", b"a.b_c-D9", b"t#ephemeral", b"x" * 54 + b"#ephemeral"]
)
def test_a_valid_name_of_no_known_topic(side: Side, name: bytes) -> None:
    conn = side.connect()
    assert side.said(conn, pub(name, b"x")) == [(Event.TOPIC, conn, Verb.PUB, name)]


def test_an_unknown_topic_of_a_pub_is_asked_for_when_the_body_is_there(side: Side) -> None:
    conn = side.connect()
    text = pub(b"new", b"hello")
    assert side.said(conn, text[:-1]) == []
    assert side.said(conn, text[-1:]) == [(Event.TOPIC, conn, Verb.PUB, b"new")]
    tail = side.tail(b"new")
    assert side.settle() == []
    conn.resume()
    assert side.settle() == []
    assert frames(conn.take_output()) == [OK]
    assert tail.committed_end == 1


def test_a_topic_that_is_still_unknown_is_asked_for_again(side: Side) -> None:
    conn = side.connect()
    for text in (pub(b"new", b"x"), b"", b""):
        assert side.said(conn, text) == [(Event.TOPIC, conn, Verb.PUB, b"new")]
        conn.resume()


def test_a_forgotten_topic_is_asked_for_again(side: Side) -> None:
    side.tail()
    conn = side.connect()
    side.said(conn, pub(b"t", b"x"))
    side.engine.forget_tail(b"t")
    assert side.said(conn, pub(b"t", b"y")) == [(Event.TOPIC, conn, Verb.PUB, b"t")]
    tail = side.tail()
    conn.resume()
    side.settle()
    assert tail.committed_end == 1
    assert conn.published == {b"t": 2}


@pytest.mark.parametrize(
    ("text", "verb"), [(pub(b"t", b"x"), Verb.PUB), (mpub(b"t", [b"x", b"y"]), Verb.MPUB)]
)
def test_a_refusing_tail_takes_nothing(side: Side, text: bytes, verb: Verb) -> None:
    tail = side.tail()
    tail.refusing = True
    conn = side.connect()
    assert side.said(conn, text[:-1]) == []
    assert side.said(conn, text[-1:]) == [(Event.REFUSED, conn, verb, tail)]
    assert (tail.message_count, conn.pending, conn.published.get(b"t", 0)) == (0, 0, 0)


def test_the_largest_message_is_taken(side: Side) -> None:
    tail = side.tail()
    conn = side.connect()
    assert side.said(conn, pub(b"t", b"x" * MESSAGE_MAX)) == []
    assert tail.message_bytes == MESSAGE_MAX


# --- MPUB ---


def test_an_mpub_is_one_answer_for_many_messages(side: Side) -> None:
    tail = side.tail()
    conn = side.connect()
    assert side.said(conn, mpub(b"t", [b"a", b"bc", b"d" * 100])) == []
    assert frames(conn.take_output()) == [OK]
    assert side.kernel.decode_bodies(side.written[b"t"][0], 0) == [b"a", b"bc", b"d" * 100]
    assert conn.published == {b"t": 3}
    assert tail.message_count == 3


@pytest.mark.parametrize("total", [1, 5, 999])
def test_the_total_of_an_mpub_is_only_checked_for_its_range(side: Side, total: int) -> None:
    tail = side.tail()
    conn = side.connect()
    assert side.said(conn, mpub(b"t", [b"a", b"b"], total) + pub(b"t", b"c")) == []
    assert frames(conn.take_output()) == [OK, OK]
    assert tail.committed_end == 3


COUNT_MAX = (BODY_MAX - 4) // 5


@pytest.mark.parametrize(
    ("text", "reason", "numbers"),
    [
        (b"MPUB\n", BadPub.PARAMS, ()),
        (b"MPUB \n", BadPub.TOPIC_NAME, ()),
        (b"MPUB a,b\n", BadPub.TOPIC_NAME, ()),
        (b"MPUB t\n" + size(0), BadPub.BODY_INVALID, (0,)),
        (b"MPUB t\n" + size(-7), BadPub.BODY_INVALID, (-7,)),
        (b"MPUB t\n" + size(1001), BadPub.BODY_TOO_BIG, (1001, 1000)),
        (b"MPUB t\n" + size(99) + size(0), BadPub.COUNT_INVALID, (0,)),
        (b"MPUB t\n" + size(99) + size(-1), BadPub.COUNT_INVALID, (-1,)),
        (b"MPUB t\n" + size(99) + size(COUNT_MAX + 1), BadPub.COUNT_INVALID, (COUNT_MAX + 1,)),
        (mpub(b"t", [b"a", b""]), BadPub.MESSAGE_INVALID, (1, 0)),
        (mpub(b"t", [b"a", b"b", b""])[:-4] + size(-5), BadPub.MESSAGE_INVALID, (2, -5)),
        (mpub(b"t", [b"a", b"x" * 101]), BadPub.MESSAGE_TOO_BIG, (101, 100)),
    ],
)
def test_a_malformed_mpub(
    side: Side, text: bytes, reason: BadPub, numbers: tuple[int, ...]
) -> None:
    tail = side.tail()
    conn = side.connect()
    (event,) = side.said(conn, text)
    assert event[:4] == (Event.BAD_PUB, conn, Verb.MPUB, reason)
    assert event[5 : 5 + len(numbers)] == numbers
    assert tail.message_count == 0


def test_the_most_messages_an_mpub_can_hold(side: Side) -> None:
    tail = side.tail()
    conn = side.connect()
    assert side.said(conn, mpub(b"t", [b"x"] * COUNT_MAX)) == []
    assert tail.committed_end == COUNT_MAX


def test_an_mpub_that_outgrows_the_limit_is_refused(side: Side) -> None:
    """Its total lies, so what is really received has to be counted."""
    tail = side.tail()
    conn = side.connect()
    (event,) = side.said(conn, mpub(b"t", [b"x" * 100] * 11, total=500))
    assert event[:4] == (Event.BAD_PUB, conn, Verb.MPUB, BadPub.BODY_TOO_BIG)
    assert event[5] > BODY_MAX
    assert event[6] == BODY_MAX
    assert tail.message_count == 0


def test_an_unknown_topic_of_an_mpub_is_asked_for_at_once(side: Side) -> None:
    conn = side.connect()
    assert side.said(conn, b"MPUB new\n") == [(Event.TOPIC, conn, Verb.MPUB, b"new")]
    tail = side.tail(b"new")
    conn.resume()
    assert side.said(conn, mpub(b"new", [b"a", b"b"]).partition(b"\n")[2]) == []
    assert tail.committed_end == 2


def test_a_topic_may_go_while_its_mpub_arrives(side: Side) -> None:
    side.tail()
    conn = side.connect()
    text = mpub(b"t", [b"a", b"b"])
    assert side.said(conn, text[:-1]) == []
    side.engine.forget_tail(b"t")
    assert side.said(conn, text[-1:]) == [(Event.TOPIC, conn, Verb.MPUB, b"t")]
    tail = side.tail()
    conn.resume()
    assert side.settle() == []
    assert tail.committed_end == 2


def test_nothing_of_an_mpub_is_appended_before_all_is_there(side: Side) -> None:
    tail = side.tail()
    conn = side.connect()
    text = mpub(b"t", [b"a"] * 20)
    assert side.said(conn, text[:-1]) == []
    assert tail.message_count == 0
    assert side.said(conn, text[-1:]) == []
    assert tail.message_count == 20


# --- answers in order ---


def test_answers_keep_the_order_of_commands_over_several_topics(side: Side) -> None:
    one, two = side.tail(b"one"), side.tail(b"two")
    conn = side.connect()
    conn.feed(pub(b"one", b"1") + pub(b"two", b"2") + pub(b"two", b"3") + pub(b"one", b"4"))
    side.poll()
    assert conn.pending == 4
    side.seal(one)
    side.seal(two)
    two.commit()
    side.flush()
    assert conn.take_output() == b""  # the first one is still open
    one.commit()
    side.flush()
    assert frames(conn.take_output()) == [OK] * 4


def test_a_command_for_python_waits_for_the_answers(side: Side) -> None:
    tail = side.tail()
    conn = side.connect()
    conn.feed(pub(b"t", b"x") + b"SUB t c\n" + pub(b"t", b"y"))
    assert side.poll() == []
    assert side.flush() == []
    side.seal(tail)
    assert side.poll() == []
    tail.commit()
    assert side.settle() == [line(conn, b"SUB", b"t", b"c")]
    conn.reply(0, b"subscribed")
    conn.resume()
    assert side.settle() == []
    assert frames(conn.take_output()) == [OK, (0, b"subscribed"), OK]


@pytest.mark.parametrize(
    ("text", "kind"),
    [(b"PUB\n", Event.BAD_PUB), (b"PUB t\n" + size(0), Event.BAD_PUB), (b"X\n", Event.LINE)],
)
def test_an_error_does_not_overtake_the_answers(side: Side, text: bytes, kind: Event) -> None:
    tail = side.tail()
    conn = side.connect()
    conn.feed(pub(b"t", b"x") + text)
    assert side.poll() == []
    side.seal(tail)
    tail.commit()
    (event,) = side.settle()
    assert event[0] == kind
    assert frames(conn.take_output()) == [OK]


def test_fin_rdy_and_nop_do_not_wait_for_the_answers(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    conn = side.consumer(window, rdy=1)
    id = side.publish(tail, b"a")
    side.received(conn)
    conn.feed(pub(b"t", b"x") + fin(id) + b"RDY 7\nNOP\n")
    assert side.poll() == []
    assert (conn.pending, conn.in_flight, conn.rdy) == (1, 0, 7)


def test_a_failed_batch_is_told_once(side: Side) -> None:
    one, two = side.tail(b"one"), side.tail(b"two")
    conn = side.connect()
    conn.feed(pub(b"one", b"1") + pub(b"two", b"2") + mpub(b"two", [b"3"]) + pub(b"one", b"4"))
    side.poll()
    side.seal(one)
    side.seal(two)
    two.fail()
    assert side.settle() == []
    one.commit()
    assert side.settle() == [(Event.PUB_FAILED, conn, Verb.PUB, two)]
    assert frames(conn.take_output()) == [OK]  # the last one is not answered any more
    assert conn.pending == 0
    assert (one.committed_end, two.committed_end, two.written_end) == (2, 0, 0)


def test_each_publisher_of_a_failed_batch_is_told(side: Side) -> None:
    tail = side.tail()
    conns = [side.connect() for _ in range(3)]
    for conn in conns[:2]:
        conn.feed(pub(b"t", b"x"))
    conns[2].feed(mpub(b"t", [b"x"]))
    side.poll()
    side.seal(tail)
    tail.fail()
    verbs = [Verb.PUB, Verb.PUB, Verb.MPUB]
    expected = [
        (Event.PUB_FAILED, conn, verb, tail) for conn, verb in zip(conns, verbs, strict=True)
    ]
    assert side.settle() == expected
    assert [conn.take_output() for conn in conns] == [b""] * 3


def test_a_deleted_topic_fails_what_was_gathering(side: Side) -> None:
    tail = side.tail()
    conn = side.connect()
    conn.feed(pub(b"t", b"x"))
    side.poll()
    side.engine.forget_tail(b"t")
    assert side.settle() == [(Event.PUB_FAILED, conn, Verb.PUB, tail)]


def test_a_publish_that_python_appended_is_answered_too(side: Side) -> None:
    tail = side.tail()
    conn = side.connect()
    assert side.said(conn, b"DPUB t 100\n" + size(1) + b"x") == [line(conn, b"DPUB", b"t", b"100")]
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


def test_a_failed_dpub_says_so(side: Side) -> None:
    tail = side.tail()
    conn = side.connect()
    side.said(conn, b"DPUB t 100\n")
    tail.append(b"x")
    conn.appended(tail, Verb.DPUB)
    side.seal(tail)
    tail.fail()
    assert side.settle() == [(Event.PUB_FAILED, conn, Verb.DPUB, tail)]


def test_many_publishes_over_changing_topics_are_all_answered(side: Side) -> None:
    tails = [side.tail(b"one"), side.tail(b"two")]
    conn = side.connect()
    for number in range(100):
        conn.feed(pub([b"one", b"two"][number % 2], b"%d" % number))
    side.poll()
    assert conn.pending <= 100
    side.settle()
    assert frames(conn.take_output()) == [OK] * 100
    assert [tail.committed_end for tail in tails] == [50, 50]


def test_a_full_batch_makes_publishers_wait(kernel: SimpleNamespace) -> None:
    side = Side(kernel)
    tail = side.tail(memory=0)
    conns = [side.connect() for _ in range(3)]
    large = pub(b"t", b"x" * (1 << 20))
    for _ in range(9):
        conns[0].feed(large)
        conns[1].feed(large)
    side.poll()
    assert (16 << 20) <= tail.open_bytes <= (17 << 20)
    conns[2].feed(pub(b"t", b"late"))
    side.poll()
    side.flush()
    assert conns[2].pending == 0
    assert side.settle() == []
    assert [frames(conn.take_output()) for conn in conns] == [[OK] * 9, [OK] * 9, [OK]]
    assert tail.committed_end == 19
    side.close()


# --- bodies for Python ---


@pytest.mark.parametrize("body", [b"x", b"{}", b"y" * 300])
def test_a_body_is_read_where_python_asks_for_it(side: Side, body: bytes) -> None:
    conn = side.connect()
    text = size(len(body)) + body + b"NEXT\n"
    assert side.said(conn, b"IDENTIFY\n" + text) == [line(conn, b"IDENTIFY")]
    conn.read_body(300)
    assert side.settle() == [(Event.BODY, conn, body)]
    assert side.settle() == []
    conn.resume()
    assert side.settle() == [line(conn, b"NEXT")]


def test_a_body_in_pieces(side: Side) -> None:
    conn = side.connect()
    side.said(conn, b"AUTH\n")
    conn.read_body(300)
    for byte in size(5) + b"hell":
        assert side.said(conn, bytes([byte])) == []
    assert side.said(conn, b"o") == [(Event.BODY, conn, b"hello")]


@pytest.mark.parametrize("wrong", [0, -1, 301, (1 << 31) - 1, -(1 << 31)])
def test_a_body_of_a_wrong_size(side: Side, wrong: int) -> None:
    conn = side.connect()
    side.said(conn, b"IDENTIFY\n")
    conn.read_body(300)
    assert side.said(conn, size(wrong)) == [(Event.BODY_SIZE, conn, wrong)]


# --- RDY and FIN ---


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (b"RDY 5\n", 5),
        (b"RDY\n", 1),
        (b"RDY\r\n", 1),
        (b"RDY \n", 0),
        (b"RDY 0\n", 0),
        (b"RDY 2500\n", 2500),
        (b"RDY 0000000000000000000000007\n", 7),
        (b"RDY 12 and more\r\n", 12),
    ],
)
def test_rdy_is_taken_by_the_kernel(side: Side, text: bytes, count: int) -> None:
    conn = side.consumer(side.window(side.tail()), rdy=3)
    side.pass_time(SECOND)
    assert side.said(conn, text) == []
    assert conn.rdy == count
    assert conn.last_command_ns == side.mono_ns


@pytest.mark.parametrize(
    "param",
    [b"2501", b"-1", b"+5", b"x", b"5x", b"0x5", b"99999999999999999999999", b"9" * 5_000, b"5\r"],
)
def test_an_odd_rdy_is_left_to_python(side: Side, param: bytes) -> None:
    conn = side.consumer(side.window(side.tail()), rdy=3)
    assert side.said(conn, b"RDY " + param + b" \n") == [line(conn, b"RDY", param, b"")]
    assert conn.rdy == 3


def test_rdy_is_ignored_when_closing(side: Side) -> None:
    conn = side.consumer(side.window(side.tail()), rdy=3)
    conn.closing = True
    assert side.said(conn, b"RDY 5\n") == []
    assert conn.rdy == 3


def test_fin_frees_a_place(side: Side) -> None:
    tail = side.tail()
    conn = side.consumer(side.window(tail), rdy=3)
    id = side.publish(tail, b"a", b"b", b"c", b"d")
    side.received(conn)
    side.pass_time(SECOND)
    assert side.said(conn, b"FIN %016X\r\nFIN %016x extra\n" % (id, id + 1)) == []
    assert (conn.finish_count, conn.in_flight) == (2, 2)
    assert conn.last_command_ns == side.mono_ns
    assert bodies(conn.take_output()) == [b"d"]


def test_fin_after_cls_is_taken(side: Side) -> None:
    tail = side.tail()
    conn = side.consumer(side.window(tail), rdy=3)
    id = side.publish(tail, b"a")
    side.received(conn)
    conn.closing = True
    assert side.said(conn, fin(id)) == []
    assert conn.finish_count == 1


@pytest.mark.parametrize("text", [b"0123456789abcdef", b"zzzzzzzzzzzzzzzz", b"+123456789abcdef"])
def test_fin_of_what_is_not_in_flight(side: Side, text: bytes) -> None:
    conn = side.consumer(side.window(side.tail()), rdy=3)
    failed = (Event.FIN_FAILED, conn, text, Held.NOT_IN_FLIGHT)
    assert side.said(conn, b"FIN " + text + b"\nNOP\nX\n") == [failed, line(conn, b"X")]


def test_fin_of_what_another_holds(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    owner, other = side.consumer(window, rdy=1), side.consumer(window)
    id = side.publish(tail, b"a")
    side.received(owner)
    failed = (Event.FIN_FAILED, other, b"%016x" % id, Held.NOT_OWNER)
    assert side.said(other, fin(id)) == [failed]
    assert (window.in_flight, owner.in_flight, other.finish_count) == (1, 1, 0)


@pytest.mark.parametrize(
    "params",
    [
        [b""],
        [b"0123456789abcde"],
        [b"0123456789abcdef0"],
        [b"01234567", b"9abcdef"],
        [b"", b"123456789abcdef"],
        [b"0123456789abcde\r", b"x"],
    ],
)
def test_fin_of_no_id_is_left_to_python(side: Side, params: list[bytes]) -> None:
    conn = side.consumer(side.window(side.tail()), rdy=3)
    text = b" ".join([b"FIN", *params])
    if len(params[0]) == 16:  # a carriage return is a byte like any other inside a line
        failed = (Event.FIN_FAILED, conn, params[0], Held.NOT_IN_FLIGHT)
        assert side.said(conn, text + b"\n") == [failed]
    else:
        assert side.said(conn, text + b"\n") == [line(conn, b"FIN", *params)]


def test_fin_without_a_parameter_is_left_to_python(side: Side) -> None:
    conn = side.consumer(side.window(side.tail()), rdy=3)
    assert side.said(conn, b"FIN\n") == [line(conn, b"FIN")]


# --- consuming ---


def test_a_connection_subscribes_once(side: Side) -> None:
    window = side.window(side.tail())
    conn = side.consumer(window)
    assert (conn.window is window, window.consumers) == (True, 1)
    with pytest.raises(RuntimeError):
        conn.subscribe(window)
    conn.leave()
    conn.leave()
    assert (conn.window, window.consumers) == (None, 0)
    assert side.said(conn, b"RDY 1\n") == [line(conn, b"RDY", b"1")]


def test_replies_stand_between_messages_whole(side: Side) -> None:
    tail = side.tail()
    conn = side.consumer(side.window(tail), rdy=10)
    side.publish(tail, b"a")
    conn.reply(0, b"_heartbeat_")
    side.publish(tail, b"b")
    conn.reply(1, b"E_FIN_FAILED")
    side.settle()
    got = frames(conn.take_output())
    assert sorted(kind for kind, _ in got) == [0, 1, 2, 2]
    assert (0, b"_heartbeat_") in got
    assert (1, b"E_FIN_FAILED") in got


def test_a_detached_consumer_that_is_not_read_gets_no_more(side: Side) -> None:
    """Its output is bounded; what is taken makes room. The frames fill the bound exactly."""
    tail = side.tail(memory=1 << 22)
    window = side.window(tail)
    conn = side.consumer(window, rdy=2500)
    body = b"x" * (256 - 34)
    side.publish(tail, *[body] * 3_000)
    total = 0
    for _ in range(20):
        side.settle()
        assert conn.unsent <= 300 << 10
        total += len(messages(conn.take_output()))
        assert conn.unsent == 0
    assert total > 0.75 * 2500  # a large window is not filled to the brim


# --- output on hold ---


def held_consumer(side: Side, bytes_max: int = 16_384) -> tuple[Any, Any]:
    tail = side.tail()
    conn = side.consumer(side.window(tail), rdy=10)
    conn.output_every(bytes_max, 250 * MS)
    assert conn.holds_output
    return tail, conn


def test_deliveries_are_held_for_a_while(side: Side) -> None:
    tail, conn = held_consumer(side)
    side.publish(tail, b"a")
    side.settle()
    side.pass_time(100 * MS)
    side.publish(tail, b"b")
    side.settle()
    assert conn.take_output() == b""
    assert side.engine.deadline_ns == side.mono_ns + 150 * MS
    side.pass_time(150 * MS)
    side.settle()
    assert bodies(conn.take_output()) == [b"a", b"b"]
    side.settle()
    assert side.engine.deadline_ns == 0


def test_deliveries_are_held_up_to_a_size(side: Side) -> None:
    tail, conn = held_consumer(side, bytes_max=200)
    side.publish(tail, b"x" * 90)
    side.settle()
    assert conn.take_output() == b""
    side.publish(tail, b"y" * 90)
    side.settle()
    assert len(bodies(conn.take_output())) == 2


def test_a_consumer_without_room_gets_what_is_held(side: Side) -> None:
    tail, conn = held_consumer(side)
    conn.rdy = 2
    side.publish(tail, b"a")
    side.settle()
    assert conn.take_output() == b""
    side.publish(tail, b"b")
    side.settle()
    assert bodies(conn.take_output()) == [b"a", b"b"]


def test_a_response_takes_along_what_is_held(side: Side) -> None:
    tail, conn = held_consumer(side)
    side.publish(tail, b"a")
    side.settle()
    conn.reply(0, b"_heartbeat_")
    side.settle()
    assert [kind for kind, _ in frames(conn.take_output())] == [2, 0]


def test_a_response_is_not_held_with_what_comes_after_it(side: Side) -> None:
    tail, conn = held_consumer(side)
    conn.reply(0, b"_heartbeat_")
    side.publish(tail, b"a")  # delivered in the flush that sends the reply
    side.settle()
    assert [kind for kind, _ in frames(conn.take_output())][:1] == [0]


def test_the_answer_to_a_publish_is_not_held(side: Side) -> None:
    tail, conn = held_consumer(side)
    side.publish(tail, b"a")
    side.settle()
    assert conn.take_output() == b""
    side.said(conn, pub(b"t", b"b"))
    assert OK in frames(conn.take_output())


def test_a_pause_lets_go_of_what_is_held(side: Side) -> None:
    tail, conn = held_consumer(side)
    side.publish(tail, b"a")
    side.settle()
    conn.window.paused = True
    side.pass_time(250 * MS)
    side.settle()
    assert bodies(conn.take_output()) == [b"a"]


def test_no_hold_means_every_turn(side: Side) -> None:
    tail, conn = held_consumer(side)
    conn.output_every(0, 0)
    assert not conn.holds_output
    side.publish(tail, b"a")
    side.settle()
    assert bodies(conn.take_output()) == [b"a"]


# --- the end ---


def closed(events: list[tuple[Any, ...]]) -> list[Any]:
    return [event[1] for event in events if event[0] == Event.CLOSED]


def test_close_drops_at_once_and_reports_once(side: Side) -> None:
    conn = side.connect()
    side.settle()
    conn.close()
    conn.close()
    conn.feed(b"X\n")
    conn.feed_eof()
    conn.reply(0, b"late")
    assert closed(side.settle()) == [conn]
    assert side.settle() == []


def test_an_event_list_is_the_callers_own(side: Side) -> None:
    """What is handled while walking over one turn's events must not grow that list."""
    conn = side.connect()
    events = side.engine.poll(side.mono_ns)
    conn.close()
    assert events == []
    assert closed(side.engine.flush(side.mono_ns, side.wall_ns)) == [conn]


def test_close_after_flush_sends_what_is_queued(side: Side) -> None:
    conn = side.connect()
    side.said(conn, b"BAD\n")
    conn.reply(1, b"E_INVALID")
    conn.close_after_flush()
    events = side.said(conn, b"MORE\n")
    assert frames(conn.take_output()) == [(1, b"E_INVALID")]
    conn.feed_eof()
    events += side.settle()
    side.pass_time(CLOSE_DRAIN_NS)
    events += side.settle()
    assert events == [(Event.CLOSED, conn, events[-1][2])]


def test_after_close_after_flush_no_command_is_taken(side: Side) -> None:
    tail = side.tail()
    conn = side.connect()
    side.settle()
    conn.close_after_flush()
    events = side.said(conn, pub(b"t", b"x") + b"LINE\n")
    assert [event for event in events if event[0] != Event.CLOSED] == []
    assert tail.message_count == 0


def test_a_connection_whose_output_nobody_takes_is_closed_in_time(side: Side) -> None:
    conn = side.connect()
    side.said(conn, b"BAD\n")
    conn.reply(1, b"E_INVALID")
    conn.close_after_flush()
    assert side.settle() == []
    assert side.mono_ns < side.engine.deadline_ns <= side.mono_ns + CLOSE_DRAIN_NS
    side.pass_time(CLOSE_DRAIN_NS)
    assert closed(side.settle()) == [conn]


def test_commands_before_the_end_are_still_taken(side: Side) -> None:
    tail = side.tail()
    conn = side.connect()
    conn.feed(pub(b"t", b"x") + b"A\n" + pub(b"t", b"y"))
    conn.feed_eof()
    assert side.settle() == [line(conn, b"A")]
    conn.reply(0, b"a")
    conn.resume()
    events = side.settle()
    assert frames(conn.take_output()) == [OK, (0, b"a"), OK]
    events += side.settle()
    assert closed(events) == [conn]
    assert tail.committed_end == 2


def test_the_end_waits_for_the_answers(side: Side) -> None:
    tail = side.tail()
    conn = side.connect()
    conn.feed(pub(b"t", b"x"))
    conn.feed_eof()
    assert side.poll() == []
    side.seal(tail)
    assert side.flush() == []
    tail.commit()
    events = side.flush()
    assert frames(conn.take_output()) == [OK]
    assert closed(events + side.settle()) == [conn]


@pytest.mark.parametrize("text", [b"SU", pub(b"t", b"abc")[:-1], mpub(b"t", [b"a", b"b"])[:-1]])
def test_an_end_inside_a_command_closes(side: Side, text: bytes) -> None:
    tail = side.tail()
    conn = side.connect()
    conn.feed(text)
    conn.feed_eof()
    assert closed(side.settle()) == [conn]
    assert tail.message_count == 0


def test_a_closed_consumer_leaves_its_window(side: Side) -> None:
    window = side.window(side.tail())
    conn = side.consumer(window)
    conn.close()
    side.settle()
    assert (window.consumers, conn.window) == (0, None)


def test_a_publisher_that_went_away_hurts_nobody(side: Side) -> None:
    tail = side.tail()
    gone, stays = side.connect(), side.connect()
    gone.feed(pub(b"t", b"x"))
    stays.feed(pub(b"t", b"y"))
    side.poll()
    gone.close()
    assert closed(side.settle()) == [gone]
    assert frames(stays.take_output()) == [OK]
    assert tail.committed_end == 2
