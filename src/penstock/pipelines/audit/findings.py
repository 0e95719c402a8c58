"""One audit: the queries of `rules` and of the order of the logs one by one, and a report of them.

What is rare is asked for only when something points to it: ids that stand twice, which can't be
while ids rise along the log.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple

from pyspark.sql import DataFrame

from penstock import limits
from penstock.durations import rounded
from penstock.pipelines.audit import rules as sql
from penstock.pipelines.audit.channel_state import Answer, Asker
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
from penstock.pipelines.audit.rules import Rules, bar_us
from penstock.pipelines.lifecycles.engine import Engine
from penstock.pipelines.lifecycles.lives import FATES, PERCENTS, WAITS
from penstock.times import at, micros, moment

Row = dict[str, Any]
Query = Callable[[str], list[Row]]  # its text has {rows} for the rows

_EXCUSES = {"lost": (Answer.HELD, Answer.AHEAD, Answer.GONE), "stuck": (Answer.DONE, Answer.GONE)}
_EXCUSED = {
    "lost": "channel {channel}: {count:,} messages that the trace shows as passed over still wait "
    "to be delivered, or are deleted, as nsqd says: not lost by the channel",
    "stuck": "channel {channel}: {count:,} messages whose finish is not in the trace are done, as "
    "nsqd says: finished since, or the events were lost in a kill",
}
_NOTES = {
    "lost": "published, never delivered",
    "corrupt": "stepped over: its bytes in the log are corrupt",
    "stuck": "first delivered {age} before the end, {sends} times in all; {about}",
    "sent_again": "sent{about} right after a delivery",
    "sent_after_finish": "sent{about} right after a finish",
    "finished_twice": "finished{about} right after a finish",
    "out_of_order": "first delivered after offset {about}",
}


@dataclass(frozen=True)
class Tables:
    """The input of an audit. `trace` has the trace table as a view of that name; `archive` and
    `log` have rows (partition, position, id, us) of the span."""

    trace: Engine | None
    channels: tuple[str, ...] = ()  # of the trace, none: all
    archive: DataFrame | None = None
    log: DataFrame | None = None


@dataclass
class Audit:
    tables: Tables
    rules: Rules
    topic: str
    examples: int
    ask: Asker | None = None  # asks nsqd about messages that look lost or stuck
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    events: int = 0
    logs: dict[str, Log] = field(default_factory=dict)

    def run(self, say: Callable[[str], None] = lambda what: None) -> Report:
        """`say` receives the name of the next step."""
        began_s = time.monotonic()
        channels: list[ChannelReport] = []
        if self.tables.trace is not None:
            channels = self._check_trace(self.tables.trace, say)
        for rows, source in ((self.tables.archive, ARCHIVE), (self.tables.log, LOG)):
            if rows is not None:
                say(f"offsets of {source}")
                self._check_log(source, _by_spark(rows), "repeated_offset", "id_falls", "gap")
        return Report(
            self.topic,
            *self.rules[:-1],  # the times
            self._coverage(),
            self._partitions(),
            tuple(channels),
            in_order(self.findings),
            tuple(self.notes),
            self.events,
            round(time.monotonic() - began_s, 3),
        )

    # --- the trace ---

    def _check_trace(self, engine: Engine, say: Callable[[str], None]) -> list[ChannelReport]:
        say("grouping by message")
        sql.gather(engine, self.rules, self.topic, self.tables.channels)
        self._check_bodies(engine)

        def query(text: str) -> list[Row]:
            return engine.rows(text.format(rows="publishes"))

        self._check_log(TRACE, query, "repeated_offset", "id_falls", "time_falls")
        say("judging")
        sql.judge(engine, self.rules)
        channels = _channels(engine)
        self._check_cases(engine, channels)
        for one in channels.values():
            left = one.messages - one.judged
            if left:
                self.notes.append(
                    f"channel {one.name}: {left:,} of {one.messages:,} traced messages are not "
                    "judged: the channel was not traced then, or less than the topic, and they "
                    "are not in its sample: nobody knows whether it got them"
                )
        return list(channels.values())

    def _check_bodies(self, engine: Engine) -> None:
        for row in engine.rows(
            """SELECT partition, max("offset") - min("offset") + 1 - count(*) AS missing,
                sum(greatest(events - length, 0))::BIGINT AS doubled, sum(events)::BIGINT AS events
            FROM bodies GROUP BY partition ORDER BY partition"""
        ):
            partition = row["partition"]
            self.events += row["events"]
            for kind, count, what in (
                ("trace_hole", row["missing"], "bodies between the first and the last are missing"),
                ("trace_doubled", row["doubled"], "events are there more than once"),
            ):
                note = f"_trace of node {partition}: {count:,} {what}"
                if count > 0:
                    one = Example(partition, 0, None, None, note)
                    self._add(kind, None, TRACE, {partition: count}, [one])

    # --- channels ---

    def _check_cases(self, engine: Engine, reports: Mapping[str, ChannelReport]) -> None:
        kept = self.examples if self.ask is None else limits.AUDIT_ASKED_MAX
        shown: dict[tuple[str, str], list[Example]] = defaultdict(list)
        for row in engine.rows(sql.first_cases(kept)):
            age = rounded(micros(self.rules.as_of) - row["us"])
            note = _NOTES[row["kind"]].format(age=age, **row)
            log = row["partition"], row["offset"], row["message_id"], at(row["us"])
            shown[row["kind"], row["channel"]].append(Example(*log, note))
        counts: dict[tuple[str, str], Counter[int]] = defaultdict(Counter)
        for row in engine.rows(sql.CASE_COUNTS):
            counts[row["kind"], row["channel"]][row["partition"]] = row["amount"]
        for (kind, channel), found in shown.items():
            amounts = counts[kind, channel]
            examples = self._asked(reports[channel], kind, found, amounts)
            if amounts:
                self._add(kind, channel, channel, amounts, examples)

    def _asked(
        self, report: ChannelReport, kind: str, found: list[Example], counts: Counter[int]
    ) -> list[Example]:
        """Without cases that nsqd explains; these do not count either."""
        if self.ask is None or kind not in _EXCUSES:
            return found
        ask, excuses = self.ask, _EXCUSES[kind]
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
            self.notes.append(note)
        if count > len(found):
            more = f"only the first {len(found):,} of {count:,} {kind} messages were asked about"
            self.notes.append(f"channel {report.name}: {more}")
        return left

    # --- logs ---

    def _check_log(self, source: str, query: Query, *kinds: str) -> None:
        log = self.logs[source] = checked(query, kinds, self.examples)
        for kind, (counts, examples) in log.broken.items():
            self._add(kind, None, source, counts, examples)

    def _rows(self, source: str) -> dict[int, int] | None:
        """By partition; None: not read."""
        log = self.logs.get(source)
        return None if log is None else {number: rows for number, (_, _, rows) in log.spans.items()}

    def _partitions(self) -> tuple[PartitionReport, ...]:
        every = [self._rows(source) for source in (TRACE, ARCHIVE, LOG)]
        numbers = sorted({number for rows in every for number in rows or ()})
        return tuple(
            PartitionReport(number, *(None if r is None else r.get(number, 0) for r in every))
            for number in numbers
        )

    def _coverage(self) -> Coverage:
        """Traced messages existed, even where they do not count any more."""
        known = sum((self._rows(TRACE) or {}).values())
        for source in (LOG, ARCHIVE):
            rows = self._rows(source)
            if rows is not None:
                count = sum(rows.values())
                few = f"only {count:,} of them " if count < known else ""
                return Coverage(known, max(known, count), f"{few}counted in {source}")
        spans = self.logs[TRACE].spans.values() if TRACE in self.logs else ()
        ranges = sum(most - least + 1 for least, most, _ in spans)
        basis = "by the offsets between the first and the last that was traced"
        return Coverage(known, max(ranges, known) or None, basis)

    def _add(
        self,
        kind: str,
        channel: str | None,
        source: str,
        counts: Mapping[int, int],
        examples: Sequence[Example],
    ) -> None:
        shown = tuple(examples[: self.examples])
        by_partition = {number: counts[number] for number in sorted(counts)}
        found = Finding(kind, channel, source, sum(counts.values()), shown, by_partition)
        self.findings.append(found)


def _by_spark(rows: DataFrame) -> Query:
    def query(text: str) -> list[Row]:
        return [row.asDict() for row in rows.sparkSession.sql(text, rows=rows).collect()]

    return query


def _channels(engine: Engine) -> dict[str, ChannelReport]:
    found = {}
    for row in engine.rows(sql.SUMS):
        waits = {name: percentiles(bars) for name in WAITS if (bars := row.pop(name))}
        fates = dict.fromkeys(FATES, 0) | row.pop("fates")
        found[row["name"]] = ChannelReport(**row, fates=fates, waits=waits)
    return found


def percentiles(counts: Mapping[int, int]) -> Waits:
    """Of a histogram: the first bar that so much of it is below or in."""
    bars = sorted(counts)
    passed = list(accumulate(counts[bar] for bar in bars))
    found = {
        name: bar_us(bars[bisect_left(passed, share * passed[-1])])
        for name, share in PERCENTS.items()
    }
    return Waits(found, bar_us(bars[-1]))


# --- whether the rows of a log are in order: offsets, ids, times beside those of the row before ---
#
# The same SQL for DuckDB and for Spark, which reads the archive and the log itself. Rows have
# (partition, position, id, us): `position` is the offset; ids are texts that sort as their numbers
# do. One query counts; what is broken is looked at once more, as that is rare.

# Kind of finding: how much of it a row is, beside the row before.
_BREAKS = {
    "repeated_offset": "CASE WHEN position = position_before THEN 1 ELSE 0 END",
    "id_falls": "CASE WHEN position > position_before AND id < id_before THEN 1 ELSE 0 END",
    "gap": "greatest(position - position_before - 1, 0)",
    "time_falls": "CASE WHEN position > position_before AND us < us_before THEN 1 ELSE 0 END",
}
_SAME_ID = "CASE WHEN position > position_before AND id = id_before THEN 1 ELSE 0 END"
_POINT_TO_IDS = ("repeated_offset", "id_falls", "neighbours")
_PAIRS = """(SELECT partition, position, id, us, lag(position) OVER log AS position_before,
        lag(id) OVER log AS id_before, lag(us) OVER log AS us_before
    FROM {rows} WINDOW log AS (PARTITION BY partition ORDER BY position, id))"""
_COUNTS = ", ".join(
    f"sum({amount}) AS {kind}" for kind, amount in {**_BREAKS, "neighbours": _SAME_ID}.items()
)
# An id in several positions: the last of these, with the first.
_SAME_IDS = """(SELECT * FROM (
        SELECT partition, position, id, us, first_value(partition) OVER up AS partition_before,
            first_value(position) OVER up AS position_before,
            row_number() OVER (PARTITION BY id ORDER BY partition DESC, position DESC) AS back
        FROM {rows} WINDOW up AS (PARTITION BY id ORDER BY partition, position)) AS ids
    WHERE back = 1 AND (partition <> partition_before OR position <> position_before))"""


class Log(NamedTuple):
    spans: dict[int, tuple[int, int, int]]  # by partition: least and greatest offset, rows
    broken: dict[str, tuple[dict[int, int], list[Example]]]  # by kind: how many of each partition


def checked(query: Query, kinds: tuple[str, ...], shown: int) -> Log:
    """`kinds` of breaks; ids that stand twice are found in any case."""
    counts = query(
        "SELECT partition, count(*) AS amount, min(position) AS least, max(position) AS most,"
        f" {_COUNTS} FROM {_PAIRS} AS pairs GROUP BY partition ORDER BY partition"
    )
    found = {}
    for kind in kinds:
        amounts = {row["partition"]: int(row[kind]) for row in counts if row[kind]}
        if amounts:
            rows = query(
                f"SELECT *, {_BREAKS[kind]} AS amount FROM {_PAIRS} AS pairs"
                f" WHERE {_BREAKS[kind]} > 0 ORDER BY partition, position LIMIT {shown}"
            )
            found[kind] = amounts, [_example(row, kind) for row in rows]
    if any(row[kind] for row in counts for kind in _POINT_TO_IDS):
        same = query(
            f"SELECT partition, count(*) AS amount FROM {_SAME_IDS} AS ids"
            " GROUP BY partition ORDER BY partition"
        )
        rows = query(f"SELECT * FROM {_SAME_IDS} AS ids ORDER BY partition, position LIMIT {shown}")
        if same:
            amounts = {row["partition"]: row["amount"] for row in same}
            found["same_id"] = amounts, [_example(row, "same_id") for row in rows]
    spans = {row["partition"]: (row["least"], row["most"], row["amount"]) for row in counts}
    return Log(spans, found)


def _example(row: Row, kind: str) -> Example:
    """The fault between a row and its neighbour, in words."""
    position, before = int(row["position"]), int(row["position_before"])
    if kind == "repeated_offset":
        is_same = row["id"] == row["id_before"]
        note = "two rows; " + ("the same id" if is_same else f"also the id {row['id_before']}")
    elif kind == "gap":
        last = f" to {position - 1}" if row["amount"] > 1 else ""
        note = f"before it {before + 1}{last} is missing"
    elif kind == "id_falls":
        note = f"offset {before} has the higher id {row['id_before']}"
    elif kind == "time_falls":
        note = f"offset {before} was published at {moment(at(row['us_before']))}"
    elif row["partition_before"] == row["partition"]:
        note = f"also at {before}"
    else:
        note = f"also at offset {before} of partition {row['partition_before']}"
    return Example(row["partition"], position, row["id"], at(row["us"]), note)
