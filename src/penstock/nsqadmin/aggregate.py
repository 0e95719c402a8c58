"""Statistics of several nsqds made one: what `/api` shows of a topic, a channel and a node.

In: the `/stats` documents by nsqd. Out: documents with the official fields. A sum has the node "*"
and under `nodes` the same for each nsqd. What an nsqd does not say counts as nothing: an old one
lacks fields, and that is no reason to show no page. Where a topic has several partitions,
`partitions` has their rows as the nsqds give them, each with its `node`.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from penstock.nsqadmin.upstream import NsqdAddress

Row = dict[str, Any]

_TOPIC_COUNTS = ("depth", "memory_depth", "backend_depth", "message_count", "delivery_msg_count")
_LOCAL_COUNTS = ("zone_local_msg_count", "region_local_msg_count", "global_msg_count")
_CHANNEL_COUNTS = ("depth", "memory_depth", "backend_depth", "in_flight_count", "deferred_count",
                   "requeue_count", "timeout_count", "message_count", "delivery_msg_count",
                   *_LOCAL_COUNTS, "client_count")  # fmt: skip
_CLIENT_DEFAULTS: Row = {
    **dict.fromkeys(("client_id", "hostname", "version", "user_agent", "remote_address"), ""),
    **dict.fromkeys(("connect_ts", "in_flight_count", "ready_count", "finish_count",
                     "requeue_count", "message_count", "sample_rate"), 0),
    **dict.fromkeys(("deflate", "snappy", "authed", "tls", "tls_negotiated_protocol_is_mutual"),
                    False),
    **dict.fromkeys(("auth_identity", "auth_identity_url", "tls_cipher_suite", "tls_version",
                     "tls_negotiated_protocol"), ""),
}  # fmt: skip
TOPOLOGY = ("topology_zone", "topology_region")


class NodeStats(NamedTuple):
    """What one nsqd said."""

    producer: NsqdAddress
    document: Mapping[str, Any]

    @property
    def node(self) -> str:
        return self.producer.address


def topic(name: str, nodes: Iterable[NodeStats]) -> Row:
    rows = [(node, row) for node in nodes for row in topic_rows(node.document, name)]
    channels: dict[str, list[Row]] = {}
    for node, row in rows:
        for channel in row.get("channels") or ():
            part = _channel_row(node, name, channel)
            channels.setdefault(part["channel_name"], []).append(part)
    sums = [_channel_sum(name, key, channels[key]) for key in sorted(channels)]
    parts = [_topic_row(node, row) for node, row in rows]
    return _over_nodes({"topic_name": name}, parts, _TOPIC_COUNTS, {"channels": sums})


def channel(topic_name: str, name: str, nodes: Iterable[NodeStats]) -> Row | None:
    """The channel over all nodes, with its clients; None when no node has it."""
    parts = [
        _channel_row(node, topic_name, row, clients=True)
        for node in nodes
        for above in topic_rows(node.document, topic_name)
        for row in above.get("channels") or ()
        if row.get("channel_name") == name
    ]
    if not parts:
        return None
    clients = [client for part in parts for client in part["clients"]]
    return _channel_sum(topic_name, name, parts) | {
        "global_msg_count": sum(part.get("global_msg_count", 0) for part in parts),
        "nodes": sorted(parts, key=_host),
        "clients": sorted(clients, key=lambda one: (one["hostname"], one["node"])),
    }


def node(stats: NodeStats) -> Row:
    topics = []
    for row in stats.document.get("topics") or ():
        name = row.get("topic_name", "")
        channels = [
            _channel_row(stats, name, one, clients=True) for one in row.get("channels") or ()
        ]
        channels.sort(key=lambda one: str(one["channel_name"]))
        topics.append(_topic_row(stats, row) | {"channels": channels})
    clients = [client for one in topics for part in one["channels"] for client in part["clients"]]
    return {
        "node": stats.node,
        "topics": sorted(topics, key=lambda one: str(one["topic_name"])),
        "total_messages": sum(one["message_count"] for one in topics),
        "total_clients": len(clients),
    }


def counter(nodes: Iterable[NodeStats]) -> Row:
    found: Row = {}
    for one in nodes:
        for row in one.document.get("topics") or ():
            for part in row.get("channels") or ():
                names = (row["topic_name"], part["channel_name"], one.node)
                found[":".join(names)] = {
                    "node": one.node,
                    "topic_name": row["topic_name"],
                    "channel_name": part["channel_name"],
                    "message_count": _count(part, "message_count"),
                }
    return found


def topic_rows(document: Mapping[str, Any], name: str) -> list[Row]:
    return [row for row in document.get("topics") or () if row.get("topic_name") == name]


# --- one node's part ---


def _topic_row(node: NodeStats, row: Row) -> Row:
    names = {"topic_name": row.get("topic_name", "")}
    return _part(node, row, names, _TOPIC_COUNTS, {"channels": []}) | {"delivery_msg_count": 0}


def _channel_row(node: NodeStats, topic_name: str, row: Row, clients: bool = False) -> Row:
    names = {"topic_name": topic_name, "channel_name": row.get("channel_name", "")}
    listed = row.get("clients") or ()
    below = {"clients": [_client_row(node, one) for one in listed] if clients else None}
    return _part(node, row, names, _CHANNEL_COUNTS, below) | {
        "delivery_msg_count": sum(_count(row, key) for key in _LOCAL_COUNTS),
        "client_count": _count(row, "client_count") or len(listed),
    }


def _part(node: NodeStats, row: Row, names: Row, counts: tuple[str, ...], below: Row) -> Row:
    found = {key: _count(row, key) for key in counts}
    found["memory_depth"] = found["depth"] - found["backend_depth"]
    partitions = [{"node": node.node, **part} for part in row.get("partitions") or ()]
    return {
        "node": node.node,
        "hostname": node.producer.hostname,
        **names,
        **_not_nought(found),
        "nodes": None,
        **below,
        "paused": bool(row.get("paused")),
        "e2e_processing_latency": _e2e(row | names, node),
        **({"partitions": partitions} if partitions else {}),  # of one the row has its figures
    }


def _client_row(node: NodeStats, row: Row) -> Row:
    shown: Row = {"node": node.node}
    shown |= {key: row.get(key, default) for key, default in _CLIENT_DEFAULTS.items()}
    since_s = time.time() - float(shown["connect_ts"] or 0)
    shown["connected"] = max(0, int(since_s * 1_000_000_000)) if shown["connect_ts"] else 0
    topology = {f"node_{key}": getattr(node.producer, key) for key in TOPOLOGY}
    shown |= {key: value for key, value in topology.items() if value}
    return shown | {key: row[key] for key in TOPOLOGY if row.get(key)}


# --- sums ---


def _channel_sum(topic_name: str, name: str, parts: list[Row]) -> Row:
    lean = [part | {"clients": None} for part in parts]
    names = {"topic_name": topic_name, "channel_name": name}
    return _over_nodes(names, lean, _CHANNEL_COUNTS, {"clients": None})


def _over_nodes(names: Row, parts: list[Row], counts: tuple[str, ...], below: Row) -> Row:
    partitions = [one for part in parts for one in part.get("partitions", ())]
    return {
        "node": "*",
        "hostname": "",
        **names,
        **_not_nought({key: sum(part.get(key, 0) for part in parts) for key in counts}),
        "nodes": sorted(parts, key=_host),
        **below,
        "paused": any(part["paused"] for part in parts),
        "e2e_processing_latency": _e2e_sum([part["e2e_processing_latency"] for part in parts]),
        **({"partitions": partitions} if partitions else {}),
    }


def _not_nought(counts: Row) -> Row:
    """Without the counts of near and far deliveries that are nought, as official."""
    return {key: count for key, count in counts.items() if count or key not in _LOCAL_COUNTS}


def _e2e(row: Row, node: NodeStats) -> Row:
    """One node's latency in the form of a sum of one."""
    given = row.get("e2e_processing_latency") or {}
    percentiles = []
    for one in given.get("percentiles") or ():
        value = one.get("value", 0)
        percentiles.append({
            "quantile": one.get("quantile", 0), "value": value, "min": value, "max": value,
            "average": value, "count": _count(given, "count"),
        })  # fmt: skip
    return {
        "count": _count(given, "count"),
        "percentiles": percentiles or None,
        "topic": row.get("topic_name", ""),
        "channel": row.get("channel_name", ""),
        "host": node.node,
    }


def _e2e_sum(parts: list[Row]) -> Row:
    """Percentiles of several nodes can't be added: their range, and the average by messages."""
    by_quantile: dict[float, list[Row]] = {}
    for part in parts:
        for one in part["percentiles"] or ():
            by_quantile.setdefault(one["quantile"], []).append(one)
    percentiles = []
    for quantile in sorted(by_quantile, reverse=True):
        rows = by_quantile[quantile]
        count = sum(row["count"] for row in rows)
        weighted = sum(row["average"] * row["count"] for row in rows)
        percentiles.append({
            "quantile": quantile,
            "min": min(row["min"] for row in rows),
            "max": max(row["max"] for row in rows),
            "average": weighted / count if count else 0,
            "count": count,
        })  # fmt: skip
    first = parts[0] if parts else {"topic": "", "channel": ""}
    return {
        "count": sum(part["count"] for part in parts),
        "percentiles": percentiles or None,
        "topic": first["topic"],
        "channel": first["channel"],
        "host": "*",
    }


def _count(row: Mapping[str, Any], key: str) -> int:
    value = row.get(key)
    return value if isinstance(value, int) else 0


def _host(part: Row) -> tuple[str, str]:
    return part["hostname"], part["node"]
