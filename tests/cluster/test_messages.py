"""Messages of participants, as bytes and back."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import each
from penstock.cluster.elections import SendReport
from penstock.cluster.keys import PartitionName
from penstock.cluster.messages import decode_message, encode_message
from penstock.cluster.participant import (
    Answer,
    Corrupt,
    Heartbeat,
    Message,
    Refused,
    Renewed,
    StartAsked,
    StartHeld,
)
from penstock.replica.choice import Report
from penstock.replica.frames import FrameBroken
from penstock.replica.matching import Extent
from penstock.replica.record import Member

ORDERS = PartitionName("orders", 3)
ENTRY = Member(2, (1 << 64) - 1, 9)


@each(
    "message",
    [
        Heartbeat(0),
        Heartbeat((1 << 63) - 1),
        Answer(5),
        Refused(7, (1 << 64) - 1),
        SendReport(4, ORDERS, 8, Report(ENTRY, 3, Extent(5, 90, ((1, 5), (7, 50))))),
        SendReport(4, ORDERS, 8, Report(ENTRY, 0, Extent(0, 0, ()))),
        SendReport(4, ORDERS, 8, Report(ENTRY, 0, None)),
        Corrupt((), ()),
        Renewed(ORDERS),
        StartAsked(ORDERS, (1 << 64) - 1, 3),
        StartHeld(ORDERS, 7, 1),
        Corrupt((ORDERS, PartitionName("t", 0)), (ORDERS,)),
    ],
)
def test_there_and_back(message: Message) -> None:
    assert decode_message(4, encode_message(message)) == message


@given(st.binary(max_size=200))
def test_what_a_stranger_sends(data: bytes) -> None:
    try:
        message = decode_message(4, data)
    except FrameBroken:
        return
    assert decode_message(4, encode_message(message)) == message


@each(
    "form",
    [
        [],
        [9, 1],
        [1],
        [1, 2, 3],
        [1, -1],
        [1, "2"],
        [1, 2.0],
        [3, 1 << 63, 5],
        [4, "x" * 65, 0, 0, [1, 2, 3], 0, None],
        [4, "t", 0, 0, [1, 2], 0, None],
        [4, "t", 0, 0, [1, 2, 3], 0, [0, 0, [[1, 0]] * 10_001]],
        [5, [["t"]]],
        [5, [["x" * 65, 0]]],
        [5, [["t", 0]] * 1_001],
        [6, "x" * 65, 0],
        [6, "t"],
        {"1": 2},
    ],
)
def test_what_is_no_message(form: object) -> None:
    with pytest.raises(FrameBroken, match="a message of"):
        decode_message(4, msgspec.msgpack.encode(form))
