"""Charts of the last hours, kept by nsqadmin itself.

A *series* is the installation (""), a topic ("t"), a channel ("t/c") or a node ("@host:port"). Its
samples have the fields of `FIELDS`. The last minutes are in memory at the resolution of the watch
(`Recent`); for the rest one sample a minute goes into an SQLite file: rates as the minute's mean,
levels as its last.

A series that does not move is not written down again: a reader goes on with the last sample, and a
sample is due at least every hour. So an installation with thousands of idle topics costs nothing.
Minutes in which nsqadmin did not run are a gap in the chart, and so are those in which nothing that
a series is of answered (`SILENCE`). A series that has no sample any more goes, so that topics that
come and go leave nothing behind.
"""

from __future__ import annotations

import itertools
import logging
import math
import operator
import sqlite3
from array import array
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from penstock import limits
from penstock.nsqadmin.snapshot import ChannelState, Snapshot, TopicState
from penstock.nsqadmin.store import opened

log = logging.getLogger("penstock.nsqadmin.history")

_DROPPED_AT_ONCE = 8  # this part of the looks goes when there are too many samples
_LOOKS_MIN = 3  # what a rule about growth needs
_TRIMMED_EVERY = 50  # looks: samples that are too old are removed so often


class Measures(NamedTuple):
    in_rate: float = 0.0
    out_rate: float = 0.0
    depth: float = 0.0
    in_flight: float = 0.0
    deferred: float = 0.0
    timeout_rate: float = 0.0
    oldest_s: float = 0.0


FIELDS = Measures._fields
SILENCE = math.inf  # each value of such a sample; no rate and no level is
_RATES = frozenset(("in_rate", "out_rate", "timeout_rate"))
_MINUTE_S = 60
_REPEATED_MINUTES = 60  # an unchanged sample is written at least so often
_COLUMNS = ", ".join(FIELDS)
_SILENT = Measures(*[SILENCE] * len(FIELDS))
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS series (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS samples (series INTEGER NOT NULL, minute INTEGER NOT NULL,
    {", ".join(f"{name} REAL NOT NULL" for name in FIELDS)},
    PRIMARY KEY (series, minute)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS alive (minute INTEGER PRIMARY KEY);
"""


class Sample(NamedTuple):
    time_s: float
    values: Measures | None  # None: nobody looked, or nobody answered


class History:
    """`take` every snapshot; `flush` writes, and is called by `take` when a minute has ended."""

    def __init__(self, directory: Path, retention_s: float) -> None:
        self._path = directory / "history.db"
        with opened(self._path, "charts") as self._db:
            self._db.execute("PRAGMA synchronous=NORMAL")  # charts may lose their last minute
            self._db.executescript(_SCHEMA)
            self._ids: dict[str, int] = dict(self._db.execute("SELECT name, id FROM series"))
        self.troubles: list[str] = []  # why nothing is kept, for the pages
        self._retention_minutes = max(1, int(retention_s // _MINUTE_S))
        self._recent = Recent()
        self._minute = 0
        self._purged = 0  # the minute in which old samples were last removed
        self._sums: dict[str, tuple[list[float], int]] = {}
        self._written: dict[int, tuple[int, Measures]] = {}  # by series: minute and values

    def close(self) -> None:
        self.flush()
        self._db.close()

    # --- in ---

    def take(self, snapshot: Snapshot) -> None:
        minute = int(snapshot.time_s // _MINUTE_S)
        if self._minute and minute != self._minute:
            self.flush()
        if minute < self._minute:
            self._written.clear()  # the clock was set back: what was written is later than now
        self._minute = minute
        series = dict(series_of(snapshot))
        self._recent.take(snapshot.time_s, series)
        for name, values in series.items():
            sums, count = self._sums.get(name, ([0.0] * len(FIELDS), 0))
            if values == _SILENT and count:
                continue  # the minute has what was heard in it
            if count and sums[0] == SILENCE:
                sums, count = [0.0] * len(FIELDS), 0
            for index, field in enumerate(FIELDS):
                sums[index] = sums[index] + values[index] if field in _RATES else values[index]
            self._sums[name] = (sums, count + 1)

    def flush(self) -> None:
        """Write the minute so far, and forget old ones. A minute that cannot be written, as on a
        full disk, is lost; the next one is tried again."""
        if not self._sums:
            return
        try:
            self._flush()
        except sqlite3.Error as error:
            if not self.troubles:
                log.error("charts are not kept: %s can't be written: %s", self._path, error)
            self.troubles[:] = [f"Charts are not kept: {self._path} can't be written ({error})."]
            self._start_over()
        else:
            self.troubles.clear()

    def _start_over(self) -> None:
        """Nothing counts as written any more."""
        self._written.clear()
        try:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            self._ids = dict(self._db.execute("SELECT name, id FROM series"))
        except sqlite3.Error as error:
            log.debug("%s can't be read either: %s", self._path, error)

    def _flush(self) -> None:
        minute, self._sums, sums = self._minute, {}, self._sums
        self._db.execute("BEGIN")
        rows = []
        for name, (totals, count) in sums.items():
            values = Measures(*(
                total / count if field in _RATES else total
                for field, total in zip(FIELDS, totals, strict=True)
            ))  # fmt: skip
            series = self._id(name)
            known = self._written.get(series)
            if known and known[1] == values and minute - known[0] < _REPEATED_MINUTES:
                continue
            self._written[series] = (minute, values)
            rows.append((series, minute, *values))
        marks = ", ".join("?" * (len(FIELDS) + 2))
        oldest = minute - self._retention_minutes
        self._db.executemany(f"INSERT OR REPLACE INTO samples VALUES ({marks})", rows)
        self._db.execute("INSERT OR IGNORE INTO alive VALUES (?)", (minute,))
        self._db.execute("DELETE FROM alive WHERE minute < ?", (oldest,))
        if minute - self._purged >= _REPEATED_MINUTES:
            self._purged = minute
            self._db.execute("DELETE FROM samples WHERE minute < ?", (oldest - _REPEATED_MINUTES,))
            self._forget_empty()
        self._db.execute("COMMIT")

    def _forget_empty(self) -> None:
        used = "SELECT 1 FROM samples WHERE series = series.id LIMIT 1"
        query = f"DELETE FROM series WHERE NOT EXISTS ({used}) RETURNING id, name"
        for series, name in self._db.execute(query).fetchall():
            self._ids.pop(name, None)
            self._written.pop(series, None)

    def _id(self, name: str) -> int:
        found = self._ids.get(name)
        if found is None:
            cursor = self._db.execute("INSERT INTO series (name) VALUES (?)", (name,))
            found = self._ids[name] = int(cursor.lastrowid or 0)
        return found

    # --- out ---

    def recent(self, name: str) -> list[Sample]:
        """The last minutes, finely."""
        return self._recent.samples(name)

    def window(self, name: str) -> list[Sample]:
        """The part of it that decides whether a channel needs attention: the window and the look
        before it, for looks are never exactly so far apart."""
        return self._recent.samples(name, limits.ADMIN_WINDOW_S + limits.ADMIN_POLL_S_MAX)

    def minutes(self, name: str, from_s: float, to_s: float) -> list[Sample]:
        """One sample a minute, in order; None where nsqadmin did not run."""
        series = self._ids.get(name)
        low, high = int(from_s // _MINUTE_S), int(to_s // _MINUTE_S)
        low = max(low, high - self._retention_minutes)
        if series is None:
            return []
        query = (f"SELECT minute, {_COLUMNS} FROM samples WHERE series = ?"
                 " AND minute BETWEEN ? AND ? ORDER BY minute")  # fmt: skip
        rows = self._db.execute(query, (series, low, high))
        found = {minute: Measures(*values) for minute, *values in rows}
        query = (f"SELECT {_COLUMNS} FROM samples WHERE series = ? AND minute < ?"
                 " AND minute >= ? ORDER BY minute DESC LIMIT 1")  # fmt: skip
        last = self._db.execute(query, (series, low, low - _REPEATED_MINUTES)).fetchone()
        query = "SELECT minute FROM alive WHERE minute BETWEEN ? AND ?"
        alive = {row[0] for row in self._db.execute(query, (low, high))}
        return list(_filled(low, high, found, alive, last and Measures(*last)))


def _filled(
    low: int, high: int, found: Mapping[int, Measures], alive: set[int], last: Measures | None
) -> Iterator[Sample]:
    """Repeat an unchanged sample through the observed minutes."""
    begun = last is not None
    for minute in range(low, high + 1):
        last = found.get(minute, last)
        begun = begun or last is not None
        if begun:
            known = last is not None and minute in alive
            yield Sample(minute * _MINUTE_S, known_values(last) if known and last else None)


def series_of(snapshot: Snapshot) -> Iterator[tuple[str, Measures]]:
    """Missing in every answer means silence, whatever earlier answers held."""
    totals = [0.0] * len(FIELDS)
    silent = {at for at, one in snapshot.nodes.items() if not one.can_be_asked}

    def unless_silent(found: TopicState | ChannelState, values: Measures) -> Measures:
        return _SILENT if found.nodes and silent.issuperset(found.nodes) else values

    for topic in snapshot.topics.values():
        values = _values(topic, topic.backlog)
        yield topic.name, unless_silent(topic, values)
        for index, value in enumerate(() if topic.is_internal else values):
            add = max if FIELDS[index] == "oldest_s" else operator.add
            totals[index] = add(totals[index], value)
        for one in topic.channels.values():
            yield f"{topic.name}/{one.name}", unless_silent(one, _values(one, one.depth))
    is_silent = bool(snapshot.nodes) and len(silent) == len(snapshot.nodes)
    yield "", _SILENT if is_silent else Measures(*totals)
    for node in snapshot.nodes.values():
        values = Measures(node.in_rate, node.out_rate, float(node.depth), float(node.in_flight),
                          float(node.deferred), node.timeout_rate)  # fmt: skip
        yield series_of_node(node.address), _SILENT if node.address in silent else values


def series_of_node(address: str) -> str:
    """A name that no topic can have."""
    return f"@{address}"


def _values(of: TopicState | ChannelState, waits: int) -> Measures:
    return Measures(of.in_rate, of.finish_rate, float(waits), float(of.in_flight),
                    float(of.deferred), of.timeout_rate, of.oldest_s)  # fmt: skip


# --- the last minutes ---


class Recent:
    """Every reading of the last minutes, in bounded memory.

    A sample is stored when it differs from the one before; a reader goes on with the last. So an
    installation with thousands of idle topics costs nothing, and one where everything moves at once
    keeps fewer looks: the oldest go when there are too many samples. Those of a series are in one
    array of doubles: (number of the look, its values...) and so on.
    """

    def __init__(
        self, span_s: float = limits.ADMIN_RECENT_S,
        samples_max: int = limits.ADMIN_RECENT_SAMPLES,
    ) -> None:  # fmt: skip
        self._stride = len(FIELDS) + 1
        self._span_s = span_s
        self._samples_max = samples_max
        self._times: deque[float] = deque()
        self._first = 0  # the number of the oldest look that is kept
        self._series: dict[str, array[float]] = {}
        self.sample_count = 0

    def take(self, time_s: float, series: Mapping[str, Measures]) -> None:
        """A series that is gone is forgotten, and all of them when the clock was set back."""
        if self._times and time_s < self._times[-1]:
            self._forget(len(self._times))
        number = self._first + len(self._times)
        self._times.append(time_s)
        for name, values in series.items():
            kept = self._series.get(name)
            if kept is None:
                kept = self._series[name] = array("d")
            if not kept or tuple(kept[1 - self._stride :]) != values:
                kept.extend((number, *values))
                self.sample_count += 1
        for name in self._series.keys() - series.keys():
            self.sample_count -= len(self._series.pop(name)) // self._stride
        while self._times[0] < time_s - self._span_s:
            self._forget(1)
        if number % _TRIMMED_EVERY == 0 or self.sample_count > self._samples_max:
            self._trim()

    def samples(self, name: str, span_s: float = math.inf) -> list[Sample]:
        kept = self._series.get(name)
        if not kept:
            return []
        wanted = 0
        for time_s in reversed(self._times):
            if time_s < self._times[-1] - span_s:
                break
            wanted += 1
        stride, number = self._stride, self._first + len(self._times) - wanted
        at = len(kept) - stride
        while at and kept[at] > number:
            at -= stride
        return list(self._expanded(kept, at, number))

    def _expanded(self, kept: array[float], at: int, number: int) -> Iterator[Sample]:
        """From this position and this reading on."""
        stride, end = self._stride, len(kept)
        for time_s in itertools.islice(self._times, number - self._first, None):
            while at + stride < end and kept[at + stride] <= number:
                at += stride
            if kept[at] <= number:
                yield Sample(time_s, known_values(Measures(*kept[at + 1 : at + stride])))
            number += 1

    def _forget(self, count: int) -> None:
        for _ in range(count):
            self._times.popleft()
        self._first += count

    def _trim(self) -> None:
        """Remove samples that no look needs; and looks, when there still are too many samples."""
        self._remove_old()
        while self.sample_count > self._samples_max and len(self._times) > _LOOKS_MIN:
            self._forget(max(1, min(len(self._times) // _DROPPED_AT_ONCE,
                                    len(self._times) - _LOOKS_MIN)))  # fmt: skip
            self._remove_old()

    def _remove_old(self) -> None:
        stride = self._stride
        for kept in self._series.values():
            at = 0
            while at + stride < len(kept) and kept[at + stride] <= self._first:
                at += stride
            if at:
                del kept[:at]
                self.sample_count -= at // stride


def known_values(values: Measures) -> Measures | None:
    return None if values.in_rate == SILENCE else values
