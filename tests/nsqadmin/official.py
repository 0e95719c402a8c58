"""Stand-ins for the official nsqd and nsqlookupd: their HTTP APIs, and nothing that is ours.

Names, topics and numbers are what the test puts in; what changes them from outside are the official
actions. Every request is noted in one list for all of them, in the order in which they came. Of
older releases the forms are there too: fields that did not exist yet, clients that always come
along, and answers inside an envelope without the header that says there is none.
"""

import json
import threading
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from e2e.answering import Answer, Answering

Query = dict[str, str]
START_S = 1_700_000_000


class Refused(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Unhealthy(Exception):
    """What /ping then says."""


@dataclass
class Calls:
    """(daemon, method, path with query), of all daemons."""

    made: list[tuple[str, str, str]] = field(default_factory=list)

    def posts(self) -> list[tuple[str, str]]:
        return [(who, at) for who, method, at in list(self.made) if method == "POST"]


class _Stand(Answering):
    """One daemon. `fails` makes it answer everything with that status."""

    is_enveloped = False  # as before 1.0

    def __init__(self, name: str, calls: Calls) -> None:
        super().__init__()
        self.name = name
        self.fails = 0
        self.lock = threading.Lock()
        self._calls = calls

    def reply(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        self._calls.made.append((self.name, method, path))
        parts = urlsplit(path)
        with self.lock:
            status, document = self.answer(method, parts.path, dict(parse_qsl(parts.query)))
        is_text, headers = isinstance(document, str), {"X-NSQ-Content-Type": "nsq; version=1.0"}
        if self.is_enveloped:
            headers = {}
        if self.is_enveloped and not is_text:
            document = {"status_code": status, "status_txt": "OK", "data": document}
        if document is None:
            return status, b"", headers
        kind = "text/plain" if is_text else "application/json"
        headers["Content-Type"] = f"{kind}; charset=utf-8"
        text = document if is_text else json.dumps(document, separators=(",", ":"))
        return status, text.encode(), headers

    def answer(self, method: str, path: str, query: Query) -> tuple[int, Any]:
        if self.fails:
            return self.fails, {"message": "INTERNAL_ERROR"}
        routes = self.routes()
        if (method, path) in routes:
            try:
                return 200, routes[method, path](query)
            except Unhealthy as error:
                return 500, str(error)
            except Refused as error:
                return error.status, {"message": str(error)}
        if any(path == one for _, one in routes):
            return 405, {"message": "METHOD_NOT_ALLOWED"}
        return 404, {"message": "NOT_FOUND"}

    def routes(self) -> dict[tuple[str, str], Any]:
        raise NotImplementedError


def _need(query: Query, *names: str) -> list[str]:
    for name in names:
        if name not in query:
            raise Refused(400, f"MISSING_ARG_{name.upper()}")
    return [query[name] for name in names]


def channel(**values: Any) -> dict[str, Any]:
    """A row of `/stats` without its name."""
    counts = ("depth", "backend_depth", "in_flight_count", "deferred_count", "message_count",
              "requeue_count", "timeout_count", "client_count")  # fmt: skip
    none = {"count": 0, "percentiles": None}
    return {**dict.fromkeys(counts, 0), "clients": [], "paused": False,
            "e2e_processing_latency": none, **values}  # fmt: skip


def client(**values: Any) -> dict[str, Any]:
    """With all fields that the official one has for a client without TLS, AUTH and topology."""
    return {
        "client_id": "worker-1", "hostname": "worker-1.example", "version": "V2",
        "remote_address": "10.0.0.9:52114", "state": 3, "ready_count": 1, "in_flight_count": 0,
        "message_count": 0, "finish_count": 0, "requeue_count": 0, "connect_ts": START_S,
        "sample_rate": 0, "deflate": False, "snappy": False, "user_agent": "go-nsq/1.1.0",
        "tls": False, "tls_cipher_suite": "", "tls_version": "", "tls_negotiated_protocol": "",
        "tls_negotiated_protocol_is_mutual": False, **values,
    }  # fmt: skip


class Nsqd(_Stand):
    """`topics` is topic -> {"channels": channel -> row, and fields of the topic}."""

    def __init__(self, name: str, calls: Calls, version: str = "1.3.0") -> None:
        super().__init__(name, calls)
        self.version = version
        self.topics: dict[str, dict[str, Any]] = {}
        self.producers: list[dict[str, Any]] = []
        self.health = "OK"

    @property
    def is_old(self) -> bool:
        """1.0 and 1.1: always with clients, and some counts are not there yet."""
        return self.version.startswith(("0.", "1.0", "1.1"))

    def put(self, topic: str, channels: dict[str, dict[str, Any]] | None = None, **of: Any) -> None:
        with self.lock:
            self.topics[topic] = {"channels": channels or {}, **of}

    def routes(self) -> dict[tuple[str, str], Any]:
        found: dict[tuple[str, str], Any] = {
            ("GET", "/ping"): self._ping,
            ("GET", "/info"): self._info,
            ("GET", "/stats"): self._stats,
        }
        for verb in ("create", "delete", "empty", "pause", "unpause"):
            for kind in ("topic", "channel"):
                found["POST", f"/{kind}/{verb}"] = partial(self._act, kind, verb)
        return found

    def _ping(self, query: Query) -> Any:
        if self.health != "OK":
            raise Unhealthy(self.health)
        return "OK"

    def _info(self, query: Query) -> Any:
        found = {"version": self.version, "broadcast_address": "127.0.0.1", "hostname": self.name,
                 "http_port": self.port, "tcp_port": self.port - 1, "start_time": START_S,
                 "max_heartbeat_interval": 60_000_000_000}  # fmt: skip
        return found if self.is_old else found | {"topology_zone": "", "topology_region": ""}

    def _stats(self, query: Query) -> Any:
        clients = self.is_old or query.get("include_clients", "true") not in ("false", "0")
        names = sorted(self.topics)
        if "topic" in query:
            names = [name for name in names if name == query["topic"]]
        found = {"version": self.version, "health": "OK", "start_time": START_S,
                 "topics": [self._topic(name, query, clients) for name in names]}  # fmt: skip
        if "topic" in query and not names:
            found["topics"] = None
        if not self.is_old:
            found["producers"] = self.producers or None if clients else None
        return found

    def _topic(self, name: str, query: Query, clients: bool) -> Any:
        kept = self.topics[name]
        wanted = {key: row for key, row in sorted(kept["channels"].items())
                  if query.get("channel") in (None, key)}  # fmt: skip
        channels = [self._channel(key, row, clients) for key, row in wanted.items()]
        row = {"topic_name": name, "channels": channels, "depth": 0, "backend_depth": 0,
               "message_count": 0, "message_bytes": 0, "paused": False,
               "e2e_processing_latency": {"count": 0, "percentiles": None}}  # fmt: skip
        row |= {key: value for key, value in kept.items() if key != "channels"}
        if self.is_old:
            del row["message_bytes"]
        return row

    def _channel(self, name: str, kept: dict[str, Any], clients: bool) -> Any:
        row = {"channel_name": name, **kept, "client_count": len(kept["clients"])}
        if self.is_old:
            del row["client_count"]
        return row if clients else row | {"clients": None}

    def _act(self, kind: str, verb: str, query: Query) -> None:
        topic, *part = _need(query, "topic", *(["channel"] if kind == "channel" else []))
        rows, name, none = self.topics, topic, {"channels": {}}
        if part:
            if topic not in rows:
                raise Refused(404, "TOPIC_NOT_FOUND")
            rows, name, none = rows[topic]["channels"], part[0], channel()
        if verb == "create":
            rows.setdefault(name, none)
        elif name not in rows:
            raise Refused(404, f"{kind.upper()}_NOT_FOUND")
        elif verb == "delete":
            del rows[name]
        elif verb == "empty":
            rows[name] |= {"depth": 0, "backend_depth": 0}
        else:
            rows[name]["paused"] = verb == "pause"


class Lookupd(_Stand):
    """Knows what its nsqds have, and what was made here without any."""

    def __init__(self, name: str, calls: Calls, nsqds: list[Nsqd]) -> None:
        super().__init__(name, calls)
        self.nsqds = nsqds
        self.made: dict[str, set[str]] = {}
        self.tombstones: set[tuple[str, str]] = set()  # (topic, node)

    def routes(self) -> dict[tuple[str, str], Any]:
        return {
            ("GET", "/ping"): lambda query: "OK",
            ("GET", "/info"): lambda query: {"version": "1.3.0"},
            ("GET", "/topics"): lambda query: {"topics": sorted(self._known())},
            ("GET", "/channels"): self._channels,
            ("GET", "/lookup"): self._lookup,
            ("GET", "/nodes"): self._nodes,
            ("POST", "/topic/create"): self._create,
            ("POST", "/channel/create"): self._create,
            ("POST", "/topic/delete"): self._delete,
            ("POST", "/channel/delete"): self._delete,
            ("POST", "/topic/tombstone"): self._tombstone,
        }

    def _known(self) -> dict[str, set[str]]:
        found = {name: set(channels) for name, channels in self.made.items()}
        for nsqd in self.nsqds:
            for name, topic in list(nsqd.topics.items()):
                found.setdefault(name, set()).update(topic["channels"])
        return found

    def _channels(self, query: Query) -> Any:
        (name,) = _need(query, "topic")
        return {"channels": sorted(self._known().get(name, ()))}

    def _lookup(self, query: Query) -> Any:
        (name,) = _need(query, "topic")
        known = self._known()
        if name not in known:
            raise Refused(404, "TOPIC_NOT_FOUND")
        having = [nsqd for nsqd in self.nsqds if name in nsqd.topics]
        there = [nsqd for nsqd in having if (name, nsqd.address) not in self.tombstones]
        return {"channels": sorted(known[name]), "producers": list(map(self._producer, there))}

    def _nodes(self, query: Query) -> Any:
        return {"producers": [self._producer(nsqd) | self._has(nsqd) for nsqd in self.nsqds]}

    def _has(self, nsqd: Nsqd) -> Any:
        names = sorted(nsqd.topics)
        return {"tombstones": [(name, nsqd.address) in self.tombstones for name in names],
                "topics": names}  # fmt: skip

    def _producer(self, nsqd: Nsqd) -> dict[str, Any]:
        return {"remote_address": f"127.0.0.1:{nsqd.port + 1}", "hostname": nsqd.name,
                "broadcast_address": "127.0.0.1", "tcp_port": nsqd.port - 1,
                "http_port": nsqd.port, "version": nsqd.version, "topology_zone": "",
                "topology_region": ""}  # fmt: skip

    def _create(self, query: Query) -> None:
        (topic,) = _need(query, "topic")
        self.made.setdefault(topic, set()).update([query["channel"]] if "channel" in query else ())

    def _delete(self, query: Query) -> None:
        (topic,) = _need(query, "topic")
        if "channel" in query:
            self.made.get(topic, set()).discard(query["channel"])
        else:
            self.made.pop(topic, None)

    def _tombstone(self, query: Query) -> None:
        topic, node = _need(query, "topic", "node")
        self.tombstones.add((topic, node))
