"""`nsq_tail`: print the messages of topics as they come, each with a newline.

Without a channel of its own name it uses a new ephemeral one, which sees what is published from now
on and is gone when the tail ends.
"""

import asyncio
import random
import sys
from collections.abc import Callable, Sequence

from penstock.client import Consumer, Message
from penstock.command.flags import Flag, Kind
from penstock.tools import utility
from penstock.tools.envelopes import as_text, carried
from penstock.tools.utility import Stop, Values

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
    """Writes lines, and flushes once a turn of the loop: the output is in the pipe before the loop
    waits again."""

    def __init__(self, count_max: int, stop: Stop) -> None:
        self._out = sys.stdout.buffer
        self._left = count_max or -1
        self._stop = stop
        self._loop = asyncio.get_running_loop()
        self._flushing = False

    def write(self, line: bytes) -> bool:
        """False: enough has been printed, this one was not."""
        if self._left == 0 or self._stop.failure is not None:
            return False
        self._left -= 1
        try:
            self._out.write(line + b"\n")
        except OSError as error:
            self._stop.fail(error)
            return False
        if self._left == 0:
            self._flush()
            self._stop.set()
        elif not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)
        return True

    def _flush(self) -> None:
        self._flushing = False
        try:
            self._out.flush()
        except OSError as error:
            self._stop.fail(error)


async def print_messages(
    consumers: Sequence[Consumer], line_of: Callable[[Message], bytes], count_max: int, stop: Stop
) -> None:
    """Each as a line, as they come, until the stop, or until so many are printed (0: no end)."""
    printer = Printer(count_max, stop)

    async def handle(message: Message) -> None:
        if not printer.write(line_of(message)):
            message.req()

    await utility.consume_until(stop, [(consumer, handle) for consumer in consumers])


def _check(values: Values) -> None:
    values["channel"] = values["channel"] or f"tail{random.randrange(10**6):06d}#ephemeral"
    utility.need_names("topic", *values["topic"])
    if values["n"]:
        values["max_in_flight"] = min(values["max_in_flight"], values["n"])
    utility.check_consumers(PROGRAM, values, envelope=values["print_headers"])


async def _main(values: Values, stop: Stop) -> None:
    def line_of(message: Message) -> bytes:
        head = f"{message.topic} | " if values["print_topic"] else ""
        head += f"{as_text(carried(message))} | " if values["print_headers"] else ""
        return head.encode("utf-8", "backslashreplace") + message.body

    consumers = [utility.consumer(topic, values) for topic in values["topic"]]
    await print_messages(consumers, line_of, values["n"], stop)


main = utility.entry(PROGRAM, FLAGS, _check, _main)
