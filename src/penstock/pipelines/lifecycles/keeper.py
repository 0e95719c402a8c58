"""Keeps a table of lifecycles level with a trace table: now and then it is made anew, in one
transaction, from all events.

The events of a trace table have their position in `_trace`, and come into the table in that order,
so one number says which of them the lifecycles have: it is the version of the transaction. Where
there are no others nothing is done. A table of events is read as quickly as for an audit; of a
large one the lifecycles are made the less often, so that it takes a small share of the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from deltalake import CommitProperties, DeltaTable, Transaction, WriterProperties, write_deltalake

from penstock import limits
from penstock.errors import ConfigError, TableUnreadable
from penstock.pipelines.delta_reader import LakeTable
from penstock.pipelines.lifecycles.engine import EVENT, INDEX_BITS, Engine
from penstock.pipelines.lifecycles.lives import (
    COLUMNS,
    ENDED_RANGES,
    LOG,
    OF_MESSAGES,
    SHAPE,
    islands,
    rows_of,
)
from penstock.pipelines.maintenance import Beside, vacuum
from penstock.pipelines.progress import Progress
from penstock.spark.delta_table import TableLocation, check_fits


class LifeTable:
    def __init__(self, trace: str, path: str, options: Mapping[str, str] | None = None) -> None:
        self._trace = trace
        self._options = dict(options or {})  # of the store that both tables are in
        self.location = TableLocation(path, self._options)

    def update(self) -> int:
        """Take over new events of the trace table. Returns their number."""
        trace = LakeTable(self._trace, options=self._options)
        app, end = f"penstock-lives-{trace.identity}", _end(trace)
        there = self.location.open()
        if there is not None:
            check_fits(self.location, there, SHAPE)
        self.location.create(SHAPE, {})

        def write(table: DeltaTable) -> int:
            version = table.transaction_version(app)
            if version is None and table.file_uris():
                rule = f"it has lifecycles of another trace table than {self._trace}: name another"
                raise ConfigError("lifecycles", self.location.uri, rule)
            return _made(trace, table, app, version or 0, end) if (version or 0) < end else 0

        return self.location.change(write, "the lifecycles can't be written")


def _made(trace: LakeTable, table: DeltaTable, app: str, version: int, end: int) -> int:
    """The events from this version on."""
    names = ", ".join(f'"{name}"' for name in COLUMNS.names)
    with Engine() as engine:
        engine.view("trace", trace.dataset())
        engine.run(f"CREATE VIEW events AS SELECT {EVENT} FROM trace")
        engine.make("lives", rows_of(engine.make("ended", islands(ENDED_RANGES, LOG))))
        (row,) = engine.rows(
            f"""SELECT count(*) AS fresh FROM events
            WHERE position >= {version << INDEX_BITS} AND {OF_MESSAGES}"""
        )
        write_deltalake(
            table,
            engine.reader(f"SELECT {names} FROM lives").cast(COLUMNS),
            mode="overwrite",
            partition_by=list(SHAPE.partition_by),
            commit_properties=CommitProperties(app_transactions=[Transaction(app, end)]),
            target_file_size=limits.LAKE_LARGE_BYTES,
            writer_properties=WriterProperties(compression="ZSTD", compression_level=1),
        )
    return int(row["fresh"])


def _end(trace: LakeTable) -> int:
    """The position in `_trace` behind the last body whose events are in the table."""
    for file in trace.files():
        if "trace_offset" not in file.most:
            raise TableUnreadable(file.path, "its transaction does not say which events it has")
    return max((int(file.most["trace_offset"]) + 1 for file in trace.files()), default=0)


class LifeKeeper(Beside):
    """Updates now and then beside the query, and at its end, when a failure is an error."""

    def __init__(self, table: LifeTable, every_s: float, progress: Progress) -> None:
        super().__init__(progress, "the lifecycles were not brought up to date")
        self._table, self._every_s = table, every_s
        self._vacuumed_s = time.monotonic()
        self._next_s = self._vacuumed_s + every_s

    def _finish(self) -> None:
        events, path = self._table.update(), self._table.location.uri
        self._progress.say(f"{events:,} events came into the lifecycles in {path}")

    def _due(self, batches: int, now_s: float) -> Callable[[], None] | None:
        return self._work if batches and now_s >= self._next_s else None

    def _work(self) -> None:
        began_s = time.monotonic()
        try:
            self._table.update()
        finally:
            now_s = time.monotonic()
            self._next_s = now_s + max(self._every_s, limits.LIVES_RESTS * (now_s - began_s))
        if now_s - self._vacuumed_s >= limits.LIVES_VACUUM_S:
            self._vacuumed_s = now_s
            vacuum(self._table.location, limits.LIVES_RETAIN_S)
