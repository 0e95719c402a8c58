"""`penstock migrate`: the data of an official nsqd into ours without a daemon, and back.

Nothing is needed for an upgrade: `nsqd` does the same at its first start on the old data path. This
is for those who want to look first (`--dry-run`), to keep the old path as it is (`--to`), or to do
it at a time of their own (`--in-place`).
"""

from __future__ import annotations

import argparse
import logging
import os
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from penstock import limits
from penstock.clock import SystemClock
from penstock.command import terminal
from penstock.errors import ConfigError, StorageError
from penstock.ids.guid import check_node_id, default_node_id
from penstock.log.disk import OsDisk, lock_directory
from penstock.takeover.diskqueue import FILE_BYTES_MAX
from penstock.takeover.diskrecords import SPANS_SHOWN_MAX
from penstock.takeover.takeover import Report, Takeover, count
from penstock.takeover.topicbuild import BuildSettings, Progress
from penstock.takeover.writeback import WriteBack, WriteBackReport
from penstock.tools.verbs import DONE, INTERRUPTED, USAGE, VerbParser, print_json, run_verb


def parser() -> argparse.ArgumentParser:
    parser = VerbParser(
        prog="penstock migrate",
        description="Take the data path of an official nsqd over, or write ours back into nsqd's "
        "format. No nsqd may run on either path. Nothing is deleted, and an interrupted run can be "
        "run again.",
        examples=[
            "penstock migrate /var/lib/nsq --dry-run",
            "penstock migrate /var/lib/nsq --to /var/lib/penstock",
        ],
    )
    parser.add_argument("path", metavar="DATA_PATH", help="where the messages are now")
    parser.add_argument("--to", metavar="NEW_PATH", help="write there; DATA_PATH stays as it is")
    parser.add_argument(
        "--in-place",
        action="store_true",
        help="into DATA_PATH itself, as nsqd's first start would; nsqd's files go to nsqd-old/",
    )
    parser.add_argument("--write-back", action="store_true", help="the way back (needs --to)")
    parser.add_argument("--dry-run", action="store_true", help="read all of it, write nothing")
    parser.add_argument(
        "--all-bad",
        action="store_true",
        help="read .bad files from their beginning, also what nsqd had read of them",
    )
    parser.add_argument("--node-id", type=int, help="for new ids (default: as nsqd's)")
    parser.add_argument(
        "--max-bytes-per-file",
        type=int,
        default=FILE_BYTES_MAX,
        metavar="N",
        help="of --write-back: nsqd's flag of that name",
    )
    parser.add_argument("--json", action="store_true", help="the report for scripts")
    return parser


def migrate_main(argv: Sequence[str]) -> int:
    logging.getLogger("penstock").addHandler(logging.NullHandler())  # the report says it all
    return run_verb(parser(), argv, _run)


def _run(arguments: argparse.Namespace) -> int:
    try:
        _check(arguments)
    except ConfigError as error:
        print(f"penstock migrate: {error}", file=sys.stderr)
        return USAGE
    try:
        return _migrate(arguments)
    except KeyboardInterrupt:
        print("penstock migrate: interrupted; nothing is lost, run it again", file=sys.stderr)
        return INTERRUPTED


def _migrate(arguments: argparse.Namespace) -> int:
    source = os.path.abspath(arguments.path)
    if not os.path.isdir(source):
        raise StorageError(source, "there is no such directory")
    if arguments.write_back:
        written = _write_back(arguments, source)
        _show(arguments, msgspec.to_builtins(written), write_back_lines(written))
        return DONE
    report = count(OsDisk(), source, arguments.all_bad) if arguments.dry_run else None
    if report is None:
        report = _take_over(arguments, source)
    lines = report_lines(report, arguments.dry_run)
    _show(arguments, msgspec.to_builtins(report), lines)
    return DONE


def _check(arguments: argparse.Namespace) -> None:
    if arguments.to and arguments.in_place:
        raise ConfigError("--to", arguments.to, "cannot go together with --in-place")
    if arguments.write_back and (not arguments.to or arguments.dry_run):
        raise ConfigError("--write-back", True, "needs --to NEW_PATH, and has no --dry-run")
    if not (arguments.to or arguments.in_place or arguments.dry_run):
        raise ConfigError("DATA_PATH", arguments.path, "needs --to, --in-place or --dry-run")
    if arguments.max_bytes_per_file < 1:
        raise ConfigError("--max-bytes-per-file", arguments.max_bytes_per_file, "must be above 0")


def _show(arguments: argparse.Namespace, document: Any, lines: Iterator[str]) -> None:
    if arguments.json:
        print_json(document)
    else:
        for line in lines:
            print(line)


# --- into ours ---


def _take_over(arguments: argparse.Namespace, source: str) -> Report:
    disk = OsDisk()
    target = os.path.abspath(arguments.to) if arguments.to else source
    _check_apart(source, target)
    node_id = arguments.node_id
    settings = BuildSettings(
        check_node_id(default_node_id(socket.gethostname()) if node_id is None else node_id),
        SystemClock(),
        all_bad=arguments.all_bad,
    )
    shown: terminal.Progress | None = None

    def show(progress: Progress) -> None:
        nonlocal shown
        shown = shown or terminal.Progress("bytes read", progress.bytes_total)
        shown.show(progress.bytes_done)

    settings.on_progress = show
    disk.mkdir(target)
    lock = lock_directory(disk, target)
    try:
        report = Takeover(disk, source, target, settings).run()
    finally:
        lock.release()
        if shown is not None:
            shown.end()
    if report is None:
        raise StorageError(source, "there is no data of an official nsqd")
    return report


def _check_apart(source: str, target: str) -> None:
    if source != target and os.path.commonpath([source, target]) in (source, target):
        raise ConfigError("--to", target, "must lie apart from DATA_PATH")


def report_lines(report: Report, is_dry_run: bool) -> Iterator[str]:
    rows = [
        [
            queue.name,
            f"{queue.found.messages:,}",
            f"{queue.found.body_bytes:,}",
            f"{queue.found.passed_bytes:,}",
            f"{queue.found.bad_bytes:,}",
        ]
        for topic in report.topics
        for queue in topic.queues
    ]
    yield from terminal.table(["queue", "messages", "bytes", "consumed", "bad bytes"], rows)
    for note in report.notes:
        yield f"note: {note}"
    for topic in report.topics:
        for queue in topic.queues:
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


def _write_back(arguments: argparse.Namespace, source: str) -> WriteBackReport:
    target = os.path.abspath(arguments.to)
    _check_apart(source, target)
    if source == target:
        raise ConfigError("--to", arguments.to, "must be another directory")
    progress = terminal.Progress("messages read")
    try:
        return WriteBack(
            OsDisk(), source, target, time.time_ns(), arguments.max_bytes_per_file, progress.show
        ).run()
    finally:
        progress.end()


def write_back_lines(report: WriteBackReport) -> Iterator[str]:
    rows = [
        [queue.name, f"{queue.messages:,}", f"{queue.delayed:,}"]
        for topic in report.topics
        for queue in topic.queues
    ]
    yield from terminal.table(["queue", "messages", "delays lost"], rows)
    for note in report.notes:
        yield f"note: {note}"
    for topic in report.topics:
        for start, end in topic.damaged:
            yield f"bad:  {topic.name}: offsets {start} to {end - 1} are damaged and left out"
        if topic.with_extras:
            yield f"note: {topic.name}: {topic.with_extras:,} keys, headers or trace ids are lost"
    if report.largest_bytes > limits.MESSAGE_BYTES_MAX:
        yield f"note: start nsqd with -max-msg-size={report.largest_bytes} or more"
    yield f"{report.messages:,} messages are in {report.target}"
    if any(queue.delayed for topic in report.topics for queue in topic.queues):
        yield "nsqd's files know no delays: what was delayed is delivered at once"
