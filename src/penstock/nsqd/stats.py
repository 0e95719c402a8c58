"""`/stats`: the whole daemon as one document, and the same as text for people.

Keys and their order, and the columns of the text, are NSQ's; tools parse both.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from penstock.broker import stats as broker_stats
from penstock.broker.broker import Broker
from penstock.command.durations import format_duration
from penstock.kernel import Conn
from penstock.nsqd.session import Session
from penstock.nsqd.tls import cipher_name, version_name

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Query:
    """What a request wants to see."""

    topic: str = ""
    channel: str = ""
    include_clients: bool = True
    include_memory: bool = True


def client_row(session: Session) -> Row:
    conn, settings = session.conn, session.settings
    row: Row = {
        "client_id": settings.client_id,
        "hostname": settings.hostname,
        "version": "V2",
        "remote_address": session.remote,
        "state": int(session.state),
        "ready_count": conn.rdy,
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
        row["pub_counts"] = [
            {"topic": topic.decode("ascii"), "count": count}
            for topic, count in sorted(published.items())
        ]
    return row | _tls_row(session)


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
    """A consumer stays as near as it was when it subscribed."""
    key = broker_stats.LOCALITY_KEYS.get(conn.locality)
    return {key: conn.message_count} if key and conn.message_count else {}


def memory_row() -> Row:
    """Go's names, filled with what CPython can tell."""
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
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except FileNotFoundError:  # not Linux: the highest so far has to do
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def document(
    version: str, start_time: int, broker: Broker, sessions: Iterable[Session], query: Query
) -> Row:
    topics = broker_stats.rows(broker.topics, query.topic, query.channel)
    if query.include_clients:
        for topic_row in topics or ():
            channels = broker.topics[topic_row["topic_name"]].channels
            for channel_row in topic_row["channels"]:
                consumers: list[Conn] = channels[channel_row["channel_name"]].consumers
                channel_row["clients"] = [client_row(conn.owner) for conn in consumers]
    row: Row = {
        "version": version,
        "health": broker.health,
        "start_time": start_time,
        "topics": topics,
    }
    if query.include_memory:
        row["memory"] = memory_row()
    row["producers"] = _producers(sessions) if query.include_clients else None
    if broker.draining:
        row["draining"] = True
    return row


def _producers(sessions: Iterable[Session]) -> list[Row] | None:
    return [client_row(session) for session in sessions if session.conn.published] or None


# --- text ---


def text(document: Row, version_line: str, uptime_ns: int) -> str:
    started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(document["start_time"]))
    lines = [
        version_line,
        f"start_time {started}",
        f"uptime {format_duration(uptime_ns)}",
        "",
        f"Health: {document['health']}",
    ]
    if "draining" in document:
        lines.append("Draining: no publishes are taken, deliveries go on until nothing is left")
    if "memory" in document:
        lines += ["", "Memory:"]
        lines += [f"   {name:<25}\t{value}" for name, value in document["memory"].items()]
    lines.append("")
    now_s = int(time.time())
    topics = document["topics"]
    lines.append("Topics:" if topics else "Topics: None")
    for index, topic in enumerate(topics or ()):
        if index:
            lines.append("")
        lines += _topic_lines(topic, now_s)
    lines.append("")
    producers = document["producers"]
    lines.append("Producers:" if producers else "Producers: None")
    lines += [_producer_line(producer, now_s) for producer in producers or ()]
    return "\n".join(lines) + "\n"


def _topic_lines(topic: Row, now_s: int) -> list[str]:
    mark = "*P " if topic["paused"] else "   "
    lines = [
        f"{mark}[{topic['topic_name']:<15}] depth: {topic['depth']:<5d} "
        f"be-depth: {topic['backend_depth']:<5d} msgs: {topic['message_count']:<8d} e2e%: "
    ]
    for channel in topic["channels"]:
        mark = "   *P " if channel["paused"] else "      "
        lines.append(
            f"{mark}[{channel['channel_name']:<25}] depth: {channel['depth']:<5d} "
            f"be-depth: {channel['backend_depth']:<5d} inflt: {channel['in_flight_count']:<4d} "
            f"def: {channel['deferred_count']:<4d} re-q: {channel['requeue_count']:<5d} "
            f"timeout: {channel['timeout_count']:<5d} msgs: {channel['message_count']:<8d} e2e%: "
        )
        lines += [_client_line(client, now_s) for client in channel["clients"] or ()]
    return lines


def _client_name(client: Row) -> str:
    port = client["remote_address"].rpartition(":")[2]
    name = f"{client['hostname']}:{port} {client['user_agent']}"
    return f"[V2 {name:<21}]"


def _connected(client: Row, now_s: int) -> str:
    return format_duration(max(0, now_s - client["connect_ts"]) * 1_000_000_000)


def _client_line(client: Row, now_s: int) -> str:
    return (
        f"        {_client_name(client)} state: {client['state']} "
        f"inflt: {client['in_flight_count']:<4d} rdy: {client['ready_count']:<4d} "
        f"fin: {client['finish_count']:<8d} re-q: {client['requeue_count']:<8d} "
        f"msgs: {client['message_count']:<8d} connected: {_connected(client, now_s)}"
    )


def _producer_line(client: Row, now_s: int) -> str:
    counts = client["pub_counts"]
    topics = " ".join(f"{row['topic']}={row['count']}" for row in counts)
    total = sum(row["count"] for row in counts)
    return (
        f"   {_client_name(client)} msgs: {total:<8d} topics: {topics} "
        f"connected: {_connected(client, now_s)}"
    )
