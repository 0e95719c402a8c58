"""`nsq_tail`: print the messages of topics as they come, each with a newline.

Without a channel of its own name it uses a new ephemeral one, which sees what is published from now
on and is gone when the tail ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from collections.abc import Sequence
from typing import BinaryIO

from penstock.client import Consumer
from penstock.command.flags import Flag, Kind
from penstock.tools.client_options import consumer_changes
from penstock.tools.envelopes import as_text, carried
from penstock.tools.output import WrongUse
from penstock.tools.utility import (
    CONNECT_TIMEOUT,
    CONSUMER_OPT,
    LOG_LEVEL,
    LOOKUPD_HTTP,
    NSQD_TCP,
    VERSION,
    Values,
    need_names,
    need_source,
    run_utility,
    user_agent,
)

PROGRAM = "nsq_tail"

FLAGS = (
    VERSION,
    LOG_LEVEL,
    Flag("topic", Kind.STRINGS, (), "NSQ topic (may be repeated)"),
    Flag("channel", Kind.STRING, "", "NSQ channel (default: an ephemeral one of its own)"),
    Flag("max-in-flight", Kind.INT, 200, "max number of messages to allow in flight"),
    Flag("n", Kind.INT, 0, "stop after this many messages (0: go on)"),
    Flag("print-topic", Kind.BOOL, False, "print the topic's name before each message"),
    Flag("print-headers", Kind.BOOL, False, "print key and headers as JSON before each message"),
    NSQD_TCP,
    LOOKUPD_HTTP,
    CONSUMER_OPT,
    CONNECT_TIMEOUT,
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


def main(argv: Sequence[str] | None = None) -> int:
    return run_utility(PROGRAM, FLAGS, argv, _check, _main)


def _check(values: Values) -> None:
    values["channel"] = values["channel"] or f"tail{random.randrange(10**6):06d}#ephemeral"
    need_names("topic", *values["topic"])
    need_names("channel", values["channel"])
    need_source(values)
    if values["n"] < 0:
        raise WrongUse(f"--n {values['n']}: must be 0 or more")
    if values["max_in_flight"] < 1:
        raise WrongUse(f"--max-in-flight {values['max_in_flight']}: must be 1 or more")
    if values["n"]:
        values["max_in_flight"] = min(values["max_in_flight"], values["n"])
    values["changes"] = {
        "envelope": values["print_headers"],
        "user_agent": user_agent(PROGRAM),
        "max_in_flight": values["max_in_flight"],
        **consumer_changes(values["consumer_opt"]),
    }


async def _main(values: Values, stop: asyncio.Event) -> int:
    printer = Printer(sys.stdout.buffer, values["n"], stop)
    async with contextlib.AsyncExitStack() as stack:
        for topic in values["topic"]:
            consumer = Consumer(
                topic,
                values["channel"],
                values["nsqd_tcp_address"],
                lookupds=values["lookupd_http_address"],
                **values["changes"],
            )
            await stack.enter_async_context(consumer)
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


if __name__ == "__main__":
    sys.exit(main())
