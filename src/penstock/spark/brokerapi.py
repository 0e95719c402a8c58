"""nsqd's HTTP API for readers of the log and writers of staged blocks, called synchronously.

Spark's workers and pipelines have no event loop, so this is `http.client` on one connection that is
kept alive. An instance belongs to one thread. All of it may be sent twice without harm (a stage
under its name, a commit under its version): a request is tried again a bounded number of times when
the connection breaks or nsqd is not ready; the pause doubles each time.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Self, TypeVar
from urllib.parse import urlencode, urlsplit

from penstock import limits
from penstock.errors import BrokerRefused, ConfigError, FetchFailed, RangeCorrupt
from penstock.net.secretfile import authorization, first_secret

_Pair = TypeVar("_Pair")
_NOT_READY = (502, 503, 504)
_PAUSE_S_MAX = 5.0
_PARTS_TRIES = 3  # of a list of stages: nsqd forgets parts when it is restarted


class Span(NamedTuple):
    """What a partition's log has: offsets [earliest, end), all of them durable."""

    earliest: int
    end: int


class TopicSpans(NamedTuple):
    identity: str  # another one after the topic was deleted and made again
    partitions: dict[int, Span]


class Positions(NamedTuple):
    topics: dict[str, TopicSpans]
    missing: tuple[str, ...]
    ended: dict[str, dict[str, int]]  # of these names: deleted logs by identity, where they ended


class Fetched(NamedTuple):
    """Whole raw batches, with offsets [base_offset, next_offset)."""

    data: bytes
    base_offset: int
    next_offset: int


class Move(NamedTuple):
    """Of a channel, to an offset."""

    again: int  # messages that it has come to, from there on
    skipped: int  # those before it that it has not come to
    given_up: int  # in flight, requeued or delayed below it


class Stage(NamedTuple):
    """A staged block: under this name, for this partition."""

    topic: str
    partition: int
    name: str


class Owner(NamedTuple):
    """Who stages: a newer attempt of the same version takes the place of an older one."""

    app: str
    version: int
    attempt: str


class Committed(NamedTuple):
    repeated: bool  # this version, or a later one, was there before: nothing is written now
    messages: int


class _Answer(NamedTuple):
    status: int
    body: bytes
    headers: http.client.HTTPMessage


class BrokerApi:
    """`url` is nsqd's HTTP address: "http://host:4151", "https://host:4152" or "host:4151"."""

    def __init__(
        self,
        url: str,
        timeout_ms: int = limits.SPARK_REQUEST_MS,
        retries: int = limits.SPARK_RETRIES,
        retry_ms: int = limits.SPARK_RETRY_MS,
        ca_file: str | None = None,
        secret_file: str | None = None,
    ) -> None:
        """`secret_file` holds what nsqd wants to see before anything is changed; it is read here,
        so it has to be on the hosts of Spark's workers, too."""
        self._base = url if "://" in url else f"http://{url}"
        self._address = _address(url, self._base)
        self._timeout_s = timeout_ms / 1000
        self._retries = retries
        self._retry_s = retry_ms / 1000
        self._ca_file = ca_file
        self._secret = authorization(first_secret(secret_file or "", "httpSecretFile"))
        self._connection: http.client.HTTPConnection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # --- the read side ---

    def positions(self, topics: Iterable[str] = (), pattern: str | None = None) -> Positions:
        """Where the logs of those that match the pattern, of these topics, or of all are."""
        if pattern is not None:
            return self._positions([("pattern", pattern)])
        named = [("topic", topic) for topic in topics]
        parts = [self._positions(part) for part in _parts(named)]
        found = {name: spans for part in parts for name, spans in part.topics.items()}
        ended = {name: ends for part in parts for name, ends in part.ended.items()}
        return Positions(found, tuple(name for part in parts for name in part.missing), ended)

    def _positions(self, query: list[tuple[str, str]]) -> Positions:
        document = self._json("/log/positions", query)
        found = {name: _spans(entry) for name, entry in sorted(document["topics"].items())}
        return Positions(found, tuple(document.get("missing", ())), document.get("ended", {}))

    def fetch(
        self,
        topic: str,
        partition: int,
        identity: str,
        from_offset: int,
        to_offset: int,
        bytes_max: int = limits.SPARK_FETCH_BYTES,
    ) -> Fetched:
        """Whole batches that hold `from_offset` and what comes behind it, at least one; the last
        may reach beyond `to_offset`. BrokerRefused when it is gone, beyond the end, or damaged."""
        query = _fetch_query(topic, partition, identity, from_offset, to_offset, bytes_max)
        return self._fetched(self._request("/log/fetch", query), identity)

    def fetches(
        self,
        topic: str,
        partition: int,
        identity: str,
        from_offset: int,
        to_offset: int,
        bytes_max: int = limits.SPARK_FETCH_BYTES,
    ) -> Iterator[Fetched]:
        """One range after the other, as `fetch` gives it. The next is asked for before this one is
        given, so nsqd works while the caller does. Nothing else may be asked meanwhile."""
        position, asked = from_offset, False
        try:
            while position < to_offset:
                query = _fetch_query(topic, partition, identity, position, to_offset, bytes_max)
                answer = self._take_asked() if asked else None
                asked = False
                if answer is None:
                    answer = self._request("/log/fetch", query)
                fetched = self._fetched(answer, identity)
                following = fetched.next_offset
                if position < following < to_offset:
                    query = _fetch_query(
                        topic, partition, identity, following, to_offset, bytes_max
                    )
                    asked = self._ask_ahead("/log/fetch", query)
                yield fetched
                if following <= position:
                    return
                position = following
        finally:
            if asked:
                self.close()  # its answer would be taken for that of the next request

    def _fetched(self, answer: _Answer, identity: str) -> Fetched:
        base = answer.headers.get("X-Penstock-Base-Offset")
        following = answer.headers.get("X-Penstock-Next-Offset")
        if base is None or following is None:
            raise FetchFailed(self._public("/log/fetch"), "the answer names no offsets", 200)
        sent = answer.headers.get("X-Penstock-Identity", identity)
        if identity and sent != identity:
            raise RangeCorrupt(f"it is of the topic with identity {sent}, not {identity}")
        return Fetched(answer.body, int(base), int(following))

    def bytes_from(self, offsets: Mapping[str, int]) -> dict[str, int]:
        """About how many bytes the log of each of these topics has from that offset on."""
        found: dict[str, int] = {}
        for part in _parts(list(offsets.items())):
            query = [
                pair for topic, offset in part for pair in (("topic", topic), ("from", str(offset)))
            ]
            topics = self._json("/log/positions", query)["topics"] if part else {}
            for topic, entry in topics.items():
                found[topic] = int(entry["partitions"]["0"]["bytes_from"])
        return found

    def offset_after(self, topic: str, partition: int, offset: int, length: int) -> int:
        """About the offset that stands `length` bytes behind another one, one message at least."""
        query = [
            ("topic", topic),
            ("partition", str(partition)),
            ("from", str(offset)),
            ("bytes", str(length)),
        ]
        return int(self._json("/log/offset", query)["offset"])

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        """The first offset whose timestamp is not before that; the end when there is none."""
        query = [
            ("topic", topic),
            ("partition", str(partition)),
            ("timestamp_ms", str(timestamp_ms)),
        ]
        return int(self._json("/log/offset", query)["offset"])

    def message(self, topic: str, offset: int, partition: int = 0) -> dict[str, Any]:
        """One message, as nsqd shows it to people."""
        query = [("topic", topic), ("partition", str(partition)), ("offset", str(offset))]
        return self._json("/message/get", query)

    def move(self, topic: str, channel: str, offset: int) -> Move:
        """What setting the channel to that offset would do; it is not done."""
        query = [("topic", topic), ("channel", channel), ("dry_run", "true")]
        place = f"offset:{offset}".encode()
        found = self._json("/channel/setoffset", query, place, "text/plain")
        return Move(
            int(found["messages_again"]),
            int(found["messages_skipped"]),
            int(found["messages_given_up"]),
        )

    def nodes(self) -> list[str]:
        """Of nsqlookupd: the HTTP addresses of the nsqds that it knows."""
        producers = self._json("/nodes", [])["producers"]
        return [f"{_bracketed(one['broadcast_address'])}:{one['http_port']}" for one in producers]

    # --- the write side ---

    def publish(self, topic: str, body: bytes) -> None:
        """One message. What is tried again may be there twice."""
        self._request("/pub", [("topic", topic)], body, "application/octet-stream")

    def stage(
        self, topic: str, partition: int, name: str, batches: bytes, owner: Owner | None = None
    ) -> int:
        """Raw batches to be committed later; the number of messages. The same again is no harm."""
        query = [("topic", topic), ("partition", str(partition)), ("stage", name)]
        if owner is not None:
            query += [(key, str(value)) for key, value in owner._asdict().items()]
        return int(self._json("/stage", query, batches, "application/octet-stream")["messages"])

    def commit(self, app: str, version: int, stages: Iterable[Stage]) -> Committed:
        """All of these in one step, in this order inside a partition; or, when this version of the
        app was committed before, nothing. A long list goes in parts, again from the first one when
        nsqd has forgotten some."""
        listed = list(stages)
        for left in range(_PARTS_TRIES - 1, -1, -1):
            try:
                return self._commit(app, version, listed)
            except BrokerRefused as refusal:
                if refusal.code != "PART_MISSING" or left == 0:
                    raise
        raise FetchFailed(self._public("/stage/commit"), "no try at all")

    def _commit(self, app: str, version: int, stages: list[Stage]) -> Committed:
        most = limits.COMMIT_PART_STAGES_MAX
        parts = [stages[first : first + most] for first in range(0, len(stages), most)] or [[]]
        document: dict[str, Any] = {}
        for number, part in enumerate(parts):
            query = [("app", app), ("version", str(version))]
            if len(parts) > 1:
                query += [("part", str(number)), ("parts", str(len(parts)))]
            document = self._json("/stage/commit", query, _stages(part))
            if document["committed"]:
                break
        return Committed(bool(document["repeated"]), int(document.get("messages", 0)))

    def abort(self, stages: Iterable[Stage]) -> None:
        """These are not wanted. What is not there, or was committed, stays as it is."""
        listed, most = list(stages), limits.COMMIT_PART_STAGES_MAX
        for first in range(0, len(listed), most):
            self._json("/stage/abort", [], _stages(listed[first : first + most]))

    def last_version(self, app: str) -> int | None:
        version = self._json("/stage/last", [("app", app)])["version"]
        return None if version is None else int(version)

    # --- one request ---

    def _ask_ahead(self, path: str, query: list[tuple[str, str]]) -> bool:
        """Send a request whose answer `_take_asked` will take. False when that is not possible:
        then it is to be asked in the ordinary way."""
        try:
            self._send(self._target(path, query), None, "")
        except (OSError, http.client.HTTPException):
            self.close()
            return False
        return True

    def _take_asked(self) -> _Answer | None:
        """The answer if it is a good one. All else is for an ordinary request to find out."""
        try:
            answer = self._receive()
        except (OSError, http.client.HTTPException):
            self.close()
            return None
        return answer if answer.status == 200 else None

    def _json(
        self,
        path: str,
        query: list[tuple[str, str]],
        body: bytes | None = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        """With a body it is a POST."""
        answer = self._request(path, query, body, content_type)
        document = _document(answer.body)
        if document is None and answer.body:
            raise FetchFailed(self._public(path), "the answer is no JSON object", answer.status)
        return document or {}

    def _request(
        self,
        path: str,
        query: list[tuple[str, str]],
        body: bytes | None = None,
        content_type: str = "",
    ) -> _Answer:
        """The answer of a 200, tried as often as it may be."""
        target = self._target(path, query)
        pause_s = self._retry_s
        for left in range(self._retries, -1, -1):
            try:
                answer = self._exchange(target, body, content_type)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if left == 0:
                    reason = str(error) or type(error).__name__
                    raise FetchFailed(self._public(path), reason) from error
            else:
                if answer.status == 200:
                    return answer
                if left == 0 or answer.status not in _NOT_READY:
                    raise self._refusal(path, answer)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)
        raise FetchFailed(self._public(path), "a negative number of retries")

    def _target(self, path: str, query: list[tuple[str, str]]) -> str:
        return f"{self._address.path}{path}?{urlencode(query)}"

    def _exchange(self, target: str, body: bytes | None, content_type: str) -> _Answer:
        self._send(target, body, content_type)
        return self._receive()

    def _send(self, target: str, body: bytes | None, content_type: str) -> None:
        connection = self._connection = self._connection or self._connect()
        headers = {"Accept": "application/vnd.nsq; version=1.0"}
        if body is not None:
            headers |= {"Content-Type": content_type, **self._secret}
        connection.request("GET" if body is None else "POST", target, body, headers)

    def _receive(self) -> _Answer:
        if self._connection is None:
            raise http.client.NotConnected
        response = self._connection.getresponse()
        return _Answer(response.status, response.read(), response.headers)

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._address.host, self._address.port
        if not self._address.secure:
            return http.client.HTTPConnection(host, port, timeout=self._timeout_s)
        context = ssl.create_default_context(cafile=self._ca_file)
        return http.client.HTTPSConnection(host, port, timeout=self._timeout_s, context=context)

    def _refusal(self, path: str, answer: _Answer) -> BrokerRefused:
        document = _document(answer.body) or {}
        code = str(document.get("message", ""))
        return BrokerRefused(self._public(path), answer.status, code, document)

    def _public(self, path: str) -> str:
        scheme = "https" if self._address.secure else "http"
        return f"{scheme}://{self._address.host}:{self._address.port}{self._address.path}{path}"


def name_of(url: str) -> str:
    """host:port: by it an nsqd is known among others."""
    address = _address(url, url if "://" in url else f"http://{url}")
    return f"{_bracketed(address.host)}:{address.port}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


class _Address(NamedTuple):
    secure: bool
    host: str
    port: int
    path: str


def _address(given: str, base: str) -> _Address:
    rule = 'nsqd\'s HTTP address: "http://host:port", "https://host:port" or "host:port"'
    try:
        parts = urlsplit(base)
        port = parts.port
    except ValueError as error:
        raise ConfigError("url", given, rule) from error
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
        raise ConfigError("url", given, rule)
    secure = parts.scheme == "https"
    return _Address(
        secure, parts.hostname, port or (4152 if secure else 4151), parts.path.rstrip("/")
    )


def _parts(named: list[_Pair]) -> Iterator[list[_Pair]]:
    """Names for one request each; without a name one request for all."""
    for first in range(0, max(len(named), 1), limits.SPARK_NAMES_MAX):
        yield named[first : first + limits.SPARK_NAMES_MAX]


def _fetch_query(
    topic: str, partition: int, identity: str, from_offset: int, to_offset: int, bytes_max: int
) -> list[tuple[str, str]]:
    return [
        ("topic", topic),
        ("partition", str(partition)),
        ("identity", identity),
        ("from", str(from_offset)),
        ("to", str(to_offset)),
        ("bytes_max", str(bytes_max)),
    ]


def _stages(stages: Iterable[Stage]) -> bytes:
    named = [{"topic": s.topic, "partition": s.partition, "stage": s.name} for s in stages]
    return json.dumps({"stages": named}).encode()


def _document(body: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _spans(entry: dict[str, Any]) -> TopicSpans:
    partitions = {
        int(number): Span(int(span["earliest"]), int(span["end"]))
        for number, span in entry["partitions"].items()
    }
    return TopicSpans(str(entry["identity"]), dict(sorted(partitions.items())))
