"""The data source "penstock": the classes that Spark calls, on top of the rules in `offsets` and
`options`.

Spark keeps one process with the stream reader for the planning of a query, and pickles another
copy of it to the workers, where only `read` is called: `read` uses nothing but options and its
range. A reader says nothing back to the broker: the checkpoint is the truth.

Filters are not pushed down, on purpose: Spark 4.2 and 4.3 keep the filter of the first query for
the later ones on the same DataFrame, and give wrong results without a word. Ranges are options.

Spark gives a worker 10 s to connect and to name the source, also on a busy machine: what needs
pyarrow and NumPy is imported by the calls that read or write.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

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

from penstock import limits
from penstock.errors import BrokerRefused, ConfigError, DataLost, FetchFailed
from penstock.nsqdapi.calls import Ends
from penstock.spark import offsets
from penstock.spark.brokerapi import NOT_READY
from penstock.spark.brokers import BrokerLogs, Brokers
from penstock.spark.offsets import Log, Offsets, Range
from penstock.spark.options import LATEST, Options, SourceOptions, read_options
from penstock.spark.schema import projection, sink_columns, source_schema
from penstock.wire.names import is_ephemeral

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

logger = logging.getLogger(__name__)


class PenstockSource(DataSource):
    store: ClassVar[Mapping[str, str]] = {}  # of the table of rejected rows: `register`

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> str:
        return source_schema(SourceOptions.read(self.options).included)

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(read_options(self.options, streaming=False), projection(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(read_options(self.options, streaming=True), projection(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from penstock.spark.sink import BatchWriter, read_sink_options

        options = read_sink_options(self.options, streaming=False, overwrite=overwrite)
        return BatchWriter(options, sink_columns(schema, options.topic), self.store)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from penstock.spark.sink import StreamWriter, read_sink_options

        options = read_sink_options(self.options, streaming=True, overwrite=overwrite)
        return StreamWriter(options, sink_columns(schema, options.topic), self.store)


@dataclass
class Task(InputPartition):
    ranges: tuple[Range, ...]


class _Log:
    """The common part of both readers: options, the connection to the broker, and reading a
    range."""

    def __init__(self, options: Options, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._ended: Ends = {}  # deleted logs, as last heard

    def _begins(self, brokers: Brokers, found: BrokerLogs, streaming: bool) -> Offsets:
        """A batch that begins where nothing is yet is an empty one; a stream would begin too
        early."""
        bound, have = found.placed(self._options.starting), found.have
        offsets.check_named("startingOffsets", bound, have, streaming)
        return offsets.resolve(bound, have, brokers.offset_at, falls_to_latest=not streaming)

    def _on_loss(self, lost: DataLost) -> None:
        if self._options.fail_on_data_loss:
            advice = "failOnDataLoss=false (archive --fail-on-data-loss=false) goes on without it"
            raise DataLost(lost.topic, lost.partition, f"{lost.reason}; {advice}")
        logger.warning("data loss, and failOnDataLoss is false: %s", lost)

    def _on_deleted(self, log: Log, offset: int, lost: DataLost, is_back: bool) -> None:
        """A topic that was read to its end has lost nothing. A recreated topic counts anew, which
        needs an option, or an ephemeral topic."""
        end = self._ended.get(log.topic, {}).get(log.identity, {}).get(log.partition)
        if self._options.on_topic_deleted == "ignore" or is_ephemeral(log.topic):
            logger.warning("%s; deleted topics are ignored", lost)
        elif end is not None and offset >= end and not is_back:
            logger.info("topic %s is deleted, and was read to its end, %d", log.topic, end)
        else:
            known = "" if end is None or is_back else f", and its log ended at {end}"
            advice = f"{lost.reason}{known}: {offsets.WANTED}"
            self._on_loss(DataLost(lost.topic, lost.partition, advice))

    def _tasks(self, ranges: list[Range]) -> list[InputPartition]:
        options = self._options
        rows_max = options.max_records_per_partition
        pieces = offsets.split(ranges, options.min_partitions, rows_max)
        together = min(limits.SPARK_TASK_ROWS, rows_max or limits.SPARK_TASK_ROWS)
        return [Task(each) for each in offsets.packed(pieces, together, options.min_partitions)]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Without a plan Spark makes a partition of its own, without a range."""
        if not isinstance(partition, Task):
            return
        with Brokers(self._options) as brokers:
            for range_ in partition.ranges:
                yield from self._read_range(brokers, range_)

    def _read_range(self, brokers: Brokers, range_: Range) -> Iterator[pa.RecordBatch]:
        from penstock.spark.decode import decode

        log, position = range_.log, range_.start
        pauses = brokers.pauses()
        while position < range_.end:
            api, label = brokers.api(log.broker), brokers.label(log.broker)
            where = log.topic, log.partition, log.identity, position, range_.end
            try:
                for data, base, following in api.fetches(*where, self._options.fetch_bytes):
                    self._check(log, position, base, following)
                    yield from decode(
                        data, self._schema, log.topic, log.partition, position, range_.end,
                        span=(base, following), log=log.identity, broker=label,
                    )  # fmt: skip
                    position, pauses = following, brokers.pauses()
            except FetchFailed as error:
                if isinstance(error, BrokerRefused) and error.status not in NOT_READY:
                    position = self._after_refusal(range_, position, error)
                    continue
                begun = {log: position}  # another node of its cluster may have the log, too
                there = next(iter(offsets.relocated(begun, brokers.have(begun))))
                if there.broker == log.broker:
                    pause_s = next(pauses, None)
                    if pause_s is None:
                        raise
                    time.sleep(pause_s)
                log = there

    def _check(self, log: Log, position: int, base: int, following: int) -> None:
        if base > position:
            reason = f"offsets {position} to {base - 1} are gone"
            self._on_loss(DataLost(log.topic, log.partition, reason))
        elif following <= position:
            reason = f"the broker sent nothing of offset {position}"
            raise DataLost(log.topic, log.partition, reason)

    def _after_refusal(self, range_: Range, position: int, refusal: BrokerRefused) -> int:
        """The offset to continue from after missing ones; other errors are raised."""
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
        lost = DataLost(range_.log.topic, range_.log.partition, reason)
        if refusal.code in ("TOPIC_NOT_FOUND", "IDENTITY_CHANGED"):
            self._on_deleted(range_.log, position, lost, False)
        else:
            self._on_loss(lost)
        return following


class BatchReader(_Log, DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        options = self._options
        with Brokers(self._options) as brokers:
            found = brokers.found()
            named = {*options.starting.of_one, *options.ending.of_one} - found.topics
            for name in sorted({*found.missing, *named}):
                self._on_loss(DataLost(name, 0, "there is no such topic"))
            there = options.assigned.keys() - found.missing
            wanted = {(name, n) for name in there for n in options.assigned[name]}
            for topic, number in sorted(wanted - found.partitions):
                self._on_loss(DataLost(topic, number, "there is no such partition"))
            start = self._begins(brokers, found, streaming=False)
            ending = found.placed(options.ending)
            offsets.check_named("endingOffsets", ending, found.have, False)
            end = offsets.resolve(ending, found.have, brokers.offset_at, True, LATEST)
        have = found.have
        return self._tasks(offsets.planned(start, end, have, self._on_loss, self._on_deleted))


class StreamReader(_Log, DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Options, schema: pa.Schema) -> None:
        super().__init__(options, schema)
        self._final: Offsets | None = None  # Trigger.AvailableNow goes no further
        self._ends: Offsets = {}  # as last seen

    def prepareForTriggerAvailableNow(self) -> None:
        with Brokers(self._options) as brokers:
            self._final = offsets.ends(brokers.found().have)

    def getDefaultReadLimit(self) -> ReadLimit:
        count = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if count is None else ReadMaxRows(count)

    def initialOffset(self) -> dict[str, Any]:
        options = self._options
        with Brokers(self._options) as brokers:
            found = brokers.found()
            offsets.check_begin(options.starting, found.topics)
            start = self._begins(brokers, found, streaming=True)
        return {"initial": True, **offsets.to_document(start)}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        with Brokers(self._options) as brokers:
            known = offsets.from_document(start)
            found = brokers.found(known)
            begun = offsets.relocated(known, found.have)
            left_out = self._left_out(brokers, begun, found)
            reachable = self._ends = offsets.ends(found.have)
            if self._final is not None:
                # What came later goes no further than it is. Another node may speak by now.
                final = {**begun, **offsets.relocated(self._final, found.have)}
                reachable = {
                    log: min(end, final[log]) for log, end in reachable.items() if log in final
                }
            gone = self._options.gone
            loss = self._on_loss, self._on_deleted
            end = offsets.next_end(
                begun, reachable, *loss, left_out, gone, found.brokers, found.offline
            )
            ranges = offsets.available(begun, end, found.have)
            if isinstance(limit, ReadMaxRows):
                end = offsets.rate_limited(ranges, limit.max_rows)
                ranges = offsets.available(begun, end, found.have)
            if self._options.max_bytes_per_trigger is not None:
                end = _byte_limited(brokers, ranges, self._options.max_bytes_per_trigger)
        return offsets.end_document(end, start)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return offsets.to_document(self._ends) if self._ends else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begun, finish = offsets.begun_at(start, end), offsets.from_document(end)
        moved = {log: end for log, end in finish.items() if begun.get(log) != end}
        if not moved:
            return self._tasks([])
        with Brokers(self._options) as brokers:
            have = brokers.have(moved)
            self._ended = brokers.ended
        begun, finish = offsets.relocated(begun, have), offsets.relocated(finish, have)
        gone = self._options.gone
        found = offsets.planned(begun, finish, have, self._on_loss, self._on_deleted, gone)
        return self._tasks(found)

    def _left_out(
        self, brokers: Brokers, begun: Offsets, found: BrokerLogs
    ) -> set[tuple[str, int]]:
        """Partitions of the checkpoint that exist, and that the query does not read. ConfigError if
        these are all: then it is the checkpoint of another query, and this one would begin at the
        wrong position. Deleted topics are asked for by name, for their ends."""
        absent = [log for log in begun if log not in found.have and log.id not in found.offline]
        if not absent:
            return set()
        there: set[tuple[str, int]] = set()
        for broker in sorted({log.broker for log in absent} & found.brokers):
            names = {log.topic for log in absent if log.broker == broker}
            there |= brokers.partitions(broker, names)
        self._ended = brokers.ended
        read = {(log.topic, log.partition) for log in begun}
        left_out = (there & read) - found.partitions
        if left_out == read:
            assigned = bool(self._options.assigned)
            before, now = _named(begun, assigned), _named(found.have, assigned)
            rule = f"this query reads {now}, so it needs a checkpoint of its own"
            raise ConfigError("checkpointLocation", f"of a query that reads {before}", rule)
        return left_out


def _byte_limited(brokers: Brokers, ranges: list[Range], bytes_max: int) -> Offsets:
    begun: dict[str, dict[str, dict[int, int]]] = {}
    for log, start in ((range_.log, range_.start) for range_ in ranges if range_.size):
        begun.setdefault(log.broker, {}).setdefault(log.topic, {})[log.partition] = start
    bytes_from: dict[Log, int] = {}
    for broker, froms in begun.items():
        found = offsets.spans(brokers.api(broker).positions(froms, froms=froms).topics, broker)
        bytes_from |= {log: span.bytes_from for log, span in found.items()}
    return offsets.byte_limited(ranges, bytes_from, bytes_max, brokers.offset_after)


def _named(logs: Collection[Log], with_partitions: bool) -> str:
    found = sorted({(log.topic, log.partition if with_partitions else 0) for log in logs})
    names = [f"{topic} {number}" if with_partitions else topic for topic, number in found]
    return ", ".join(names) or "no topic that is there"
