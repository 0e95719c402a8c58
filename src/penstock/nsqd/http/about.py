"""What the daemon says about itself: `/ping`, `/info`, `/stats`, `/connections`, `/metrics`, and
figures that Youzan's nsqd tells beside `/stats`, as far as one node has them: where a channel
stands, what was published in each hour, failed publishes, and who has a copy of what.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from penstock import __version__, limits
from penstock.broker.channels.channel import Channel
from penstock.kernel import Stray
from penstock.net.api import JSON, TEXT, Parameters, because, json_response
from penstock.net.exchange import Response
from penstock.net.query import whole_number
from penstock.nsqd.http.arguments import FALSE, chosen_partitions, find_channel, find_topic, invalid
from penstock.nsqd.http.deps import Call
from penstock.nsqd.metrics import CONTENT_TYPE, metric_parts
from penstock.nsqd.stats import Query, View, connection_parts, disk_row, json_parts
from penstock.nsqd.stats_text import text_parts


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
    call.answer(json_response(member.document()))


def stats(call: Call) -> None:
    deps, identity, parameters = call.deps, call.deps.identity, call.parameters
    query = Query(
        parameters.get("topic", ""),
        parameters.get("channel", ""),
        parameters.get("include_clients", "true") not in FALSE,
        parameters.get("include_mem", "true") not in FALSE,
        _partition(parameters),
    )
    disk = partial(disk_row, deps.options.data_path, deps.sync_times)
    view = View(deps.broker, deps.protocol.sessions, query, identity.start_time, disk)
    if parameters.get("format") == "json":
        call.in_slices(json_parts(view), JSON)
    else:
        uptime_ns = deps.clock.mono_ns() - identity.started_mono_ns
        call.in_slices(text_parts(view, identity.version_line, uptime_ns), TEXT)


def connections(call: Call) -> None:
    call.in_slices(connection_parts(list(call.deps.protocol.sessions.values())), JSON)


def metrics(call: Call) -> None:
    call.in_slices(metric_parts(call.deps), CONTENT_TYPE, ())


def _partition(parameters: Parameters) -> int | None:
    """None: all of them."""
    text = parameters.get("partition", "")
    if text in ("", "-1"):
        return None
    number = whole_number(text, limits.PARTITIONS_MAX - 1)
    if number is None:
        rule = f"a whole number, 0 to {limits.PARTITIONS_MAX - 1}, or -1 for all"
        raise invalid("partition", text, rule)
    return number


# --- Youzan's figures ---


def message_stats(call: Call) -> None:
    topic = find_topic(call)
    partitions = chosen_partitions(topic, call.parameters)
    channels = list(topic.channels.values())
    if "channel" in call.parameters:
        channels = [find_channel(call)]
    rows = [_place(channel, number) for channel in channels for number in partitions]
    call.answer(json_response({"topic_name": topic.name, "channels": rows}))


def history(call: Call) -> None:
    topic, hourly = find_topic(call), call.deps.broker.hourly
    each = [hourly.of(topic, number) for number in chosen_partitions(topic, call.parameters)]
    sizes = [sum(hour) for hour in zip(*each, strict=True)]
    call.answer(json_response({"hourly_pub_size": sizes}))


def failures(call: Call) -> None:
    call.answer(json_response({"server_pub_failed_cnt": call.deps.protocol.refused_count}))


def copies(call: Call) -> None:
    parameters, deps = call.parameters, call.deps
    topics = [find_topic(call)] if "topic" in parameters else deps.broker.topics.values()
    me = {"hostname": deps.identity.hostname, "node_id": str(deps.options.node_id)}
    rows = [
        {"node": me["node_id"], "name": topic.name, "partition": number,
         "isr_stats": [me], "catchup_stats": []}
        for topic in topics
        for number in chosen_partitions(topic, parameters)
    ]  # fmt: skip
    call.answer(json_response({"topic_coord_stats": rows}))


def _place(channel: Channel, number: int) -> dict[str, Any]:
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
