"""One audit: the queries of `audit_rules`, put together into a report.

Lifecycles are made once and kept; all else reads them. What is rare is asked for only when
something points to it: the single steps of messages that were delivered more than once, and ids
that stand twice, which can't be while ids rise along the log.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from penstock.pipelines import audit_rules
from penstock.pipelines.audit_report import (
    ARCHIVE,
    LOG,
    TRACE,
    ChannelReport,
    Coverage,
    Example,
    Finding,
    Report,
    Waits,
    duration,
    in_order,
    moment,
)
from penstock.pipelines.audit_rules import Rules
from penstock.pipelines.lifecycles import PERCENTS, lifecycles
from penstock.pipelines.views import Views

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

_ROWS_MAX = 10_000  # of one kind of finding brought to the driver; more are only counted
_FATES = ("finished", "ended", "delayed", "out", "back", "unsent")


@dataclass(frozen=True)
class Tables:
    """What is audited. `events` are those of the topic, `all_events` those of all topics; `archive`
    and `log` have rows (partition, place, offset, id, time) of the span."""

    events: DataFrame | None
    all_events: DataFrame | None
    archive: DataFrame | None = None
    log: DataFrame | None = None
    log_messages: int | None = None


class Audit:
    def __init__(
        self, views: Views, tables: Tables, rules: Rules, topic: str, examples: int
    ) -> None:
        self._views = views
        self._tables = tables
        self._rules = rules
        self._topic = topic
        self._examples = examples
        self._findings: list[Finding] = []
        self._notes: list[str] = []
        self._events = 0

    def run(self, at: Callable[[str], None] = lambda what: None) -> Report:
        """`at` hears what is done next."""
        began_s = time.monotonic()
        channels: list[ChannelReport] = []
        traced: DataFrame | None = None
        if self._tables.events is not None and self._tables.all_events is not None:
            at("reading the trace")
            self._check_trace(self._tables.all_events)
            at("grouping by message")
            channels = self._channels(self._tables.events)
            at("order of publishes")
            traced = audit_rules.published(self._views, self._tables.events, self._rules)
            self._check_log_order(traced, TRACE, dense=False, times=True)
        counts = {}
        for rows, place in ((self._tables.archive, ARCHIVE), (self._tables.log, LOG)):
            if rows is not None:
                at(f"offsets of {place}")
                self._check_log_order(rows, place, dense=True, times=False)
                counts[place] = rows.count()
        coverage = self._coverage(traced, counts)
        rules = self._rules
        return Report(
            self._topic,
            rules.since,
            rules.until,
            rules.as_of,
            rules.settle_s,
            rules.stuck_s,
            coverage,
            tuple(channels),
            in_order(self._findings),
            tuple(self._notes),
            self._events,
            round(time.monotonic() - began_s, 3),
        )

    # --- the trace itself ---

    def _check_trace(self, events: DataFrame) -> None:
        for row in audit_rules.holes(self._views, events).collect():
            self._events += row.rows
            name = f"partition {row.partition} of _trace"
            if row.missing > 0:
                note = f"{row.missing:,} bodies between the first and the last are missing"
                self._add(
                    "trace_hole", None, TRACE, row.missing, [_about(row.partition, name, note)]
                )
            if row.doubled > 0:
                note = f"{row.doubled:,} events are there more than once"
                self._add(
                    "trace_doubled", None, TRACE, row.doubled, [_about(row.partition, name, note)]
                )

    def _coverage(self, traced: DataFrame | None, counts: dict[str, int]) -> Coverage:
        known, ranges = 0, 0
        if traced is not None:
            for row in (
                traced.groupBy("partition")
                .agg({"offset": "min", "place": "max", "id": "count"})
                .collect()
            ):
                known += row["count(id)"]
                ranges += row["max(place)"] - row["min(offset)"] + 1
        if self._tables.log_messages is not None:
            return Coverage(known, self._tables.log_messages, "counted by nsqd")
        for place, count in counts.items():
            return Coverage(known, count, f"counted in {place}")
        basis = "by the offsets between the first and the last that was traced"
        return Coverage(known, ranges or None, basis)

    # --- channels ---

    def _channels(self, events: DataFrame) -> list[ChannelReport]:
        every = lifecycles(self._views, events)
        lives = self._views.keep(every.drop("topic", "last", "attempts", "given_back"))
        lives.count()  # the next query reads it twice at once, and would make it twice
        judged = audit_rules.judged(self._views, lives, self._rules)
        reports = self._tallied(judged)
        for name, waits in self._waits(judged).items():
            reports[name].waits = waits
        self._check_fates(judged, reports.values())
        if any(report.repeated for report in reports.values()):
            self._check_repeats(events, judged)
        self._check_deliveries(lives)
        self._say_unjudged(reports.values())
        return [reports[name] for name in sorted(reports)]

    def _tallied(self, judged: DataFrame) -> dict[str, ChannelReport]:
        reports: dict[str, ChannelReport] = {}
        for row in audit_rules.tallies(self._views, judged, self._rules).collect():
            report = reports.setdefault(row.channel, ChannelReport(row.channel))
            _add_tally(report, row.asDict())
        return reports

    def _waits(self, judged: DataFrame) -> dict[str, dict[str, Waits]]:
        bars: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
        for row in audit_rules.waits(self._views, judged).collect():
            bars[row.channel, row.wait][row.bar] = row.messages
        found: dict[str, dict[str, Waits]] = defaultdict(dict)
        for (channel, name), counts in bars.items():
            found[channel][name] = percentiles(counts)
        return found

    def _check_fates(self, judged: DataFrame, reports: Iterable[ChannelReport]) -> None:
        for report in reports:
            for kind, count in (("lost", report.lost), ("stuck", report.stuck)):
                if count:
                    chosen = judged.where(judged.channel == report.name).where(kind)
                    rows = chosen.orderBy("partition", "offset").limit(self._examples).collect()
                    make = _lost_example if kind == "lost" else self._stuck_example
                    self._add(kind, report.name, report.name, count, map(make, rows))

    def _stuck_example(self, row: Row) -> Example:
        age = duration((self._rules.as_of - utc(row.first_sent)).total_seconds() * 1e6)
        held = "a consumer has it" if row.fate == "out" else "it waits to be sent again"
        note = f"first delivered {age} before the end, {row.sends} times in all; {held}"
        return Example(row.partition, row.offset, row.message_id, utc(row.first_sent), note)

    def _check_repeats(self, events: DataFrame, judged: DataFrame) -> None:
        steps = audit_rules.repeats(self._views, events, judged, self._rules)
        self._add_rows(steps, ("kind", "channel"), _repeat_example, lambda key: key)

    def _check_deliveries(self, lives: DataFrame) -> None:
        broken = audit_rules.disorder(self._views, lives, self._rules)
        self._add_rows(broken, ("channel",), _order_example, lambda key: ("out_of_order", key[0]))

    def _say_unjudged(self, reports: Iterable[ChannelReport]) -> None:
        for report in reports:
            left = report.messages - report.judged
            if left:
                self._notes.append(
                    f"channel {report.name}: {left:,} of {report.messages:,} traced messages are "
                    "not judged: the channel was not traced then, or less than the topic"
                )

    # --- the order of a log ---

    def _check_log_order(self, rows: DataFrame, place: str, dense: bool, times: bool) -> None:
        broken = audit_rules.falling(self._views, rows, dense, times)
        found = broken.orderBy("partition", "place").limit(_ROWS_MAX).collect()
        by_kind: dict[str, list[tuple[int, Example]]] = defaultdict(list)
        for row in found:
            for kind, count, note in _breaks(row, dense, times):
                example = Example(row.partition, row.offset, row.id, utc(row.time), note)
                by_kind[kind].append((count, example))
        for kind, entries in by_kind.items():
            if kind == "same_id":
                continue  # all of these are found below, neighbours or not
            count = sum(count for count, _ in entries)
            self._add(kind, None, place, count, (example for _, example in entries))
        if len(found) == _ROWS_MAX:
            self._notes.append(f"{place} has more breaks than {_ROWS_MAX:,}; the rest is not shown")
        if "id_falls" in by_kind or "repeated_offset" in by_kind or "same_id" in by_kind:
            self._check_ids(rows, place)

    def _check_ids(self, rows: DataFrame, place: str) -> None:
        twice = audit_rules.same_ids(self._views, rows)
        count = twice.count()
        if count:
            found = twice.orderBy("offset").limit(self._examples).collect()
            examples = (
                Example(r.partition, r.offset, r.id, utc(r.time), f"also at {r.offset_before}")
                for r in found
            )
            self._add("same_id", None, place, count, examples)

    # --- findings ---

    def _add_rows(
        self,
        frame: DataFrame,
        keys: tuple[str, ...],
        make: Callable[[Row], Example],
        naming: Callable[[tuple[str, ...]], tuple[str, ...]],
    ) -> None:
        """A finding for each value of the keys; `naming` makes (kind, channel) of them."""
        rows = frame.orderBy("channel", "partition", "offset").limit(_ROWS_MAX).collect()
        grouped: dict[tuple[str, ...], list[Row]] = defaultdict(list)
        for row in rows:
            grouped[tuple(row[key] for key in keys)].append(row)
        counts = {key: len(found) for key, found in grouped.items()}
        if len(rows) == _ROWS_MAX:
            counted = frame.groupBy(*keys).count().collect()
            counts = {tuple(row[key] for key in keys): row["count"] for row in counted}
        for key, count in counts.items():
            kind, channel = naming(key)
            self._add(kind, channel, channel, count, map(make, grouped[key]))

    def _add(
        self, kind: str, channel: str | None, place: str, count: int, examples: Iterable[Example]
    ) -> None:
        shown = tuple(example for _, example in zip(range(self._examples), examples, strict=False))
        self._findings.append(Finding(kind, channel, place, count, shown))


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
        found[name] = audit_rules.fine_us(bars[max(position, 0)])
    return Waits(found, audit_rules.fine_us(bars[-1]))


def _add_tally(report: ChannelReport, row: dict[str, Any]) -> None:
    for name in ("messages", "judged", "lost", "stuck", "repeated", "sends"):
        setattr(report, name, getattr(report, name) + row[name])
    for fate in _FATES:
        report.fates[fate] = report.fates.get(fate, 0) + row[fate]
    slot = report.slots.setdefault(row["slot"], {})
    for name in ("messages", "finished", "lost", "stuck"):
        slot[name] = slot.get(name, 0) + row[name]
    if row["bar"] is not None:
        bars = report.slot_bars.setdefault(row["slot"], {})
        for counts in (report.histogram, bars):
            counts[row["bar"]] = counts.get(row["bar"], 0) + row["messages"]


def utc(time: datetime) -> datetime:
    """PySpark gives times of this machine's zone, and does not say so."""
    return datetime.fromtimestamp(time.timestamp(), UTC)


def _about(partition: int, name: str, note: str) -> Example:
    return Example(partition, 0, None, None, f"{name}: {note}")


def _lost_example(row: Row) -> Example:
    note = "published, never delivered"
    return Example(row.partition, row.offset, row.message_id, utc(row.published), note)


def _repeat_example(row: Row) -> Example:
    before = {"sent": "a delivery", "finished": "a finish"}[row.event_before]
    by = f" to {row.client}" if row.client else ""
    note = f"{row.event}{by} right after {before}"
    return Example(row.partition, row.offset, row.message_id, utc(row.time), note)


def _order_example(row: Row) -> Example:
    note = f"first delivered after offset {row.offset_before} (at {moment(utc(row.time_before))})"
    return Example(row.partition, row.offset, row.id, utc(row.time), note)


def _breaks(row: Row, dense: bool, times: bool) -> Sequence[tuple[str, int, str]]:
    """What is wrong between a row and its neighbour: (kind, how many, in words)."""
    before = f"offset {row.offset_before}"
    if row.offset == row.offset_before:
        same = "the same id" if row.id == row.id_before else f"also the id {row.id_before}"
        return [("repeated_offset", 1, f"two rows; {same}")]
    found = []
    if dense and row.offset > row.offset_before + 1:
        missing = row.offset - row.offset_before - 1
        last = f" to {row.offset - 1}" if missing > 1 else ""
        found.append(("gap", missing, f"before it {row.offset_before + 1}{last} is missing"))
    if row.id < row.id_before:
        found.append(("id_falls", 1, f"{before} has the higher id {row.id_before}"))
    elif row.id == row.id_before:
        found.append(("same_id", 1, f"{before} has the same id"))
    if times and row.time < row.time_before:
        found.append(("time_falls", 1, f"{before} was published at {moment(utc(row.time_before))}"))
    return found
