"""`penstock log`: look at a data directory, or a part of one, from outside.

`verify` and `dump` take no lock and write nothing, so they can be used while a daemon runs;
`repair` (`log/repair.py`) wants it stopped. Exit codes: 0 all is well, 1 something was found (for
`repair`: and it is still there), 2 the command line is wrong or there is nothing to look at. What
fails ends `dump` and `repair` with 1, and `verify` with 2: its 1 is about the data.
"""

import itertools
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Any

from penstock.command import terminal
from penstock.errors import PenstockError, TraceBroken
from penstock.log.disk import Disk, OsDisk, lock_directory
from penstock.log.inspect import (
    TOPICS,
    FoundFiles,
    NothingThere,
    PartitionDirectory,
    Row,
    dump_file,
    dump_partition,
    find,
)
from penstock.log.repair import Loss, find_losses, give_up
from penstock.log.verify import PartitionSummary, VerifyFinding, VerifyReport, verify
from penstock.tools.app import Json, Partition, Yes, arg, group, opt, switch, verb
from penstock.tools.output import Output, WrongUse, confirm, when
from penstock.trace.events import TOPIC, decode

INTACT, FOUND, USAGE = 0, 1, 2


Path = Annotated[str, arg("PATH", "a data directory, a topic, a partition or its file")]
OneTopic = Annotated[str | None, opt("T", "only this topic")]

app = group(
    "Look at stored messages, without a daemon. Only repair writes anything.",
    "log verify /var/lib/penstock",
)


def _find(path: str, topic: str | None, partition: int | None) -> FoundFiles:
    try:
        return find(OsDisk(), path, topic, partition)
    except NothingThere as error:
        raise WrongUse(str(error)) from error


# --- verify ---


@verb(app, "log verify /var/lib/penstock --topic orders --json", name="verify")
def verify_all(path: Path, topic: OneTopic = None, partition: Partition = None) -> int | Output:
    """Check every byte; exit code 1 when something is wrong."""
    try:
        with terminal.Progress("checking"):
            report = verify(OsDisk(), _find(path, topic, partition))
    except (OSError, PenstockError) as error:  # 1 would say that the data are damaged
        print(f"penstock log: {error}", file=sys.stderr)
        return USAGE
    return Output(_report_json(report), _report_lines(report), FOUND if report.findings else INTACT)


def _report_json(report: VerifyReport) -> dict[str, Any]:
    return {
        "sound": not report.findings,
        "findings": [finding._asdict() for finding in report.findings],
        "notes": [note._asdict() for note in report.notes],
        "partitions": [summary._asdict() for summary in report.partitions],
        "bytes_checked": report.bytes_checked,
    }


def _report_lines(report: VerifyReport) -> Iterator[str]:
    for summary in report.partitions:
        yield _summary_line(summary)
    for note in report.notes:
        yield f"note     {_finding_text(note)}"
    for finding in report.findings:
        yield f"DAMAGED  {_finding_text(finding)}"
    count = len(report.findings)
    verdict = "all sound" if not count else f"{count} finding{'s' if count > 1 else ''}"
    yield f"{report.bytes_checked:,} bytes checked: {verdict}"


def _summary_line(one: PartitionSummary) -> str:
    messages = one.to_offset - one.from_offset
    stop = "clean stop" if one.clean else "running, or not stopped in an orderly way"
    return (
        f"{one.topic}/{one.partition}: {messages:,} messages from offset {one.from_offset} in "
        f"{one.batches:,} batches and {one.segments} segments ({stop})"
    )


def _finding_text(finding: VerifyFinding) -> str:
    where = finding.path if finding.position is None else f"{finding.path} at {finding.position}"
    if finding.from_offset is not None and finding.to_offset is not None:
        last = max(finding.to_offset - 1, 0)
        where += f" (offsets {finding.from_offset} to {last})"
    return f"{where}: {finding.reason}"


# --- dump ---


@verb(app, "log dump /var/lib/penstock --topic orders --count 3 --bodies")
def dump(
    path: Path,
    topic: OneTopic = None,
    partition: Partition = None,
    from_offset: Annotated[int, opt("N", min=0)] = 0,
    count: Annotated[int | None, opt("N", "at most this many rows", min=0)] = None,
    bodies: Annotated[bool, switch("show the bodies too")] = False,
    as_json: Json = False,
) -> int:
    """Show messages, or the content of another file."""
    disk, found_hole = OsDisk(), False
    found = _find(path, topic, partition)
    sources = [(directory.topic, directory.partition, dump_partition(disk, directory, from_offset))
               for directory in found.directories]  # fmt: skip
    sources += [("", 0, dump_file(disk, file, from_offset)) for file in found.files]
    for name, number, rows in sources:
        if len(sources) > 1 and not as_json:
            print(f"{name}/{number}")
        for row in itertools.islice(rows, count):
            found_hole |= "hole" in row or "problem" in row or row.get("sound") is False
            if name == TOPIC and bodies and "body" in row:
                _show_events(row)
            named = {"topic": name, "partition": number, **row} if name else row
            print(_row_json(named, bodies) if as_json else _row_text(row, bodies))
    return FOUND if found_hole else INTACT


def _show_events(row: Row) -> None:
    """Instead of the body that holds them."""
    with suppress(TraceBroken):  # then people see its bytes
        row["events"] = [
            event._asdict() | {"kind": event.kind.label, "message_id": f"{event.message_id:016x}"}
            for event in decode(row["body"])
        ]
        del row["body"]


def _row_json(row: Row, bodies: bool) -> str:
    shown = {
        name: value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
        for name, value in row.items()
        if name != "body" or bodies
    }
    return json.dumps(shown)


def _row_text(row: Row, bodies: bool) -> str:
    if "size" not in row:
        return _pairs(row)
    common = ("offset", "id", "timestamp_ns", "batch", "position", "size", "body", "events")
    extra = "".join(f"  {name}={value!r}" for name, value in row.items() if name not in common)
    body = f"  {row.get('body', b'')!r}" if bodies else ""
    if "events" in row:
        body = "".join(f"\n{'':>14}{_pairs(event)}" for event in row["events"])
    return (
        f"{row['offset']:>12}  {row['id']}  {when(row['timestamp_ns'])}  "
        f"{row['size']:>8}{extra}{body}"
    )


def _pairs(row: Row) -> str:
    return "  ".join(f"{name}={value}" for name, value in row.items() if value is not None)


# --- repair: list corrupt ranges, confirm, and give them up ---


@verb(app, "log repair /var/lib/penstock --topic orders")
def repair(
    path: Path, topic: OneTopic = None, partition: Partition = None, yes: Yes = False,
    as_json: Json = False,
) -> int:  # fmt: skip
    """Give up corrupt messages; nsqd must be stopped.

    It lists them, asks, and keeps copies."""

    disk, data_path = OsDisk(), path.rstrip("/") or "/"
    found = _find(path, topic, partition)
    if not disk.is_directory(os.path.join(data_path, TOPICS)):
        rule = "give the data directory, and --topic for one topic"
        raise WrongUse(f"{data_path} has no {TOPICS} in it: {rule}")
    lock = lock_directory(disk, data_path)
    try:
        return _give_up(disk, data_path, found.directories, yes, as_json).print(as_json)
    finally:
        lock.release()


def _give_up(
    disk: Disk, data_path: str, directories: list[PartitionDirectory], yes: bool, as_json: bool
) -> Output:
    losses = {
        directory: rows for directory in directories if (rows := find_losses(disk, directory))
    }
    every = [loss for rows in losses.values() for loss in rows]
    if not as_json:
        print("\n".join(_losses(every)))
    messages = sum(loss.messages for loss in every)
    confirm(yes or not every, f"give up {messages} messages", "lost")
    copies: list[str] = []
    for directory, rows in losses.items():
        copies += give_up(disk, data_path, directory, rows, time.time_ns())
    lines = [f"copied to {copy}" for copy in copies]
    if every:
        rest = "all others are as they were. Start nsqd again."
        lines.append(f"{messages:,} messages are given up; {rest}")
    return Output({"lost": [loss._asdict() for loss in every], "copies": copies}, lines)


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
