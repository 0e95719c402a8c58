"""The data of `/stats`: rows of clients and memory, the walk over topics, channels and clients, and
the JSON document. `http/about.py` has the form for people.

Keys and their order are NSQ's; tools rely on them. The document is made in pieces, so that a large
one does not hold up deliveries. A row is encoded with an empty list in it, cut in two at that
place, and what belongs into the list goes out between the halves. The keys before the list hold
names of topics and channels only, which cannot look like the place of the cut.
"""

import gc
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from penstock import __version__, limits
from penstock.broker import stats as broker_stats
from penstock.broker.broker import Broker
from penstock.broker.channels.channel import Channel
from penstock.broker.channels.skips import ANY
from penstock.kernel import Conn
from penstock.net.sync import SyncTimes
from penstock.nsqd.http import settings, topics
from penstock.nsqd.session import Session
from penstock.nsqd.tls import cipher_name, version_name

Row = dict[str, Any]

_encode_fast = msgspec.json.encode
_CHANNELS, _CLIENTS = b'"channels":[', b'"clients":['
CLIENTS_TOGETHER = 64  # rows made between two looks at the clock


def _chosen(session: Session) -> Row:
    """The partition of a consumer that has chosen one."""
    channel = session.channel
    partition = ANY if channel is None else channel.partition_of(session.conn)
    return {} if partition == ANY else {"partition": partition}


def client_row(session: Session) -> Row:
    conn, settings = session.conn, session.settings
    row: Row = {
        "client_id": settings.client_id,
        "hostname": settings.hostname,
        "version": "V2",
        "remote_address": session.remote,
        "state": int(session.state),
        "ready_count": conn.rdy,
        **({"limited_rdy": conn.rdy_limit} if conn.rdy_limit else {}),
        "in_flight_count": conn.in_flight,
        "message_count": conn.message_count,
        **_delivered(conn),
        "finish_count": conn.finish_count,
        "requeue_count": conn.requeue_count,
        "connect_ts": session.connected_s,
        "sample_rate": settings.sample_rate,
        "deflate": settings.deflate,
        "snappy": settings.snappy,
        "user_agent": settings.user_agent,
        **_auth_row(session),
        "topology_zone": settings.topology_zone,
        "topology_region": settings.topology_region,
    }
    published = conn.published
    if published:
        row["pub_counts"] = _pub_counts(published)
    return row | _tls_row(session) | _chosen(session)


def _tls_row(session: Session) -> Row:
    tls = session.link.tls if session.link is not None else None
    return {
        "tls": tls is not None,
        "tls_cipher_suite": cipher_name(tls.cipher) if tls is not None else "",
        "tls_version": version_name(tls.version) if tls is not None else "",
        "tls_negotiated_protocol": "",
        "tls_negotiated_protocol_is_mutual": tls is not None,
    }


def _auth_row(session: Session) -> Row:
    grant = session.grant
    if grant is None or not grant.entries:
        return {}
    row: Row = {"authed": True}
    if grant.identity:
        row["auth_identity"] = grant.identity
    if grant.identity_url:
        row["auth_identity_url"] = grant.identity_url
    return row


def _delivered(conn: Conn) -> Row:
    """The locality of a consumer is that of its SUB."""
    key = broker_stats.LOCALITY_KEYS.get(conn.locality)
    return {key: conn.message_count} if key and conn.message_count else {}


def memory_row() -> Row:
    """Go's names, with the figures that CPython has."""
    return {
        "heap_objects": sys.getallocatedblocks(),
        "heap_idle_bytes": 0,
        "heap_in_use_bytes": resident_bytes(),
        "heap_released_bytes": 0,
        "gc_pause_usec_100": 0,
        "gc_pause_usec_99": 0,
        "gc_pause_usec_95": 0,
        "next_gc_bytes": 0,
        "gc_total_runs": sum(generation["collections"] for generation in gc.get_stats()),
    }


def resident_bytes() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def disk_row(path: str, times: SyncTimes) -> Row:
    """The disk below the data path, and how long syncs take."""
    try:
        found = os.statvfs(path)
    except OSError:  # health tells of it
        free = size = None
    else:
        free, size = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
    since_ns = times.since_last_ns()
    return {
        "free_bytes": free,
        "size_bytes": size,
        "sync_slowest_seconds": times.slowest_ns() / limits.SECOND,
        "last_sync_seconds_ago": None if since_ns is None else since_ns / limits.SECOND,
    }


class View(NamedTuple):
    """The selection of a request. Nothing is read before a renderer comes to it, so that a large
    document can be made in slices (`json_parts`, `text_parts`)."""

    broker: Broker
    sessions: dict[int, Session]
    start_time: int
    disk: Callable[[], Row] = dict
    topic: str = ""
    channel: str = ""
    include_clients: bool = True
    include_memory: bool = True
    partition: int | None = None  # the topics that have it, and only what it has


Clients = Iterator[list[Row]]  # some rows at a time
Channels = Iterator[tuple[Row, Clients]]


def walk(view: View, names: list[str]) -> Iterator[tuple[Row, Channels]]:
    """Each topic's row without channels, and its channels: rows without clients, and those."""
    partition = view.partition
    for name in names:
        topic = view.broker.topics.get(name)
        if topic is not None and (partition is None or topic.leads(partition)):
            channels = broker_stats.chosen_channels(topic, view.channel)
            if channels is not None:
                own = settings.own_of_topic(topic) | topics.shape_of(topic)
                row = broker_stats.topic_row(topic, []) | ({"settings": own} if own else {})
                row = broker_stats.split_topic(row, topic, partition)
                yield row, _walk_channels(view, channels)


def _walk_channels(view: View, channels: list[Channel]) -> Channels:
    for channel in channels:
        consumers = channel.consumers if view.include_clients else ()
        clients = rows_of([conn.owner for conn in consumers])
        own = settings.own_of_channel(channel)
        row = broker_stats.channel_row(channel, None) | ({"settings": own} if own else {})
        yield broker_stats.split_channel(row, channel, view.partition), clients


def rows_of(
    sessions: list[Session], row: Callable[[Session], Row] = client_row
) -> Iterator[list[Row]]:
    for at in range(0, len(sessions), CLIENTS_TOGETHER):
        yield [row(session) for session in sessions[at : at + CLIENTS_TOGETHER]]


_OF_ALL = ("client_id", "hostname", "remote_address", "user_agent", "connect_ts")
_OF_CONSUMERS = "ready_count", "in_flight_count", "message_count", "finish_count", "requeue_count"
_IF_SET = ("pub_counts", "sample_rate", "deflate", "snappy", "topology_zone", "topology_region")


def _connection_row(session: Session) -> Row:
    """Every V2 connection, including those that neither read nor have published. Of `client_row`;
    empty values are omitted, for there are thousands."""
    full, channel = client_row(session), session.channel
    row: Row = {"serial": session.conn.serial, **{key: full[key] for key in _OF_ALL}}
    if channel is not None:
        row |= {"topic": channel.topic.name, "channel": channel.name, **_chosen(session)}
        row |= {key: full[key] for key in _OF_CONSUMERS}
    row |= {key: full[key] for key in _IF_SET if full.get(key)}
    if session.grant is not None:
        row |= _auth_row(session)
    if session.link is not None and session.link.tls is not None:
        row |= _tls_row(session)
    return row


def _pub_counts(published: dict[bytes, int]) -> list[Row]:
    return [
        {"topic": topic.decode("ascii"), "count": count}
        for topic, count in sorted(published.items())
    ]


def producers(view: View) -> Iterator[list[Row]]:
    """Every connection that has published, consumers included."""
    if view.include_clients:
        sessions = view.sessions.values()
        yield from rows_of([session for session in sessions if session.conn.published])


# --- as JSON ---


def encode(value: Any) -> bytes:
    try:
        return _encode_fast(value)
    except UnicodeEncodeError:  # half a surrogate pair in what a client says of itself
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        return text.encode("utf-8", "replace")


def json_parts(view: View) -> Iterator[bytes]:
    broker = view.broker
    names = broker_stats.chosen_names(broker.topics, view.topic)
    head = {"version": __version__, "health": broker.health, "start_time": view.start_time}
    yield encode(head)[:-1] + b',"topics":'
    if names is None:
        yield b"null"
    else:
        yield b"["
        yield from _topics(view, names)
        yield b"]"
    if view.include_memory:
        yield b',"memory":' + encode(memory_row())
    start = b',"producers":['
    for part in _listed(producers(view)):
        yield start + part
        start = b""
    yield b',"producers":null' if start else b"]"
    if not view.topic:  # it is about the whole daemon
        yield b',"disk":' + encode(view.disk())
    yield b',"draining":true}' if broker.context.draining else b"}"


def connection_parts(sessions: list[Session]) -> Iterator[bytes]:
    """`/connections`."""
    yield b'{"connections":['
    yield from _listed(rows_of(sessions, _connection_row))
    yield b"]}"


def _topics(view: View, names: list[str]) -> Iterator[bytes]:
    separator = b""
    for row, channels in walk(view, names):
        before, after = _cut(row, _CHANNELS)
        yield separator + before
        yield from _channels(channels, view.include_clients)
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


def _cut(row: Row, separator: bytes) -> tuple[bytes, bytes]:
    before, found, after = encode(row).partition(separator)
    return before + found, after


def _listed(chunks: Iterable[list[Row]]) -> Iterator[bytes]:
    separator = b""
    for rows in chunks:
        yield separator + encode(rows)[1:-1]
        separator = b","
