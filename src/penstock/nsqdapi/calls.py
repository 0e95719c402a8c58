"""The calls of nsqd's API: each has its path, query and body, and decodes its answer.

An answer is decoded into types here and nowhere else. One that does not fit (`AnswerInvalid`) comes
from something else than nsqd, or from a proxy on the way. A refusal has a status and nsqd's name
for it, as in `OFFSET_GONE`; callers match on these, never on a text.

A topic's positions are by partition. Many topics have one, 0, so a call that names none means it.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import urlencode

import msgspec

from penstock import limits
from penstock.errors import BrokerRefused, PenstockError, RangeCorrupt
from penstock.net.outgoing import code_of, document_of

T = TypeVar("T")
Query = Sequence[tuple[str, str]]
Headers = Mapping[str, str]  # of an answer, names in lower case

BYTES = "application/octet-stream"
JSON = "application/json"


class AnswerInvalid(PenstockError):
    """The answer is none of nsqd."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Call(NamedTuple, Generic[T]):
    path: str
    query: Query
    decode: Callable[[bytes, Headers], T]  # of a 200; raises AnswerInvalid
    body: bytes | None = None  # with one it is a POST
    content_type: str = JSON

    @property
    def method(self) -> str:
        return "GET" if self.body is None else "POST"

    @property
    def target(self) -> str:
        return target(self.path, self.query)

    def is_answered(self, body: bytes, headers: Headers) -> bool:
        """Is the server an nsqd?"""
        try:
            self.decode(body, headers)
        except AnswerInvalid:
            return False
        return True


def target(path: str, query: Query | Mapping[str, str] | None) -> str:
    return f"{path}?{urlencode(query, errors='surrogateescape')}" if query else path


# --- refusals ---


def refusal(url: str, status: int, body: bytes) -> BrokerRefused:
    code, document = code_of(body), document_of(body) or {}
    if (status, code) == (404, "NOT_FOUND"):
        document = {"reason": "Penstock's nsqd has this path: is it another's?", **document}
    return BrokerRefused(url, status, code, document)


# --- positions of logs ---


class LogSpan(msgspec.Struct, frozen=True):
    """The offsets [earliest, end) of a partition's log, all of them durable."""

    earliest: int
    end: int
    committed: int = 0  # what is below it is stored, and durable a moment later
    bytes_from: int = 0  # about, from the offset on that was named


class TopicSpans(msgspec.Struct, frozen=True):
    identity: str  # another one after the topic was deleted and made again
    partitions: dict[int, LogSpan]


class Elsewhere(msgspec.Struct, frozen=True):
    """Partitions of a cluster's topic that the asked nsqd does not lead."""

    identity: str
    partitions: dict[int, str]  # the leader's HTTP address; empty: there is none at present


# Of deleted topics: where each partition's log ended, by name and identity.
Ends = dict[str, dict[str, dict[int, int]]]


class Positions(msgspec.Struct, frozen=True):
    topics: dict[str, TopicSpans]
    missing: tuple[str, ...] = ()
    ends: Ends = msgspec.field(name="ended_partitions", default_factory=dict)
    elsewhere: dict[str, Elsewhere] = {}
    nodes: tuple[str, ...] = ()  # HTTP addresses of the cluster's nodes; none: it is in no cluster


# By topic: offsets by partition, or that of partition 0.
Froms = Mapping[str, int | Mapping[int, int]]


def positions(
    topics: Iterable[str] = (), pattern: str | None = None, froms: Froms | None = None
) -> Call[Positions]:
    """Of these topics, of those that match the pattern, or of all. `froms`: offsets from which
    bytes are counted."""
    query = [] if pattern is None else [("pattern", pattern)]
    for topic in topics:
        query.append(("topic", topic))
        if froms is not None and topic in froms:
            query += [("from", text) for text in _from_texts(froms[topic])]
    return Call("/log/positions", query, _positions)


def _from_texts(offsets: int | Mapping[int, int]) -> list[str]:
    if isinstance(offsets, int):
        return [str(offsets)]
    return [
        f"{partition}:{offset}" if partition else str(offset)
        for partition, offset in sorted(offsets.items())
    ]


def positions_of_many(
    topics: Iterable[str], froms: Froms | None = None
) -> Iterator[Call[Positions]]:
    """The same for as many topics as there may be; for none it is all that nsqd has."""
    part: list[str] = []
    room = limits.SPARK_NAMES_MAX
    for topic in topics:
        offsets = (froms or {}).get(topic, 0)
        needed = 1 if isinstance(offsets, int) else max(len(offsets), 1)  # each about as a name
        if part and needed > room:
            yield positions(part, None, froms)
            part, room = [], limits.SPARK_NAMES_MAX
        part.append(topic)
        room -= needed
    yield positions(part, None, froms)


def _positions(body: bytes, _: Headers) -> Positions:
    found = _decoded(Positions, body)
    return msgspec.structs.replace(found, topics=dict(sorted(found.topics.items())))


def joined(parts: Iterable[Positions]) -> Positions:
    listed = list(parts)
    return Positions(
        {name: spans for part in listed for name, spans in part.topics.items()},
        tuple(name for part in listed for name in part.missing),
        {name: ends for part in listed for name, ends in part.ends.items()},
        {name: one for part in listed for name, one in part.elsewhere.items()},
        listed[-1].nodes if listed else (),
    )


class _Offset(msgspec.Struct):
    offset: int


def offset_at(
    topic: str, timestamp_ms: int, partition: int = 0, committed: bool = False
) -> Call[int]:
    """The first offset whose timestamp is not earlier; the end if there is none. `committed`:
    including messages that are not durable yet."""
    query = [*_of_partition(topic, partition), ("timestamp_ms", str(timestamp_ms))]
    return Call("/log/offset", [*query, *([("committed", "true")] if committed else ())], _offset)


def offset_after(topic: str, offset: int, length: int, partition: int = 0) -> Call[int]:
    """Roughly the offset that lies `length` bytes behind another one, one message at least."""
    query = [*_of_partition(topic, partition), ("from", str(offset)), ("bytes", str(length))]
    return Call("/log/offset", query, _offset)


def _offset(body: bytes, _: Headers) -> int:
    return _decoded(_Offset, body).offset


class Shape(msgspec.Struct, frozen=True):
    """The shape of a topic. nsqd gives it where it differs."""

    partitions: int = 1
    hash_partitions: int = 0  # over how many of them keys are spread; 0: over all
    extended: bool = False  # its messages have headers

    @property
    def key_partitions(self) -> int:
        return self.hash_partitions or self.partitions


def shape(topic: str) -> Call[Shape]:
    return Call("/topic/config", [("topic", topic)], lambda body, _: _decoded(Shape, body))


# --- changes ---


def query_of(parameters: Mapping[str, Any]) -> Query:
    """Without those that are None."""
    return [
        (name, str(value).lower() if isinstance(value, bool) else str(value))
        for name, value in parameters.items()
        if value is not None
    ]


def change(path: str, **parameters: Any) -> Call[None]:
    return Call(path, query_of(parameters), _nothing, b"", BYTES)


def create(
    topic: str, partitions: int | None = None, replicas: int | None = None, extended: bool = False
) -> Call[None]:
    """Without a number the topic gets nsqd's default number of partitions. An existing topic stays
    unchanged, and a different shape is refused."""
    shape = {"partition_num": partitions, "replicator": replicas, "extend": extended or None}
    return change("/topic/create", topic=topic, **shape)


def expand(topic: str, partitions: int, rehash: bool = False) -> Call[None]:
    """Keys stay where they are, unless `rehash` spreads them over all partitions."""
    more = {"partition_num": partitions, "rehash": rehash or None}
    return change("/topic/partition/expand", topic=topic, **more)


# --- contents of logs ---


class Fetched(NamedTuple):
    """Whole raw batches, with offsets [base_offset, next_offset). Not checked: see log/scan.py
    and the kernel's decoders."""

    data: bytes
    base_offset: int
    next_offset: int


def fetch(
    topic: str,
    from_offset: int,
    to_offset: int,
    bytes_max: int,
    partition: int = 0,
    identity: str = "",
) -> Call[Fetched]:
    """Whole batches from the one that holds `from_offset` on, at least one; the last may reach
    beyond `to_offset`. Refused when it is gone, beyond the end, or corrupt, and when the topic has
    another identity than the named one."""
    query = [
        *_of_partition(topic, partition),
        *([("identity", identity)] if identity else ()),
        ("from", str(from_offset)),
        ("to", str(to_offset)),
        ("bytes_max", str(bytes_max)),
    ]
    return Call("/log/fetch", query, partial(_fetched, identity))


def _fetched(identity: str, body: bytes, headers: Headers) -> Fetched:
    try:
        base = int(headers.get("x-penstock-base-offset", ""))
        following = int(headers.get("x-penstock-next-offset", ""))
    except ValueError:
        raise AnswerInvalid("the answer names no offsets") from None
    sent = headers.get("x-penstock-identity", identity)
    if identity and sent != identity:
        raise RangeCorrupt(f"it is of the topic with identity {sent}, not {identity}")
    return Fetched(body, base, following)


def message(
    topic: str, name: str, value: object, partition: int | None = None
) -> Call[dict[str, Any]]:
    """One message, in nsqd's form for people: by "offset", "id" or "trace_id". An offset is one of
    a partition, 0 by default; the others are searched in all partitions then."""
    if name == "offset":
        partition = partition or 0
    wanted = [("topic", topic)] if partition is None else _of_partition(topic, partition)
    return Call("/message/get", [*wanted, (name, str(value))], _object)


# --- channels and statistics ---


class Move(msgspec.Struct, frozen=True):
    """A move of a channel, over all its partitions."""

    again: int = msgspec.field(name="messages_again")  # that it has come to, from there on
    skipped: int = msgspec.field(name="messages_skipped")  # before it, and not come to
    given_up: int = msgspec.field(name="messages_given_up")  # in flight, requeued, delayed below it


def move(
    topic: str, channel: str, position: str, partition: int | None = None, dry_run: bool = False
) -> Call[Move]:
    """`position` as in docs/http.md. `dry_run`: returns the effect without the move."""
    wanted = {"topic": topic, "channel": channel, "partition": partition}
    query = query_of(wanted | {"position": position, "dry_run": dry_run})
    return Call("/channel/setoffset", query, lambda b, _: _decoded(Move, b), b"", BYTES)


def stats(topic: str = "", channel: str = "") -> Call[dict[str, Any]]:
    return Call("/stats", tuple(stats_query(topic, channel).items()), _object)


def stats_query(topic: str = "", channel: str = "", clients: bool = False) -> dict[str, str]:
    """For `/stats`, as JSON and without unused parts."""
    query = {"format": "json", "include_clients": "true" if clients else "false"}
    query["include_mem"] = "false"
    return query | {k: v for k, v in (("topic", topic), ("channel", channel)) if v}


class LookupProducer(msgspec.Struct, frozen=True):
    broadcast_address: str
    http_port: int  # 0 or less for one that serves HTTP on a unix socket, or not at all

    @property
    def http_address(self) -> str:
        return f"{bracketed(self.broadcast_address)}:{self.http_port}"


class _Producers(msgspec.Struct):
    producers: list[LookupProducer]


def nodes() -> Call[list[LookupProducer]]:
    return Call("/nodes", (), lambda body, _: _decoded(_Producers, body).producers)


def bracketed(host: str) -> str:
    """In the form before a port."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


# --- writing ---


class Stage(NamedTuple):
    topic: str
    partition: int
    name: str


class Owner(NamedTuple):
    """The writer of a stage: a newer attempt of the same version replaces an older one."""

    app: str
    version: int
    attempt: str


class Committed(msgspec.Struct, frozen=True):
    repeated: bool  # this version, or a later one, was there before: nothing is written now
    messages: int = 0


def publish(topic: str, body: bytes, path: str = "/pub", options: Query = ()) -> Call[None]:
    """One message, or several where the path allows it. A repeated publish may be stored twice,
    unless the options number it."""
    return Call(path, [("topic", topic), *options], _nothing, body, BYTES)


class _Messages(msgspec.Struct):
    messages: int


def stage(stage: Stage, batches: bytes, owner: Owner | None = None) -> Call[int]:
    """Raw batches to be committed later; the number of messages. The same again is no harm."""
    query = [*_of_partition(stage.topic, stage.partition), ("stage", stage.name)]
    if owner is not None:
        query += [(key, str(value)) for key, value in owner._asdict().items()]
    return Call("/stage", query, lambda b, _: _decoded(_Messages, b).messages, batches, BYTES)


def commits(app: str, version: int, stages: Sequence[Stage]) -> Iterator[Call[Committed | None]]:
    """Commit all in one step, in this order inside a partition; or, when this version of the app
    was committed before, nothing. A long list goes in parts; None: nsqd waits for the next one."""
    parts = list(_parts(stages, limits.COMMIT_PART_STAGES_MAX))
    for number, part in enumerate(parts):
        query = [("app", app), ("version", str(version))]
        if len(parts) > 1:
            query += [("part", str(number)), ("parts", str(len(parts)))]
        yield Call("/stage/commit", query, _committed, _listed(part))


def _committed(body: bytes, _: Headers) -> Committed | None:
    document = _object(body, _)
    if document.get("committed"):
        return _decoded(Committed, body)
    return None


def aborts(stages: Sequence[Stage]) -> Iterator[Call[None]]:
    """These are not wanted. What is not there, or was committed, stays as it is."""
    if stages:
        for part in _parts(stages, limits.COMMIT_PART_STAGES_MAX):
            yield Call("/stage/abort", (), _nothing, _listed(part))


class _Version(msgspec.Struct):
    version: int | None


def last_version(app: str) -> Call[int | None]:
    return Call("/stage/last", [("app", app)], lambda body, _: _decoded(_Version, body).version)


# --- parts of calls ---


def _of_partition(topic: str, partition: int) -> list[tuple[str, str]]:
    return [("topic", topic), ("partition", str(partition))]


_Item = TypeVar("_Item")


def _parts(items: Sequence[_Item], most: int) -> Iterator[Sequence[_Item]]:
    """At least one, even of nothing."""
    for first in range(0, max(len(items), 1), most):
        yield items[first : first + most]


def _listed(stages: Iterable[Stage]) -> bytes:
    named = [{"topic": s.topic, "partition": s.partition, "stage": s.name} for s in stages]
    return json.dumps({"stages": named}).encode()


# --- parts of answers ---


def _decoded(type: type[T], body: bytes) -> T:
    try:
        return msgspec.json.decode(body, type=type)
    except msgspec.ValidationError as error:
        raise AnswerInvalid(f"the answer is not nsqd's: {error}") from error
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise AnswerInvalid("the answer is no JSON object") from error


def _object(body: bytes, _: Headers) -> dict[str, Any]:
    """Unchanged: texts of clients may hold lone surrogates, which msgspec refuses."""
    document = document_of(body)
    if document is None:
        raise AnswerInvalid("the answer is no JSON object")
    return document


def _nothing(_: bytes, __: Headers) -> None:
    """The status is the answer."""
