"""Offsets of the source, and the rules about them. Pure: what the broker said is passed in.

An offset of the whole source, as it stands in Spark's checkpoint:

    {"topics": {"orders": {"identity": "...", "partitions": {"0": 123}}}, "version": 1}

Keys are sorted and partitions in the order of their numbers, because Spark compares offsets as
text. The identity is that of the topic's log: another one means that the topic was deleted and made
again, and that its offsets count anew.

A range that can't be read whole is data loss. With `failOnDataLoss` it is an error; without, what
is left is read, and a topic that was made again is read from its earliest offset.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from penstock.errors import ConfigError, DataLost
from penstock.spark.brokerapi import Span, TopicSpans
from penstock.spark.options import EARLIEST, LATEST, SPECIAL, Bound

VERSION = 1


class Log(NamedTuple):
    """One partition of one topic in one life."""

    topic: str
    identity: str
    partition: int


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets [start, end) of one log."""

    log: Log
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


Offsets = dict[Log, int]
Logs = Mapping[str, TopicSpans]
# Called with what is lost; raises or lets pass.
OnLoss = Callable[[DataLost], None]


# --- the form in the checkpoint ---


def to_document(offsets: Mapping[Log, int]) -> dict[str, Any]:
    topics: dict[str, Any] = {}
    for log in sorted(offsets):
        entry = topics.setdefault(log.topic, {"identity": log.identity, "partitions": {}})
        entry["partitions"][str(log.partition)] = offsets[log]
    return {"topics": topics, "version": VERSION}


def first_document(offsets: Mapping[Log, int]) -> dict[str, Any]:
    """Where a new query begins. Spark does not write it down: a query whose first batch fails asks
    for it again, and "latest" is another place by then. So the end of the first batch, which is
    written down, carries it along (`end_document`)."""
    return {"initial": True, **to_document(offsets)}


def end_document(offsets: Mapping[Log, int], start: Mapping[str, Any]) -> dict[str, Any]:
    """The end of a batch that begins at the document `start`."""
    if offsets == from_document(start):
        return dict(start)  # the very same, or Spark would run a batch of nothing
    if start.get("initial"):
        begun = {"topics": start["topics"], "version": VERSION}
        return {"from": begun, **to_document(offsets)}
    return to_document(offsets)


def begun_at(start: Mapping[str, Any], end: Mapping[str, Any]) -> Offsets:
    """Where the batch between these documents begins: where the query began the first time."""
    return from_document(end["from"] if start.get("initial") and "from" in end else start)


def format_offsets(offsets: Mapping[Log, int]) -> str:
    return json.dumps(to_document(offsets))


def from_document(document: Mapping[str, Any]) -> Offsets:
    """ConfigError when it was not made by `to_document`, or by a later version of it."""
    rule = f"offsets of version {VERSION}, as this source writes them"
    if document.get("version") != VERSION:
        raise ConfigError("checkpoint", json.dumps(document)[:200], rule)
    try:
        return {
            Log(topic, str(entry["identity"]), int(number)): int(offset)
            for topic, entry in document["topics"].items()
            for number, offset in entry["partitions"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError("checkpoint", json.dumps(document)[:200], rule) from error


def parse_offsets(text: str) -> Offsets:
    document = json.loads(text)
    return from_document(document if isinstance(document, dict) else {})


# --- what the broker has ---


def spans(topics: Logs) -> dict[Log, Span]:
    return {
        Log(name, topic.identity, number): span
        for name, topic in topics.items()
        for number, span in topic.partitions.items()
    }


def ends(topics: Logs) -> Offsets:
    return {log: span.end for log, span in spans(topics).items()}


def resolve(
    bound: Bound, topics: Logs, offset_at: Callable[[Log, int], int], falls_to_latest: bool
) -> Offsets:
    """Where a query starts or ends. `offset_at` finds the first offset at or after a time; where
    there is none, that is the end, which only counts with `falls_to_latest`."""
    found: Offsets = {}
    for log, span in spans(topics).items():
        if bound.timestamps_ms is not None:
            found[log] = _at_time(bound.timestamps_ms, log, span, offset_at, falls_to_latest)
        elif bound.offsets is not None:
            # A topic that a pattern found and nobody named starts with what it has.
            found[log] = _at_offset(bound.offsets.get(log.topic, {}).get(log.partition, -2), span)
        else:
            found[log] = span.earliest if bound.word == EARLIEST else span.end
    return found


def _at_offset(offset: int, span: Span) -> int:
    word = SPECIAL.get(offset)
    if word is None:
        return offset
    return span.end if word == LATEST else span.earliest


def _at_time(
    times: dict[str, dict[int, int]] | int,
    log: Log,
    span: Span,
    offset_at: Callable[[Log, int], int],
    falls_to_latest: bool,
) -> int:
    time_ms = times if isinstance(times, int) else times.get(log.topic, {}).get(log.partition, 0)
    offset = max(offset_at(log, time_ms), span.earliest)
    if offset >= span.end and not falls_to_latest:
        rule = f"topic {log.topic} has no message at or after that time"
        raise ConfigError("starting timestamp", time_ms, rule)
    return min(offset, span.end)


# --- how far a batch goes ---


def available(start: Mapping[Log, int], end: Mapping[Log, int], topics: Logs) -> list[Range]:
    """What lies between; a log that `start` does not know begins with its earliest offset."""
    known = spans(topics)
    ranges = []
    for log in sorted(end):
        first = start.get(log, known[log].earliest if log in known else end[log])
        ranges.append(Range(log, min(first, end[log]), end[log]))
    return ranges


def rate_limited(ranges: list[Range], offsets_max: int) -> Offsets:
    """Where a batch of about `offsets_max` ends: each log gets its share, at least one message."""
    total = sum(range_.size for range_ in ranges)
    if total <= offsets_max:
        return {range_.log: range_.end for range_ in ranges}
    limited = {}
    for range_ in ranges:
        share = max(range_.size * offsets_max // total, 1)
        limited[range_.log] = min(range_.start + share, range_.end)
    return limited


def holds_back(count: int, count_min: int | None, waited_ms: int, delay_max_ms: int) -> bool:
    """minOffsetsPerTrigger and maxTriggerDelay: too little to start a batch, and not for long."""
    return count_min is not None and count < count_min and waited_ms < delay_max_ms


def next_end(
    start: Mapping[Log, int],
    end: Mapping[Log, int],
    on_loss: OnLoss,
    left_out: Collection[str] = (),
) -> Offsets:
    """`end` without steps back: a log that has become shorter, a topic that is gone or was made
    again is reported, and then taken as it is now. `left_out` are topics that are there, but are
    not what the query reads."""
    now = {(log.topic, log.partition): log for log in end}
    result = dict(end)
    for log, offset in start.items():
        present = now.get((log.topic, log.partition))
        if present is None:
            not_read = f"this query does not read it any more, and was at offset {offset}"
            on_loss(_lost(log, not_read if log.topic in left_out else "the topic is gone"))
        elif present.identity != log.identity:
            on_loss(_lost(log, _made_again(log.identity, present.identity)))
        elif end[log] < offset:
            on_loss(_lost(log, f"it ends at {end[log]}, but offset {offset} was reached before"))
            result[log] = offset
    return result


def planned(
    start: Mapping[Log, int], end: Mapping[Log, int], topics: Logs, on_loss: OnLoss
) -> list[Range]:
    """What to read for a batch from `start` to `end`, given what there is now."""
    have = spans(topics)
    begun = {(log.topic, log.partition): log for log in start}
    ranges = []
    for log in sorted(end):
        span = have.get(log)
        before = begun.get((log.topic, log.partition))
        if span is None:
            on_loss(_lost(log, "the topic is gone, or was deleted and made again"))
            continue
        if before is not None and before != log:
            on_loss(_lost(log, _made_again(before.identity, log.identity)))
        first = start.get(log)
        if first is None:
            if before is None and span.earliest > 0:
                on_loss(_lost(log, f"a new topic begins at {span.earliest} instead of 0"))
            first = span.earliest
        range_ = _within(Range(log, first, end[log]), span, on_loss)
        if range_.size > 0:
            ranges.append(range_)
    return ranges


def _within(range_: Range, span: Span, on_loss: OnLoss) -> Range:
    log, first, end = range_.log, range_.start, range_.end
    if first < span.earliest and first < end:
        on_loss(_lost(log, f"offsets {first} to {min(span.earliest, end) - 1} are gone"))
        first = min(span.earliest, end)
    if end > span.end:
        on_loss(_lost(log, f"offset {end} is beyond the end, which is {span.end}"))
        end = max(span.end, first)
    return Range(log, first, end)


def _lost(log: Log, reason: str) -> DataLost:
    return DataLost(log.topic, log.partition, reason)


def _made_again(before: str, now: str) -> str:
    return f"the topic was deleted and made again (identity {before} before, {now} now)"


# --- tasks ---


def split(
    ranges: Iterable[Range], partitions_min: int | None, records_max: int | None
) -> list[Range]:
    """Ranges for tasks: none larger than `records_max`, and about `partitions_min` of them."""
    pieces = [
        piece
        for range_ in ranges
        for piece in _cut(range_, -(-range_.size // records_max) if records_max else 1)
    ]
    total = sum(piece.size for piece in pieces)
    if partitions_min is None or len(pieces) >= partitions_min or total == 0:
        return pieces
    return [
        part
        for piece in pieces
        for part in _cut(piece, max(1, round(piece.size * partitions_min / total)))
    ]


def _cut(range_: Range, count: int) -> list[Range]:
    count = min(count, range_.size)
    marks = [range_.start + range_.size * i // count for i in range(count + 1)] if count else []
    return [Range(range_.log, low, high) for low, high in pairwise(marks)]
