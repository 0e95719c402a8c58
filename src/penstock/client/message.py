"""A message of a consumer.

`fin`, `req` and `touch` put a few bytes into the connection's buffer, which is sent once per turn
of the loop; no answer follows. They may be awaited, which costs nothing, or simply called.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar, overload

from penstock.client.bodies import from_json
from penstock.client.framing import check_delay
from penstock.client.middleware import Middleware
from penstock.errors import MessageSettled

if TYPE_CHECKING:
    from penstock.client.subscription import Subscription

T = TypeVar("T")


class Done:
    """An awaitable that is done: `await message.fin()` reads well and need not wait."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


DONE = Done()


class Message:
    """`subscription`: the connection that it came over. `timestamp_ns` is when it was published,
    `attempts` is 1 at the first delivery, `id` its 16 hex digits. A message is settled once: by
    `fin` or by `req`, which are `ack` and `nack` too."""

    __slots__ = ("_subscription", "attempts", "body", "raw_id", "settled", "timestamp_ns")

    def __init__(
        self, subscription: Subscription, timestamp_ns: int, attempts: int, id: bytes, body: bytes
    ) -> None:
        self._subscription = subscription
        self.timestamp_ns = timestamp_ns
        self.attempts = attempts
        self.raw_id = id
        self.body = body
        self.settled = False

    def fin(self) -> Awaitable[None]:
        """Finish it. Without effect when its connection has ended meanwhile: the message comes
        again (see `lost`). Raises MessageSettled."""
        if self.settled:
            raise MessageSettled(self.id)
        self.settled = True
        self._subscription.finish(self)
        return DONE

    def req(self, delay_s: float = 0.0, *, backoff: bool = False) -> Awaitable[None]:
        """Give it back, to come again after `delay_s`. With `backoff` it counts as a failure, which
        slows the consumer down. Raises MessageSettled."""
        if self.settled:
            raise MessageSettled(self.id)
        delay_ms = check_delay(delay_s)
        self.settled = True
        self._subscription.requeue(self, delay_ms, backoff)
        return DONE

    ack = fin
    nack = req

    def touch(self) -> Awaitable[None]:
        """Start its timeout again; nsqd allows this up to --max-msg-timeout after the delivery.
        Raises MessageSettled."""
        if self.settled:
            raise MessageSettled(self.id)
        self._subscription.touch(self)
        return DONE

    @property
    def id(self) -> str:
        return self.raw_id.decode("ascii", "replace")

    @property
    def text(self) -> str:
        """The body as text. Raises UnicodeDecodeError."""
        return self.body.decode()

    @overload
    def json(self) -> Any: ...
    @overload
    def json(self, type: type[T]) -> T: ...
    def json(self, type: Any = Any) -> Any:
        """The body as JSON, as a `type`, if one is given: a dataclass, a TypedDict, a msgspec
        struct, a Pydantic model. Raises msgspec.DecodeError, a ValueError, also for JSON of another
        shape."""
        return from_json(self.body, type)

    @property
    def topic(self) -> str:
        return self._subscription.topic

    @property
    def channel(self) -> str:
        return self._subscription.channel

    @property
    def partition(self) -> int | None:
        """Its partition on its nsqd. None: unknown, because the consumer names no partition and
        asks for no `envelope`, or nsqd gives none."""
        return self._subscription.partition

    @property
    def headers(self) -> dict[str, Any]:
        """For a consumer with `headers=True` or `envelope=True`; otherwise empty."""
        return {}

    @property
    def key(self) -> str | None:
        """The member `key` of its headers; with `envelope=True` also of a message without headers.
        Bytes that are no UTF-8 are in it as `os.fsdecode` has them."""
        key = self.headers.get("key")
        return key if isinstance(key, str) else None

    @property
    def lost(self) -> bool:
        """Its connection has ended: nsqd will deliver it again, whatever is done here."""
        return self._subscription.lost

    @property
    def address(self) -> str:
        """The nsqd that it came from."""
        return self._subscription.address

    @property
    def published(self) -> datetime:
        return datetime.fromtimestamp(self.timestamp_ns / 1e9, UTC)

    def __repr__(self) -> str:
        return f"<Message {self.id} attempts={self.attempts} body of {len(self.body)} bytes>"


ConsumeMiddleware = Middleware[Message]
