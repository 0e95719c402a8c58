"""`penstock log`: look at a data directory, or a part of one, from outside.

`verify` and `dump` take no lock and write nothing, so they can be used while a daemon runs;
`repair` (`log/repair.py`) wants it stopped. Exit codes: 0 all is well, 1 something was found (for
`repair`: and it is still there), 2 the command line is wrong or there is nothing to look at. What
fails ends `dump` and `repair` with 1, and `verify` with 2: its 1 is about the data.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from penstock.errors import PenstockError, TraceBroken
from penstock.log.disk import Disk, OsDisk, lock_directory
from penstock.log.dump import Row, dump_file, dump_partition
from penstock.log.inspect import TOPICS, Found, NothingThere, Place, find
from penstock.log.repair import Loss, find_losses, give_up
from penstock.log.verify import Finding, PartitionSummary, Report, verify
from penstock.tools.verbs import FAILED, VerbParser, WrongUse, add_yes, confirm, print_json
from penstock.trace.events import TOPIC, Event, decode

SOUND, FOUND, USAGE = 0, 1, 2


def log_main(argv: list[str]) -> int:
    try:
        arguments = parser().parse_args(argv)
    except SystemExit as leaving:  # argparse has said what is wrong, or printed the help
        return SOUND if leaving.code in (None, 0) else USAGE
    try:
        found = find(OsDisk(), arguments.path, arguments.topic, arguments.partition)
        if arguments.verb == "repair":
            return FOUND if repair(arguments, found) else SOUND
        return _verify(arguments, found) if arguments.verb == "verify" else _dump(arguments, found)
    except NothingThere as error:
        print(f"penstock log: {error}", file=sys.stderr)
        return USAGE
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has seen enough
        return SOUND
    except (OSError, PenstockError) as error:
        print(f"penstock log: {error}", file=sys.stderr)
        return USAGE if arguments.verb == "verify" or isinstance(error, WrongUse) else FAILED


def parser() -> argparse.ArgumentParser:
    parser = VerbParser(
        prog="penstock log",
        description="Look at stored messages. PATH is a data directory, a topic, a partition or a "
        "file of one. Only repair writes anything.",
        examples=["penstock log verify /var/lib/penstock"],
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    check = verbs.add_parser(
        "verify",
        help="check every byte; exit code 1 when something is wrong",
        examples=["penstock log verify /var/lib/penstock --topic orders --json"],
    )
    show = verbs.add_parser(
        "dump",
        help="show messages, or what another file says",
        examples=["penstock log dump /var/lib/penstock --topic orders --count 3 --bodies"],
    )
    restore = verbs.add_parser(
        "repair",
        help="give up what is corrupt and set copies of it aside; nsqd must be stopped",
        examples=["penstock log repair /var/lib/penstock --topic orders"],
    )
    add_yes(restore)
    for verb in (check, show, restore):
        verb.add_argument("path", metavar="PATH")
        verb.add_argument("--json", action="store_true", help="for scripts")
        verb.add_argument("--topic", metavar="T", help="only this topic")
        verb.add_argument("--partition", type=int, metavar="N", help="only this partition")
    show.add_argument("--from-offset", type=int, default=0, metavar="N")
    show.add_argument("--count", type=int, metavar="N", help="at most this many rows")
    show.add_argument("--bodies", action="store_true", help="show the bodies too")
    return parser


# --- verify ---


def _verify(arguments: argparse.Namespace, found: Found) -> int:
    report = verify(OsDisk(), found)
    if arguments.json:
        print(json.dumps(_report_json(report), indent=2))
    else:
        for line in _report_lines(report):
            print(line)
    return FOUND if report.findings else SOUND


def _report_json(report: Report) -> dict[str, Any]:
    return {
        "sound": not report.findings,
        "findings": [finding._asdict() for finding in report.findings],
        "notes": [note._asdict() for note in report.notes],
        "partitions": [summary._asdict() for summary in report.partitions],
        "bytes_checked": report.bytes_checked,
    }


def _report_lines(report: Report) -> Iterator[str]:
    for summary in report.partitions:
        yield _summary_line(summary)
    for note in report.notes:
        yield f"note     {_finding_text(note)}"
    for finding in report.findings:
        yield f"DAMAGED  {_finding_text(finding)}"
    count = len(report.findings)
    verdict = "all sound" if not count else f"{count} finding{'s' if count > 1 else ''}"
    yield f"{report.bytes_checked:,} bytes checked: {verdict}"


def _summary_line(summary: PartitionSummary) -> str:
    messages = summary.to_offset - summary.from_offset
    stop = "clean stop" if summary.clean else "running, or not stopped in an orderly way"
    return (
        f"{summary.topic}/{summary.partition}: {messages:,} messages from offset "
        f"{summary.from_offset} in {summary.batches:,} batches and {summary.segments} segments "
        f"({stop})"
    )


def _finding_text(finding: Finding) -> str:
    where = finding.path if finding.position is None else f"{finding.path} at {finding.position}"
    offsets = ""
    if finding.from_offset is not None and finding.to_offset is not None:
        offsets = f" (offsets {finding.from_offset} to {max(finding.to_offset - 1, 0)})"
    return f"{where}{offsets}: {finding.reason}"


# --- dump ---


def _dump(arguments: argparse.Namespace, found: Found) -> int:
    found_hole = False
    disk = OsDisk()
    sources = [
        (place.topic, place.partition, dump_partition(disk, place, arguments.from_offset))
        for place in found.places
    ]
    sources += [("", 0, dump_file(disk, path, arguments.from_offset)) for path in found.files]
    for topic, partition, rows in sources:
        if len(sources) > 1 and not arguments.json:
            print(f"{topic}/{partition}")
        for row in itertools.islice(rows, arguments.count):
            found_hole |= "hole" in row or "problem" in row or row.get("sound") is False
            if topic == TOPIC and arguments.bodies and "body" in row:
                _show_events(row)
            named = {"topic": topic, "partition": partition, **row} if topic else row
            print(_row_json(named, arguments) if arguments.json else _row_text(row, arguments))
    return FOUND if found_hole else SOUND


def _show_events(row: Row) -> None:
    """In place of the body that holds them."""
    with suppress(TraceBroken):  # then people see its bytes
        row["events"] = [_event_json(event) for event in decode(row["body"])]
        del row["body"]


def _event_json(event: Event) -> dict[str, Any]:
    return event._asdict() | {"kind": event.kind.label, "message_id": f"{event.message_id:016x}"}


def _row_json(row: Row, arguments: argparse.Namespace) -> str:
    shown = {
        name: value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
        for name, value in row.items()
        if name != "body" or arguments.bodies
    }
    return json.dumps(shown)


def _row_text(row: Row, arguments: argparse.Namespace) -> str:
    if "size" not in row:
        return "  ".join(f"{name}={value}" for name, value in row.items())
    common = ("offset", "id", "timestamp_ns", "batch", "position", "size", "body", "events")
    extra = "".join(f"  {name}={value!r}" for name, value in row.items() if name not in common)
    body = f"  {row.get('body', b'')!r}" if arguments.bodies else ""
    if "events" in row:
        body = "".join(f"\n{'':>14}{_event_text(event)}" for event in row["events"])
    return (
        f"{row['offset']:>12}  {row['id']}  {_time_text(row['timestamp_ns'])}  "
        f"{row['size']:>8}{extra}{body}"
    )


def _event_text(event: dict[str, Any]) -> str:
    shown = {name: value for name, value in event.items() if value is not None}
    return "  ".join(f"{name}={value}" for name, value in shown.items())


def _time_text(timestamp_ns: int) -> str:
    try:
        moment = datetime.fromtimestamp(timestamp_ns // 10**9, UTC)
    except (OverflowError, ValueError, OSError):  # a time that no calendar has
        return f"{timestamp_ns} ns"
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp_ns % 10**9 // 1000:06d}Z"


# --- repair: list what is corrupt, ask, and give it up ---


def repair(arguments: argparse.Namespace, found: Found) -> bool:
    """True when something corrupt was found and is still there. Raises PenstockError, OSError."""
    disk, data_path = OsDisk(), arguments.path.rstrip("/") or "/"
    if not disk.is_directory(os.path.join(data_path, TOPICS)):
        rule = "give the data directory, and --topic for one topic"
        raise WrongUse(f"{data_path} has no {TOPICS} in it: {rule}")
    lock = lock_directory(disk, data_path)
    try:
        return _give_up(disk, arguments, data_path, found.places)
    finally:
        lock.release()


def _give_up(
    disk: Disk, arguments: argparse.Namespace, data_path: str, places: list[Place]
) -> bool:
    losses = {place: find_losses(disk, place) for place in places}
    losses = {place: rows for place, rows in losses.items() if rows}
    every = [loss for rows in losses.values() for loss in rows]
    if not arguments.json:
        for line in _losses(every):
            print(line)
    if not every:
        if arguments.json:
            print_json({"lost": [], "copies": []})
        return False
    messages = sum(loss.messages for loss in every)
    if not confirm(arguments, f"give up {messages} messages", "lost"):
        return True
    copies: list[str] = []
    for place, rows in losses.items():
        copies += give_up(disk, data_path, place, rows, time.time_ns())
    if arguments.json:
        print_json({"lost": [loss._asdict() for loss in every], "copies": copies})
    else:
        for copy in copies:
            print(f"copied to {copy}")
        print(f"{messages:,} messages are given up; all others are as they were. Start nsqd again.")
    return False


def _losses(losses: list[Loss]) -> Iterator[str]:
    for loss in losses:
        yield (
            f"CORRUPT  {loss.topic}/{loss.partition}: offsets {loss.from_offset} to "
            f"{loss.to_offset - 1} ({loss.messages:,} messages): {loss.reason}"
        )
        whose = ", ".join(loss.unfinished_by)
        yield f"         not finished by: {whose or 'no channel, so none loses anything'}"
    if not losses:
        yield "nothing to repair: every message can be read"
