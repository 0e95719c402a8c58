"""Publishes that are refused, and passed over: the connection goes on with the next command."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.kernel import BadPub, Event, Verb

from .turns import OK, Side, frames, mpub, mpub_ext, pub, pub_ext, size

REFUSED = (1, b"refused")
HEADERS = b'{"key":"a","x":"y"}'
COMMANDS = {
    Verb.PUB: pub(b"t", b"refused"),
    Verb.MPUB: mpub(b"t", [b"refused", b"PUB t\n\0\0\0\1x"]),
    Verb.PUB_EXT: pub_ext(b"t", HEADERS, b"refused"),
    Verb.MPUB_EXT: mpub_ext(b"t", [(HEADERS, b"refused"), (b"", b"too")]),
}
each = pytest.mark.parametrize("verb", COMMANDS)


def refuse(conn: Any) -> None:
    conn.reply(*REFUSED)
    conn.pass_over()
    conn.resume()


def spread(side: Side, count: int) -> list[Any]:
    tails = [side.tail(partition=number) for number in range(count)]
    side.engine.set_extended(b"t", True)
    return tails


@each
@pytest.mark.parametrize("piece_bytes", [1, 5, 1000])
def test_the_next_command_is_read(side: Side, verb: Verb, piece_bytes: int) -> None:
    (tail,) = spread(side, 1)
    conn = side.connect()
    assert side.said(conn, pub(b"t", b"before")) == []
    tail.refusing = True
    stream = COMMANDS[verb] + pub(b"t", b"behind") + b"NOP\n"
    kinds = []
    for at in range(0, len(stream), piece_bytes):
        for event in side.said(conn, stream[at : at + piece_bytes]):
            kinds.append(event[0])
            refuse(conn)
            tail.refusing = False
    assert side.settle() == []
    assert kinds == [Event.REFUSED]
    assert frames(conn.take_output()) == [OK, REFUSED, OK]
    assert conn.published == {b"t": 2}
    assert tail.committed_end == 2


@each
@pytest.mark.parametrize("word", [b"", b" 3"])
def test_a_body_that_has_yet_to_come_is_not_read_as_commands(
    side: Side, verb: Verb, word: bytes
) -> None:
    """A topic that is not known is refused behind its line, where the line names a partition or
    the command has several messages."""
    command = COMMANDS[verb].replace(b" t\n", b" t" + word + b"\n", 1)
    line = command.index(b"\n") + 1
    conn = side.connect()
    events = side.said(conn, command[:line])
    for at in range(line, len(command)):
        if events:
            assert events == [(Event.TOPIC, conn, verb, b"t")]
            refuse(conn)
        events = side.said(conn, command[at : at + 1])
    if events:
        refuse(conn)
        assert side.settle() == []
    assert frames(conn.take_output()) == [REFUSED]
    tail = side.tail()
    assert side.said(conn, pub(b"t", b"behind")) == []
    assert (frames(conn.take_output()), tail.committed_end) == ([OK], 1)


def test_sizes_are_looked_at(side: Side) -> None:
    conn = side.connect()
    side.said(conn, b"MPUB t\n")
    refuse(conn)
    wrong = size(8) + size(-1)
    assert side.said(conn, wrong) == [
        (Event.BAD_PUB, conn, Verb.MPUB, BadPub.COUNT_INVALID, b"t", -1, 0)
    ]


def test_only_what_waits_for_an_answer_is_passed_over(side: Side) -> None:
    side.tail()
    conn = side.connect()
    with pytest.raises(RuntimeError, match="no publish waits for an answer"):
        conn.pass_over()
    assert side.said(conn, pub(b"t", b"x")) == []
    assert frames(conn.take_output()) == [OK]
