"""Statistics of several nsqds combined: a topic, a channel and a node in `/api`.

In: the `/stats` documents by nsqd. Out: documents with the official fields. A sum has the node "*"
and under `nodes` the same for each nsqd. What an nsqd does not say counts as nothing: an old one
lacks fields, and that is no reason to show no page. Where a topic has several partitions,
`partitions` has their rows as the nsqds give them, each with its `node`.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.nsqadmin.snapshot import NodeState
from penstock.nsqadmin.upstream import whole

Row = dict[str, Any]
Said = Mapping[str, Any]  # a row of `/stats`
Placed = tuple[NodeState, Said]

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


def topic(name: str, nodes: Iterable[NodeState]) -> Row:
    rows = [(node, row) for node in nodes if (row := node.row(name))]
    channels: dict[str, list[Placed]] = {}
    for node, row in rows:
        for one in row.get("channels") or ():
            channels.setdefault(one.get("channel_name", ""), []).append((node, one))
    parts = [_topic_part(*one) for one in rows]
    sums = [_channel_sum(name, key, channels[key]) for key in sorted(channels)]
    return _document(rows, {"topic_name": name}, _TOPIC_COUNTS, {"channels": sums}, parts)


def channel(topic_name: str, name: str, nodes: Iterable[NodeState]) -> Row | None:
    """The channel over all nodes, with its clients; None when no node has it."""
    rows = [(node, row) for node in nodes if (row := node.row(topic_name, name))]
    if not rows:
        return None
    parts = [_channel_part(*one, topic_name, with_clients=True) for one in rows]
    clients = [client for part in parts for client in part["clients"]]
    return _channel_sum(topic_name, name, rows) | {
        "global_msg_count": sum(part.get("global_msg_count", 0) for part in parts),
        "nodes": sorted(parts, key=_host),
        "clients": sorted(clients, key=lambda one: (one["hostname"], one["node"])),
    }


def node(stats: NodeState) -> Row:
    topics = []
    for row in stats.document.get("topics") or ():
        name = row.get("topic_name", "")
        channels = [_channel_part(stats, one, name, with_clients=True)
                    for one in row.get("channels") or ()]  # fmt: skip
        channels.sort(key=lambda one: str(one["channel_name"]))
        topics.append(_topic_part(stats, row) | {"channels": channels})
    clients = [client for one in topics for part in one["channels"] for client in part["clients"]]
    return {
        "node": stats.address,
        "topics": sorted(topics, key=lambda one: str(one["topic_name"])),
        "total_messages": sum(one["message_count"] for one in topics),
        "total_clients": len(clients),
    }


def counter(nodes: Iterable[NodeState]) -> Row:
    found: Row = {}
    for one in nodes:
        for row in one.document.get("topics") or ():
            for part in row.get("channels") or ():
                names = (row["topic_name"], part["channel_name"], one.address)
                found[":".join(names)] = {
                    "node": one.address,
                    "topic_name": row["topic_name"],
                    "channel_name": part["channel_name"],
                    "message_count": whole(part, "message_count"),
                }
    return found


# --- one document, of a node's row or of several ---


def _topic_part(node: NodeState, row: Said) -> Row:
    names = {"topic_name": row.get("topic_name", "")}
    return _document([(node, row)], names, _TOPIC_COUNTS, {"channels": []})


def _channel_part(node: NodeState, row: Said, topic: str, with_clients: bool = False) -> Row:
    names = {"topic_name": topic, "channel_name": row.get("channel_name", "")}
    clients = [_client_row(node, one) for one in row.get("clients") or ()]
    below = {"clients": clients if with_clients else None}
    return _document([(node, row)], names, _CHANNEL_COUNTS, below)


def _channel_sum(topic: str, name: str, rows: list[Placed]) -> Row:
    names = {"topic_name": topic, "channel_name": name}
    parts = [_channel_part(*one, topic) for one in rows]
    return _document(rows, names, _CHANNEL_COUNTS, {"clients": None}, parts)


def _document(
    rows: list[Placed], names: Row, counts: tuple[str, ...], below: Row,
    parts: list[Row] | None = None,
) -> Row:  # fmt: skip
    """`parts`: it is their sum. Near and far deliveries that are 0 are left out, as official."""
    found = {key: sum(_counted(row, key) for _, row in rows) for key in counts}
    found["memory_depth"] = found["depth"] - found["backend_depth"]
    partitions = [{"node": node.address, **part}
                  for node, row in rows for part in row.get("partitions") or ()]  # fmt: skip
    host = "*" if parts is not None else rows[0][0].address
    return {
        "node": host,
        "hostname": "" if parts is not None else rows[0][0].producer.hostname,
        **names,
        **{key: count for key, count in found.items() if count or key not in _LOCAL_COUNTS},
        "nodes": sorted(parts, key=_host) if parts is not None else None,
        **below,
        "paused": any(row.get("paused") for _, row in rows),
        "e2e_processing_latency": _e2e([row for _, row in rows], names, host),
        **({"partitions": partitions} if partitions else {}),  # of one the row has its figures
    }


def _counted(row: Said, key: str) -> int:
    if key == "delivery_msg_count":
        return sum(whole(row, one) for one in _LOCAL_COUNTS)
    if key == "client_count":
        return whole(row, key) or len(row.get("clients") or ())
    return whole(row, key)


def _client_row(node: NodeState, row: Said) -> Row:
    shown: Row = {"node": node.address}
    for key, default in _CLIENT_DEFAULTS.items():
        shown[key] = row[key] if isinstance(row.get(key), type(default)) else default
    since_s = time.time() - shown["connect_ts"]
    shown["connected"] = max(0, int(since_s * 1_000_000_000)) if shown["connect_ts"] else 0
    topology = {f"node_{key}": getattr(node.producer, key) for key in TOPOLOGY}
    shown |= {key: value for key, value in topology.items() if value}
    return shown | {key: row[key] for key in TOPOLOGY if row.get(key)}


def _e2e(rows: list[Said], names: Row, host: str) -> Row:
    """Percentiles of several nodes can't be added: their range, and the average by messages."""
    given = [row.get("e2e_processing_latency") or {} for row in rows]
    by_quantile: dict[float, list[tuple[float, int]]] = {}
    for document in given:
        for one in document.get("percentiles") or ():
            pair = one.get("value", 0), whole(document, "count")
            by_quantile.setdefault(one.get("quantile", 0), []).append(pair)
    percentiles = [_percentile(quantile, by_quantile[quantile], host != "*")
                   for quantile in sorted(by_quantile, reverse=True)]  # fmt: skip
    return {
        "count": sum(whole(one, "count") for one in given),
        "percentiles": percentiles or None,
        "topic": names["topic_name"] if rows else "",
        "channel": names.get("channel_name", "") if rows else "",
        "host": host,
    }


def _percentile(quantile: float, found: list[tuple[float, int]], is_of_one: bool) -> Row:
    values, count = [value for value, _ in found], sum(count for _, count in found)
    mean = sum(value * count for value, count in found) / count if count else 0
    return {
        "quantile": quantile,
        **({"value": values[0]} if is_of_one else {}),
        "min": min(values),
        "max": max(values),
        "average": values[0] if is_of_one else mean,
        "count": count,
    }


def _host(part: Row) -> tuple[str, str]:
    return part["hostname"], part["node"]
