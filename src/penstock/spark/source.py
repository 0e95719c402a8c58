"""The data source "penstock": what Spark calls, on top of the rules in `offsets` and `options`.

Spark keeps one process with the stream reader for the planning of a query, and pickles another
copy of it to the workers, where only `read` is called: `read` uses nothing but options and its
range. A reader says nothing back to the broker: the checkpoint is the truth.

Filters are not pushed down, on purpose: Spark 4.2 and 4.3 keep the filter of the first query for
the later ones on the same DataFrame, and give wrong results without a word. Ranges are options.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from penstock.errors import BrokerRefused, ConfigError, DataLost
from penstock.spark import offsets
from penstock.spark.brokerapi import BrokerApi, Fetched, Positions
from penstock.spark.decode import decode
from penstock.spark.offsets import Log, Offsets, Range
from penstock.spark.options import Bound, Options, included_columns, read_options
from penstock.spark.schema import projection, sink_columns, source_schema
from penstock.spark.sink import BatchWriter, StreamWriter, refuse_overwrite
from penstock.spark.sinkoptions import read_sink_options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

logger = logging.getLogger(__name__)


class PenstockSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> str:
        return source_schema(*included_columns(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(read_options(self.options, streaming=False), projection(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(read_options(self.options, streaming=True), projection(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            refuse_overwrite(streaming=False)
        options = read_sink_options(self.options, streaming=False)
        return BatchWriter(options, sink_columns(schema, options.topic))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        if overwrite:
            refuse_overwrite(streaming=True)
        options = read_sink_options(self.options, streaming=True)
        return StreamWriter(options, sink_columns(schema, options.topic))


@dataclass
class Task(InputPartition):
    """One task's share of a batch."""

    range: Range


class _Log:
    """What both readers share: options, the way to the broker, and reading a range."""

    def __init__(self, options: Options, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    def _api(self) -> BrokerApi:
        options = self._options
        return BrokerApi(
            options.url, options.timeout_ms, options.retries, options.retry_ms, options.ca_file
        )

    def _positions(self, api: BrokerApi) -> Positions:
        return api.positions(self._options.topics, self._options.pattern)

    def _resolve(
        self, api: BrokerApi, bound: Bound, positions: Positions, falls_to_latest: bool
    ) -> Offsets:
        def offset_at(log: Log, timestamp_ms: int) -> int:
            return api.offset_at(log.topic, log.partition, timestamp_ms)

        return offsets.resolve(bound, positions.topics, offset_at, falls_to_latest)

    def _on_loss(self, lost: DataLost) -> None:
        if self._options.fail_on_data_loss:
            raise lost
        logger.warning("data loss, and failOnDataLoss is false: %s", lost)

    def _tasks(self, ranges: list[Range]) -> list[InputPartition]:
        options = self._options
        pieces = offsets.split(ranges, options.min_partitions, options.max_records_per_partition)
        return [Task(piece) for piece in pieces]

    def _read(self, range_: Range) -> Iterator[pa.RecordBatch]:
        log, position = range_.log, range_.start
        with self._api() as api:
            while position < range_.end:
                where = log.topic, log.partition, log.identity, position, range_.end
                try:
                    for fetched in api.fetches(*where, self._options.fetch_bytes):
                        self._check(log, position, fetched)
                        yield from decode(
                            fetched.data,
                            self._schema,
                            log.topic,
                            log.partition,
                            position,
                            range_.end,
                        )
                        position = fetched.next_offset
                except BrokerRefused as refusal:
                    position = self._after_refusal(range_, position, refusal)

    def _check(self, log: Log, position: int, fetched: Fetched) -> None:
        """Was offset `position` sent?"""
        if fetched.base_offset > position:
            reason = f"offsets {position} to {fetched.base_offset - 1} are gone"
            self._on_loss(DataLost(log.topic, log.partition, reason))
        elif fetched.next_offset <= position:
            reason = f"the broker sent nothing of offset {position}"
            raise DataLost(log.topic, log.partition, reason)

    def _after_refusal(self, range_: Range, position: int, refusal: BrokerRefused) -> int:
        """Where to go on after offsets that are not there; other refusals go up."""
        following = {
            "TOPIC_NOT_FOUND": range_.end,
            "IDENTITY_CHANGED": range_.end,
            "OFFSET_BEYOND_END": range_.end,
            "OFFSET_GONE": refusal.document.get("earliest"),
            "LOG_DAMAGED": refusal.document.get("to"),
        }.get(refusal.code)
        if following is None:
            raise refusal
        following = max(int(following), position + 1)
        last = min(following, range_.end) - 1
        reason = f"offsets {position} to {last} can't be read: {refusal.code}"
        self._on_loss(DataLost(range_.log.topic, range_.log.partition, reason))
        return following


class BatchReader(_Log, DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        options = self._options
        with self._api() as api:
            positions = self._positions(api)
            for name in positions.missing:
                self._on_loss(DataLost(name, 0, "there is no such topic"))
            start = self._resolve(
                api, options.starting, positions, options.starting_falls_to_latest
            )
            end = self._resolve(api, options.ending, positions, falls_to_latest=True)
        return self._tasks(offsets.planned(start, end, positions.topics, self._on_loss))

    def read(self, partition: Any) -> Iterator[Any]:
        return self._read(partition.range)


class StreamReader(_Log, DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Options, schema: pa.Schema) -> None:
        super().__init__(options, schema)
        self._final: Offsets | None = None  # Trigger.AvailableNow goes no further
        self._ends: Offsets = {}  # as last seen
        self._triggered_ms = 0

    def prepareForTriggerAvailableNow(self) -> None:
        with self._api() as api:
            self._final = offsets.ends(self._positions(api).topics)

    def getDefaultReadLimit(self) -> ReadLimit:
        count = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if count is None else ReadMaxRows(count)

    def initialOffset(self) -> dict[str, Any]:
        options = self._options
        with self._api() as api:
            positions = self._positions(api)
            start = self._resolve(
                api, options.starting, positions, options.starting_falls_to_latest
            )
        return offsets.first_document(start)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begun = offsets.from_document(start)
        with self._api() as api:
            topics = self._positions(api).topics
            left_out = _left_out(api, {log.topic for log in begun}, set(topics))
        self._ends = offsets.ends(topics)
        reachable = self._ends if self._final is None else self._up_to_final(self._ends)
        end = offsets.next_end(begun, reachable, self._on_loss, left_out)
        ranges = offsets.available(begun, end, topics)
        if self._holds_back(sum(range_.size for range_ in ranges)):
            return dict(start)
        if isinstance(limit, ReadMaxRows):
            end = offsets.rate_limited(ranges, limit.max_rows)
        return offsets.end_document(end, start)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return offsets.to_document(self._ends) if self._ends else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        finish = offsets.from_document(end)
        with self._api() as api:
            topics = api.positions({log.topic for log in finish}).topics if finish else {}
        begun = offsets.begun_at(start, end)
        return self._tasks(offsets.planned(begun, finish, topics, self._on_loss))

    def read(self, partition: Any) -> Iterator[Any]:
        return self._read(partition.range)

    def _up_to_final(self, ends: Offsets) -> Offsets:
        final = self._final or {}
        return {log: min(end, final[log]) for log, end in ends.items() if log in final}

    def _holds_back(self, count: int) -> bool:
        now_ms = time.monotonic_ns() // 1_000_000
        waited_ms = now_ms - self._triggered_ms
        least = None if self._final is not None else self._options.min_offsets_per_trigger
        if offsets.holds_back(count, least, waited_ms, self._options.max_trigger_delay_ms):
            return True
        if count:
            self._triggered_ms = now_ms
        return False


def _left_out(api: BrokerApi, read: set[str], found: set[str]) -> set[str]:
    """Topics of the checkpoint that are there, and that the query does not ask for. ConfigError if
    these are all: then it is the checkpoint of another query, and going on would begin this one
    at the wrong place."""
    if read <= found:
        return set()
    left_out = set(api.positions(sorted(read - found)).topics)
    if left_out == read:
        rule = f"this query reads {_named(found)}, so it needs a checkpoint of its own"
        raise ConfigError("checkpointLocation", f"of a query that reads {_named(read)}", rule)
    return left_out


def _named(topics: set[str]) -> str:
    return ", ".join(sorted(topics)) or "no topic that is there"
