"""Telemetry with OpenTelemetry's SDK, in memory, against a real nsqd."""

import asyncio
import logging
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from penstock.client import Admin, Consumer, IdempotentProducer, Message, Producer
from penstock.client.otel import OpenTelemetry
from penstock.errors import ServerRefused
from penstock.testing import TestBroker


class Recorded:
    def __init__(self, **options: Any) -> None:
        self._spans = InMemorySpanExporter()
        self._metrics = InMemoryMetricReader()
        self.tracing = TracerProvider()
        self.tracing.add_span_processor(SimpleSpanProcessor(self._spans))
        metering = MeterProvider([self._metrics])
        self.telemetry = OpenTelemetry(
            tracer_provider=self.tracing, meter_provider=metering, **options
        )

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._spans.get_finished_spans() if span.name == name]

    def points(self, name: str) -> list[Any]:
        data = self._metrics.get_metrics_data()
        assert data is not None
        found = [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics]
        [metric] = [one for one in found if one.name == name]
        return list(metric.data.data_points)


async def consume(recorded: Recorded, broker: TestBroker, topic: str, count: int) -> list[Any]:
    """(body, headers) of so many messages; one that says `fails` does."""
    seen: list[Any] = []

    async def handle(message: Message) -> None:
        seen.append((message.body, message.headers))
        if len(seen) == count:
            consumer.stop()
        if message.body == b"fails":
            raise ValueError

    options: dict[str, Any] = {"envelope": True, "middleware": [recorded.telemetry.process]}
    async with asyncio.timeout(40), Consumer(topic, "c", broker.address, **options) as consumer:
        await consumer.run(handle)
    return seen


def parent_of(span: ReadableSpan) -> tuple[int, int] | None:
    return None if span.parent is None else (span.parent.trace_id, span.parent.span_id)


def own(span: ReadableSpan) -> tuple[int, int]:
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


async def test_a_trace_goes_on_at_the_consumer(caplog: pytest.LogCaptureFixture) -> None:
    recorded = Recorded()
    with TestBroker() as broker:
        await Admin(broker.http_address).create_topic("t", extended=True)
        middleware = [recorded.telemetry.publish]
        async with Producer(broker.address, middleware=middleware) as producer:
            with recorded.tracing.get_tracer("test").start_as_current_span("order") as order:
                await producer.pub("t", b"one", trace_id=5, headers={"color": "red"})
            await producer.mpub("t", [b"two", b"three"], partition=0)
            await producer.dpub("t", b"fails", 0.001)  # no headers: a trace of its own
        with caplog.at_level(logging.CRITICAL):
            seen = dict(await consume(recorded, broker, "t", 4))
    assert seen[b"one"]["color"] == "red"
    sent, processed = recorded.spans("publish t"), recorded.spans("process t")
    parents = [parent_of(span) for span in sent]
    context = order.get_span_context()
    assert parents == [(context.trace_id, context.span_id), None, None]
    assert {span.kind for span in sent} == {trace.SpanKind.PRODUCER}
    assert {span.kind for span in processed} == {trace.SpanKind.CONSUMER}
    expected = [own(sent[0]), own(sent[1]), own(sent[1]), None]
    assert sorted(map(str, map(parent_of, processed))) == sorted(map(str, expected))
    text = [dict(span.attributes or {}) for span in sent]
    ids = [dict(span.attributes or {})["messaging.message.id"] for span in processed]
    assert text[0].pop("messaging.message.id") in ids
    same = {"messaging.system": "nsq", "messaging.destination.name": "t",
            "messaging.operation.name": "publish", "messaging.operation.type": "send"}  # fmt: skip
    more = {"messaging.batch.message_count": 2, "messaging.destination.partition.id": "0"}
    assert text[:2] == [
        same | {"messaging.message.body.size": 3},
        same | more | {"messaging.message.body.size": 8},
    ]
    [failed] = [span for span in processed if span.parent is None]
    reply = dict(failed.attributes or {})
    host, _, port = broker.address.partition(":")
    assert (reply["server.address"], reply["server.port"]) == (host, int(port))
    assert (reply["messaging.destination.subscription.name"], reply["error.type"]) == (
        "c", "ValueError",
    )  # fmt: skip
    assert failed.status.status_code is trace.StatusCode.ERROR
    assert sum(one.value for one in recorded.points("messaging.client.sent.messages")) == 4
    consumed = recorded.points("messaging.client.consumed.messages")
    assert {one.attributes.get("error.type"): one.value for one in consumed} == {
        None: 3, "ValueError": 1,
    }  # fmt: skip
    assert [one.count for one in recorded.points("messaging.client.operation.duration")] == [3]
    assert sum(one.count for one in recorded.points("messaging.process.duration")) == 4


async def test_a_topic_without_headers() -> None:
    """It is published to all the same, and asked once."""
    recorded = Recorded()
    with TestBroker() as broker:
        options: dict[str, Any] = {"middleware": [recorded.telemetry.publish]}
        async with Producer(broker.address, **options) as producer:
            await producer.pub("t", b"one")
            await producer.pub("t", b"two", key="k")
            with pytest.raises(ServerRefused):  # these are the caller's own
                await producer.pub("t", b"three", headers={"color": "red"})
        async with IdempotentProducer(broker.http_address, **options) as once:
            await once.pub("t", b"four")
        assert broker.messages("t") == [b"one", b"two", b"four"]
        seen = dict(await consume(recorded, broker, "t", 3))
    assert seen == {b"one": {}, b"two": {}, b"four": {}}
    assert [(span.attributes or {}).get("error.type") for span in recorded.spans("publish t")] == [
        None, None, "ServerRefused", None,
    ]  # fmt: skip


async def test_headers_may_be_left_alone() -> None:
    recorded = Recorded(headers=False)
    with TestBroker() as broker:
        await Admin(broker.http_address).create_topic("t", extended=True)
        async with Producer(broker.address, middleware=[recorded.telemetry.publish]) as producer:
            await producer.pub("t", b"one")
        assert await consume(recorded, broker, "t", 1) == [(b"one", {})]
