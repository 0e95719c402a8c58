"""`to_nsq`: publish each record of the standard input to every named nsqd.

Records end at a delimiter byte; empty ones are left out, a last one without a delimiter is whole.
It ends at the end of the input, when all of them have said OK.
"""

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Mapping, Sequence

from penstock import limits
from penstock.client import Producer
from penstock.client.publishing import To
from penstock.command import terminal
from penstock.command.flags import Flag, Kind
from penstock.errors import PenstockError
from penstock.tools import utility
from penstock.tools.envelopes import read_headers
from penstock.tools.output import WrongUse
from penstock.tools.utility import Stop, Values

PROGRAM = "to_nsq"
READ_BYTES = 64 * limits.KIB
CHUNKS_AHEAD = 4  # read before they are published
UNANSWERED_MAX = 1000  # publishes on their way to one nsqd
RATE_STEPS = 20  # a second of a limited rate is so many small bursts

FLAGS = (
    *utility.COMMON,
    Flag("topic", Kind.STRING, "", "NSQ topic to publish to"),
    Flag("delimiter", Kind.STRING, "\n", "byte that ends a record (default: newline)"),
    Flag("key", Kind.STRING, "", "key of all messages: it chooses their partition"),
    Flag("header", Kind.REPEATED, (), "header of all messages, as NAME=VALUE (may be repeated)"),
    Flag("rate", Kind.INT, 0, "records a second (0: as fast as it goes)", bounds=(0, None)),
    utility.NSQD_TCP,
    utility.PRODUCER_OPT,
)
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\r": "\r", "\\0": "\0"}


def _check(values: Values) -> None:
    utility.need_names("topic", values["topic"])
    if not values["nsqd_tcp_address"]:
        raise WrongUse("--nsqd-tcp-address required")
    given: str = values["delimiter"]
    delimiter = _ESCAPES.get(given, given)
    values["delimiter_byte"] = delimiter.encode("utf-8", "surrogateescape")
    if len(values["delimiter_byte"]) != 1:
        raise WrongUse(f"--delimiter {values['delimiter']!r}: must be a single byte")
    values["headers"] = read_headers(values["header"], values["key"] or None)
    utility.check_producers(PROGRAM, values)


class Records:
    """Cuts bytes into records, in any pieces."""

    def __init__(self, delimiter: bytes) -> None:
        self._delimiter = delimiter
        self._begun: list[bytes] = []  # joined once: a record may be a gigabyte

    def feed(self, data: bytes) -> list[bytes]:
        first, *others = data.split(self._delimiter)
        self._begun.append(first)
        if not others:
            return []
        whole = [b"".join(self._begun), *others[:-1]]
        self._begun = others[-1:]
        return [record for record in whole if record]


class Input:
    """Reads a descriptor in a thread of its own: a read of a terminal, a pipe or a file may block
    for ever, and must not keep a signal from ending the program."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._room = threading.Semaphore(CHUNKS_AHEAD)
        self._chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue()
        threading.Thread(target=self._read, daemon=True, name="input").start()

    def _read(self) -> None:
        chunk: bytes | OSError = b"x"
        while chunk and not isinstance(chunk, OSError):
            self._room.acquire()
            try:
                chunk = os.read(self._descriptor, READ_BYTES)
            except OSError as error:
                chunk = error
            with contextlib.suppress(RuntimeError):  # the loop has ended before the input
                self._loop.call_soon_threadsafe(self._chunks.put_nowait, chunk)

    async def next(self) -> bytes:
        """Empty at the end. Raises OSError."""
        chunk = await self._chunks.get()
        self._room.release()
        if isinstance(chunk, OSError):
            raise chunk
        return chunk


class Publisher:
    def __init__(
        self, topic: str, headers: Mapping[str, str], producers: Sequence[Producer], stop: Stop
    ) -> None:
        self.published = 0  # records that every nsqd has said OK to
        self._topic = topic
        self._to: To = {"headers": headers} if headers else {}
        self._producers = producers
        self._stop = stop
        self._unanswered = 0
        self._room = asyncio.Event()

    async def publish(self, record: bytes) -> None:
        await self.settle(UNANSWERED_MAX - 1)
        if self._stop.failure is not None:
            return
        self._unanswered += 1
        left = len(self._producers)

        def answered(done: asyncio.Future[None]) -> None:
            nonlocal left
            left -= 1
            if not done.cancelled() and (error := done.exception()):
                self._stop.fail(error)
                self._room.set()
            if left == 0:
                self._unanswered -= 1
                self.published += self._stop.failure is None
                self._room.set()

        for producer in self._producers:
            producer.pub(self._topic, record, **self._to).add_done_callback(answered)

    async def settle(self, left: int = 0) -> None:
        """Wait for the answers, but for so many."""
        while self._unanswered > left and self._stop.failure is None:
            self._room.clear()
            await self._room.wait()


async def _main(values: Values, stop: Stop) -> None:
    async with contextlib.AsyncExitStack() as stack:
        producers = [
            await stack.enter_async_context(Producer(address, **values["producer_changes"]))
            for address in dict.fromkeys(values["nsqd_tcp_address"])
        ]
        publisher = Publisher(values["topic"], values["headers"], producers, stop)
        await _publish_input(values, publisher, stop)
        if stop.failure is not None:
            text = f"{stop.failure} (published before that: {publisher.published})"
            raise PenstockError(text) from stop.failure


async def _publish_input(values: Values, publisher: Publisher, stop: asyncio.Event) -> None:
    source, records = Input(sys.stdin.fileno()), Records(values["delimiter_byte"])
    stopping = asyncio.create_task(stop.wait())
    with terminal.Progress("published") as progress:
        while not stop.is_set():
            reading = asyncio.create_task(source.next())
            await asyncio.wait([reading, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                reading.cancel()
                break
            data = reading.result()
            found = records.feed(data or values["delimiter_byte"])
            await _publish_all(values["rate"], found, publisher, stop)
            progress.show(publisher.published)
            if not data:
                break
        await publisher.settle()
    stopping.cancel()


async def _publish_all(
    rate: int, bodies: list[bytes], publisher: Publisher, stop: asyncio.Event
) -> None:
    burst = max(1, rate // RATE_STEPS) if rate else len(bodies)
    for start in range(0, len(bodies), burst or 1):
        for body in bodies[start : start + burst]:
            await publisher.publish(body)
        if stop.is_set() or (rate and not await utility.pause(stop, burst / rate)):
            return


main = utility.entry(PROGRAM, FLAGS, _check, _main)
