"""A broker for taskiq: its tasks are messages of a topic, and its workers consumers of a channel.

python examples/taskiq_broker.py 127.0.0.1:4150 tasks

A task is finished when taskiq acknowledges it, and comes again when its worker dies. The label
`delay` (seconds) delays one. In a project, name the broker for `taskiq worker module:broker`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator

from taskiq import AckableMessage, AsyncBroker, BrokerMessage
from taskiq.api import run_receiver_task
from taskiq.brokers.inmemory_broker import InmemoryResultBackend

from penstock.client import Consumer, Producer


class PenstockBroker(AsyncBroker):
    def __init__(self, address: str, topic: str, channel: str = "workers") -> None:
        super().__init__()
        self._topic = topic
        self._producer = Producer(address)
        # Long tasks are touched, so that nsqd gives them to no other worker meanwhile.
        self._consumer = Consumer(topic, channel, address, auto_touch=True)

    async def startup(self) -> None:
        await super().startup()
        await self._producer.start()
        if self.is_worker_process:
            await self._consumer.start()

    async def shutdown(self) -> None:
        await super().shutdown()
        await self._consumer.close()
        await self._producer.close()

    async def kick(self, message: BrokerMessage) -> None:
        delay_s = float(message.labels.get("delay", 0))
        if delay_s:
            await self._producer.dpub(self._topic, message.message, delay_s)
        else:
            await self._producer.pub(self._topic, message.message)

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        async for message in self._consumer:
            yield AckableMessage(data=message.body, ack=message.fin)


async def add(one: int, two: int) -> int:
    return one + two


async def main(address: str = "127.0.0.1:4150", topic: str = "tasks") -> None:
    broker = PenstockBroker(address, topic).with_result_backend(InmemoryResultBackend())
    task = broker.register_task(add, task_name="add")
    broker.is_worker_process = True  # `taskiq worker` sets it; here all is one process
    await broker.startup()
    worker = asyncio.create_task(run_receiver_task(broker))
    now = await task.kiq(1, 2)
    later = await task.kicker().with_labels(delay=0.2).kiq(3, 4)
    for kicked in (now, later):
        print((await kicked.wait_result(timeout=20)).return_value)
    worker.cancel()
    await asyncio.wait([worker])
    await broker.shutdown()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
