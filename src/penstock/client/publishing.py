"""Publishing: the common part of both producers, and the commands of publishes with options.

A producer begins and ends as a context, and publishes with a bound on what is unanswered.

With a trace id (`wire/trace_ids.py`) a message's whole life is told by `penstock trace`, whatever
the topic's sample, and nsqd's answer says where the message lies. Our nsqd and Youzan's know it;
another one refuses the command and hangs up.

`PUB t 3` is for a partition. A key and headers are a JSON object of strings in front of the body
(`PUB_EXT`), of which the member `key` is the key: messages with the same key are in one partition,
in the order of their publishes. Headers beside the key need an extended topic.
"""

from __future__ import annotations

import asyncio
import json
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    NamedTuple,
    Self,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from penstock import limits
from penstock.client import framing
from penstock.client.bodies import check_several, encode, encode_all
from penstock.client.middleware import Middleware, Next, chain
from penstock.errors import ClientClosed, ConfigError, ProducerFull
from penstock.ids.unique import KEY, UniqueIds
from penstock.wire.trace_ids import REPLY_BYTES, decode_reply

if TYPE_CHECKING:
    from penstock.client.options import PublishOptions

Where = TypeVar("Where")


class NotStarted(ClientClosed):
    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.args = (f"the {what} is not started: enter it by `with`, or call start()",)


class AlreadyStarted(ClientClosed):
    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.args = (f"the {what} is started already: enter it by `with`, or call start(), once",)


def not_again(what: str, is_closed: bool) -> ClientClosed:
    """Why it cannot be started a second time."""
    return ClientClosed(what) if is_closed else AlreadyStarted(what)


class Publisher(ABC, Generic[Where]):
    """`start`, `pub` and how it publishes and ends are each producer's own. `Where`: the result of
    a publish with a trace id."""

    _only_plain = False  # no publish of it has a partition, a key or headers

    def __init__(self, options: PublishOptions) -> None:
        self.options = options
        self._around = chain(options.middleware, self._pass_on) if options.middleware else None
        self._tasks: set[asyncio.Task[Any]] = set()  # publishes with middleware around them
        self._task_bytes = 0
        self._pending_bytes = 0
        self._loop: asyncio.AbstractEventLoop
        self._open = False  # to publishes
        self._ended = False
        self._drained: asyncio.Future[None] | None = None

    @abstractmethod
    async def start(self) -> None: ...

    @abstractmethod
    def pub(self, topic: str, body: object) -> asyncio.Future[None]: ...

    @abstractmethod
    def _pass_on(self, outgoing: Outgoing) -> asyncio.Future[Any]:
        """Publish, behind all middleware."""

    @abstractmethod
    async def _end(self) -> None:
        """Disconnect; open publishes fail."""

    @property
    @abstractmethod
    def pending_count(self) -> int: ...

    @property
    def pending_bytes(self) -> int:
        return self._pending_bytes

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self, timeout_s: float | None = None) -> None:
        """Wait for answers, at most `timeout_s` (`stop_timeout_s`), and disconnect. Unanswered
        publishes then raise ConnectionLost or PublishUncertain, unsent ones ClientClosed."""
        if self._ended:
            return
        self._ended = True
        timeout_s = self.options.stop_timeout_s if timeout_s is None else timeout_s
        until_s = time.monotonic() + timeout_s
        try:
            if self._tasks and timeout_s > 0:
                await asyncio.wait(self._tasks, timeout=timeout_s)
            self._open = False
            left_s = until_s - time.monotonic()
            if self.pending_count and left_s > 0:
                self._drained = self._loop.create_future()
                await asyncio.wait([self._drained], timeout=left_s)
        finally:  # cancelled, too, it leaves no connection behind
            self._open = False
            await self._end()

    def _check_drained(self) -> None:
        if self._drained is not None and not self.pending_count and not self._drained.done():
            self._drained.set_result(None)

    def _closed(self) -> ClientClosed:
        return ClientClosed("producer") if self._ended else NotStarted("producer")

    def _publish(self, outgoing: Outgoing) -> asyncio.Future[Any]:
        if self._around is None:
            return self._pass_on(outgoing)
        if not self._open:
            raise self._closed()
        size = sum(map(len, outgoing.bodies))
        task = self._loop.create_task(self._through(self._around, outgoing))
        self._tasks.add(task)
        self._task_bytes += size
        task.add_done_callback(partial(self._came_through, size))
        return task

    async def _through(self, around: Next[Outgoing], outgoing: Outgoing) -> Any:
        return await around(outgoing)

    def _came_through(self, size: int, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        self._task_bytes -= size

    def publish_nowait(self, topic: str, body: object) -> asyncio.Future[None]:
        """`pub` for callers that do not wait: raises ProducerFull instead of holding more than
        `pending_count_max` publishes or `pending_bytes_max` bytes."""
        count = max(self.pending_count, len(self._tasks))
        size = max(self._pending_bytes, self._task_bytes)
        options = self.options
        data = encode(body, options.serializer)
        if count >= options.pending_count_max or size + len(data) > options.pending_bytes_max:
            raise ProducerFull(count, size)
        return self.pub(topic, data)

    @overload
    def mpub(
        self, topic: str, bodies: Sequence[object], **to: Unpack[To]
    ) -> asyncio.Future[None]: ...
    @overload
    def mpub(
        self,
        topic: str,
        bodies: Sequence[object],
        *,
        trace_id: int | Sequence[int],
        partition: int | None = None,
    ) -> asyncio.Future[Where]: ...
    def mpub(
        self,
        topic: str,
        bodies: Sequence[object],
        *,
        trace_id: int | Sequence[int] | None = None,
        **to: Unpack[To],
    ) -> asyncio.Future[Any]:
        """Publish all `bodies`, with this key and these headers, or, when one is refused, none of
        them. With a trace id for all, or one for each (0: none), the result is that of `pub`, for
        the first of them."""
        data = encode_all(bodies, self.options.serializer)
        plain = self._only_plain
        return self._publish(
            Outgoing(topic, data, several=True, plain=plain, trace_id=trace_id, **to)
        )

    def dpub(self, topic: str, body: object, delay_s: float) -> asyncio.Future[None]:
        """Publish a message that consumers get after `delay_s`."""
        data = encode(body, self.options.serializer)
        return self._publish(Outgoing(topic, [data], plain=True, delay_s=delay_s))

    async def pub_many(self, topic: str, bodies: Iterable[object], *, window: int = 500) -> int:
        """Publish each of `bodies`, with at most about `window` unanswered. Returns their number.
        The first error ends it; earlier ones may be stored."""
        check_several(bodies)
        waiting: deque[asyncio.Future[None]] = deque()
        count = 0
        try:
            for body in bodies:
                waiting.append(self.pub(topic, body))
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
    """The position of a message: the only one, or the first of several."""

    message_id: str  # 16 hex digits, the `id` that consumers see
    offset: int  # in its partition
    trace_id: int


def published_of(answer: bytes) -> Published | None:
    """The answer to a publish with a trace id; None for a plain OK."""
    if len(answer) != REPLY_BYTES or not answer.startswith(b"OK"):
        return None
    message_id, trace_id, offset, _ = decode_reply(answer)
    return Published(f"{message_id:016x}", offset, trace_id)


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
    if not framing.is_within(trace_id, least, TRACE_ID_MAX):
        raise ConfigError("trace_id", trace_id, f"{least} to {TRACE_ID_MAX}")
    return trace_id


_LENGTH_BYTES = 2  # of the headers
_KEY = "key"
_TRACE_ID = "##trace_id"
_MAY_BE_BOOLEAN = "zan_test"  # marks the traffic of a load test


Headers = Mapping[str, str | bool]  # a boolean only for `zan_test`, as in Youzan's NSQ


class To(TypedDict, total=False):
    """The target and the options, as keywords of `pub` and `mpub`."""

    partition: int | None
    key: str | None
    headers: Headers | None


@dataclass(slots=True)
class Outgoing:
    """A publish before it is sent. Middleware may change it."""

    topic: str
    bodies: Sequence[bytes]  # one, but for `mpub`
    _: KW_ONLY
    several: bool = False  # by `mpub`
    plain: bool = False  # no partition, key or headers: by `dpub` and an IdempotentProducer
    delay_s: float | None = None  # by `dpub`
    trace_id: int | Sequence[int] | None = None
    partition: int | None = None
    key: str | None = None
    headers: Headers | None = None


PublishMiddleware = Middleware[Outgoing]


def command(outgoing: Outgoing, ids: UniqueIds | None = None) -> bytes:
    """`ids`: of a header of its own, where the caller has set none. Raises ConfigError."""
    topic, bodies = framing.check_name("topic", outgoing.topic), outgoing.bodies
    if outgoing.delay_s is not None:
        check_plain(outgoing)
        head = b"DPUB %b %d\n" % (topic, framing.check_delay(outgoing.delay_s))
        return framing.sized(head, bodies[0])
    to = destination_of(topic, outgoing)
    headers, trace_id, several = headers_of(outgoing), outgoing.trace_id, outgoing.several
    if several and trace_id is not None:
        if headers is not None:
            rule = "several messages have a trace id, or a key and headers"
            raise ConfigError("trace_id", trace_id, rule)
        ids = None
    if trace_id is not None:
        trace_id = checked_ids(trace_id, len(bodies))
    if headers is None and ids is None:
        name = b"PUB" if trace_id is None else b"PUB_TRACE"
        packed = bodies if trace_id is None else packed_traced(bodies, trace_id)
    else:
        name = b"PUB_EXT"
        if trace_id is not None:
            headers = {**(headers or {}), _TRACE_ID: str(trace_id[0])}
        packed = _packed_headed(bodies, headers or {}, ids)
    if several:
        return framing.mpub(to, packed, b"M" + name)
    return framing.sized(b"%b %b\n" % (name, to), packed[0])


def _packed_headed(
    bodies: Sequence[bytes], headers: Headers, ids: UniqueIds | None
) -> Sequence[bytes]:
    """With a unique id each. The user's own takes precedence, an empty one too, as in RocketMQ."""
    if ids is None or KEY in headers:
        front = encode_headers(headers)
        return [front + body for body in bodies]
    return [encode_headers({**headers, KEY: ids.next()}) + body for body in bodies]


def check_plain(outgoing: Outgoing) -> None:
    """Raises ConfigError."""
    for name in ("partition", "key", "headers"):
        if (value := getattr(outgoing, name)) is not None:
            rule = "a publish with a delay, or of an IdempotentProducer, takes none"
            raise ConfigError(name, value, rule)


def destination_of(topic: bytes, to: Outgoing) -> bytes:
    """The topic and, where one is named, the partition, as they stand in a command."""
    if to.partition is None:
        return topic
    if to.key is not None:
        raise ConfigError("partition", to.partition, "a publish names a key or a partition")
    return b"%b %d" % (topic, checked_partition(to.partition))


def checked_partition(partition: int) -> int:
    if not framing.is_within(partition, 0, limits.PARTITIONS_MAX - 1):
        raise ConfigError("partition", partition, f"0 to {limits.PARTITIONS_MAX - 1}")
    return partition


def headers_of(to: Outgoing) -> Headers | None:
    """All headers, including the key; None without any."""
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
