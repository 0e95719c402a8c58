"""One audit: what the two passes (`passes`) bring back, put together into a report.

What is rare is asked for only when something points to it: who was the consumer of a delivery too
many, and ids that stand twice, which can't be while ids rise along the log.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock import limits
from penstock.pipelines.audit import passes
from penstock.pipelines.audit.asking import Answer, Ask
from penstock.pipelines.audit.examples import (
    about,
    example,
    kind_of,
    log_example,
    order_example,
    repeat,
    same_id_example,
)
from penstock.pipelines.audit.marks import around_dtype, merged_marks
from penstock.pipelines.audit.order import PAIR, ROW, Broken, Counts, Order, across, kinds_of
from penstock.pipelines.audit.passes import Source
from penstock.pipelines.audit.report import (
    ARCHIVE,
    LOG,
    TRACE,
    ChannelReport,
    Coverage,
    Example,
    Finding,
    PartitionReport,
    Report,
    Waits,
    in_order,
)
from penstock.pipelines.audit.rules import Known, Rules, fine_us, micros
from penstock.pipelines.lifecycles.events import (
    INDEX_BITS,
    RANGE,
    Names,
    Numbers,
    Wanted,
    joined,
)
from penstock.pipelines.lifecycles.fates import FATES
from penstock.pipelines.lifecycles.ranges import islands
from penstock.pipelines.moments import duration
from penstock.trace.events import Kind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PERCENTS = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
_EXCUSES = {
    "lost": (Answer.HELD, Answer.AHEAD, Answer.GONE),
    "stuck": (Answer.DONE, Answer.GONE),
}
_EXCUSED = {
    "lost": "channel {channel}: {count:,} messages that the trace shows as passed over still wait "
    "to be delivered, or are deleted, as nsqd says: not lost by the channel",
    "stuck": "channel {channel}: {count:,} messages whose finish is not in the trace are done, as "
    "nsqd says: finished since, or the events were lost in a kill",
}


_HOLES_MAX = 64  # that are looked at one by one: each is a column of what is known of a channel


@dataclass(frozen=True)
class Tables:
    """What is audited. `source` has the trace table's rows, `events` those of the topic as a frame;
    `archive` and `log` have rows (partition, place, offset, id, time) of the span."""

    source: Source | None
    wanted: Wanted
    events: DataFrame | None
    archive: DataFrame | None = None
    log: DataFrame | None = None
    log_messages: int | None = None
    bodies: DataFrame | None = None  # (trace_partition, trace_offset) of all events of the span


class Audit:
    def __init__(
        self,
        spark: SparkSession,
        tables: Tables,
        rules: Rules,
        topic: str,
        examples: int,
        ask: Ask | None = None,
    ) -> None:
        """`ask`: nsqd itself, about what looks lost or stuck."""
        self._spark = spark
        self._tables = tables
        self._rules = rules
        self._topic = topic
        self._examples = examples
        self._ask = ask
        self._findings: list[Finding] = []
        self._notes: list[str] = []
        self._events = 0
        self._traced: dict[int, tuple[int, int, int]] = {}  # partition: least, greatest, publishes

    def run(self, at: Callable[[str], None] = lambda what: None) -> Report:
        """`at` hears what is done next."""
        began_s = time.monotonic()
        channels: list[ChannelReport] = []
        if self._tables.source is not None:
            channels = self._check_trace(self._tables.source, at)
        counts: dict[str, Counter[int]] = {}
        for rows, place in ((self._tables.archive, ARCHIVE), (self._tables.log, LOG)):
            if rows is not None:
                at(f"offsets of {place}")
                counts[place] = self._check_rows(rows, place)
        rules = self._rules
        return Report(
            self._topic,
            rules.since,
            rules.until,
            rules.as_of,
            rules.settle_s,
            rules.stuck_s,
            self._coverage(counts),
            self._partitions(counts),
            tuple(channels),
            in_order(self._findings),
            tuple(self._notes),
            self._events,
            round(time.monotonic() - began_s, 3),
        )

    # --- the trace ---

    def _check_trace(
        self, source: Source, at: Callable[[str], None], sees_holes: bool = False
    ) -> list[ChannelReport]:
        rules, shown = self._rules, self._kept
        buckets = passes.bucket_count(source.rows)
        tasks = passes.task_count(source.rows, self._spark.sparkContext.defaultParallelism)
        at("grouping by message")
        packed = source.packed(self._spark, self._tables.wanted, buckets)
        gathered = packed.repartitionById(tasks, "bucket")
        gathering = passes.gathering(rules, buckets, shown)
        lives = gathered.mapInArrow(gathering, passes.BLOB_SQL).persist()
        try:
            summary = _by_tag(lives.where(lives.tag.isin(*passes.SUMMARY)))
            if not sees_holes and _missing(summary[passes.BODIES]):
                lives.unpersist()
                at("looking for the holes in the trace")
                self._see_holes()
                return self._check_trace(source, at, sees_holes=True)
            self._check_bodies(summary[passes.BODIES])
            self._check_publishes(summary)
            at("judging")
            known = self._known(summary)
            sends = lives.where(lives.tag == passes.SENDS).repartitionById(tasks, "bucket")
            order = sends.mapInArrow(passes.ordering(shown), passes.BLOB_SQL)
            judged = lives.where(lives.tag.isin(passes.LIVES, passes.STEPS))
            judged = judged.mapInArrow(passes.judging(known, rules, shown), passes.BLOB_SQL)
            found = _by_tag(judged.union(order))
        finally:
            lives.unpersist()
        self._check_deliveries(found[passes.EDGES])
        return self._channels(found, known)

    @property
    def _kept(self) -> int:
        """Of each finding: those that are asked about are as many as can be."""
        return self._examples if self._ask is None else limits.AUDIT_ASKED_MAX

    def _see_holes(self) -> None:
        """What was done in a hole is not known, as around a start of nsqd: a message that may have
        been delivered in it is not called lost."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        if self._tables.bodies is None:
            return
        order = Window.partitionBy("trace_partition").orderBy("trace_offset")
        bodies = self._tables.bodies.distinct()
        missing = bodies.withColumn("before", F.lag("trace_offset").over(order))
        rows = missing.where("trace_offset > before + 1").orderBy("before").limit(_HOLES_MAX + 1)
        found = [(int(row.before) + 1) << INDEX_BITS for row in rows.collect()]
        if len(found) > _HOLES_MAX:
            self._notes.append(
                f"the trace has more than {_HOLES_MAX} holes: messages that were delivered in one "
                "of those behind them are called lost"
            )
        tracing = self._rules.tracing
        starts = tuple(sorted({*tracing.starts, *found[:_HOLES_MAX]}))
        self._rules = self._rules._replace(tracing=replace(tracing, starts=starts))
        self._notes.append(
            "the trace has holes: messages that a channel may have delivered in one of them are "
            "not called lost"
        )

    def _check_bodies(self, blobs: list[_Found]) -> None:
        held = np.concatenate([np.frombuffer(one.data, passes.HELD) for one in blobs])
        for partition in np.unique(held["partition"]):
            mine = held[held["partition"] == partition]
            self._events += int(mine["rows"].sum())
            missing = _missing_of(mine)
            doubled = int(mine["doubled"].sum())
            name = f"partition {partition} of _trace"
            if missing > 0:
                note = f"{missing:,} bodies between the first and the last are missing"
                one = [about(partition, name, note)]
                self._add("trace_hole", None, TRACE, {int(partition): missing}, one)
            if doubled > 0:
                note = f"{doubled:,} events are there more than once"
                one = [about(partition, name, note)]
                self._add("trace_doubled", None, TRACE, {int(partition): doubled}, one)

    def _check_publishes(self, summary: dict[int, list[_Found]]) -> None:
        for one in summary[passes.PUBLISHES]:
            for partition, least, most, count in one.head["publishes"]:
                before = self._traced.get(partition, (least, most, 0))
                self._traced[partition] = (
                    min(least, before[0]),
                    max(most, before[1]),
                    count + before[2],
                )
        self._check_log_order(summary[passes.EDGES], TRACE, passes.PUBLISH_ORDER)

    def _known(self, summary: dict[int, list[_Found]]) -> Known:
        marks, ranges = summary[passes.MARKS], summary[passes.RANGES]
        blobs = (*marks, *summary[passes.CORRUPT])
        names = Names(sorted({name for one in blobs for name in one.head["names"]}))
        starts = len(self._rules.tracing.starts)
        spans = [(one.head["names"], np.frombuffer(one.data, RANGE)) for one in ranges]
        of_channels = [
            (one.head["names"], np.frombuffer(one.data, around_dtype(starts))) for one in marks
        ]
        found = merged_marks(of_channels, names, starts)
        corrupt = [
            (one.head["names"], np.frombuffer(one.data, RANGE)) for one in summary[passes.CORRUPT]
        ]
        return Known(
            tuple(names.names),
            found,
            islands(joined(RANGE, spans, names)),
            islands(joined(RANGE, corrupt, names)),
        )

    def _partitions(self, counts: Mapping[str, Counter[int]]) -> tuple[PartitionReport, ...]:
        numbers = {*self._traced, *(number for each in counts.values() for number in each)}
        traced = {number: count for number, (_, _, count) in self._traced.items()}
        archived, logged = counts.get(ARCHIVE), counts.get(LOG)
        is_traced = self._tables.source is not None
        return tuple(
            PartitionReport(
                number,
                traced.get(number, 0) if is_traced else None,
                None if archived is None else archived[number],
                None if logged is None else logged[number],
            )
            for number in sorted(numbers)
        )

    def _coverage(self, counts: Mapping[str, Counter[int]]) -> Coverage:
        known = sum(count for _, _, count in self._traced.values())
        ranges = sum(most - least + 1 for least, most, _ in self._traced.values())
        if self._tables.log_messages is not None:
            return _of_at_least(known, self._tables.log_messages, "counted by nsqd")
        for place, count in counts.items():
            return _of_at_least(known, count.total(), f"counted in {place}")
        basis = "by the offsets between the first and the last that was traced"
        return Coverage(known, max(ranges, known) or None, basis)

    # --- channels ---

    def _channels(self, found: dict[int, list[_Found]], known: Known) -> list[ChannelReport]:
        reports = {name: ChannelReport(name) for name in known.names}
        waits: dict[tuple[str, str], dict[int, int]] = defaultdict(lambda: defaultdict(int))
        repeats: dict[tuple[str, str], Counter[int]] = defaultdict(Counter)
        wrong: dict[tuple[str, str], Counter[int]] = defaultdict(Counter)  # lost and stuck ones
        for one in found[passes.TALLIES]:
            tally = one.head["tally"]
            name = tally["channel"]
            _add_tally(reports[name], tally)
            for wait, bars in tally["waits"].items():
                for bar, count in bars:
                    waits[name, wait][bar] += count
            for kind, before, partition, count in one.head["repeats"]:
                repeats[repeat(kind, before), name][partition] += count
            for kind, counts in tally["partitions"].items():
                wrong[kind, name] += _added([counts])
        for (name, wait), bars in waits.items():
            if bars:
                reports[name].waits[wait] = percentiles(bars)
        shown = self._shown(found[passes.SHOWN])
        for report in reports.values():
            for kind in ("corrupt", "lost", "stuck"):
                key = (kind, report.name)
                examples = self._asked(report, kind, shown.get(key, []), wrong[key])
                if wrong[key]:
                    self._add(kind, report.name, report.name, wrong[key], examples)
        for (kind, name), by_partition in repeats.items():
            self._add(kind, name, name, by_partition, shown[kind, name])
        self._say_unjudged(reports.values())
        return [reports[name] for name in sorted(reports) if reports[name].messages]

    def _shown(self, blobs: list[_Found]) -> dict[tuple[str, str], list[Example]]:
        """By kind and channel, in the order of the log."""
        cases: dict[tuple[str, str], list[Any]] = defaultdict(list)
        for one in blobs:
            for case in np.frombuffer(one.data, passes.CASE):
                cases[kind_of(case), one.head["channel"]].append(case)
        for found in cases.values():
            found.sort(key=lambda case: (case["partition"], case["offset"], case["place"]))
            del found[self._kept :]
        clients = self._clients(case for found in cases.values() for case in found)
        return {key: [self._example(case, clients) for case in found]
                for key, found in cases.items()}  # fmt: skip

    def _asked(
        self, report: ChannelReport, kind: str, found: list[Example], counts: Counter[int]
    ) -> list[Example]:
        """Without those of which nsqd says that they are no finding; nor do they count."""
        if self._ask is None or not found or kind not in _EXCUSES:
            return found
        ask, excuses = self._ask, _EXCUSES[kind]
        left = [
            one
            for one in found
            if ask(report.name, one.partition, one.offset, one.message_id or "") not in excuses
        ]
        count, gone = counts.total(), len(found) - len(left)
        setattr(report, kind, getattr(report, kind) - gone)
        kept = Counter(one.partition for one in left)
        counts -= Counter(one.partition for one in found) - kept
        if gone:
            note = _EXCUSED[kind].format(channel=report.name, count=gone)
            self._notes.append(note)
        if count > len(found):
            more = f"only the first {len(found):,} of {count:,} {kind} messages were asked about"
            self._notes.append(f"channel {report.name}: {more}")
        return left

    def _clients(self, cases: Iterable[Any]) -> dict[int, str | None]:
        """Of steps, by their place: the packed events have no names of clients."""
        events = self._tables.events
        places = sorted({int(case["place"]) for case in cases if int(case["place"])})
        if events is None or not places:
            return {}
        bodies = sorted({place >> INDEX_BITS for place in places})
        rows = (
            events.where(events.trace_offset.isin(bodies))
            .selectExpr(f"(trace_offset << {INDEX_BITS}) + trace_index AS place", "client")
            .where(f"place IN ({', '.join(map(str, places))})")
        )
        return {row.place: row.client for row in rows.collect()}

    def _example(self, case: Any, clients: dict[int, str | None]) -> Example:
        time_us = int(case["time_us"])
        if kind_of(case) == "corrupt":
            note = "stepped over: its bytes in the log are corrupt"
        elif case["kind"] == passes.LOST:
            note = "published, never delivered"
        elif case["kind"] == passes.STUCK:
            age = duration(micros(self._rules.as_of) - time_us)
            out = FATES[case["fate"]] == "out"
            held = "a consumer has it" if out else "it waits to be sent again"
            note = f"first delivered {age} before the end, {case['sends']} times in all; {held}"
        else:
            before = "a delivery" if case["before"] == Kind.SENT else "a finish"
            client = clients.get(int(case["place"]))
            by = f" to {client}" if client else ""
            note = f"{Kind(case['kind']).label}{by} right after {before}"
        return example(case, time_us, note)

    def _check_deliveries(self, blobs: list[_Found]) -> None:
        names = Names()
        found = across(_broken(blobs, names), passes.SEND_ORDER, self._examples)
        channels = names.names
        for (channel, kind), counts in _by_kind(found.counts).items():
            pairs = found.pairs[found.pairs["channel"] == channel]
            name = channels[channel - 1]
            self._add(kind, name, name, counts, map(order_example, pairs))

    def _say_unjudged(self, reports: Iterable[ChannelReport]) -> None:
        for report in reports:
            left = report.messages - report.judged
            if left:
                self._notes.append(
                    f"channel {report.name}: {left:,} of {report.messages:,} traced messages are "
                    "not judged: the channel was not traced then, or less than the topic, and they "
                    "are not in its sample: nobody knows whether it got them"
                )

    # --- the order of a log ---

    def _check_rows(self, rows: DataFrame, place: str) -> Counter[int]:
        """How many there are, by partition."""
        buckets = self._spark.sparkContext.defaultParallelism
        packed = rows.mapInArrow(passes.packing_rows(buckets), passes.BLOB_SQL)
        checked = packed.repartitionById(buckets, "bucket").mapInArrow(
            passes.checking_rows(self._examples), passes.BLOB_SQL
        )
        found = _by_tag(checked)[passes.EDGES]
        self._check_log_order(found, place, passes.LOG_ORDER, rows)
        return _added(one.head["rows"] for one in found)

    def _check_log_order(
        self, blobs: list[_Found], place: str, order: Order, rows: DataFrame | None = None
    ) -> None:
        found = across(_broken(blobs, Names()), order, self._examples)
        by_kind: dict[str, list[Example]] = defaultdict(list)
        for pair in found.pairs:
            for kind, count in kinds_of(pair, order).items():
                by_kind[kind].append(log_example(pair, kind, count))
        for (_, kind), counts in _by_kind(found.counts).items():
            if kind != "same_id":  # all of these are found below, neighbours or not
                self._add(kind, None, place, counts, by_kind[kind])
        kinds = {kind for _, _, kind in found.counts}
        if kinds & {"id_falls", "repeated_offset", "same_id"}:
            self._check_ids(self._publishes() if rows is None else rows, place)

    def _publishes(self) -> DataFrame:
        events = self._tables.events
        if events is None:
            raise ValueError("no trace table")
        since, until = self._rules.since_us, self._rules.until_us
        span = f"unix_micros(time) >= {since} AND unix_micros(time) < {until}"
        chosen = events.where(f"event = 'published' AND {span}")
        return chosen.selectExpr("partition", "offset", "message_id AS id", "time")

    def _check_ids(self, rows: DataFrame, place: str) -> None:
        from pyspark.sql import functions as F

        twice = rows.groupBy("id").agg(
            F.max(F.struct("partition", "offset")).alias("at"),
            F.min(F.struct("partition", "offset")).alias("before"),
            F.max(F.unix_micros("time")).alias("time_us"),
        )
        twice = twice.where("before < at").persist()
        try:
            by_partition = twice.groupBy("at.partition").count().collect()
            counts = Counter({row.partition: row["count"] for row in by_partition})
            found = twice.orderBy("at").limit(self._examples).collect() if counts else []
        finally:
            twice.unpersist()
        if counts:
            self._add("same_id", None, place, counts, map(same_id_example, found))

    # --- findings ---

    def _add(
        self,
        kind: str,
        channel: str | None,
        place: str,
        counts: Mapping[int, int],
        examples: Iterable[Example],
    ) -> None:
        shown = tuple(example for _, example in zip(range(self._examples), examples, strict=False))
        by_partition = {number: counts[number] for number in sorted(counts)}
        found = Finding(kind, channel, place, sum(counts.values()), shown, by_partition)
        self._findings.append(found)


class _Found(NamedTuple):
    head: Any
    data: bytes


def _added(tables: Iterable[Iterable[Sequence[int]]]) -> Counter[int]:
    """Of [partition, how many]."""
    found: Counter[int] = Counter()
    for table in tables:
        for partition, count in table:
            found[partition] += count
    return found


def _by_kind(counts: Counts) -> dict[tuple[int, str], dict[int, int]]:
    """By channel and kind, the counts by partition."""
    found: dict[tuple[int, str], dict[int, int]] = {}
    for (channel, partition, kind), count in counts.items():
        found.setdefault((channel, kind), {})[partition] = count
    return found


def _missing(blobs: list[_Found]) -> bool:
    held = np.concatenate([np.frombuffer(one.data, passes.HELD) for one in blobs])
    partitions = np.unique(held["partition"])
    return any(_missing_of(held[held["partition"] == number]) > 0 for number in partitions)


def _missing_of(held: Numbers) -> int:
    """Bodies of one partition of `_trace`, between the first and the last."""
    return int(held["most"].max() - held["least"].min() + 1 - held["bodies"].sum())


def _of_at_least(traced: int, count: int, basis: str) -> Coverage:
    """What is traced was there, also where it is not to be counted any more."""
    if count < traced:
        basis = f"only {count:,} of them {basis}"
    return Coverage(traced, max(traced, count), basis)


def _by_tag(blobs: DataFrame) -> dict[int, list[_Found]]:
    found: dict[int, list[_Found]] = defaultdict(list)
    for row in blobs.select("tag", "head", "data").collect():
        found[row.tag].append(_Found(json.loads(row.head), bytes(row.data)))
    return found


def _broken(blobs: list[_Found], names: Names) -> Iterator[Broken]:
    """With the numbers of `names`."""
    for one in blobs:
        count = one.head["pairs"]
        own, counts = one.head["names"], one.head["counts"]
        numbers = names.numbers(own)
        pairs = np.frombuffer(one.data, PAIR, count)
        edges = np.frombuffer(one.data, ROW, offset=count * PAIR.itemsize)
        yield Broken(
            {(int(numbers[channel]), number, kind): n for channel, number, kind, n in counts},
            joined(PAIR, [(own, pairs)], names),
            joined(ROW, [(own, edges)], names),
        )


def percentiles(counts: dict[int, int]) -> Waits:
    """Of a histogram with fine bars."""
    bars = sorted(counts)
    total = sum(counts.values())
    found: dict[str, float] = {}
    passed, position = 0, -1
    for name, percent in PERCENTS.items():
        while passed < percent * total:
            position += 1
            passed += counts[bars[position]]
        found[name] = fine_us(bars[max(position, 0)])
    return Waits(found, fine_us(bars[-1]))


def _add_tally(report: ChannelReport, tally: dict[str, Any]) -> None:
    slots = tally["slots"]
    for slot, counts in enumerate(zip(*slots.values(), strict=True)):
        if any(counts):
            mine = report.slots.setdefault(slot, {})
            for name, count in zip(slots, counts, strict=True):
                mine[name] = mine.get(name, 0) + count
    for name in ("messages", "lost", "stuck"):
        setattr(report, name, getattr(report, name) + sum(slots[name]))
    for name in ("judged", "repeated", "sends"):
        setattr(report, name, getattr(report, name) + tally[name])
    for fate, count in zip(FATES, tally["fates"], strict=True):
        report.fates[fate] = report.fates.get(fate, 0) + count
    for slot, bar, count in tally["bars"]:
        for bars in (report.histogram, report.slot_bars.setdefault(slot, {})):
            bars[bar] = bars.get(bar, 0) + count
