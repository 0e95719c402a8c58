"""`penstock migrate`: the data of an official nsqd into ours without a daemon, and back.

Nothing is needed for an upgrade: `nsqd` does the same at its first start on the old data path. This
is for those who want to look first (`--dry-run`), to keep the old path as it is (`--to`), or to do
it at a time of their own (`--in-place`).
"""

import logging
import os
import socket
import sys
import time
from collections.abc import Iterator
from typing import Annotated

import msgspec

from penstock import limits
from penstock.clock import SystemClock
from penstock.command import terminal
from penstock.errors import ConfigError, StorageError
from penstock.ids.guid import check_node_id
from penstock.log.disk import OsDisk, lock_directory
from penstock.nsqd.options import default_node_id
from penstock.takeover.diskqueue import FILE_BYTES_MAX
from penstock.takeover.diskrecords import SPANS_SHOWN_MAX
from penstock.takeover.takeover import Report, Takeover, count
from penstock.takeover.topicbuild import BuildSettings
from penstock.takeover.writeback import WriteBack, WriteBackReport
from penstock.tools.app import app, arg, opt, switch, verb
from penstock.tools.output import INTERRUPTED, Output, WrongUse


@verb(app, "migrate /var/lib/nsq --dry-run", "migrate /var/lib/nsq --to /var/lib/penstock")
def migrate(
    path: Annotated[str, arg("DATA_PATH", "where the messages are now")],
    to: Annotated[str, opt("NEW_PATH", "write there; DATA_PATH stays as it is")] = "",
    in_place: Annotated[bool, switch("into DATA_PATH; nsqd's files go to nsqd-old/")] = False,
    write_back: Annotated[bool, switch("the way back (needs --to)")] = False,
    dry_run: Annotated[bool, switch("read all of it, write nothing")] = False,
    all_bad: Annotated[bool, switch("read .bad files from their beginning")] = False,
    node_id: Annotated[int | None, opt("N", "for new ids (default: as nsqd's)")] = None,
    max_bytes_per_file: Annotated[
        int, opt("N", "of --write-back: nsqd's flag of that name", min=1)
    ] = FILE_BYTES_MAX,
) -> int | Output:
    """Convert the data of an official nsqd, or write Penstock's back into its format.

    No nsqd may run on either path. Nothing is deleted, and an interrupted run can be run again."""
    if to and in_place:
        raise WrongUse("--to cannot go together with --in-place")
    if write_back and (not to or dry_run):
        raise WrongUse("--write-back needs --to NEW_PATH, and has no --dry-run")
    if not (to or in_place or dry_run):
        raise WrongUse("DATA_PATH needs --to, --in-place or --dry-run")
    logging.getLogger("penstock").addHandler(logging.NullHandler())  # the report says it all
    source = os.path.abspath(path)
    if not os.path.isdir(source):
        raise StorageError(source, "there is no such directory")
    try:
        if write_back:
            written = _write_back(source, os.path.abspath(to), max_bytes_per_file)
            return Output(msgspec.to_builtins(written), write_back_lines(written))
        if dry_run:
            report = count(OsDisk(), source, all_bad)
        else:
            report = _take_over(source, os.path.abspath(to) if to else source, node_id, all_bad)
        return Output(msgspec.to_builtins(report), report_lines(report, dry_run))
    except KeyboardInterrupt:
        print("penstock migrate: interrupted; nothing is lost, run it again", file=sys.stderr)
        return INTERRUPTED


# --- into ours ---


def _take_over(source: str, target: str, node_id: int | None, all_bad: bool) -> Report:
    _check_apart(source, target)
    node_id = default_node_id(socket.gethostname()) if node_id is None else node_id
    settings = BuildSettings(check_node_id(node_id), SystemClock(), all_bad=all_bad)
    disk = OsDisk()
    disk.mkdir(target)
    lock = lock_directory(disk, target)
    try:
        with terminal.Progress("bytes read") as bar:
            settings.on_progress = lambda far: bar.show(far.bytes_done, far.bytes_total)
            report = Takeover(disk, source, target, settings).run()
    finally:
        lock.release()
    if report is None:
        raise StorageError(source, "there is no data of an official nsqd")
    return report


def _check_apart(source: str, target: str) -> None:
    if source != target and os.path.commonpath([source, target]) in (source, target):
        raise ConfigError("--to", target, "must lie apart from DATA_PATH")


def report_lines(report: Report, is_dry_run: bool) -> Iterator[str]:
    counts = ("messages", "body_bytes", "passed_bytes", "bad_bytes")
    queues = [queue for topic in report.topics for queue in topic.queues]
    rows = [[one.name, *(f"{getattr(one.found, name):,}" for name in counts)] for one in queues]
    yield from terminal.table(["queue", "messages", "bytes", "consumed", "bad bytes"], rows)
    for note in report.notes:
        yield f"note: {note}"
    for queue in queues:
        yield from (f"note: {queue.name}: {note}" for note in queue.found.notes)
        if queue.found.ids_lost:
            yield f"note: {queue.name}: {queue.found.ids_lost:,} messages get new ids"
        for span in queue.found.bad:
            yield f"bad:  {span.file}: bytes {span.start} to {span.end - 1} hold no message"
        if queue.found.bad_spans > SPANS_SHOWN_MAX:
            yield f"bad:  {queue.name}: and {queue.found.bad_spans - SPANS_SHOWN_MAX:,} more"
    if is_dry_run:
        yield "nothing was written"
        return
    yield f"{report.messages:,} messages are stored"
    if report.aside:
        aside = os.path.join(report.source, report.aside)
        yield f"nsqd's files are kept in {aside}; remove it when they are not wanted any more"


# --- and back ---


def _write_back(source: str, target: str, max_bytes_per_file: int) -> WriteBackReport:
    _check_apart(source, target)
    if source == target:
        raise ConfigError("--to", target, "must be another directory")
    with terminal.Progress("messages read") as bar:
        return WriteBack(
            OsDisk(), source, target, time.time_ns(), max_bytes_per_file, bar.show
        ).run()


def write_back_lines(report: WriteBackReport) -> Iterator[str]:
    queues = [queue for topic in report.topics for queue in topic.queues]
    rows = [[one.name, f"{one.messages:,}", f"{one.delayed:,}"] for one in queues]
    yield from terminal.table(["queue", "messages", "delays lost"], rows)
    for note in report.notes:
        yield f"note: {note}"
    for topic in report.topics:
        for number, start, end in topic.damaged:
            where = f"{topic.name}: partition {number}, offsets {start} to {end - 1}"
            yield f"bad:  {where} are damaged and left out"
        if topic.with_extras:
            yield f"note: {topic.name}: {topic.with_extras:,} keys, headers or trace ids are lost"
    if report.largest_bytes > limits.MESSAGE_BYTES_MAX:
        yield f"note: start nsqd with -max-msg-size={report.largest_bytes} or more"
    yield f"{report.messages:,} messages are in {report.target}"
    if any(queue.delayed for queue in queues):
        yield "nsqd's files know no delays: what was delayed is delivered at once"
