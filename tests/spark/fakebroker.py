"""nsqd's HTTP API for Spark, served from batches in memory: any hole, loss or lie can be told."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

from e2e.answering import Answer, Answering
from penstock.kernel import (
    decode_bodies,
    decode_columns,
    decode_header,
    decode_sections,
    encode_batch,
)


@dataclass
class FakeTopic:
    identity: str
    batches: list[bytes] = field(default_factory=list)
    earliest: int = 0
    damaged: tuple[int, int] | None = None
    end: int = 0
    others: dict[int, FakeTopic] = field(default_factory=dict)  # partitions beside the first

    def partition(self, number: int) -> FakeTopic:
        """Made when it is not there."""
        return self.others.setdefault(number, FakeTopic(self.identity)) if number else self

    @property
    def partitions(self) -> dict[int, FakeTopic]:
        return {0: self, **self.others}

    def publish(self, bodies: list[bytes], timestamp_ns: int = 0, **more: Any) -> None:
        base_id = (self.end + 1) << 22
        self.batches.append(encode_batch(bodies, self.end, base_id, timestamp_ns, **more))
        self.end += len(bodies)


@dataclass
class FakeCluster:
    """Its nodes have the same topics, and each partition has one leader, or none."""

    nodes: list[FakeBroker]
    leaders: dict[tuple[str, int], FakeBroker | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node in self.nodes:
            node.cluster, node.topics = self, self.nodes[0].topics

    def address(self, topic: str, partition: int) -> str:
        leader = self.leaders[topic, partition]
        return leader.address if leader is not None else ""

    def elsewhere(self, broker: FakeBroker, topic: str) -> dict[str, str]:
        return {
            str(number): self.address(name, number)
            for (name, number), leader in self.leaders.items()
            if name == topic and leader is not broker
        }


class FakeBroker(Answering):
    def __init__(self) -> None:
        super().__init__()
        self.cluster: FakeCluster | None = None
        self.topics: dict[str, FakeTopic] = {}
        self.ended: dict[str, dict[str, int]] = {}
        self.ended_partitions: dict[str, dict[str, dict[int, int]]] = {}
        self.refused: set[str] = set()  # paths that answer 404
        self.failures = 0  # so many requests are answered with 503
        self.hangups = 0  # so many connections are closed without an answer
        self.sent: Callable[[bytes], bytes] = lambda data: data  # what becomes of it on the way
        self.identity_sent = ""  # instead of the topic's own
        self.message_bytes_max = 1 << 20
        self.stages: dict[tuple[str, int, str], bytes] = {}
        self.shapes: dict[str, dict[str, int]] = {}  # where they are not those of NSQ
        self.unmade: set[str] = set()  # topics that are not there until they are made
        self.versions: dict[str, int] = {}
        self.requests: list[tuple[str, str, dict[str, list[str]]]] = []
        self.answers: dict[str, dict[str, Any]] = {}  # of other paths

    def topic(self, name: str, identity: str = "first") -> FakeTopic:
        return self.topics.setdefault(name, FakeTopic(identity))

    def reply(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer | None:
        parts = urlsplit(path)
        query = parse_qs(parts.query)
        self.requests.append((method, parts.path, query))
        if self.hangups:
            self.hangups -= 1
            return None
        if self.failures:
            self.failures -= 1
            return _json(503, message="NOT_READY")
        if parts.path in self.refused:
            return _json(404, message="STAGE_NOT_FOUND")
        if parts.path in self.answers:
            return _json(200, **self.answers[parts.path])
        if parts.path in POSTS:
            return POSTS[parts.path](self, query, body)
        if parts.path == "/log/positions":
            return _positions(self, query, _froms(parse_qsl(parts.query)))
        return ROUTES[parts.path](self, query)


def _json(status: int, **document: Any) -> Answer:
    return status, json.dumps(document).encode(), {}


def _positions(
    broker: FakeBroker, query: dict[str, list[str]], froms: list[tuple[str, int, int]]
) -> Answer:
    asked = query.get("topic", [] if "pattern" in query else list(broker.topics))
    pattern = query.get("pattern", ["(?!)"])[0]
    names = {n for n in broker.topics if n in asked or re.fullmatch(pattern, n)}
    topics = {
        name: {
            "identity": broker.topics[name].identity,
            "partitions": {
                str(number): {
                    "earliest": log.earliest,
                    "end": log.end,
                    "committed": log.end,
                    "bytes": 0,
                }
                for number, log in broker.topics[name].partitions.items()
            },
        }
        for name in names
    }
    for name, number, first in froms:
        if name in topics:
            batches = broker.topics[name].partition(number).batches
            left = sum(len(batch) for batch in batches if _end_of(batch) > first)
            topics[name]["partitions"][str(number)]["bytes_from"] = left
    missing = [n for n in asked if n not in broker.topics]
    logs = {n: {i: {0: end} for i, end in ends.items()} for n, ends in broker.ended.items()}
    ended = {n: ends for n, ends in (logs | broker.ended_partitions).items() if n in asked}
    document = {"missing": missing, "ended_partitions": ended}
    if (cluster := broker.cluster) is not None:
        elsewhere: dict[str, dict[str, Any]] = {}
        for name in names:
            away = cluster.elsewhere(broker, name)
            spans = topics[name]["partitions"]
            topics[name]["partitions"] = {n: spans[n] for n in spans if n not in away}
            elsewhere[name] = {"identity": topics[name]["identity"], "partitions": away}
        document |= {"elsewhere": elsewhere, "nodes": [node.address for node in cluster.nodes]}
    return _json(200, topics=topics, **document)


def _froms(pairs: list[tuple[str, str]]) -> list[tuple[str, int, int]]:
    found, topic = [], ""
    for key, value in pairs:
        if key == "topic":
            topic = value
        elif key == "from":
            number, _, offset = value.rpartition(":")
            found.append((topic, int(number or 0), int(offset)))
    return found


def _fetch(broker: FakeBroker, query: dict[str, list[str]]) -> Answer:
    topic = _log_of(broker, query)
    first, to, room = (int(query[name][0]) for name in ("from", "to", "bytes_max"))
    if topic is None:
        return _json(404, message="TOPIC_NOT_FOUND")
    if _is_elsewhere(broker, query):
        return _json(404, message="PARTITION_NOT_FOUND")
    if query["identity"][0] != topic.identity:
        return _json(409, message="IDENTITY_CHANGED", identity=topic.identity)
    if first < topic.earliest:
        return _json(410, message="OFFSET_GONE", earliest=topic.earliest)
    if first >= topic.end:
        return _json(416, message="OFFSET_BEYOND_END", end=topic.end)
    bad_from, bad_to = topic.damaged or (topic.end, topic.end)
    if bad_from <= first < bad_to:
        return _json(422, message="LOG_DAMAGED", **{"from": bad_from, "to": bad_to})
    last = min(to, bad_from) if first < bad_from else to
    sent: list[bytes] = []
    for batch in topic.batches:
        header = decode_header(batch, 0)
        if header.base_offset >= last or (sent and room < len(batch)):
            break
        if header.base_offset + header.count > first:
            sent.append(batch)
            room -= len(batch)
    final = decode_header(sent[-1], 0)
    headers = {
        "X-Penstock-Base-Offset": str(decode_header(sent[0], 0).base_offset),
        "X-Penstock-Next-Offset": str(final.base_offset + final.count),
        "X-Penstock-Identity": broker.identity_sent or topic.identity,
    }
    return 200, broker.sent(b"".join(sent)), headers


def _is_elsewhere(broker: FakeBroker, query: dict[str, list[str]]) -> bool:
    place = query["topic"][0], int(query.get("partition", ["0"])[0])
    return broker.cluster is not None and broker.cluster.leaders.get(place, broker) is not broker


def _offset(broker: FakeBroker, query: dict[str, list[str]]) -> Answer:
    topic = _log_of(broker, query)
    if topic is None or _is_elsewhere(broker, query):
        return _json(404, message="PARTITION_NOT_FOUND")
    columns = decode_columns(b"".join(topic.batches))
    if "from" in query:
        return _json(200, offset=_after(topic, int(query["from"][0]), int(query["bytes"][0])))
    times = memoryview(columns.timestamps).cast("q").tolist()
    wanted = int(query["timestamp_ms"][0]) * 1_000_000
    return _json(200, offset=next((i for i, t in enumerate(times) if t >= wanted), topic.end))


def _log_of(broker: FakeBroker, query: dict[str, list[str]]) -> FakeTopic | None:
    topic = broker.topics.get(query["topic"][0])
    return topic.partition(int(query.get("partition", ["0"])[0])) if topic else None


def _end_of(batch: bytes) -> int:
    header = decode_header(batch, 0)
    return header.base_offset + header.count


def _after(topic: FakeTopic, first: int, room: int) -> int:
    for batch in topic.batches:
        if _end_of(batch) > first:
            room -= len(batch)
            if room <= 0:
                return _end_of(batch)
    return topic.end


def _stage(broker: FakeBroker, query: dict[str, list[str]], body: bytes) -> Answer:
    position = 0
    while position < len(body):
        if max(map(len, decode_bodies(body, position))) > broker.message_bytes_max:
            reason = f"a message has at most {broker.message_bytes_max}"
            return _json(400, message="BAD_BATCH", position=position, reason=reason)
        position += decode_header(body, position).length
    columns = decode_columns(body)
    name = query["stage"][0]
    key = (query["topic"][0], int(query["partition"][0]), name)
    if broker.stages.get(key, body) != body:
        return _json(409, message="STAGE_EXISTS")
    broker.stages[key] = body
    return _json(200, stage=name, messages=columns.count, bytes=len(body))


def _commit(broker: FakeBroker, query: dict[str, list[str]], body: bytes) -> Answer:
    app, version = query["app"][0], int(query["version"][0])
    if version <= broker.versions.get(app, -1):
        return _json(200, committed=True, repeated=True, messages=0)
    keys = _keys(body)
    if any(key not in broker.stages for key in keys):
        return _json(404, message="STAGE_NOT_FOUND")
    count = 0
    for key in keys:
        data = broker.stages.pop(key)
        position = 0
        while position < len(data):
            length = decode_header(data, position).length
            bodies = decode_bodies(data, position)
            sections = decode_sections(data, position)
            broker.topic(key[0]).publish(bodies, time.time_ns(), sections=sections)
            count += len(bodies)
            position += length
    broker.versions[app] = version
    return _json(200, committed=True, repeated=False, messages=count)


def _abort(broker: FakeBroker, query: dict[str, list[str]], body: bytes) -> Answer:
    for key in _keys(body):
        broker.stages.pop(key, None)
    return _json(200)


def _keys(body: bytes) -> list[tuple[str, int, str]]:
    return [(s["topic"], s["partition"], s["stage"]) for s in json.loads(body)["stages"]]


def _config(broker: FakeBroker, query: dict[str, list[str]]) -> Answer:
    name = query["topic"][0]
    if name in broker.unmade:
        return _json(404, message="TOPIC_NOT_FOUND")
    return _json(200, topic_name=name, max_depth=0, own=[], **broker.shapes.get(name, {}))


def _create(broker: FakeBroker, query: dict[str, list[str]], body: bytes) -> Answer:
    broker.unmade.discard(query["topic"][0])
    return 200, b"", {}


POSTS = {
    "/topic/create": _create,
    "/stage": _stage,
    "/stage/commit": _commit,
    "/stage/abort": _abort,
}
ROUTES = {
    "/stage/last": lambda broker, query: _json(200, version=broker.versions.get(query["app"][0])),
    "/topic/config": _config,
    "/log/fetch": _fetch,
    "/log/offset": _offset,
}
