"""Places that people type, and what is asked of nodes for one channel."""

import asyncio

import pytest

from cases import each
from penstock.errors import FetchFailed
from penstock.nsqadmin.channel_messages import ChannelMessages, HeldMessage, Move, position_of
from penstock.nsqadmin.messages import InputInvalid
from penstock.nsqadmin.upstream import DaemonRefused, UpstreamFailed

from .saying import Saying, nodes


@each(
    ("kind", "text", "position"),
    [
        ("earliest", "", "earliest"),
        ("time", " 2026-11-21 06:00 ", "timestamp:1795240800.000000000"),
        ("time", "2026-11-21T07:00:00.5+01:00", "timestamp:1795240800.500000000"),
        ("time", "1960-01-01", "timestamp:0.000000000"),
        ("back", "1,000", "back:1000"),
        ("id", "18A2F17404269000", "id:18a2f17404269000"),
    ],
)
def test_positions(kind: str, text: str, position: str) -> None:
    assert position_of(kind, text) == position


@each(
    ("kind", "text"),
    [
        ("time", "yesterday"),
        ("back", ""),
        ("back", "٣"),
        ("offset", "1" * 19),
        ("offset", "1&dry_run=false"),
        ("id", "12"),
        ("id", "g" * 16),
    ],
)
def test_invalid_positions(kind: str, text: str) -> None:
    with pytest.raises(InputInvalid):
        position_of(kind, text)


def inside(upstream: Saying) -> ChannelMessages:
    return ChannelMessages(upstream, "t", "c")


GONE = DaemonRefused("b", "got response 404", 404, "MESSAGE_NOT_FOUND")
WORDS = "the message is not there any more (404 MESSAGE_NOT_FOUND)"


def test_a_missing_message_is_a_warning_and_an_error_where_all_are() -> None:
    upstream = nodes(a=None, b=GONE)
    warning = asyncio.run(inside(upstream).finish([HeldMessage("a", "01"), HeldMessage("b", "02")]))
    assert warning == f"WARNING: 02: {WORDS}"
    about = {"topic": "t", "channel": "c", "id": "01"}
    assert upstream.posted[0] == ("a", "/channel/message/finish", about)
    with pytest.raises(UpstreamFailed) as failed:
        asyncio.run(inside(upstream).requeue([HeldMessage("b", "02")], 0))
    assert failed.value.failed == {"02": GONE}


def test_a_preview_moves_nothing_and_names_failing_nodes() -> None:
    a = {"offset": 5, "messages_again": 2, "messages_skipped": 0, "messages_given_up": 3}
    leads_none = a | {"offset": None, "partitions": []}
    upstream = nodes(a=a, b=GONE, c=FetchFailed("c", "timed out"), d=leads_none)
    moves, errors = asyncio.run(inside(upstream).preview("abcd", "back:2"))
    assert (moves, errors) == ([Move("a", 5, 2, 0, 3)], ["c: timed out"])
    assert {query["dry_run"] for _, _, query in upstream.posted} == {"true"}
