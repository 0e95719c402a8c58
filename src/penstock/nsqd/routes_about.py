"""What the daemon says about itself: `/ping`, `/info`, `/stats`, `/connections`, `/metrics`."""

from __future__ import annotations

from functools import partial

from penstock import __version__, limits
from penstock.net.api import (
    GET,
    JSON,
    NSQ_HEADER,
    TEXT,
    Answer,
    Guard,
    HttpError,
    Parameters,
    Route,
    json_response,
)
from penstock.net.exchange import Request, Response
from penstock.net.query import parse_query, whole_number
from penstock.net.slices import in_slices
from penstock.nsqd.ground import FALSE, Ground
from penstock.nsqd.metrics import CONTENT_TYPE, Figures, metric_parts
from penstock.nsqd.routes_log import ANY
from penstock.nsqd.stats import Query, View, disk_row
from penstock.nsqd.stats_json import connection_parts, json_parts
from penstock.nsqd.stats_text import text_parts


def table(ground: Ground, guard: Guard) -> dict[str, Route]:
    about = _About(ground, guard)
    return {
        "/ping": Route(GET, about.ping),
        "/info": Route(GET, about.info),
        "/stats": Route(GET, about.stats),
        "/connections": Route(GET, about.connections),
        "/metrics": Route(GET, about.metrics),
        "/cluster": Route(GET, about.cluster),
    }


class _About:
    def __init__(self, ground: Ground, guard: Guard) -> None:
        self._ground = ground
        self._guard = guard

    def ping(self, request: Request, answer: Answer) -> None:
        broker = self._ground.broker
        health = broker.health
        answer(Response(200 if broker.healthy else 500, health.encode("utf-8", "replace"), TEXT))

    def info(self, request: Request, answer: Answer) -> None:
        options, identity = self._ground.options, self._ground.identity
        answer(
            json_response(
                {
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
                    **self._membership(),
                }
            )
        )

    def _membership(self) -> dict[str, object]:
        member = self._ground.member
        if member is None:
            return {}
        return {"cluster": member.name, "node_id": self._ground.options.node_id}

    def cluster(self, request: Request, answer: Answer) -> None:
        member = self._ground.member
        if member is None:
            raise HttpError(404, "NO_CLUSTER", details={"reason": "this node has no --cluster"})
        answer(json_response(member.document()))

    def stats(self, request: Request, answer: Answer) -> None:
        ground, identity = self._ground, self._ground.identity
        parameters = parse_query(request.query)
        query = Query(
            parameters.get("topic", ""),
            parameters.get("channel", ""),
            parameters.get("include_clients", "true") not in FALSE,
            parameters.get("include_mem", "true") not in FALSE,
            _partition(parameters),
        )
        disk = partial(disk_row, ground.options.data_path, ground.sync_times)
        view = View(ground.broker, ground.protocol.sessions, query, identity.start_time, disk)
        if parameters.get("format") == "json":
            parts, content_type = json_parts(view), JSON
        else:
            uptime_ns = ground.clock.mono_ns() - identity.started_mono_ns
            parts, content_type = text_parts(view, identity.version_line, uptime_ns), TEXT

        def done(body: bytes) -> None:
            answer(Response(200, body, content_type, NSQ_HEADER))

        in_slices(request, answer, self._guard, parts, done, ground.clock)

    def connections(self, request: Request, answer: Answer) -> None:
        ground = self._ground
        parts = connection_parts(list(ground.protocol.sessions.values()))

        def done(body: bytes) -> None:
            answer(Response(200, body, JSON, NSQ_HEADER))

        in_slices(request, answer, self._guard, parts, done, ground.clock)

    def metrics(self, request: Request, answer: Answer) -> None:
        ground = self._ground
        protocol = ground.protocol
        figures = Figures(
            broker=ground.broker,
            sync_times=ground.sync_times,
            disk=disk_row(ground.options.data_path, ground.sync_times),
            start_time=ground.identity.start_time,
            connections=lambda: len(protocol.sessions),
            connections_total=lambda: protocol.accepted_count,
            http_connections=ground.http_connections,
            refused_total=lambda: protocol.refused_count + ground.refusals.count,
            cluster=ground.member.state if ground.member is not None else None,
        )

        def done(body: bytes) -> None:
            answer(Response(200, body, CONTENT_TYPE))

        in_slices(request, answer, self._guard, metric_parts(figures), done, ground.clock)


def _partition(parameters: Parameters) -> int | None:
    """None: all of them."""
    text = parameters.get("partition", "")
    if text in ("", ANY):
        return None
    number = whole_number(text, limits.PARTITIONS_MAX - 1)
    if number is None:
        rule = f"a whole number, 0 to {limits.PARTITIONS_MAX - 1}, or {ANY} for all"
        raise HttpError(400, f"INVALID_ARG_PARTITION {text[:100]!r}: {rule}")
    return number
