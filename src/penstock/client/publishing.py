"""Publishing: what both producers do alike, and the commands of publishes that say more.

A producer begins and ends as a context, and publishes with a bound on what is unanswered.

With a trace id (`wire/traced.py`) a message's whole life is told by `penstock trace`, whatever the
topic's sample, and nsqd's answer says where the message lies. Our nsqd and Youzan's know it;
another one refuses the command and hangs up.

`PUB t 3` is for a partition. A key and headers are a JSON object of strings in front of the body
(`PUB_EXT`), of which the member `key` is the key: messages with the same key are in one partition,
in the order of their publishes. Headers beside the key need an extended topic.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, Self, TypedDict

from penstock import limits
from penstock.client import framing
from penstock.client.bodies import Serializer, check_several, encode
from penstock.errors import ConfigError, ProducerFull
from penstock.ids.unique import KEY, UniqueIds
from penstock.wire.traced import REPLY_BYTES, decode_reply


class Bounds(Protocol):
    @property
    def serializer(self) -> Serializer: ...
    @property
    def pending_count_max(self) -> int: ...
    @property
    def pending_bytes_max(self) -> int: ...


class Publisher(ABC):
    """`start`, `pub` and `close` are each producer's own."""

    @abstractmethod
    async def start(self) -> None: ...

    @abstractmethod
    async def close(self, timeout_s: float | None = None) -> None: ...

    @abstractmethod
    def pub(self, topic: str, body: object) -> asyncio.Future[None]: ...

    @property
    @abstractmethod
    def bounds(self) -> Bounds: ...

    @property
    @abstractmethod
    def pending_count(self) -> int: ...

    @property
    @abstractmethod
    def pending_bytes(self) -> int: ...

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def publish_nowait(self, topic: str, body: object) -> asyncio.Future[None]:
        """`pub` for callers that do not wait: raises ProducerFull instead of holding more than
        `pending_count_max` publishes or `pending_bytes_max` bytes."""
        count, size, bounds = self.pending_count, self.pending_bytes, self.bounds
        data = encode(body, bounds.serializer)
        if count >= bounds.pending_count_max or size + len(data) > bounds.pending_bytes_max:
            raise ProducerFull(count, size)
        return self.pub(topic, data)

    async def pub_many(self, topic: str, bodies: Iterable[object], *, window: int = 500) -> int:
        """Publish each of `bodies`, with at most about `window` unanswered. How many there were.
        The first error ends it; what was sent before it may be stored."""
        check_several(bodies)
        return await publish_many((self.pub(topic, body) for body in bodies), window)


async def publish_many(publishes: Iterable[asyncio.Future[None]], window: int) -> int:
    """Wait for all of `publishes`, which begin one after the other as they are taken from the
    iterable. How many there were. The first error ends it."""
    waiting: deque[asyncio.Future[None]] = deque()
    count = 0
    try:
        for future in publishes:
            waiting.append(future)
            count += 1
            if len(waiting) >= window:
                await _half(waiting)
        while waiting:
            await _half(waiting)
    finally:
        for future in waiting:
            if not future.cancel() and not future.cancelled():
                future.exception()  # it is known: the first one was raised
    return count


async def _half(waiting: deque[asyncio.Future[None]]) -> None:
    """Wait for the older half, so that the other half keeps nsqd busy meanwhile."""
    for _ in range(len(waiting) // 2 + 1):
        await waiting[0]
        waiting.popleft()


TRACE_ID_MAX = (1 << 64) - 1


class Published(NamedTuple):
    """Where a message came to lie: the only one, or the first of several."""

    message_id: str  # 16 hex digits, the `id` that consumers see
    offset: int  # in its partition
    trace_id: int


def published_of(answer: bytes) -> Published | None:
    """What the answer to a publish with a trace id says; None for a plain OK."""
    if len(answer) != REPLY_BYTES or not answer.startswith(b"OK"):
        return None
    message_id, trace_id, offset, _ = decode_reply(answer)
    return Published(f"{message_id:016x}", offset, trace_id)


def pub_trace(topic: bytes, body: bytes, trace_id: int) -> bytes:
    """The whole command; a partition may stand behind the topic. Raises ConfigError."""
    return framing.sized(b"PUB_TRACE %b\n" % topic, checked_id(trace_id).to_bytes(8) + body)


def mpub_trace(topic: bytes, bodies: Sequence[bytes], trace_ids: int | Sequence[int]) -> bytes:
    """The same for several, as `checked_ids` has them."""
    messages = packed_traced(bodies, checked_ids(trace_ids, len(bodies)))
    return framing.mpub(topic, messages, b"MPUB_TRACE")


def checked_ids(trace_ids: int | Sequence[int], count: int) -> Sequence[int]:
    """One for each of `count` bodies, from one for all, or one for each, where 0 is none. Raises
    ConfigError."""
    if isinstance(trace_ids, int):
        return [checked_id(trace_ids)] * count
    if len(trace_ids) != count:
        raise ConfigError("trace_id", f"{len(trace_ids)} of them", f"one for {count} bodies")
    return [checked_id(one, least=0) for one in trace_ids]


def packed_traced(bodies: Sequence[bytes], trace_ids: Sequence[int]) -> list[bytes]:
    """Each message as MPUB_TRACE has it: its trace id, then its body."""
    return [one.to_bytes(8) + body for one, body in zip(trace_ids, bodies, strict=True)]


def checked_id(trace_id: int, least: int = 1) -> int:
    if not least <= trace_id <= TRACE_ID_MAX:
        raise ConfigError("trace_id", trace_id, f"{least} to {TRACE_ID_MAX}")
    return trace_id


_LENGTH_BYTES = 2  # of the headers
_KEY = "key"
_TRACE_ID = "##trace_id"
_MAY_BE_BOOLEAN = "zan_test"  # marks the traffic of a load test


Headers = Mapping[str, str | bool]  # a boolean only for `zan_test`, as in Youzan's NSQ


class Address(NamedTuple):
    partition: int | None = None
    key: str | None = None
    headers: Headers | None = None


class To(TypedDict, total=False):
    """An address as keywords of `pub` and `mpub`."""

    partition: int | None
    key: str | None
    headers: Headers | None


def pub(
    topic: bytes, body: bytes, trace_id: int | None, to: Address, ids: UniqueIds | None = None
) -> bytes:
    """The whole command. `ids`: of a header of its own, where the caller has set none. Raises
    ConfigError."""
    place = place_of(topic, to)
    headers = _identified(headers_of(to), ids)
    if headers is None and trace_id is None:
        return framing.sized(b"PUB %b\n" % place, body)
    if headers is None:
        return pub_trace(place, body, trace_id or 0)
    if trace_id is not None:
        headers = {**headers, _TRACE_ID: str(checked_id(trace_id))}
    return framing.sized(b"PUB_EXT %b\n" % place, encode_headers(headers) + body)


def mpub(
    topic: bytes,
    bodies: Sequence[bytes],
    trace_ids: int | Sequence[int] | None,
    to: Address,
    ids: UniqueIds | None = None,
) -> bytes:
    """The same for several, all with this key and these headers."""
    place = place_of(topic, to)
    headers = headers_of(to)
    if ids is not None and trace_ids is None:
        fronts = (encode_headers(_identified(headers, ids) or {}) for _ in bodies)
        packed = [front + body for front, body in zip(fronts, bodies, strict=True)]
        return framing.mpub(place, packed, b"MPUB_EXT")
    if headers is None and trace_ids is None:
        return framing.mpub(place, bodies)
    if headers is None:
        return mpub_trace(place, bodies, trace_ids or 0)
    if trace_ids is not None:
        rule = "several messages have a trace id, or a key and headers"
        raise ConfigError("trace_id", trace_ids, rule)
    front = encode_headers(headers)
    return framing.mpub(place, [front + body for body in bodies], b"MPUB_EXT")


def _identified(headers: Headers | None, ids: UniqueIds | None) -> Headers | None:
    """With a unique id. The user's own wins, an empty one too, as in RocketMQ."""
    if ids is None or (headers is not None and KEY in headers):
        return headers
    return {**(headers or {}), KEY: ids.next()}


def place_of(topic: bytes, to: Address) -> bytes:
    """The topic and, where one is named, the partition, as they stand in a command."""
    if to.partition is None:
        return topic
    if to.key is not None:
        raise ConfigError("partition", to.partition, "a publish names a key or a partition")
    return b"%b %d" % (topic, checked_partition(to.partition))


def checked_partition(partition: int) -> int:
    if not 0 <= partition < limits.PARTITIONS_MAX:
        raise ConfigError("partition", partition, f"0 to {limits.PARTITIONS_MAX - 1}")
    return partition


def headers_of(to: Address) -> Headers | None:
    """All of them, the key included; None where there are none."""
    if to.key is None:
        return to.headers
    if to.key != (to.headers or {}).get(_KEY, to.key):
        raise ConfigError("key", to.key, "headers name another one")
    return {**(to.headers or {}), _KEY: to.key}


def encode_headers(headers: Headers) -> bytes:
    """Their length and their JSON. Raises ConfigError."""
    for name, value in headers.items():
        may_be = (str, bool) if name == _MAY_BE_BOOLEAN else str
        if not isinstance(name, str) or not isinstance(value, may_be):
            raise ConfigError("headers", {name: value}, "names and values are strings")
    text = json.dumps(headers, separators=(",", ":"), ensure_ascii=False)
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ConfigError("headers", text[:100], "no UTF-8 has half of a surrogate pair") from error
    if len(data) > limits.HEADERS_BYTES_MAX:
        raise ConfigError("headers", len(data), f"{limits.HEADERS_BYTES_MAX} bytes of JSON at most")
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data
