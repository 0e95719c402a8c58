"""`/stats?format=json`: the document in pieces, so that a large one does not hold up deliveries.

A row is encoded with an empty list in it, cut in two at that place, and what belongs into the list
goes out between the halves. The keys before the list hold names of topics and channels only, which
cannot look like the place of the cut.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from penstock import __version__
from penstock.broker import stats as broker_stats
from penstock.nsqd.session import Session
from penstock.nsqd.stats import (
    Channels,
    Row,
    View,
    connection_rows,
    memory_row,
    producers,
    walk,
)

_encode_fast = msgspec.json.encode
_CHANNELS, _CLIENTS = b'"channels":[', b'"clients":['


def encode(value: Any) -> bytes:
    try:
        return _encode_fast(value)
    except UnicodeEncodeError:  # half a surrogate pair in what a client says of itself
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        return text.encode("utf-8", "replace")


def json_parts(view: View) -> Iterator[bytes]:
    broker, query = view.broker, view.query
    names = broker_stats.chosen_names(broker.topics, query.topic)
    head = {"version": __version__, "health": broker.health, "start_time": view.start_time}
    yield encode(head)[:-1] + b',"topics":'
    if names is None:
        yield b"null"
    else:
        yield b"["
        yield from _topics(view, names)
        yield b"]"
    if query.include_memory:
        yield b',"memory":' + encode(memory_row())
    start = b',"producers":['
    for part in _listed(producers(view)):
        yield start + part
        start = b""
    yield b',"producers":null' if start else b"]"
    if not query.topic:  # it is about the whole daemon
        yield b',"disk":' + encode(view.disk())
    yield b',"draining":true}' if broker.draining else b"}"


def connection_parts(sessions: list[Session]) -> Iterator[bytes]:
    """`/connections`."""
    yield b'{"connections":['
    yield from _listed(connection_rows(sessions))
    yield b"]}"


def _topics(view: View, names: list[str]) -> Iterator[bytes]:
    separator = b""
    for row, channels in walk(view, names):
        before, after = _cut(row, _CHANNELS)
        yield separator + before
        yield from _channels(channels, view.query.include_clients)
        yield after
        separator = b","


def _channels(channels: Channels, include_clients: bool) -> Iterator[bytes]:
    separator = b""
    for row, clients in channels:
        if include_clients:
            row["clients"] = []
            before, after = _cut(row, _CLIENTS)
            yield separator + before
            yield from _listed(clients)
            yield after
        else:
            yield separator + encode(row)
        separator = b","


def _cut(row: Row, place: bytes) -> tuple[bytes, bytes]:
    before, found, after = encode(row).partition(place)
    return before + found, after


def _listed(chunks: Iterable[list[Row]]) -> Iterator[bytes]:
    separator = b""
    for rows in chunks:
        yield separator + encode(rows)[1:-1]
        separator = b","
