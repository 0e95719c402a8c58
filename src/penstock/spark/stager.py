"""One task's rows on their way to the broker: by topic and partition, in blocks, staged.

A staged block has a name that nobody else will ever use, so each attempt of a task stages its own,
and those that the driver does not commit are dropped, or expire. Rows of one partition keep their
order: they are staged in it, and the list of stages is in it.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock import limits
from penstock.errors import BrokerRefused, FetchFailed, RowRefused
from penstock.spark.brokerapi import BrokerApi, Owner, Stage
from penstock.spark.encode import BadRow, Block, encode, largest, message_columns
from penstock.wire.names import is_ephemeral, is_valid_name

logger = logging.getLogger(__name__)

_PARTITION_MAX = 1 << 16  # the groups of a record batch are numbered by topic and partition
_MESSAGE_COLUMNS = ("body", "key", "headers", "timestamp")


class Target(NamedTuple):
    topic: str
    partition: int


class Staged(NamedTuple):
    stages: tuple[Stage, ...]
    messages: int


class Stager:
    """`columns` names the columns by what they are to the sink; `where` names the task in errors.
    `topic` is that of all rows, unless there is a column for it."""

    def __init__(
        self,
        api: BrokerApi,
        columns: dict[str, str],
        topic: str | None,
        where: str,
        stage_bytes: int = limits.SPARK_STAGE_BYTES,
        owner: Owner | None = None,
    ) -> None:
        self._api = api
        self._owner = owner
        self._columns = columns
        self._topic = topic
        self._where = where
        self._stage_bytes = stage_bytes
        self._attempt = uuid.uuid4().hex
        self._stages: list[Stage] = []
        self._messages = 0
        self._row_count = 0
        self._held: dict[Target, list[pa.RecordBatch]] = {}
        self._held_bytes: dict[Target, int] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """RowRefused for a row that cannot be a message."""
        first, self._row_count = self._row_count, self._row_count + len(batch)
        if not len(batch):
            return
        column = {role: batch.column(name) for role, name in self._columns.items()}
        try:
            rows = message_columns({n: column[n] for n in _MESSAGE_COLUMNS if n in column})
        except BadRow as bad:
            topic = self._topic_of(column, bad.index)
            raise RowRefused(first + bad.index, self._where, topic, bad.reason) from bad
        numbers = pa.array(np.arange(first, first + len(batch)))
        rows = rows.append_column("row", numbers)
        for target, part in self._parts(column, rows, first):
            self._hold(target, part)

    def finish(self) -> Staged:
        """Stage what is left; all that this task staged, in order."""
        for target in list(self._held):
            self._flush(target)
        return Staged(tuple(self._stages), self._messages)

    def abort(self) -> None:
        """What was staged is not wanted. It would expire anyway, so a failure is not one."""
        self._held.clear()
        abort(self._api, self._stages)

    # --- by topic and partition ---

    def _parts(
        self, column: dict[str, pa.Array], rows: pa.RecordBatch, first: int
    ) -> Iterator[tuple[Target, pa.RecordBatch]]:
        topics, topic_numbers = self._topics(column, len(rows), first)
        partitions = self._partitions(column, len(rows), first)
        keys = topic_numbers * _PARTITION_MAX + partitions
        if (keys == keys[0]).all():
            yield Target(topics[int(topic_numbers[0])], int(partitions[0])), rows
            return
        order = np.argsort(keys, kind="stable")
        found, starts = np.unique(keys[order], return_index=True)
        for key, indexes in zip(found.tolist(), np.split(order, starts[1:]), strict=True):
            target = Target(topics[key // _PARTITION_MAX], key % _PARTITION_MAX)
            yield target, rows.take(pa.array(indexes))

    def _topics(
        self, column: dict[str, pa.Array], count: int, first: int
    ) -> tuple[list[str], np.ndarray[Any, Any]]:
        """The names, and for each row which of them."""
        if self._topic is not None:
            return [self._topic], np.zeros(count, np.int64)
        if column["topic"].null_count:
            bad = int(np.argmax(column["topic"].is_null().to_numpy(zero_copy_only=False)))
            raise RowRefused(first + bad, self._where, "", "the topic is null")
        coded = column["topic"].dictionary_encode()
        names: list[str] = coded.dictionary.to_pylist()
        numbers = coded.indices.to_numpy().astype(np.int64)
        for number, name in enumerate(names):
            if not is_valid_name(name.encode()) or is_ephemeral(name):
                bad = int(np.argmax(numbers == number))
                reason = f"{name!r} is no topic to keep: 1 to 64 of . a-z A-Z 0-9 _ -"
                raise RowRefused(first + bad, self._where, "", reason)
        return names, numbers

    def _partitions(
        self, column: dict[str, pa.Array], count: int, first: int
    ) -> np.ndarray[Any, Any]:
        if "partition" not in column:
            return np.zeros(count, np.int64)
        given: np.ndarray[Any, Any] = column["partition"].fill_null(0).to_numpy().astype(np.int64)
        wrong = (given < 0) | (given >= _PARTITION_MAX)
        if wrong.any():
            bad = int(np.argmax(wrong))
            reason = f"there is no partition {given[bad]}"
            raise RowRefused(first + bad, self._where, self._topic_of(column, bad), reason)
        return given

    def _topic_of(self, column: dict[str, pa.Array], index: int) -> str:
        if self._topic is not None:
            return self._topic
        return str(column["topic"][index].as_py() or "")

    # --- blocks ---

    def _hold(self, target: Target, rows: pa.RecordBatch) -> None:
        self._held.setdefault(target, []).append(rows)
        self._held_bytes[target] = self._held_bytes.get(target, 0) + rows.get_total_buffer_size()
        if self._held_bytes[target] >= self._stage_bytes:
            self._flush(target)
        elif sum(self._held_bytes.values()) >= limits.SPARK_HELD_BYTES:
            for each in list(self._held):
                self._flush(each)

    def _flush(self, target: Target) -> None:
        held = self._held.pop(target)
        del self._held_bytes[target]
        rows = held[0] if len(held) == 1 else pa.concat_batches(held)
        first = 0  # row of the batches that are gathered
        gathered: list[Block] = []
        for block in encode(rows, min(limits.SPARK_BATCH_BYTES, self._stage_bytes)):
            size = sum(len(each.data) for each in gathered) + len(block.data)
            if gathered and size > self._stage_bytes:
                self._stage(target, gathered, rows[first:])
                first += sum(each.count for each in gathered)
                gathered = []
            gathered.append(block)
        self._stage(target, gathered, rows[first:])

    def _stage(self, target: Target, blocks: list[Block], rows: pa.RecordBatch) -> None:
        """`rows` are those of the blocks, and others behind them."""
        name = f"{self._attempt}-{len(self._stages)}"
        stage = Stage(target.topic, target.partition, name)
        self._stages.append(stage)  # an answer may be lost, so it is dropped with the others
        data = b"".join(block.data for block in blocks)
        try:
            self._messages += self._api.stage(*stage, data, self._owner)
        except BrokerRefused as refusal:
            if refusal.code not in ("BAD_BATCH", "STAGE_TOO_BIG"):
                raise
            raise self._too_big(target, blocks, rows, refusal) from refusal

    def _too_big(
        self, target: Target, blocks: list[Block], rows: pa.RecordBatch, refusal: BrokerRefused
    ) -> RowRefused:
        """Batches are right, so what is refused is the size of a message: the largest of the batch
        that begins where nsqd says."""
        position, low, high = 0, 0, 0
        for block in blocks:
            low, high = high, high + block.count
            if position >= int(refusal.document.get("position", 0)):
                break
            position += len(block.data)
        index, size = largest(rows[low:high])
        reason = f"the body has {size} bytes, and nsqd refuses it: {refusal.reason}"
        row = rows.column("row")[low + index].as_py()
        return RowRefused(row, self._where, target.topic, reason)


def abort(api: BrokerApi, stages: list[Stage]) -> None:
    """Drop what was staged. A broker that is not there drops it later by itself."""
    if stages:
        try:
            api.abort(stages)
        except FetchFailed as error:
            logger.warning("stages that are not wanted will expire: %s", error)
