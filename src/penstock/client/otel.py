"""OpenTelemetry: spans and metrics by the semantic conventions for messaging. Needs the extra
`otel`, and of it only the API: without an SDK that the program sets up, nothing is recorded.

    telemetry = OpenTelemetry()
    Producer(..., middleware=[telemetry.publish])
    Consumer(..., middleware=[telemetry.process], envelope=True)

A publish puts its context (`traceparent`) into the message's headers, and a consumer that gets
headers (`envelope` or `headers`) goes on with the same trace. A topic that takes no headers is
remembered at its first refusal, and the publish sent again without: it is not stored yet, but may
fall behind others of its first moment. `headers=False` never puts any in.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

try:
    from opentelemetry import metrics, propagate, trace
except ImportError as error:
    raise ImportError("penstock.client.otel needs the extra `otel`: penstock[otel]") from error

from penstock import __version__
from penstock.client.message import Message
from penstock.client.middleware import Next
from penstock.client.options import split_address
from penstock.client.publishing import Outgoing, Published
from penstock.errors import ServerRefused

_NO_HEADERS = ("E_EXT_NOT_SUPPORT", "E_INVALID")  # of ours; NSQ's own knows no such command

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)  # seconds

Attributes = dict[str, str | int]
Operation = Literal["publish", "process"]


class OpenTelemetry:
    """The providers are the global ones unless others are given."""

    def __init__(
        self,
        *,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
        headers: bool = True,
    ) -> None:
        self._tracer = trace.get_tracer("penstock", __version__, tracer_provider)
        meter = metrics.get_meter("penstock", __version__, meter_provider)
        self._messages = {
            "publish": meter.create_counter("messaging.client.sent.messages", "{message}"),
            "process": meter.create_counter("messaging.client.consumed.messages", "{message}"),
        }
        names = {
            "publish": "messaging.client.operation.duration",
            "process": "messaging.process.duration",
        }
        self._seconds = {
            operation: meter.create_histogram(
                name, "s", explicit_bucket_boundaries_advisory=_BUCKETS
            )
            for operation, name in names.items()
        }
        self._headers = headers
        self._without: set[str] = set()  # topics that have refused headers

    async def publish(self, outgoing: Outgoing, call_next: Next[Outgoing]) -> Any:
        """Middleware of a producer."""
        count = len(outgoing.bodies)
        attributes: Attributes = {"messaging.message.body.size": sum(map(len, outgoing.bodies))}
        if outgoing.several:
            attributes["messaging.batch.message_count"] = count
        if outgoing.partition is not None:
            attributes["messaging.destination.partition.id"] = str(outgoing.partition)
        kind = trace.SpanKind.PRODUCER
        with self._measured("publish", "send", outgoing.topic, count, kind, attributes) as span:
            published = await self._sent(outgoing, call_next)
            if isinstance(published, Published):
                span.set_attribute("messaging.message.id", published.message_id)
            return published

    async def _sent(self, outgoing: Outgoing, call_next: Next[Outgoing]) -> Any:
        own = outgoing.headers
        if not self._may_carry(outgoing):
            return await call_next(outgoing)
        carrier: dict[str, str | bool] = dict(own or {})
        propagate.inject(carrier)
        outgoing.headers = carrier or own
        try:
            return await call_next(outgoing)
        except ServerRefused as refusal:
            if own is not None or outgoing.headers is None or refusal.code not in _NO_HEADERS:
                raise
            self._without.add(outgoing.topic)
            outgoing.headers = None
            return await call_next(outgoing)

    def _may_carry(self, outgoing: Outgoing) -> bool:
        """MPUB has headers or trace ids."""
        if outgoing.plain or (outgoing.several and outgoing.trace_id is not None):
            return False
        return self._headers and outgoing.topic not in self._without

    async def process(self, message: Message, call_next: Next[Message]) -> Any:
        """Middleware of a consumer."""
        attributes: Attributes = {
            "messaging.message.id": message.id,
            "messaging.message.body.size": len(message.body),
            "messaging.destination.subscription.name": message.channel,
        }
        host, port = split_address(message.address)
        attributes |= {"server.address": host} | ({"server.port": port} if port else {})
        if message.partition is not None:
            attributes["messaging.destination.partition.id"] = str(message.partition)
        kind = trace.SpanKind.CONSUMER
        headers = message.headers
        with self._measured("process", "process", message.topic, 1, kind, attributes, headers):
            return await call_next(message)

    @contextmanager
    def _measured(
        self,
        name: Operation,
        type: str,
        topic: str,
        count: int,
        kind: trace.SpanKind,
        attributes: Attributes,
        headers: Mapping[str, Any] | None = None,
    ) -> Iterator[trace.Span]:
        measured: Attributes = {
            "messaging.system": "nsq",
            "messaging.operation.name": name,
            "messaging.destination.name": topic,
        }
        context = None if headers is None else propagate.extract(headers)
        every = measured | attributes | {"messaging.operation.type": type}
        began_s = time.perf_counter()
        try:
            with self._tracer.start_as_current_span(
                f"{name} {topic}", context, kind, every, set_status_on_exception=True
            ) as span:
                try:
                    yield span
                except BaseException as error:
                    measured["error.type"] = error.__class__.__qualname__
                    span.set_attribute("error.type", measured["error.type"])
                    raise
        finally:
            self._messages[name].add(count, measured)
            self._seconds[name].record(time.perf_counter() - began_s, measured)
