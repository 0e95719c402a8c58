"""Keeps a table of lifecycles level with a trace table: incrementally, and each event once.

The events of a trace table have their position in `_trace`, and come into the table in that order,
so one number says how far the lifecycles are: all events below it are in them. It is the version of
the transaction that brought them in. Whoever dies before the commit has done nothing; whoever dies
behind it finds the number in the table.

An update reads the events from there on, makes lives of them, and puts these into the rows that are
there already. A file holds all rows of a span of offsets of a topic; the files that have something
new are written again, in the same transaction that removes the old ones. As a rule that is the
last one: late events, of a message that was requeued for an hour, reach further back.

Beside the rows two things are to be remembered: where each channel began, and ranges of offsets
that met one fate at once. They are in a file for each version, written before the commit: it counts
only when its version is in the table.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pyarrow as pa
from deltalake.transaction import RemoveAction
from pyarrow.fs import FileSelector

from penstock import limits
from penstock.errors import ConfigError, LakeFailed, TableUnreadable
from penstock.pipelines.delta_reader import LakeFile, LakeTable
from penstock.pipelines.lifecycles.engine import EVENT, Engine, text
from penstock.pipelines.lifecycles.lives import (
    ENDED_RANGES,
    OF_MESSAGES,
    SHAPE,
    Range,
    brought_up,
    cut,
    islands,
    lives_of,
    rows_of,
    view_islands,
)
from penstock.pipelines.maintenance import Beside, vacuum
from penstock.pipelines.progress import Progress
from penstock.spark.delta_files import store, write
from penstock.spark.delta_table import Staged, TableLocation, commit

_EVER = 1 << 62
_FOLDER = "_penstock/lives"  # of the notes


class LifeTable:
    def __init__(self, trace: str, path: str, options: Mapping[str, str] | None = None) -> None:
        self._trace = trace
        self._options = dict(options or {})  # of the store that both tables are in
        self.location = TableLocation(path, self._options)

    def _there(self) -> LakeTable:
        return LakeTable(self.location.uri, options=self._options)

    def update(self, events_max: int = limits.LIVES_CHUNK_EVENTS) -> int:
        """Take over new events of the trace table. Returns their number."""
        trace = LakeTable(self._trace, options=self._options)
        app = f"penstock-lives-{trace.identity}"
        self.location.create(SHAPE, {})
        table, events = self._there(), 0
        if table.delta.transaction_version(app) is None and table.files():
            rule = f"it has lifecycles of another trace table than {self._trace}: name another one"
            raise ConfigError("lifecycles", self.location.uri, rule)
        while True:
            version = self._there().delta.transaction_version(app) or 0
            end, files = _next(trace.files(), version, events_max)
            if not files:
                return events
            events += self._bring(app, version, end, trace, files)

    def _bring(
        self, app: str, version: int, end: int, trace: LakeTable, files: list[LakeFile]
    ) -> int:
        """The events [version, end) of `_trace`, in one transaction."""
        state = self._read(version)
        table = self._there()
        added: list[Staged] = []
        removed: list[RemoveAction] = []
        now_ms = time.time_ns() // limits.MS
        with Engine() as engine:
            engine.view("trace", trace.with_files(files))
            engine.run(
                f"""CREATE TEMP TABLE batch AS SELECT {EVENT} FROM trace
                WHERE trace_offset >= {version} AND trace_offset < {end}"""
            )
            (row,) = engine.rows(f"SELECT count(*) AS count FROM batch WHERE {OF_MESSAGES}")
            for topic in engine.rows("SELECT DISTINCT topic FROM batch ORDER BY topic"):
                name = topic["topic"]
                parts, gone = self._merge(name, state, engine, table)
                added += parts
                removed += [
                    RemoveAction(file.path, True, now_ms, file.size_bytes, {"topic": name})
                    for file in gone
                ]
        store(self.location, f"{_FOLDER}/{end}.json", msgspec.json.encode(state))
        if commit(self.location, SHAPE, app, end, added, removed, follows=version):
            self._forget_all_but(end)
            return int(row["count"])
        return 0  # somebody else was faster

    def _merge(
        self, topic: str, state: LifecycleState, engine: Engine, table: LakeTable
    ) -> tuple[list[Staged], list[LakeFile]]:
        """New files of the topic, and those that they replace."""
        engine.run(
            f"""CREATE OR REPLACE VIEW events AS SELECT * FROM batch WHERE topic = {text(topic)};
            CREATE OR REPLACE TEMP TABLE fresh AS {lives_of("events")}"""
        )
        ranges: list[Any] = [tuple(row.values()) for row in engine.rows(ENDED_RANGES)]
        state.add(topic, engine.rows(_FIRSTS), ranges)
        firsts = [{"channel": n, "position": at} for n, at in state.channels[topic].items()]
        engine.view("firsts", pa.Table.from_pylist(firsts, _FIRSTS_SCHEMA))
        view_islands(engine, "ended", state.spans(topic))
        there = (file for file in table.files() if file.partition["topic"] == topic)
        files = sorted(there, key=lambda file: int(file.least["offset"]))
        touched = {
            number
            for number, file in enumerate(files)
            for _, _, first, end in ranges
            if first <= int(file.most["offset"]) and end > int(file.least["offset"])
        }
        added: list[Staged] = []
        gone: list[LakeFile] = []
        for number, (first, end) in enumerate(_windows(files)):
            fresh = f"""SELECT 1 FROM fresh
                WHERE "offset" >= {first}::DOUBLE AND "offset" < {end}::DOUBLE LIMIT 1"""
            if number not in touched and not engine.rows(fresh):
                continue
            replaced = files[number : number + 1]
            gone += replaced
            engine.view("old", table.with_files(replaced))
            rows = rows_of(topic, engine.arrow(brought_up(first, end)))
            for part in cut(rows, limits.LIVES_FILE_ROWS):
                added += write(self.location, SHAPE, part.combine_chunks().to_batches())
        return added, gone

    # --- its notes ---

    def _read(self, version: int) -> LifecycleState:
        if version == 0:
            return LifecycleState()
        path = self.location.full(f"{_FOLDER}/{version}.json")
        try:
            with self.location.files().open_input_stream(path) as file:
                return msgspec.json.decode(file.read(), type=LifecycleState)
        except (OSError, ValueError) as error:
            rule = f"{path} can't be read ({error}): delete the table, it is made again"
            raise LakeFailed(self.location.uri, rule) from error

    def _forget_all_but(self, version: int) -> None:
        files = self.location.files()
        folder = FileSelector(self.location.full(_FOLDER), allow_not_found=True)
        for found in files.get_file_info(folder):
            if found.extension == "json" and found.base_name != f"{version}.json":
                files.delete_file(found.path)


# --- the trace table ---


def _next(files: list[LakeFile], version: int, events_max: int) -> tuple[int, list[LakeFile]]:
    """The end of the next step, and the files with its events."""
    for file in files:
        if "trace_offset" not in file.least or "trace_offset" not in file.most:
            raise TableUnreadable(file.path, "its transaction does not say which events it has")
    waiting = sorted(
        (file for file in files if file.most["trace_offset"] >= version),
        key=lambda file: int(file.most["trace_offset"]),
    )
    end, rows = version, 0
    for file in waiting:
        end, rows = int(file.most["trace_offset"]) + 1, rows + (file.rows or 0)
        if rows >= events_max:
            break
    return end, [file for file in waiting if file.least["trace_offset"] < end]


# --- channels and files of a topic ---

_FIRSTS = f"""SELECT channel, min(position) AS position FROM events
    WHERE channel IS NOT NULL AND {OF_MESSAGES} GROUP BY channel ORDER BY position"""
_FIRSTS_SCHEMA = pa.schema([("channel", pa.string()), ("position", pa.int64())])


def _windows(files: list[LakeFile]) -> list[tuple[float, float]]:
    """The offsets [first, end) of each file, and of one behind a last file that is full. The first
    and the last extend to the limits of offsets."""
    bounds: list[float] = [int(file.least["offset"]) for file in files]
    if files and (files[-1].rows or 0) >= limits.LIVES_FILE_ROWS // 2:
        bounds.append(int(files[-1].most["offset"]) + 1)
    bounds = [-_EVER, *bounds[1:], _EVER]
    return list(itertools.pairwise(bounds))


# --- beside the query ---


class LifeKeeper(Beside):
    """Updates now and then beside the query, and at its end, when a failure is an error."""

    def __init__(self, table: LifeTable, every_s: float, progress: Progress) -> None:
        super().__init__(progress, "the lifecycles were not brought up to date")
        self._table, self._every_s = table, every_s
        self._began_s = self._vacuumed_s = time.monotonic()

    def _finish(self) -> None:
        events, path = self._table.update(), self._table.location.uri
        self._progress.say(f"{events:,} events came into the lifecycles in {path}")

    def _due(self, batches: int, now_s: float) -> Callable[[], None] | None:
        if not batches or now_s - self._began_s < self._every_s:
            return None
        self._began_s = now_s
        return self._work

    def _work(self) -> None:
        self._table.update()
        if time.monotonic() - self._vacuumed_s >= limits.LIVES_VACUUM_S:
            self._vacuumed_s = time.monotonic()
            vacuum(self._table.location, limits.LIVES_RETAIN_S)


class LifecycleState(msgspec.Struct):
    """`channels`: by topic and channel, the position of its first event. `ranges`: by topic and
    channel, (partition, first, end)."""

    channels: dict[str, dict[str, int]] = {}
    ranges: dict[str, dict[str, list[list[int]]]] = {}

    def add(self, topic: str, firsts: list[dict[str, Any]], ranges: list[Range]) -> None:
        fresh = {row["channel"]: row["position"] for row in firsts}
        self.channels[topic] = fresh | self.channels.get(topic, {})
        every = islands([*self.spans(topic), *ranges])
        self.ranges[topic] = {}
        for channel, *span in every:
            self.ranges[topic].setdefault(channel, []).append(span)

    def spans(self, topic: str) -> list[Range]:
        return [
            (channel, partition, first, end)
            for channel, spans in self.ranges.get(topic, {}).items()
            for partition, first, end in spans
        ]
