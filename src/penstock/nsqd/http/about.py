"""The daemon about itself: `/ping`, `/info`, `/stats`, `/connections`, `/metrics`, and figures that
Youzan's nsqd has beside `/stats`, as far as one node has them: positions of channels, bytes
published by the hour, failed publishes, and the replicas of partitions. `/stats` as text is for
people, in NSQ's columns."""

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from penstock import __version__, limits
from penstock.broker import stats as broker_stats
from penstock.broker.channels.channel import Channel
from penstock.durations import format_duration
from penstock.kernel import Stray
from penstock.net.api import JSON, TEXT, because, json_response
from penstock.net.exchange import Response
from penstock.nsqd.http.arguments import FALSE
from penstock.nsqd.http.deps import Call
from penstock.nsqd.metrics import CONTENT_TYPE, metric_parts
from penstock.nsqd.stats import (
    Row,
    View,
    connection_parts,
    disk_row,
    json_parts,
    memory_row,
    producers,
    walk,
)


def ping(call: Call) -> None:
    broker = call.deps.broker
    health = broker.health.encode("utf-8", "replace")
    call.answer(Response(200 if broker.healthy else 500, health, TEXT))


def info(call: Call) -> None:
    options, identity, member = call.deps.options, call.deps.identity, call.deps.member
    document = {
        "version": __version__,
        "broadcast_address": options.broadcast_address,
        "hostname": identity.hostname,
        "http_port": identity.http_port,
        "tcp_port": identity.tcp_port,
        "start_time": identity.start_time,
        "max_heartbeat_interval": options.max_heartbeat_interval_ns,
        "max_output_buffer_size": options.max_output_buffer_size,
        "max_output_buffer_timeout": options.max_output_buffer_timeout_ns,
        "max_deflate_level": options.max_deflate_level,
        "topology_zone": options.topology_zone,
        "topology_region": options.topology_region,
    }
    if member is not None:
        document |= {"cluster": member.name, "node_id": options.node_id}
    call.answer(json_response(document))


def cluster(call: Call) -> None:
    member = call.deps.member
    if member is None:
        raise because(404, "NO_CLUSTER", "this node has no --cluster")
    call.in_slices(member.document(), JSON)


def stats(call: Call) -> None:
    deps, identity, parameters = call.deps, call.deps.identity, call.parameters
    disk = partial(disk_row, deps.options.data_path, deps.sync_times)
    view = View(
        deps.broker, deps.protocol.sessions, identity.start_time, disk,
        parameters.get("topic", ""),
        parameters.get("channel", ""),
        parameters.get("include_clients", "true") not in FALSE,
        parameters.get("include_mem", "true") not in FALSE,
        _partition(call),
    )  # fmt: skip
    if parameters.get("format") == "json":
        call.in_slices(json_parts(view), JSON)
    else:
        uptime_ns = deps.clock.mono_ns() - identity.started_mono_ns
        call.in_slices(text_parts(view, identity.version_line, uptime_ns), TEXT)


def connections(call: Call) -> None:
    call.in_slices(connection_parts(list(call.deps.protocol.sessions.values())), JSON)


def metrics(call: Call) -> None:
    call.in_slices(metric_parts(call.deps), CONTENT_TYPE, ())


def _partition(call: Call) -> int | None:
    """None: all of them."""
    if call.parameters.get("partition", "") in ("", "-1"):
        return None
    return call.number("partition", limits.PARTITIONS_MAX - 1)


# --- Youzan's figures ---


def message_stats(call: Call) -> None:
    topic = call.topic()
    partitions = call.partitions(topic)
    channels = list(topic.channels.values())
    if "channel" in call.parameters:
        channels = [call.channel()]
    rows = [_position_row(channel, number) for channel in channels for number in partitions]
    call.answer(json_response({"topic_name": topic.name, "channels": rows}))


def history(call: Call) -> None:
    topic, hourly = call.topic(), call.deps.broker.hourly
    each = [hourly.of(topic, one) for one in call.partitions(topic)]
    sizes = [sum(hour) for hour in zip(*each, strict=True)]
    call.answer(json_response({"hourly_pub_size": sizes}))


def failures(call: Call) -> None:
    call.answer(json_response({"server_pub_failed_cnt": call.deps.protocol.refused_count}))


def copies(call: Call) -> None:
    parameters, deps = call.parameters, call.deps
    topics = [call.topic()] if "topic" in parameters else deps.broker.topics.values()
    me = {"hostname": deps.identity.hostname, "node_id": str(deps.options.node_id)}
    rows = [
        {"node": me["node_id"], "name": topic.name, "partition": one,
         "isr_stats": [me], "catchup_stats": []}
        for topic in topics
        for one in call.partitions(topic)
    ]  # fmt: skip
    call.answer(json_response({"topic_coord_stats": rows}))


def _position_row(channel: Channel, number: int) -> dict[str, Any]:
    """Offsets are of the partition's log."""
    window = channel.windows[number]
    return {
        "channel_name": channel.name,
        "partition": number,
        "low": window.low,  # below it all is done, but for what was requeued or delayed
        "next": window.next,
        "floor": window.floor,
        "end": window.tail.handed_end,
        "in_flight": window.in_flight,
        "requeued": len(window.stray_records(Stray.WAITING, window.depth or 1)),
        "delayed": window.delayed,
        "exhausted": window.exhausted,
    }


def text_parts(view: View, version_line: str, uptime_ns: int) -> Iterator[bytes]:
    for line in _lines(view, version_line, uptime_ns):
        yield (line + "\n").encode("utf-8", "replace")


def _lines(view: View, version_line: str, uptime_ns: int) -> Iterator[str]:
    broker = view.broker
    started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(view.start_time))
    yield from (version_line, f"start_time {started}", f"uptime {format_duration(uptime_ns)}", "")
    yield f"Health: {broker.health}"
    if broker.context.draining:
        yield "Draining: no publishes are taken, deliveries go on until nothing is left"
    if view.include_memory:
        yield from ("", "Memory:")
        for name, value in memory_row().items():
            yield f"   {name:<25}\t{value}"
    yield ""
    now_s = int(time.time())
    yield from _topics(view, now_s)
    yield ""
    yield from _producers(view, now_s)


def _topics(view: View, now_s: int) -> Iterator[str]:
    names = broker_stats.chosen_names(view.broker.topics, view.topic) or []
    heading = "Topics:"
    for topic, channels in walk(view, names):
        yield heading
        heading = ""  # between two topics
        yield _topic_line(topic)
        for part in topic.get("partitions", ()):
            yield _partition_line(part)
        for replica in topic.get("replicas", ()):
            yield _replica_line(replica)
        for channel, clients in channels:
            yield _channel_line(channel)
            for part in channel.get("partitions", ()):
                yield _channel_partition_line(part)
            for rows in clients:
                for row in rows:
                    yield _client_line(row, now_s)
    if heading:
        yield "Topics: None"


def _producers(view: View, now_s: int) -> Iterator[str]:
    heading = "Producers:"
    for rows in producers(view):
        if heading:
            yield heading
            heading = ""
        for row in rows:
            yield _producer_line(row, now_s)
    if heading:
        yield "Producers: None"


def _topic_line(topic: Row) -> str:
    mark = "*P " if topic["paused"] else "   "
    return (
        f"{mark}[{topic['topic_name']:<15}] depth: {topic['depth']:<5d} "
        f"be-depth: {topic['backend_depth']:<5d} msgs: {topic['message_count']:<8d} "
        f"e2e%: {_latencies(topic)}"
    )


def _channel_line(channel: Row) -> str:
    mark = "   *P " if channel["paused"] else "      "
    return (
        f"{mark}[{channel['channel_name']:<25}] depth: {channel['depth']:<5d} "
        f"be-depth: {channel['backend_depth']:<5d} inflt: {channel['in_flight_count']:<4d} "
        f"def: {channel['deferred_count']:<4d} re-q: {channel['requeue_count']:<5d} "
        f"timeout: {channel['timeout_count']:<5d} msgs: {channel['message_count']:<8d} "
        f"e2e%: {_latencies(channel)}"
    )


def _partition_line(part: Row) -> str:
    return (
        f"      partition {part['partition']:<3d} depth: {part['depth']:<5d} "
        f"be-depth: {part['backend_depth']:<5d} msgs: {part['message_count']:<8d} "
        f"offsets: {part['start_offset']}-{part['committed_end']}"
    )


def _replica_line(replica: Row) -> str:
    leader = "none" if replica["leader"] is None else replica["leader"]
    in_sync = " ".join(map(str, replica["in_sync"])) or "none"
    lag = f" lag: {replica['lag']}" if "lag" in replica else ""
    return (
        f"      replica {replica['partition']:<5d} {replica['role']:<9} leader: {leader} "
        f"epoch: {replica['epoch']} in sync: {in_sync} end: {replica['end_offset']}{lag}"
    )


def _channel_partition_line(part: Row) -> str:
    return (
        f"         partition {part['partition']:<3d} depth: {part['depth']:<5d} "
        f"be-depth: {part['backend_depth']:<5d} inflt: {part['in_flight_count']:<4d} "
        f"def: {part['deferred_count']:<4d} re-q: {part['requeue_count']:<5d} "
        f"timeout: {part['timeout_count']:<5d} msgs: {part['message_count']:<8d}"
    ).rstrip()


def _latencies(row: Row) -> str:
    percentiles = row["e2e_processing_latency"]["percentiles"] or ()
    return ", ".join(short_duration(percentile["value"]) for percentile in percentiles)


def short_duration(duration_ns: float) -> str:
    """One number and its unit: `2.8ms`, `0.0ns`."""
    for unit, unit_ns in (("s", limits.SECOND), ("ms", limits.MS), ("us", 1_000)):
        if duration_ns > unit_ns:
            return f"{duration_ns / unit_ns:.1f}{unit}"
    return f"{duration_ns:.1f}ns"


def _client_name(client: Row) -> str:
    port = client["remote_address"].rpartition(":")[2]
    name = f"{client['hostname']}:{port} {client['user_agent']}"
    return f"[V2 {name:<21}]"


def _connected(client: Row, now_s: int) -> str:
    return format_duration(max(0, now_s - client["connect_ts"]) * limits.SECOND)


def _client_line(client: Row, now_s: int) -> str:
    return (
        f"        {_client_name(client)} state: {client['state']} "
        f"inflt: {client['in_flight_count']:<4d} rdy: {client['ready_count']:<4d} "
        f"fin: {client['finish_count']:<8d} re-q: {client['requeue_count']:<8d} "
        f"msgs: {client['message_count']:<8d} connected: {_connected(client, now_s)}"
    )


def _producer_line(client: Row, now_s: int) -> str:
    counts = client.get("pub_counts", ())
    topics = " ".join(f"{row['topic']}={row['count']}" for row in counts)
    total = sum(row["count"] for row in counts)
    return (
        f"   {_client_name(client)} msgs: {total:<8d} topics: {topics} "
        f"connected: {_connected(client, now_s)}"
    )
