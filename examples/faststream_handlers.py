"""Handlers written for FastStream, over Penstock's consumers: its types and its dependencies.

python examples/faststream_handlers.py 127.0.0.1:4150

A handler takes the body, as the type that its first parameter names, and what it returns is
published. A body of another type is given up; any other exception brings the message back later.
FastStream's own app and broker classes are not used: a broker for it stands on what FastStream
keeps to itself (`faststream._internal`).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from typing import Annotated, Any

from fast_depends.exceptions import ValidationError
from faststream import Depends, apply_types
from pydantic import BaseModel

from penstock.client import Consumer, Message, Producer

Handler = Callable[..., Any]
_message: ContextVar[Message] = ContextVar("message")


def current_message() -> Message:
    """For handlers that depend on it."""
    return _message.get()


class Service:
    def __init__(self) -> None:
        self.producer: Producer
        self._consumers: list[tuple[str, str, Handler]] = []

    def subscriber(self, topic: str, channel: str, reply_to: str = "") -> Callable[..., Handler]:
        def register(function: Handler) -> Handler:
            injected = apply_types(function)

            async def handle(message: Message) -> None:
                _message.set(message)
                reply = await injected(message.json())
                if reply_to:
                    await self.producer.pub(reply_to, reply)

            self._consumers.append((topic, channel, handle))
            return function  # tests call it as it is

        return register

    @asynccontextmanager
    async def running(self, address: str) -> AsyncIterator[None]:
        """At the end messages in hand are handled, and the others given back."""
        async with AsyncExitStack() as stack:
            self.producer = await stack.enter_async_context(Producer(address))
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            for topic, channel, handle in self._consumers:
                consumer = Consumer(topic, channel, address)
                await stack.enter_async_context(consumer)
                wrong = {ValidationError: "give_up", ValueError: "give_up"}  # of type; no JSON
                tasks.create_task(consumer.run(handle, concurrency=10, on_error=wrong))
                stack.callback(consumer.stop)
            yield


# --- a service ---

service = Service()
paid = asyncio.Event()


class Order(BaseModel):
    user: str
    total: float


def tax_rate() -> float:
    return 0.25


@service.subscriber("fs-orders", "billing", reply_to="fs-invoices")
async def invoice(order: Order, rate: Annotated[float, Depends(tax_rate)]) -> Order:
    return Order(user=order.user, total=order.total * (1 + rate))


@service.subscriber("fs-invoices", "mail")
async def mail(order: Order, message: Annotated[Message, Depends(current_message)]) -> None:
    print(f"{message.topic}: {order.user} pays {order.total}, attempt {message.attempts}")
    paid.set()


async def main(address: str = "127.0.0.1:4150") -> None:
    async with service.running(address):
        for body in ('{"user": "ben"}', "no JSON", '{"user": "anna", "total": "8"}'):
            await service.producer.pub("fs-orders", body)
        await paid.wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
