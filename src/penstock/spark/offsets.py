"""Offsets of the source, and their rules. Pure: answers of the broker are passed in.

An offset of the whole source, as it stands in Spark's checkpoint:

    {"topics": {"orders": {"identity": "...", "partitions": {"0": 123}}}, "version": 1}

A query of several nsqds has them by nsqd:

    {"brokers": {"host:4151": {"topics": {...}}}, "version": 2}

Keys are sorted and partitions in the order of their numbers, because Spark compares offsets as
text. The identity is that of the topic's log: another one means that the topic was deleted and made
again, and that its offsets count from 0 again.

A range that can't be read whole is data loss. With `failOnDataLoss` it is an error; without, what
is left is read, and a topic that was made again is read from its earliest offset. A topic that is
deleted is no loss when it was read to its end; else it is one, unless `onTopicDeleted` says that
topics come and go.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from penstock import limits
from penstock.errors import ConfigError, DataLost
from penstock.nsqdapi.calls import LogSpan, TopicSpans
from penstock.spark.options import EARLIEST, Bound, listed
from penstock.times import format_time

WANTED = "with onTopicDeleted=ignore (of a pipeline: --on-topic-deleted=ignore) that is no error"
VERSION = 1
VERSION_SEVERAL = 2  # of several nsqds
LogId = tuple[str, str, int]  # topic, identity, partition


class Log(NamedTuple):
    """One partition of one topic of one nsqd, since its creation."""

    topic: str
    identity: str
    partition: int
    broker: str = ""  # its nsqd, where a query reads several (`brokers`)

    @property
    def name(self) -> tuple[str, str, int]:
        return self.broker, self.topic, self.partition

    @property
    def id(self) -> LogId:
        """The same at any nsqd."""
        return self[:3]


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
Logs = Mapping[Log, LogSpan]
# Called with what is lost; raises or lets pass.
OnLoss = Callable[[DataLost], None]
# The same for a log that is deleted: how far it was read, and whether there is another one now.
OnDeleted = Callable[[Log, int, DataLost, bool], None]


# --- the form in the checkpoint ---


def to_document(offsets: Mapping[Log, int]) -> dict[str, Any]:
    brokers: dict[str, dict[str, Any]] = {}
    for log in sorted(offsets, key=lambda log: log.name):
        topics = brokers.setdefault(log.broker, {})
        entry = topics.setdefault(log.topic, {"identity": log.identity, "partitions": {}})
        entry["partitions"][str(log.partition)] = offsets[log]
    if not any(brokers):
        return {"topics": brokers.get("", {}), "version": VERSION}
    documents = {name: {"topics": topics} for name, topics in brokers.items()}
    return {"brokers": documents, "version": VERSION_SEVERAL}


# Spark does not write down where a new query begins: when its first batch fails it asks for that
# again, and "latest" is another position by then. So the first document is marked, and the end of
# the first batch, which is written down, carries it along.


def end_document(offsets: Mapping[Log, int], start: Mapping[str, Any]) -> dict[str, Any]:
    if offsets == from_document(start):
        return dict(start)  # the very same, or Spark would run a batch of nothing
    if start.get("initial"):
        begun = {name: value for name, value in start.items() if name != "initial"}
        return {"from": begun, **to_document(offsets)}
    return to_document(offsets)


def begun_at(start: Mapping[str, Any], end: Mapping[str, Any]) -> Offsets:
    """The start of the batch between these documents: the one of its first attempt."""
    return from_document(end["from"] if start.get("initial") and "from" in end else start)


def from_document(document: Mapping[str, Any]) -> Offsets:
    """ConfigError when it was not made by `to_document`, or by a later version of it."""
    rule = f"offsets of version {VERSION} or {VERSION_SEVERAL}, as this source writes them"
    try:
        parts: dict[Any, Any] = {VERSION: {"": document}, VERSION_SEVERAL: document.get("brokers")}
        return {
            Log(topic, str(entry["identity"]), int(number), broker): int(offset)
            for broker, part in parts[document["version"]].items()
            for topic, entry in part["topics"].items()
            for number, offset in entry["partitions"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError("checkpoint", json.dumps(document)[:200], rule) from error


# --- logs of the broker ---


def spans(topics: Mapping[str, TopicSpans], broker: str = "") -> dict[Log, LogSpan]:
    return {
        Log(name, topic.identity, number, broker): span
        for name, topic in topics.items()
        for number, span in topic.partitions.items()
    }


def ends(have: Logs) -> Offsets:
    return {log: span.end for log, span in have.items()}


def relocated(offsets: Mapping[Log, int], have: Collection[Log]) -> Offsets:
    """Offsets of logs that are at another nsqd now: it has another address, or the query changed
    between one nsqd and several."""
    now = {log.id: log for log in have}
    return {log if log in have else now.get(log.id, log): at for log, at in offsets.items()}


def resolve(
    bound: Bound,
    have: Logs,
    offset_at: Callable[[Log, int], int],
    falls_to_latest: bool,
    unnamed: str = EARLIEST,
) -> Offsets:
    """The start or end of a query. `offset_at` finds the first offset at or after a time; where
    there is none in any partition of the topic, the end counts only with `falls_to_latest`. A topic
    found by a pattern that the bound does not name is read whole: `unnamed` is which end this
    is."""
    found: Offsets = {}
    for log, span in have.items():
        given = (bound.named(log.broker, log.topic) or {}).get(log.partition)
        if bound.time_ms is not None:
            found[log] = min(max(offset_at(log, bound.time_ms), span.earliest), span.end)
        elif given is not None:
            found[log] = {-2: span.earliest, -1: span.end}.get(given, given)  # as Kafka has it
        else:
            found[log] = span.earliest if (bound.word or unnamed) == EARLIEST else span.end
    if bound.time_ms is not None and not falls_to_latest:
        _check_time(bound.time_ms, found, have)
    return found


def _check_time(time_ms: int, found: Offsets, have: Logs) -> None:
    """A time is valid once one partition of the topic has reached it: another one without a later
    message begins with its next."""
    reached = {(log.broker, log.topic) for log, offset in found.items() if offset < have[log].end}
    for log in found:
        if (log.broker, log.topic) not in reached:
            rule = f"topic {log.topic} has no message at or after that time"
            raise ConfigError("starting timestamp", format_time(time_ms * limits.MS), rule)


def check_named(option: str, bound: Bound, have: Logs, may_be_few: bool) -> None:
    """ConfigError where an existing topic is named with other partitions than it has: omitted ones
    would be read whole, and offsets of missing ones ignored. A stream may begin before its topic
    exists, so it `may_be_few`: later partitions are read whole."""
    there: dict[tuple[str, str], set[int]] = {}
    for log in have:
        there.setdefault((log.broker, log.topic), set()).add(log.partition)
    for (broker, topic), partitions in there.items():
        given = bound.named(broker, topic)
        few = may_be_few and given is not None and set(given) <= partitions
        if given is not None and set(given) != partitions and not few:
            which = "partitions" if may_be_few else "all partitions"
            rule = (
                f"it has to name {which} of {topic}, {listed(partitions)}, and no other: -2 is the "
                "earliest offset, -1 the latest"
            )
            raise ConfigError(f"option {option}", f"{topic}: {listed(given)}", rule)


def check_begin(bound: Bound, topics: Collection[str]) -> None:
    """ConfigError where a stream should begin at an offset of a missing topic: once created it is
    read from its earliest offset, and the request would be ignored."""
    for topic, partitions in bound.of_one.items():
        if topic not in topics and any(offset > 0 for offset in partitions.values()):
            rule = "there is no such topic, so it can begin at 0 or at -2, the earliest, only"
            raise ConfigError("option startingOffsets", f"{topic}: {partitions}", rule)


# --- how far a batch goes ---


def available(start: Mapping[Log, int], end: Mapping[Log, int], known: Logs) -> list[Range]:
    """The range between; a log that `start` lacks begins with its earliest offset."""
    begins = {log: span.earliest for log, span in known.items()} | dict(start)
    return [Range(log, min(begins.get(log, at), at), at) for log, at in sorted(end.items())]


def byte_limited(
    ranges: list[Range],
    bytes_from: Mapping[Log, int],
    bytes_max: int,
    offset_after: Callable[[Log, int, int], int],
) -> Offsets:
    """The end of a batch of about `bytes_max`: each log gets its share, at least one message.
    `bytes_from` are the bytes of each log behind the start of its range."""
    sizes = {range_.log: bytes_from.get(range_.log, 0) for range_ in ranges}
    total = sum(sizes.values())
    limited = {}
    for range_ in ranges:
        log, end = range_.log, range_.end
        share = sizes[log] * bytes_max // total if total > bytes_max else sizes[log]
        if range_.size > 1 and share < sizes[log]:
            end = min(end, max(offset_after(log, range_.start, share), range_.start + 1))
        limited[log] = end
    return limited


def rate_limited(ranges: list[Range], offsets_max: int) -> Offsets:
    """The same by messages instead of bytes."""
    sizes = {range_.log: range_.size for range_ in ranges}
    return byte_limited(ranges, sizes, offsets_max, lambda _, start, share: start + share)


def next_end(
    start: Mapping[Log, int],
    end: Mapping[Log, int],
    on_loss: OnLoss,
    on_deleted: OnDeleted,
    left_out: Collection[tuple[str, int]] = (),
    gone: Collection[str] = (),
    brokers: Collection[str] | None = None,
    offline: Collection[LogId] = (),
) -> Offsets:
    """`end` without steps back: a log that has become shorter, a topic that is gone or was made
    again is reported, and then taken as it is now. `left_out` are partitions, by topic, that are
    there, but are not what the query reads; `gone` are nsqds that are given up: their offsets stay
    as they are. `brokers` are those that the query reads, where it matters. `offline` are logs that
    have no leader at present: nothing is read of them until they have."""
    now = {log.name: log for log in end}
    identities = {(log.broker, log.topic): log.identity for log in end}
    result = dict(end)
    for log, offset in start.items():
        present = now.get(log.name)
        if present is None and (log.id in offline or log.broker in gone):
            result[log] = offset
        elif present is None and brokers is not None and log.broker not in brokers:
            at = f"nsqd {log.broker}" if log.broker else "the nsqd of this checkpoint"
            reason = (
                f"{at} is not among those that this query reads, and was at offset {offset}: "
                "name it again, or in goneBrokers if it is gone for good"
            )
            on_loss(_lost(log, reason))
            result[log] = offset  # it goes on there when it is read again
        elif present is None and (log.topic, log.partition) in left_out:
            reason = f"this query does not read it any more, and was at offset {offset}"
            on_loss(_lost(log, reason))
        elif present is None and identities.get((log.broker, log.topic), log.identity) == (
            log.identity
        ):
            reason = f"the topic is gone, and was read to offset {offset}"
            on_deleted(log, offset, _lost(log, reason), False)
        elif present is None or present.identity != log.identity:
            identity = identities[log.broker, log.topic]
            on_deleted(log, offset, _lost(log, _made_again(log.identity, identity)), True)
        elif end[log] < offset:
            on_loss(_lost(log, f"it ends at {end[log]}, but offset {offset} was reached before"))
            result[log] = offset
    return result


def planned(
    start: Mapping[Log, int],
    end: Mapping[Log, int],
    have: Logs,
    on_loss: OnLoss,
    on_deleted: OnDeleted,
    gone: Collection[str] = (),
) -> list[Range]:
    """The ranges of a batch from `start` to `end`, given the present spans."""
    begun = {log.name: log for log in start}
    met = {log.broker for log in start} | {""}
    ranges = []
    for log in sorted(end):
        span = have.get(log)
        before = begun.get(log.name)
        if log.broker in gone and end[log] == start.get(log):
            continue
        if span is None:
            if start.get(log) != end[log]:  # else there is nothing to be read of it
                reason = "the topic is gone, or was deleted and made again"
                on_deleted(log, start.get(log, 0), _lost(log, reason), False)
            continue
        if before is not None and before != log:
            lost = _lost(log, _made_again(before.identity, log.identity))
            on_deleted(before, start[before], lost, True)
        first = start.get(log)
        if first is None:
            # An nsqd that comes to the others begins with what it has.
            if before is None and span.earliest > 0 and log.broker in met:
                on_loss(_lost(log, f"a new log begins at {span.earliest} instead of 0"))
            first = span.earliest
        range_ = _within(Range(log, first, end[log]), span, on_loss)
        if range_.size > 0:
            ranges.append(range_)
    return ranges


def _within(range_: Range, span: LogSpan, on_loss: OnLoss) -> Range:
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


# --- ranges of a batch's tasks ---
#
# A large range is cut, so that several tasks share it, and small ones are put into one task: a task
# costs tens of milliseconds before it reads its first row, which is more than a topic with a few
# messages is worth. Each task reads its ranges one after the other, in their order.


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


def packed(
    ranges: Sequence[Range], rows_max: int, partitions_min: int | None
) -> list[tuple[Range, ...]]:
    """Neighbours together, up to `rows_max` rows; a larger range has a task of its own. There are
    no fewer tasks than `partitions_min`, as far as there are that many ranges."""
    if partitions_min is not None:
        rows_max = min(rows_max, -(-sum(one.size for one in ranges) // partitions_min))
        if len(ranges) <= partitions_min:
            rows_max = 0
    found: list[list[Range]] = []
    rows = 0
    for one in ranges:
        rows += one.size
        if not found or rows > rows_max:
            found.append([])
            rows = one.size
        found[-1].append(one)
    return [tuple(each) for each in found]
