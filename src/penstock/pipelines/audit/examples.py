"""Single messages of a finding, in words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.pipelines.audit import passes
from penstock.pipelines.audit.report import Example
from penstock.pipelines.lifecycles.fates import FATES
from penstock.pipelines.moments import moment
from penstock.trace.events import Kind

_REPEATS = {
    (int(Kind.SENT), int(Kind.SENT)): "sent_again",
    (int(Kind.SENT), int(Kind.FINISHED)): "sent_after_finish",
    (int(Kind.FINISHED), int(Kind.FINISHED)): "finished_twice",
}


def time_of(time_us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(time_us))


def about(partition: int, name: str, note: str) -> Example:
    return Example(int(partition), 0, None, None, f"{name}: {note}")


def example(row: Any, time_us: int, note: str) -> Example:
    name = f"{int(row['message_id']):016x}"
    return Example(int(row["partition"]), int(row["offset"]), name, time_of(time_us), note)


def kind_of(case: Any) -> str:
    if case["kind"] == passes.LOST:
        return "corrupt" if FATES[case["fate"]] == "ended" else "lost"
    if case["kind"] == passes.STUCK:
        return "stuck"
    return repeat(int(case["kind"]), int(case["before"]))


def order_example(pair: Any) -> Example:
    before = moment(time_of(pair["time_before_us"]))
    note = f"first delivered after offset {pair['offset_before']} (at {before})"
    return example(pair, pair["time_us"], note)


def log_example(pair: Any, kind: str, count: int) -> Example:
    """What is wrong between a row and its neighbour, in words."""
    offset, before = int(pair["offset"]), int(pair["offset_before"])
    other = f"{int(pair['message_id_before']):016x}"
    if kind == "repeated_offset":
        same = pair["message_id"] == pair["message_id_before"]
        note = "two rows; " + ("the same id" if same else f"also the id {other}")
    elif kind == "gap":
        last = f" to {offset - 1}" if count > 1 else ""
        note = f"before it {before + 1}{last} is missing"
    elif kind == "id_falls":
        note = f"offset {before} has the higher id {other}"
    elif kind == "same_id":
        note = f"offset {before} has the same id"
    else:
        note = f"offset {before} was published at {moment(time_of(pair['time_before_us']))}"
    return example(pair, pair["time_us"], note)


def same_id_example(row: Any) -> Example:
    at, before = row["at"], row.before
    place = f"{before.offset}"
    if before.partition != at.partition:
        place = f"offset {before.offset} of partition {before.partition}"
    return Example(at.partition, at.offset, row.id, time_of(row.time_us), f"also at {place}")


def repeat(kind: int, before: int) -> str:
    """What a step too many is called, by the one before it."""
    return _REPEATS[kind, before]
