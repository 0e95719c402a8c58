"""nsqlookupd's HTTP API: paths, parameters, the order in which they are checked, and the answers.

Lists are sorted: NSQ's come in any order, so no client minds, and people can compare answers.

Of a cluster, a lookup waits a moment where a partition has no leader, and what changes something is
passed on to an nsqd; an ephemeral topic is of one node, in a cluster, too, and only registered.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from penstock import __version__, limits
from penstock.clock import Clock
from penstock.errors import PenstockError
from penstock.net import debug
from penstock.net.api import (
    EMPTY,
    GET,
    POST,
    TEXT,
    Answer,
    Api,
    HttpError,
    Parameters,
    Route,
    at_once,
    json_response,
)
from penstock.net.exchange import Request, Response
from penstock.net.query import parse_query, whole_number
from penstock.nsqlookupd.registry import (
    Entries,
    Meta,
    Peer,
    RegisteredProducer,
    Registration,
    Registry,
)
from penstock.wire.names import is_ephemeral, is_valid_name

if TYPE_CHECKING:
    from penstock.nsqlookupd.cluster import ClusterLookup

log = logging.getLogger("penstock.nsqlookupd")

TRUE = ("true", "1")
METRICS = "text/plain; version=0.0.4; charset=utf-8"
GO_ZERO_TIME_NS = -6795364578871345152  # what Go shows for a time that was never set


class Routes(Api):
    """The application behind the HTTP listener (`net/http.py`)."""

    def __init__(
        self,
        registry: Registry,
        clock: Clock,
        connection_count: Callable[[], int],
        about: Mapping[str, object],
        cluster: ClusterLookup | None = None,
    ) -> None:
        """`about`: the description of this nsqlookupd for an nsqd."""
        super().__init__(log, clock, quiet=frozenset(("/metrics", "/nodes", "/topics")))
        self._registry = registry
        self._about = about
        self._cluster = cluster
        self._connection_count = connection_count
        profiles = debug.table()
        self.table = {
            **{path: profiles[path] for path in profiles if path.startswith("/debug/pprof")},
            "/ping": Route(GET, at_once(self._ping)),
            "/info": Route(GET, at_once(self._info)),
            "/topics": Route(GET, at_once(self._topics)),
            "/channels": Route(GET, at_once(self._channels)),
            "/lookup": Route(GET, self._lookup_when_led),
            "/listlookup": Route(GET, at_once(self._list_lookup)),
            "/nodes": Route(GET, at_once(self._nodes)),
            "/debug": Route(GET, at_once(self._debug)),
            "/metrics": Route(GET, at_once(self._metrics)),
            "/topic/create": Route(POST, self._relayed(self._topic_create)),
            "/topic/delete": Route(POST, self._relayed(self._topic_delete)),
            "/topic/tombstone": Route(POST, at_once(self._topic_tombstone)),
            "/channel/create": Route(POST, self._relayed(self._channel_create)),
            "/channel/delete": Route(POST, self._relayed(self._channel_delete)),
        }
        del self.table["/debug/pprof/"]  # a redirect, as in NSQ; nsqd has it the other way round
        if cluster is not None:
            self.table["/topic/partition/expand"] = Route(POST, self._relayed(self._expand))

    def check(self, request: Request) -> None:
        """Unknown topics are not reported as missing before the metadata is known."""
        cluster, path = self._cluster, request.path
        if cluster is None or cluster.is_known or path in _OWN or path.startswith("/debug/"):
            return
        raise HttpError(503, f"FAILED the cluster is not known yet: {cluster.reason}")

    def error_of(self, error: PenstockError) -> HttpError:
        return HttpError(503, f"FAILED {error}")  # too many names

    # --- looking ---

    def _ping(self, parameters: Parameters) -> Response:
        trouble = self._cluster.trouble if self._cluster is not None else ""
        if trouble:
            return Response(500, f"NOK - {trouble}".encode(), TEXT)
        return Response(200, b"OK", TEXT)

    def _info(self, parameters: Parameters) -> Response:
        named = {"cluster": self._cluster.info()} if self._cluster is not None else {}
        return json_response({"version": __version__, **named})

    def _topics(self, parameters: Parameters) -> Response:
        names = self._registry.topic_names()
        document: dict[str, Any] = {"topics": names}
        if parameters.get("metaInfo") in TRUE:
            metas = ((name, self._registry.meta_of(name)) for name in names)
            document["meta_info"] = [{"topic_name": name} | _meta_row(meta) for name, meta in metas]
        return json_response(document)

    def _channels(self, parameters: Parameters) -> Response:
        topic = _wanted(parameters, "topic")
        return json_response({"channels": self._registry.channel_names(topic)})

    def _lookup_when_led(self, request: Request, answer: Answer) -> None:
        parameters = parse_query(request.query)

        def look() -> None:
            answer(self._lookup(parameters))

        if self._cluster is None:
            look()
            return
        topic, partition = parameters.get("topic", ""), _partition(parameters)
        self._cluster.holds.wait(
            lambda: self._registry.unled_ns(topic, partition) is None,
            lambda: self.guard(request, answer, look),
            self._registry.unled_ns(topic, partition),
        )

    def _lookup(self, parameters: Parameters) -> Response:
        registry = self._registry
        topic = _wanted(parameters, "topic")
        if topic not in registry.topics:
            raise HttpError(404, "TOPIC_NOT_FOUND")
        partition, buried = _partition(parameters), _reads(parameters)
        found = registry.partitions_of(topic, buried)
        producers = registry.producers_of(topic, partition, buried)
        if partition is not None:
            found = {number: p for number, p in found.items() if number == partition}
        document: dict[str, Any] = {
            "channels": registry.channel_names(topic),
            "producers": [_peer_row(p.peer) for p in producers],
        }
        if found:
            document["partitions"] = {str(n): _peer_row(p.peer) for n, p in found.items()}
        if parameters.get("metainfo") in TRUE:
            document["meta"] = _meta_row(registry.meta_of(topic))
        return json_response(document)

    def _list_lookup(self, parameters: Parameters) -> Response:
        """The first request of Youzan's clients; a single nsqlookupd leads."""
        about = self._about
        rows = [_lookup_row(about["broadcast_address"], about["tcp_port"], about["http_port"])]
        lookups = self._cluster.lookups() if self._cluster is not None else []
        rows = [_lookup_row(one.host, one.tcp_port, one.http_port) for one in lookups] or rows
        return json_response({"lookupdnodes": rows, "lookupdleader": rows[0]})

    def _nodes(self, parameters: Parameters) -> Response:
        rows = []
        for producer in self._registry.nodes():
            topics = self._registry.topics_of(producer)
            row = _peer_row(producer.peer)
            row["tombstones"] = [tombstoned for _, tombstoned in topics]
            row["topics"] = [topic for topic, _ in topics]
            rows.append(row)
        return json_response({"producers": rows})

    def _debug(self, parameters: Parameters) -> Response:
        rows = {
            f"{category}:{key}:{subkey}": _debug_rows(entries)
            for category, key, subkey, entries in self._registry.entries()
            if entries
        }
        return json_response(dict(sorted(rows.items())))

    def _metrics(self, parameters: Parameters) -> Response:
        registry = self._registry
        gauges = (
            ("producers", "Connected producers.", len(registry.producers)),
            ("producers_active", "Producers that were heard lately.", len(registry.nodes())),
            ("topics", "Known topics.", len(registry.topics)),
            ("channels", "Known channels.", registry.channel_count),
            ("connections", "TCP connections.", self._connection_count()),
        )
        lines = []
        for name, text, value in gauges:
            full = f"nsqlookupd_{name}"
            lines += [f"# HELP {full} {text}", f"# TYPE {full} gauge", f"{full} {value}"]
        return Response(200, ("\n".join(lines) + "\n").encode(), METRICS)

    # --- changing ---

    def _relayed(
        self, respond: Callable[[Parameters], Response]
    ) -> Callable[[Request, Answer], None]:
        """For a topic of the cluster, existing or new; others are registered here."""

        def serve(request: Request, answer: Answer) -> None:
            parameters = parse_query(request.query)
            topic = parameters.get("topic", "")
            is_new = request.path.endswith("/create") and not is_ephemeral(topic)
            if self._cluster is None or not (is_new or topic in self._registry.cluster_topics):
                answer(respond(parameters))
                return
            _wanted_name(parameters, "topic")
            if request.path.startswith("/channel/"):
                _wanted_name(parameters, "channel")
            self._cluster.relay.send(request, parameters, answer)

        return serve

    def _expand(self, parameters: Parameters) -> Response:
        _wanted(parameters, "topic")
        raise HttpError(404, "TOPIC_NOT_FOUND")

    def _topic_create(self, parameters: Parameters) -> Response:
        topic = _wanted_name(parameters, "topic")
        log.info("DB: adding topic(%s)", topic)
        self._registry.create_topic(topic)
        return EMPTY

    def _topic_delete(self, parameters: Parameters) -> Response:
        topic = _wanted(parameters, "topic")
        if topic in self._registry.topics or topic in self._registry.channels:
            log.info("DB: removing topic(%s)", topic)
            self._registry.delete_topic(topic)
        return EMPTY

    def _topic_tombstone(self, parameters: Parameters) -> Response:
        topic, node = _wanted(parameters, "topic"), _wanted(parameters, "node")
        for producer in self._registry.tombstone(topic, node):
            address = producer.peer.remote_address
            log.info("DB: setting tombstone for producer@%s of topic(%s)", address, topic)
        return EMPTY

    def _channel_create(self, parameters: Parameters) -> Response:
        topic, channel = (_wanted_name(parameters, kind) for kind in ("topic", "channel"))
        log.info("DB: adding channel(%s) in topic(%s)", channel, topic)
        self._registry.create_channel(topic, channel)
        return EMPTY

    def _channel_delete(self, parameters: Parameters) -> Response:
        topic, channel = (_wanted_name(parameters, kind) for kind in ("topic", "channel"))
        if not self._registry.delete_channel(topic, channel):
            raise HttpError(404, "CHANNEL_NOT_FOUND")
        log.info("DB: removing channel(%s) from topic(%s)", channel, topic)
        return EMPTY


_OWN = ("/ping", "/info", "/metrics")  # what nsqlookupd says of itself


def _wanted(parameters: Parameters, name: str) -> str:
    value = parameters.get(name)
    if value is None:
        raise HttpError(400, f"MISSING_ARG_{name.upper()}")
    return value


def _partition(parameters: Parameters) -> int | None:
    """None: all of them."""
    text = parameters.get("partition", "")
    if text in ("", "*", "-1"):
        return None
    number = whole_number(text, limits.PARTITIONS_MAX - 1)
    if number is None:
        rule = f"a whole number, 0 to {limits.PARTITIONS_MAX - 1}, or * for all"
        raise HttpError(400, f"INVALID_ARG_TOPIC_PARTITION {text[:100]!r}: {rule}")
    return number


def _reads(parameters: Parameters) -> bool:
    """Youzan's `access`: a reader (`r`) finds all nodes with messages, tombstoned ones, too;
    without it, and to write (`w`), they are left out, as in NSQ."""
    access = parameters.get("access", "")
    if access not in ("", "r", "w"):
        raise HttpError(400, f"INVALID_ACCESS_MODE {access[:100]!r}: it is r or w")
    return access == "r"


def _meta_row(meta: Meta) -> dict[str, Any]:
    """Youzan's keys. A node has several partitions."""
    return {
        "partition_num": meta.partition_num,
        "replica": meta.replicas,
        "extend_support": meta.extended,
        "ordered": meta.ordered,
        "multi_part": meta.partition_num > 1,
        "disable_channel_auto_create": meta.registered,
    }


def _wanted_name(parameters: Parameters, kind: str) -> str:
    name = _wanted(parameters, kind)
    if not is_valid_name(name):
        raise HttpError(400, f"INVALID_ARG_{kind.upper()}")
    return name


def _lookup_row(host: object, tcp_port: object, http_port: object) -> dict[str, Any]:
    return {
        "ID": f"{host}:{tcp_port}",
        "NodeIP": host,
        "TcpPort": str(tcp_port),
        "HttpPort": str(http_port),
        "RpcPort": "",
        "Epoch": 0,
    }


_ROW = (
    *("remote_address", "hostname", "broadcast_address", "tcp_port", "http_port", "version"),
    *("topology_zone", "topology_region"),
)


def _peer_row(peer: Peer) -> dict[str, Any]:
    return {name: getattr(peer, name) for name in _ROW}


def _debug_rows(entries: Entries) -> list[dict[str, Any]]:
    ordered = sorted(entries.items(), key=lambda item: item[0].peer.remote_address)
    return [_debug_row(producer, entry) for producer, entry in ordered]


def _debug_row(producer: RegisteredProducer, entry: Registration) -> dict[str, Any]:
    row = _peer_row(producer.peer)
    row["id"] = row.pop("remote_address")
    row["last_update"] = producer.seen_wall_ns
    row["tombstoned"] = entry.tombstoned
    row["tombstoned_at"] = entry.tombstoned_wall_ns if entry.tombstoned else GO_ZERO_TIME_NS
    return dict(sorted(row.items()))
