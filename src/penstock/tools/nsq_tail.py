"""`nsq_tail`: print the messages of topics as they come, each with a newline.

Without a channel of its own name it uses a new ephemeral one, which sees what is published from now
on and is gone when the tail ends.
"""

import asyncio
import contextlib
import random
import sys
from typing import BinaryIO

from penstock.client import Consumer
from penstock.command.flags import Flag, Kind
from penstock.tools import utility
from penstock.tools.envelopes import as_text, carried
from penstock.tools.utility import Values

PROGRAM = "nsq_tail"

FLAGS = (
    *utility.COMMON,
    utility.TOPICS,
    Flag("channel", Kind.STRING, "", "NSQ channel (default: an ephemeral one of its own)"),
    utility.IN_FLIGHT,
    Flag("n", Kind.INT, 0, "stop after this many messages (0: go on)", bounds=(0, None)),
    Flag("print-topic", Kind.BOOL, False, "print the topic's name before each message"),
    Flag("print-headers", Kind.BOOL, False, "print key and headers as JSON before each message"),
    *utility.SOURCE,
)


class Printer:
    """Writes messages, and flushes once a turn of the loop: what is printed is in the pipe before
    the loop waits again."""

    def __init__(self, out: BinaryIO, count_max: int, end: asyncio.Event) -> None:
        self._out = out
        self._left = count_max or -1
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._flushing = False
        self.error: OSError | None = None

    def write(self, head: bytes, body: bytes) -> bool:
        """False: enough has been printed, this one was not."""
        if self._left == 0 or self.error is not None:
            return False
        self._left -= 1
        self._out.write(head + body + b"\n")
        if self._left == 0:
            self._flush()
            self._end.set()
        elif not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)
        return True

    def _flush(self) -> None:
        self._flushing = False
        try:
            self._out.flush()
        except OSError as error:
            self.error = error
            self._end.set()


def _check(values: Values) -> None:
    values["channel"] = values["channel"] or f"tail{random.randrange(10**6):06d}#ephemeral"
    utility.need_names("topic", *values["topic"])
    if values["n"]:
        values["max_in_flight"] = min(values["max_in_flight"], values["n"])
    utility.check_consumers(PROGRAM, values, envelope=values["print_headers"])


async def _main(values: Values, stop: asyncio.Event) -> int:
    printer = Printer(sys.stdout.buffer, values["n"], stop)
    async with contextlib.AsyncExitStack() as stack:
        for topic in values["topic"]:
            consumer = await stack.enter_async_context(utility.consumer(topic, values))
            head = f"{topic} | ".encode() if values["print_topic"] else b""
            task = asyncio.create_task(_print(consumer, head, values["print_headers"], printer))
            stack.push_async_callback(_cancel, task)
        await stop.wait()
    if printer.error is not None:
        raise printer.error
    return 0


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


async def _print(consumer: Consumer, head: bytes, headers: bool, printer: Printer) -> None:
    async for message in consumer:
        front = head
        if headers:
            front += f"{as_text(carried(message))} | ".encode("utf-8", "backslashreplace")
        if printer.write(front, message.body):
            message.fin()
        else:
            message.req()


main = utility.entry(PROGRAM, FLAGS, _check, _main)

if __name__ == "__main__":
    sys.exit(main())
