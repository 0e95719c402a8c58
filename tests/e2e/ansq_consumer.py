"""Consumes with ansq and prints one JSON line per delivery: `ansq_consumer.py OPTIONS`, as
`pynsq_consumer.py`, without `batch`. It ends with CLS and prints the answer to that too, unless it
found its nsqds through a lookupd."""

import asyncio
import json
import sys
import time
from typing import Any

import ansq
from ansq.tcp.types import NSQMessage

MESSAGE_TIMEOUT_MS = 2_000
TOUCH_EVERY_S = 0.9
TOUCHES = 3
LOOKUPD_POLL_MS = 500


async def consume(options: dict[str, Any]) -> None:
    if "lookupd" in options:
        await consume_from_all(options)
    else:
        await consume_from_one(options)


async def consume_from_all(options: dict[str, Any]) -> None:
    """With the reader of the library, one message at a time from each nsqd.

    It reads from a connection that was reset for ever, without a pause in which anything else
    could run; an end of the stream it understands.
    """
    asyncio.StreamReader.set_exception = lambda stream, error: stream.feed_eof()
    reader = await ansq.create_reader(
        topic=options["topic"],
        channel=options["channel"],
        lookupd_http_addresses=[options["lookupd"].removeprefix("http://")],
        lookupd_poll_interval=LOOKUPD_POLL_MS,
    )
    left = options["count"]
    polling = asyncio.create_task(keep_polling(reader))
    async for message in reader.messages():
        print(json.dumps({"body": message.body.decode(), "attempts": message.attempts}), flush=True)
        await message.fin()
        left -= 1
        if not left:
            break
    polling.cancel()
    await reader.close()


async def keep_polling(reader: ansq.tcp.reader.Reader) -> None:
    """The library's task that asks lookupd ends at the first nsqd that refuses a connection, as one
    does that was just killed; started again, it goes on."""
    while True:
        await asyncio.sleep(LOOKUPD_POLL_MS / 1000)
        await reader._lookupd.start_polling()


async def consume_from_one(options: dict[str, Any]) -> None:
    first = options.get("first", "finish")
    timeout_ms = MESSAGE_TIMEOUT_MS if first == "as it says" else 60_000
    features = ansq.ConnectionFeatures(heartbeat_interval=1_000, msg_timeout=timeout_ms)
    heartbeats = 0

    async def on_heartbeat(connection: Any) -> None:
        nonlocal heartbeats
        heartbeats += 1

    connection = await ansq.open_connection(
        "127.0.0.1",
        options["port"],
        connection_options=ansq.ConnectionOptions(
            features=features, auto_reconnect=False, on_heartbeat=on_heartbeat
        ),
    )
    await connection.subscribe(
        options["topic"], options["channel"], options.get("max_in_flight", 1)
    )
    finished = asyncio.Semaphore(0)

    async def read() -> None:
        async with asyncio.TaskGroup() as handling:
            while (message := await connection.wait_for_message()) is not None:
                event = {
                    "body": message.body.decode(),
                    "attempts": message.attempts,
                    "at": time.monotonic(),
                    "heartbeats": heartbeats,
                }
                print(json.dumps(event), flush=True)
                handling.create_task(handle(message, first, finished))
        raise ConnectionError("the daemon hung up")

    async def all_finished() -> None:
        for _ in range(options["count"]):
            await finished.acquire()

    both = [asyncio.create_task(read()), asyncio.create_task(all_finished())]
    done, (other,) = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    other.cancel()
    done.pop().result()
    answer = await connection.execute("CLS")
    print(json.dumps({"cls": answer.body.decode()}))
    await connection.close()


async def handle(message: NSQMessage, first: str, finished: asyncio.Semaphore) -> None:
    first = message.body.decode() if first == "as it says" else first
    if message.attempts == 1 and first == "requeue":
        await message.req(0)
    elif message.attempts == 1 and first == "requeue later":
        await message.req(1_000)
    elif message.attempts > 1 or first in ("finish", "touch"):
        for _ in range(TOUCHES if first == "touch" else 0):
            await message.touch()
            await asyncio.sleep(TOUCH_EVERY_S)
        await message.fin()
        finished.release()


if __name__ == "__main__":
    asyncio.run(consume(json.loads(sys.argv[1])))
