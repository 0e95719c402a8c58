"""A web service with FastAPI: an endpoint publishes orders, a task beside it consumes them.

python examples/fastapi_app.py 127.0.0.1:4150
curl 127.0.0.1:8000/orders -H 'Content-Type: application/json' -d '{"number": 17, "total": 9.5}'

Ctrl-C ends it in order: requests are answered, handlers finish, and what nobody has taken goes back
to nsqd. Without nsqd it starts as well, and answers 503 until nsqd is there. In a project uvicorn
finds it by name: `uvicorn --factory module:service`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from penstock.client import ClientError, Consumer, Message, Producer


class Order(BaseModel):
    number: int
    total: float


async def bill(message: Message) -> None:
    order = message.json(Order)
    print(f"order {order.number}: {order.total} billed, attempt {message.attempts}")


async def not_stored(_: Request, error: Exception) -> JSONResponse:
    """For every endpoint. The reason also says when the outcome is not known."""
    return JSONResponse({"detail": str(error)}, status_code=503)


def service(address: str = "127.0.0.1:4150", topic: str = "web-orders") -> FastAPI:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[dict[str, Producer]]:
        # They end from the right: the consumer, then its task, then what its handlers publish with.
        producer = Producer(address, connect_required=False, publish_timeout_s=2)
        consumer = Consumer(topic, "billing", address, connect_required=False, auto_touch=True)
        async with producer, asyncio.TaskGroup() as tasks, consumer:
            tasks.create_task(consumer.run(bill, concurrency=4))
            yield {"producer": producer}
        print("finished", consumer.counts.finished)

    app = FastAPI(title="Orders", lifespan=lifespan, exception_handlers={ClientError: not_stored})

    @app.post("/orders", status_code=202)
    async def take(order: Order, request: Request) -> Order:
        await request.state.producer.pub(topic, order)
        return order  # nsqd has stored it

    return app


def main(address: str = "127.0.0.1:4150", port: str = "8000") -> None:
    uvicorn.run(service(address), port=int(port), access_log=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
