"""A broker for FastStream: a subscriber is a consumer of a channel, a publisher writes to a topic.

python examples/faststream_broker.py 127.0.0.1:4150

A handler that returns finishes its message, one that raises gives it back, and after
`max_attempts` it is dropped. Dependencies, middlewares, filters, acknowledgement policies and the
AsyncAPI document work as with FastStream's own brokers. Headers and the correlation id travel on
topics that have headers. `request` needs an answer to wait for, which NSQ does not have.

FastStream has no public classes for brokers of others yet: this one stands on
`faststream._internal` of 0.7. Copy it, and look at it again with the next minor release.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NoReturn

from faststream import (
    AckPolicy,
    Context,
    Depends,
    FastStream,
    PublishCommand,
    PublishType,
    StreamMessage,
)
from faststream._internal.broker import BrokerUsecase
from faststream._internal.configs import (
    BrokerConfig,
    PublisherSpecificationConfig,
    PublisherUsecaseConfig,
    SubscriberSpecificationConfig,
    SubscriberUsecaseConfig,
)
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.publisher import PublisherSpecification, PublisherUsecase
from faststream._internal.endpoint.publisher.fake import FakePublisher
from faststream._internal.endpoint.subscriber import SubscriberSpecification, SubscriberUsecase
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream._internal.logger import DefaultLoggerStorage, make_logger_state
from faststream._internal.parser import DefaultCodec
from faststream._internal.producer import ProducerProto
from faststream.exceptions import FeatureNotSupportedException
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import BrokerSpec, Operation, PublisherSpec, SubscriberSpec
from faststream.specification.schema import Message as MessageSpec
from pydantic import BaseModel

from penstock.client import Consumer, Message, Producer, Requeue

CORRELATION_ID, CONTENT_TYPE = "correlation_id", "content-type"


class NsqMessage(StreamMessage[Message]):
    """One that is not finished when its handler ends comes again, after `nack` and without."""

    async def ack(self) -> None:
        if not self.raw_message.settled:
            self.raw_message.fin()
        await super().ack()

    async def reject(self) -> None:
        if not self.raw_message.settled:
            self.raw_message.fin()
        await super().reject()


async def parse(message: Message) -> NsqMessage:
    headers = message.headers
    return NsqMessage(
        message, message.body, headers=headers, message_id=message.id,
        correlation_id=headers.get(CORRELATION_ID), content_type=headers.get(CONTENT_TYPE),
    )  # fmt: skip


def _operation(name: str, payload: dict[str, Any]) -> Operation:
    """For the AsyncAPI document."""
    return Operation(message=MessageSpec(title=f"{name}:Message", payload=payload), bindings=None)


# --- publishing ---


@dataclass(kw_only=True)
class NsqBrokerConfig(BrokerConfig):
    addresses: str | Sequence[str]
    lookupds: Sequence[str]


class NsqProducer(ProducerProto[PublishCommand]):
    def __init__(self, config: NsqBrokerConfig) -> None:
        self.producer = Producer(config.addresses)
        self.codec = DefaultCodec()
        self._config = config
        self._parser, self._decoder = parse, self.codec.decode

    async def _encode(self, body: Any) -> tuple[bytes, str | None]:
        return await self.codec.encode(body, self._config.fd_config._serializer)

    async def publish(self, cmd: PublishCommand) -> None:
        body, content_type = await self._encode(cmd.body)
        headers = dict(cmd.headers)
        if headers:  # a topic without headers refuses them
            headers |= {CORRELATION_ID: cmd.correlation_id, CONTENT_TYPE: content_type}
            headers = {name: str(value) for name, value in headers.items() if value is not None}
        await self.producer.pub(cmd.destination, body, headers=headers or None)

    async def publish_batch(self, cmd: PublishCommand) -> None:
        bodies = [(await self._encode(body))[0] for body in cmd.batch_bodies]
        await self.producer.mpub(cmd.destination, bodies)

    async def request(self, cmd: PublishCommand) -> NoReturn:
        raise FeatureNotSupportedException("NSQ has no answers to wait for")


@dataclass(kw_only=True)
class NsqPublisherSpecificationConfig(PublisherSpecificationConfig):
    topic: str


class NsqPublisherSpecification(PublisherSpecification[Any, NsqPublisherSpecificationConfig]):
    @property
    def topic(self) -> str:
        return f"{self._outer_config.prefix}{self.config.topic}"

    @property
    def name(self) -> str:
        return self.config.title_ or f"{self.topic}:Publisher"

    def get_schema(self) -> dict[str, PublisherSpec]:
        payload = resolve_payloads(self.get_payloads(), "Publisher")
        return {
            self.name: PublisherSpec(
                address=self.topic,
                description=self.config.description_,
                operation=_operation(self.name, payload),
                bindings=None,
            )
        }


class NsqPublisher(PublisherUsecase):
    specification: NsqPublisherSpecification

    async def publish(self, message: Any, *, headers: dict[str, str] | None = None) -> None:
        command = PublishCommand(message, _publish_type=PublishType.PUBLISH, headers=headers)
        await self._publish(command, _extra_middlewares=())

    async def _publish(self, cmd: PublishCommand, *, _extra_middlewares: Iterable[Any]) -> None:
        cmd.destination = self.specification.topic
        await self._basic_publish(
            cmd, producer=self._outer_config.producer, _extra_middlewares=_extra_middlewares
        )

    async def request(self, message: Any, **_: Any) -> NoReturn:
        raise FeatureNotSupportedException("NSQ has no answers to wait for")


# --- subscribing ---


@dataclass(kw_only=True)
class NsqSubscriberConfig(SubscriberUsecaseConfig):
    parser: Any = parse
    decoder: Any = field(default_factory=lambda: DefaultCodec().decode)

    @property
    def ack_policy(self) -> AckPolicy:
        return AckPolicy.NACK_ON_ERROR if self._ack_policy is EMPTY else self._ack_policy


@dataclass(kw_only=True)
class NsqSubscriberSpecificationConfig(SubscriberSpecificationConfig):
    topic: str
    channel: str


class NsqSubscriberSpecification(SubscriberSpecification[Any, NsqSubscriberSpecificationConfig]):
    @property
    def topic(self) -> str:
        return f"{self._outer_config.prefix}{self.config.topic}"

    @property
    def channel_labels(self) -> list[str]:
        return [f"{self.topic}/{self.config.channel}"]

    def get_schema(self) -> dict[str, SubscriberSpec]:
        payload = resolve_payloads(self.get_payloads())
        return {
            self.name: SubscriberSpec(
                address=self.topic,
                description=self.description,
                operation=_operation(self.name, payload),
                bindings=None,
            )
        }


class NsqSubscriber(SubscriberUsecase[Message]):
    specification: NsqSubscriberSpecification

    def __init__(
        self, config: NsqSubscriberConfig, specification: NsqSubscriberSpecification,
        calls: CallsCollection[Message], concurrency: int, options: dict[str, Any],
    ) -> None:  # fmt: skip
        super().__init__(config, specification, calls)
        self._concurrency = concurrency
        self._options = options
        self._consumer: Consumer | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await super().start()
        broker, spec = self._outer_config, self.specification
        where = {"addresses": broker.addresses, "lookupds": broker.lookupds}
        self._consumer = Consumer(
            spec.topic, spec.config.channel, **where, envelope=True, **self._options
        )
        await self._consumer.start()
        self._post_start()
        self._task = asyncio.create_task(
            self._consumer.run(self._handle, concurrency=self._concurrency)
        )

    async def _handle(self, message: Message) -> None:
        await self.consume(message)
        if not message.settled:
            raise Requeue(backoff=self.running)

    async def stop(self) -> None:
        if self._consumer is not None and self._task is not None:
            self._consumer.stop()
            await self._consumer.close(self._outer_config.graceful_timeout)
            await self._task
        await super().stop()

    async def get_one(self, *, timeout: float = 5) -> NoReturn:
        raise FeatureNotSupportedException("a channel's messages go to all its subscribers")

    def __aiter__(self) -> AsyncIterator[StreamMessage[Message]]:
        raise FeatureNotSupportedException("use penstock.client.Consumer")

    def _make_response_publisher(self, message: StreamMessage[Message]) -> Sequence[FakePublisher]:
        return ()  # what a handler returns goes to its publishers

    def get_log_context(self, message: StreamMessage[Message] | None) -> dict[str, str]:
        spec = self.specification
        return {
            "topic": spec.topic,
            "channel": spec.config.channel,
            "message_id": message.message_id if message else "",
        }


# --- the broker ---


class LoggerStorage(DefaultLoggerStorage):
    def get_logger(self, *, context: Any) -> logging.Logger:
        return logging.getLogger("faststream.nsq")

    def register_subscriber(self, params: dict[str, Any]) -> None:
        """Its columns have no width of their own."""


class NsqBroker(BrokerUsecase[Message, Producer, NsqBrokerConfig]):
    def __init__(
        self,
        addresses: str | Sequence[str] = "127.0.0.1:4150",
        *,
        lookupds: Sequence[str] = (),
        middlewares: Sequence[Any] = (),
        dependencies: Sequence[Any] = (),
        graceful_timeout: float = 15.0,
        logger: Any = EMPTY,
    ) -> None:
        config = NsqBrokerConfig(
            addresses=addresses, lookupds=lookupds, broker_middlewares=middlewares,
            broker_dependencies=dependencies, graceful_timeout=graceful_timeout,
            extra_context={"broker": self},
            logger=make_logger_state(
                logger=logger, log_level=logging.INFO, default_storage_cls=LoggerStorage
            ),
        )  # fmt: skip
        self._nsq_producer = config.producer = NsqProducer(config)
        urls = [addresses] if isinstance(addresses, str) else list(addresses)
        spec = BrokerSpec(urls, "nsq", "V2", description=None, tags=(), security=None)
        super().__init__(config=config, specification=spec, routers=())

    def subscriber(  # type: ignore[override]
        self, topic: str, channel: str, *, concurrency: int = 1, ack_policy: AckPolicy = EMPTY,
        dependencies: Sequence[Any] = (), title: str | None = None,
        description: str | None = None, **options: Any,
    ) -> NsqSubscriber:  # fmt: skip
        """`options` are the consumer's: `max_attempts`, `max_in_flight`, `auto_touch`, ..."""
        calls = CallsCollection[Message]()
        config = NsqSubscriberConfig(_outer_config=self.config, _ack_policy=ack_policy)
        spec = NsqSubscriberSpecificationConfig(
            topic=topic, channel=channel, title_=title, description_=description
        )
        subscriber = NsqSubscriber(
            config, NsqSubscriberSpecification(self.config, spec, calls), calls, concurrency,
            options,
        )  # fmt: skip
        super().subscriber(subscriber)
        return subscriber.add_call(parser_=None, decoder_=None, dependencies_=dependencies)

    def publisher(  # type: ignore[override]
        self, topic: str, *, title: str | None = None, description: str | None = None,
        schema: Any = None,
    ) -> NsqPublisher:  # fmt: skip
        spec = NsqPublisherSpecificationConfig(
            topic=topic, title_=title, description_=description, schema_=schema
        )
        config = PublisherUsecaseConfig(_outer_config=self.config)
        publisher = NsqPublisher(config, NsqPublisherSpecification(self.config, spec))
        super().publisher(publisher)
        return publisher

    async def _connect(self) -> Producer:
        await self._nsq_producer.producer.start()
        return self._nsq_producer.producer

    async def start(self) -> None:
        await self.connect()
        await super().start()

    async def stop(self, *error: Any) -> None:
        await super().stop(*error)
        await self._nsq_producer.producer.close()

    async def ping(self, timeout: float | None = None) -> bool:
        return self._nsq_producer.producer.address is not None

    async def publish(  # type: ignore[override]
        self, message: Any, topic: str, *, headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
    ) -> None:  # fmt: skip
        command = PublishCommand(
            message, _publish_type=PublishType.PUBLISH, destination=topic, headers=headers,
            correlation_id=correlation_id,
        )  # fmt: skip
        await self._basic_publish(command, producer=self._nsq_producer)

    async def request(self, *_: Any, **__: Any) -> NoReturn:
        raise FeatureNotSupportedException("NSQ has no answers to wait for")


# --- a service ---


class Order(BaseModel):
    user: str
    total: float


def tax_rate() -> float:
    return 0.25


def service(address: str) -> FastStream:
    """In a project it stands in a module, for `faststream run module:app`."""
    broker = NsqBroker(address)
    app = FastStream(broker)

    @broker.subscriber("fs-orders", "billing", ack_policy=AckPolicy.REJECT_ON_ERROR)
    @broker.publisher("fs-invoices")
    async def invoice(order: Order, rate: Annotated[float, Depends(tax_rate)]) -> Order:
        return Order(user=order.user, total=order.total * (1 + rate))

    @broker.subscriber("fs-invoices", "mail", concurrency=10, requeue_delay_s=0.1)
    async def mail(order: Order, message: Annotated[NsqMessage, Context("message")]) -> None:
        raw = message.raw_message
        if raw.attempts == 1:
            raise ConnectionError("the mail server restarts")
        print(f"{raw.topic}: {order.user} pays {order.total}, attempt {raw.attempts}")
        app.exit()

    @app.after_startup
    async def publish() -> None:
        await broker.publish("no order", "fs-orders")  # the handler rejects it
        await broker.publish({"user": "anna", "total": "8"}, "fs-orders")

    return app


if __name__ == "__main__":
    asyncio.run(service(*sys.argv[1:] or ["127.0.0.1:4150"]).run())
