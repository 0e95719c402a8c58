"""`nsq_to_file`: archive the messages of topics in files, a line each: the body as it is, or with
`--output-format=json` an object that has the headers, too.

A message is finished only after an fsync of the file that holds it. A sync is made when as many
messages wait for one as a connection may have in flight, after `--sync-interval`, and for the first
message of each file. SIGHUP makes everything safe and goes on in new files. A failed write ends the
program with exit code 1: what was not finished comes again.
"""

import asyncio
import logging
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from penstock import limits
from penstock.client import Message
from penstock.client.discovery import base_url, topics_in
from penstock.command.flags import Flag, Kind
from penstock.errors import FetchFailed
from penstock.tools import utility
from penstock.tools.archive_file import DIRECTORY_MODE, ArchiveFile, Layout
from penstock.tools.envelopes import as_json, as_text
from penstock.tools.output import WrongUse
from penstock.tools.utility import Stop, Values

log = logging.getLogger("penstock.tools")

PROGRAM = "nsq_to_file"
RAW, JSON = "raw", "json"
ROTATION_LOOK_S = 0.5  # how often a file is asked whether its time has come

FLAGS = (
    *utility.COMMON,
    Flag("log-prefix", Kind.STRING, f"[{PROGRAM}] ", "log message prefix"),
    utility.TOPICS,
    Flag("topic-pattern", Kind.STRING, "", "also topics that match this regular expression; new "
         "ones are looked for (needs --lookupd-http-address)"),
    Flag("topic-refresh", Kind.DURATION, 60 * limits.SECOND, "how often they are looked for",
         bounds=(1, None)),
    Flag("channel", Kind.STRING, "nsq_to_file", "NSQ channel"),
    utility.IN_FLIGHT,
    Flag("output-dir", Kind.STRING, "/tmp", "directory of complete files"),
    Flag("work-dir", Kind.STRING, "", "directory of files in work (default: the output directory)"),
    Flag("datetime-format", Kind.STRING, "%Y-%m-%d_%H", "strftime format of <DATETIME>; a new "
         "value is a new file"),
    Flag("filename-format", Kind.STRING, "<TOPIC>.<HOST><REV>.<DATETIME>.log", "of <TOPIC>, <HOST>,"
         " <PID>, <DATETIME> and <REV>, which tells files of the same name apart"),
    Flag("host-identifier", Kind.STRING, "", "for <HOST>; may hold <SHORT_HOST> and <HOSTNAME>"),
    Flag("output-format", Kind.STRING, RAW, "of a line: raw (the body), or json (an object with "
         "key, headers, partition, id and time, too)", choices=(RAW, JSON)),
    Flag("gzip", Kind.BOOL, False, "gzip the files"),
    Flag("gzip-level", Kind.INT, 6, "1 to 9", bounds=(1, 9)),
    Flag("skip-empty-files", Kind.BOOL, False, "make no file before there is a message for it"),
    Flag("rotate-size", Kind.INT, 0, "a new file when this many bytes are written (0: off)",
         bounds=(0, None)),
    Flag("rotate-interval", Kind.DURATION, 0, "a new file after this long (0: off)",
         bounds=(0, None)),
    Flag("sync-interval", Kind.DURATION, 30 * limits.SECOND, "the longest time between fsyncs",
         bounds=(1, None)),
    *utility.SOURCE,
    utility.REQUEST_TIMEOUT,
)  # fmt: skip


def _check(values: Values) -> None:
    pattern = values["topic_pattern"]
    if not pattern or values["topic"]:
        utility.need_names("topic", *values["topic"])
    utility.check_consumers(
        PROGRAM, values, envelope=values["output_format"] == JSON,
        auto_touch=True,  # a message may wait longer for its sync than its timeout
    )  # fmt: skip
    if pattern and not values["lookupd_http_address"]:
        raise WrongUse("--topic-pattern needs --lookupd-http-address")
    try:
        values["pattern"] = re.compile(pattern) if pattern else None
    except re.error as error:
        raise WrongUse(f"--topic-pattern {pattern!r}: {error}") from error
    values["layout"] = _layout(values)
    _need_directories(values["layout"])


def _need_directories(layout: Layout) -> None:
    """Missing ones are created; an unwritable one fails now, not at the first message."""
    for flag, path in (("output-dir", layout.output_dir), ("work-dir", layout.work_dir)):
        try:
            path.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
        except OSError as error:
            raise WrongUse(f"--{flag} {path}: cannot be made: {error.strerror}") from error
        if not os.access(path, os.W_OK | os.X_OK):
            raise WrongUse(f"--{flag} {path}: cannot be written to")


def _layout(values: Values) -> Layout:
    hostname = socket.gethostname()
    short = hostname.partition(".")[0]
    host = values["host_identifier"] or "<SHORT_HOST>"
    return Layout(
        output_dir=Path(values["output_dir"]),
        work_dir=Path(values["work_dir"] or values["output_dir"]),
        filename_format=values["filename_format"],
        datetime_format=values["datetime_format"],
        host=host.replace("<SHORT_HOST>", short).replace("<HOSTNAME>", hostname),
        gzip_level=values["gzip_level"] if values["gzip"] else 0,
        rotate_bytes=values["rotate_size"],
        rotate_ns=values["rotate_interval_ns"],
        skip_empty=values["skip_empty_files"],
    )


class Archiver:
    """One topic: a consumer, a file, and the messages that wait for a sync."""

    def __init__(self, topic: str, values: Values) -> None:
        self.topic = topic
        self.consumer = utility.consumer(topic, values)
        self._is_json = values["output_format"] == JSON
        self._file = ArchiveFile(topic, values["layout"], time.time_ns)
        self._in_flight_max: int = values["changes"]["max_in_flight"]
        self._sync_s = values["sync_interval_ns"] / limits.SECOND
        self._waiting: list[Message] = []  # written, not safe
        self._lock = asyncio.Lock()  # of the file: its calls run in a thread, one at a time
        self._synced_s = time.monotonic()

    async def run(self) -> None:
        """Until the consumer is stopped. Raises OSError when something can't be written."""
        try:
            async with asyncio.TaskGroup() as tasks:
                looking = tasks.create_task(self._look())
                await self._write()
                await self.close_file()
                looking.cancel()
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _write(self) -> None:
        async for message in self.consumer:
            async with self._lock:
                await self._rotate_if_due()
                first = self._file.write(self._line(message))
                self._waiting.append(message)
                # so many stand still on one connection at most: it must not run dry
                enough = self._in_flight_max // max(1, len(self.consumer.addresses))
                if first or len(self._waiting) >= max(1, enough):
                    await self._safely(self._file.sync)

    def _line(self, message: Message) -> bytes:
        if not self._is_json:
            return message.body
        return as_text({"topic": message.topic, **as_json(message)}).encode()

    async def _look(self) -> None:
        """Work that depends on time alone."""
        while True:
            await asyncio.sleep(min(ROTATION_LOOK_S, self._sync_s))
            async with self._lock:
                await self._rotate_if_due()
                if self._waiting and time.monotonic() - self._synced_s >= self._sync_s:
                    await self._safely(self._file.sync)

    async def _rotate_if_due(self) -> None:
        if self._file.due:
            await self._safely(self._file.rotate)

    async def close_file(self) -> None:
        """Everything is safe and finished; the next message begins a new file."""
        async with self._lock:
            await self._safely(self._file.close)

    async def _safely(self, work: Callable[[], object]) -> None:
        """Finish the waiting messages, once `work` has made them durable."""
        await asyncio.to_thread(work)
        self._synced_s = time.monotonic()
        waiting, self._waiting = self._waiting, []
        for message in waiting:
            message.fin()


class Archive:
    """All topics. The first failure of one ends all."""

    def __init__(self, values: Values, stop: Stop) -> None:
        self._values = values
        self._stop = stop
        self._archivers: dict[str, Archiver] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def add(self, topic: str) -> None:
        if topic in self._archivers:
            return
        archiver = self._archivers[topic] = Archiver(topic, self._values)
        await archiver.consumer.start()
        self._begin(archiver.run())

    def reopen(self) -> None:
        log.info("SIGHUP: new files")
        for archiver in self._archivers.values():
            self._begin(archiver.close_file())

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self._stop.fail(error)

    async def close(self) -> None:
        for archiver in self._archivers.values():
            archiver.consumer.stop()
        if self._tasks:
            await asyncio.wait(self._tasks)
        # After a failure nothing in hand will ever be safe: there is nothing to wait for.
        timeout_s = None if self._stop.failure is None else 0.0
        await asyncio.gather(*(one.consumer.close(timeout_s) for one in self._archivers.values()))


async def _main(values: Values, stop: Stop) -> None:
    archive = Archive(values, stop)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, archive.reopen)
    try:
        for topic in dict.fromkeys(values["topic"]):
            await archive.add(topic)
        if values["pattern"] is not None:
            await _follow(values, archive, stop)
        await stop.wait()
    finally:
        await archive.close()


async def _follow(values: Values, archive: Archive, stop: asyncio.Event) -> None:
    """Take up topics that match the pattern as lookupds come to know them."""
    async with utility.fetching(values) as fetcher:
        while not stop.is_set():
            for lookupd in values["lookupd_http_address"]:
                try:
                    document = await fetcher.get_json(f"{base_url(lookupd)}/topics")
                except FetchFailed as error:
                    log.warning("%s", error)
                    continue
                for topic in filter(values["pattern"].search, topics_in(document)):
                    await archive.add(topic)
            await utility.pause(stop, values["topic_refresh_ns"] / limits.SECOND)


main = utility.entry(PROGRAM, FLAGS, _check, _main)
