"""One task's rows on their way to the broker: staged by topic and partition, in blocks.

A staged block has a name that nobody else will ever use, so each attempt of a task stages its own,
and those that the driver does not commit are dropped, or expire. Rows of one partition keep their
order: they are staged in it, and the list of stages is in it.
"""

from __future__ import annotations

import logging
import uuid
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import mmh3
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import WriterCommitMessage

from penstock import limits
from penstock.errors import BrokerRefused, FetchFailed, RowRefused
from penstock.nsqdapi import calls
from penstock.nsqdapi.calls import Owner, Shape, Stage
from penstock.spark.brokerapi import BrokerApi
from penstock.spark.encode import BadRow, Block, encode, largest, message_columns, quoted, valid_of
from penstock.wire.names import is_ephemeral, is_valid_name

if TYPE_CHECKING:
    from penstock.spark.rejects import Rejects

logger = logging.getLogger(__name__)

_TOO_BIG = ("BAD_BATCH", "STAGE_TOO_BIG")  # what nsqd says of a message that is too large
_NO_PARTITION = "PARTITION_NOT_FOUND"
NUMBER_MAX = 1 << 16  # of a partition that a column may name
ANY = NUMBER_MAX - 1  # any partition: the next one in turn; nsqd never has so many
_Numbers = np.ndarray[Any, Any]
_MESSAGE_COLUMNS = ("body", "key", "headers", "timestamp")


class Target(NamedTuple):
    topic: str
    partition: int  # or ANY


@dataclass
class Staged(WriterCommitMessage):
    stages: list[Stage]
    rejected: list[pa.RecordBatch]
    query_id: str | None = None


@dataclass
class Stager:
    """`columns` names the columns by their role in the sink; `where` names the task in errors.
    `topic` is that of all rows, unless there is a column for it. Rows that cannot be messages go
    into `rejects`; without it they are errors. `turn` is that of `Routing`."""

    api: BrokerApi
    columns: dict[str, str]
    topic: str | None
    where: str
    stage_bytes: int = limits.SPARK_STAGE_BYTES
    owner: Owner | None = None
    rejects: Rejects | None = None
    turn: int = 0

    def __post_init__(self) -> None:
        self._routing = Routing(self.api, self.turn)
        self._attempt = uuid.uuid4().hex
        self._stages: list[Stage] = []
        self._row_count = 0
        self._held: dict[Target, list[pa.RecordBatch]] = {}
        self._held_bytes: dict[Target, int] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """RowRefused for a row that cannot be a message, where there is no table for such rows."""
        first, self._row_count = self._row_count, self._row_count + len(batch)
        numbers = np.arange(first, first + len(batch))
        parts: list[tuple[Target, pa.RecordBatch]] = []
        while len(batch) and not parts:
            column = {role: batch.column(name) for role, name in self.columns.items()}
            try:
                rows = message_columns({n: column[n] for n in _MESSAGE_COLUMNS if n in column})
                rows = rows.append_column("row", pa.array(numbers))
                parts = list(self._parts(column, rows))
            except BadRow as bad:
                self._refuse(column, numbers, bad)
                good = np.ones(len(batch), bool)
                good[bad.indexes] = False
                batch, numbers = batch.filter(pa.array(good)), numbers[good]
        for target, part in parts:
            self._hold(target, part)

    def _refuse(self, column: dict[str, pa.Array], numbers: _Numbers, bad: BadRow) -> None:
        if self.rejects is None:
            first = bad.indexes[0]
            topic, row = "", int(numbers[first])
            if not bad.is_topic:
                topic = self.topic or str(column["topic"][first].as_py() or "")
            raise RowRefused(row, self.where, topic, bad.reason) from bad
        rows = {role: values.take(pa.array(bad.indexes)) for role, values in column.items()}
        if self.topic is not None:
            rows["topic"] = pa.array([self.topic] * len(bad.indexes))
        self.rejects.add(rows, bad.reason)

    def finish(self) -> Staged:
        """Stage the rest, and return all stages of this task, in order."""
        for target in list(self._held):
            self._flush(target)
        return Staged(self._stages, self.rejects.batches if self.rejects is not None else [])

    def abort(self) -> None:
        """Drop the stages. They would expire anyway, so a failure is no error."""
        self._held.clear()
        abort(self.api, self._stages)

    # --- by topic and partition ---

    def _parts(
        self, column: dict[str, pa.Array], rows: pa.RecordBatch
    ) -> Iterator[tuple[Target, pa.RecordBatch]]:
        topics, topic_numbers = self._topics(column, len(rows))
        keys = rows.column("key") if "key" in column else None
        partitions = np.zeros(len(rows), np.int64)
        for number, topic in enumerate(topics):
            mine = np.flatnonzero(topic_numbers == number)
            named = column.get("partition")
            partitions[mine] = self._routing.partitions(topic, keys, named, mine)
        extended = np.array([self._routing.shape(topic).extended for topic in topics])
        if extended.any():
            rows = with_headers(rows, extended[topic_numbers])
        numbers = topic_numbers * NUMBER_MAX + partitions
        if (numbers == numbers[0]).all():
            yield Target(topics[int(topic_numbers[0])], int(partitions[0])), rows
            return
        order = np.argsort(numbers, kind="stable")
        found, starts = np.unique(numbers[order], return_index=True)
        for number, indexes in zip(found.tolist(), np.split(order, starts[1:]), strict=True):
            target = Target(topics[number // NUMBER_MAX], number % NUMBER_MAX)
            yield target, rows.take(pa.array(indexes))

    def _topics(self, column: dict[str, pa.Array], count: int) -> tuple[list[str], _Numbers]:
        """The names, and for each row which of them."""
        if self.topic is not None:
            return [self.topic], np.zeros(count, np.int64)
        if column["topic"].null_count:
            absent = column["topic"].is_null().to_numpy(zero_copy_only=False)
            raise BadRow(np.flatnonzero(absent), "the topic is null", is_topic=True)
        coded = column["topic"].dictionary_encode()
        names: list[str] = coded.dictionary.to_pylist()
        numbers = coded.indices.to_numpy().astype(np.int64)
        for number, name in enumerate(names):
            if not is_valid_name(name) or is_ephemeral(name):
                reason = f"{name!r} is no topic to keep: 1 to 64 of . a-z A-Z 0-9 _ -"
                raise BadRow(np.flatnonzero(numbers == number), reason, is_topic=True)
        return names, numbers

    # --- blocks ---

    def _hold(self, target: Target, rows: pa.RecordBatch) -> None:
        self._held.setdefault(target, []).append(rows)
        self._held_bytes[target] = self._held_bytes.get(target, 0) + rows.get_total_buffer_size()
        if self._held_bytes[target] >= self.stage_bytes:
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
        for block in encode(rows, min(limits.SPARK_BATCH_BYTES, self.stage_bytes)):
            size = sum(len(each.data) for each in gathered) + len(block.data)
            if gathered and size > self.stage_bytes:
                self._stage(target, gathered, rows[first:])
                first += sum(each.count for each in gathered)
                gathered = []
            gathered.append(block)
        self._stage(target, gathered, rows[first:])

    def _stage(self, target: Target, blocks: list[Block], rows: pa.RecordBatch) -> None:
        """`rows` are those of the blocks, and others behind them."""
        if target.partition == ANY:
            target = target._replace(partition=self._routing.next(target.topic))
        rows = rows[: sum(block.count for block in blocks)]
        while blocks:
            refusal = self._refusal(target, blocks)
            if refusal is None:
                return
            if refusal.code == _NO_PARTITION:
                self._reject(target, rows, f"there is no partition {target.partition}")
                return
            rows = self._without_too_big(target, blocks, rows, refusal)
            blocks = list(encode(rows, min(limits.SPARK_BATCH_BYTES, self.stage_bytes)))

    def _refusal(self, target: Target, blocks: list[Block]) -> BrokerRefused | None:
        """None when they are staged."""
        name = f"{self._attempt}-{len(self._stages)}"
        stage = Stage(*target, name)
        self._stages.append(stage)  # an answer may be lost, so it is dropped with the others
        data = b"".join(block.data for block in blocks)
        try:
            self.api.ask(calls.stage(stage, data, self.owner))
        except BrokerRefused as refusal:
            is_of_rows = refusal.code == _NO_PARTITION and self.rejects is not None
            if not is_of_rows and refusal.code not in _TOO_BIG:
                raise
            self._stages.pop()  # nothing of it is there
            return refusal
        return None

    def _without_too_big(
        self, target: Target, blocks: list[Block], rows: pa.RecordBatch, refusal: BrokerRefused
    ) -> pa.RecordBatch:
        """Batches are valid, so a refusal concerns the size of a message: the largest of the batch
        that nsqd names. Equally large ones are refused with it, without asking. A whole stage that
        is too large tells nothing about one of several messages."""
        position, low, high = 0, 0, 0
        for block in blocks:
            low, high = high, high + block.count
            if position >= int(refusal.document.get("position", 0)):
                break
            position += len(block.data)
        index, size = largest(rows[low:high])
        if self.rejects is None or (refusal.code == "STAGE_TOO_BIG" and len(rows) > 1):
            reason = f"the body has {size} bytes, and nsqd refuses it: {refusal.reason}"
            row = rows.column("row")[low + index].as_py()
            raise RowRefused(row, self.where, target.topic, reason) from refusal
        too_big = pc.greater_equal(pc.binary_length(rows.column("body")), size)
        reason = f"the body has {size} bytes or more, and nsqd refuses it: {refusal.reason}"
        self._reject(target, rows.filter(too_big), reason)
        return rows.filter(pc.invert(too_big))

    def _reject(self, target: Target, rows: pa.RecordBatch, reason: str) -> None:
        """Rows in the form for `encode`."""
        if self.rejects is None:
            raise TypeError("there is no table for rejected rows")
        count = len(rows)
        given = {name: rows.column(name) for name in rows.schema.names if name != "row"}
        if "timestamp" in given:
            given["timestamp"] = pc.divide(given["timestamp"], 1000)  # microseconds
        given["topic"] = pa.array([target.topic] * count)
        given["partition"] = pa.array([target.partition] * count, pa.int32())
        self.rejects.add(given, reason)


def abort(api: BrokerApi, stages: list[Stage]) -> None:
    """Drop the stages. An unreachable broker drops them later by itself."""
    if stages:
        try:
            api.abort(stages)
        except FetchFailed as error:
            logger.warning("stages that are not wanted will expire: %s", error)


# --- messages of an extended topic, whose headers consumers see ---
#
# A key is a header there, as it is of nsqd's own `/pub?key=`: a row with a key and no headers
# gets `{"key":...}`. A frame has two bytes for the length of the headers, and leaves longer ones
# away, so these are refused here. A key that is no text cannot stand in JSON: it says where the
# message goes, and no more.


def with_headers(rows: pa.RecordBatch, extended: _Numbers) -> pa.RecordBatch:
    """`rows` in the form for `encode`; `extended` marks those of such a topic. Raises BadRow."""
    names = rows.schema.names
    if "headers" not in names:
        return rows
    headers = rows.column("headers")
    if "key" in names:
        keys = rows.column("key")
        wanted = pa.array(valid_of(keys) & ~valid_of(headers) & extended)
        texts = pa.array([_header(key) for key in keys.filter(wanted).to_pylist()], pa.binary())
        headers = pc.replace_with_mask(headers, wanted, texts)
    lengths = pc.binary_length(headers).fill_null(0).to_numpy()
    long = np.flatnonzero(extended & (lengths > limits.HEADERS_BYTES_MAX))
    if len(long):
        rule = f"an extended topic has at most {limits.HEADERS_BYTES_MAX}"
        same = long[lengths[long] == lengths[long[0]]]
        raise BadRow(same, f"{lengths[long[0]]} bytes of headers: {rule}")
    return rows.set_column(names.index("headers"), "headers", headers)


def _header(key: bytes) -> bytes | None:
    try:
        return f'{{"key":{quoted(key.decode())}}}'.encode()
    except UnicodeDecodeError:
        return None


# --- which partition a row goes to, as nsqd itself would have it (docs/spark.md) ---
#
# The number in the column `partition` goes before all. A key falls where nsqd puts it, so all of a
# key stay in order, whoever publishes them. Rows with neither go where there is room: a task stages
# them in blocks, and the blocks go to the partitions in turn. By blocks, not by rows, since each
# block costs nsqd a file and a sync: a small batch is one block for each task, however many
# partitions there are. Which partition a task begins with differs from task to task and from batch
# to batch, so that small batches are spread, too.


class Routing:
    """For one task. `turn` is its first partition."""

    def __init__(self, api: BrokerApi, turn: int = 0) -> None:
        self._api = api
        self._shapes: dict[str, Shape] = {}
        self._turns: defaultdict[str, int] = defaultdict(lambda: turn)

    def next(self, topic: str) -> int:
        """The partition of the next block that may go to any."""
        turn = self._turns[topic]
        self._turns[topic] = turn + 1
        return turn % self.shape(topic).partitions

    def partitions(
        self, topic: str, keys: pa.Array | None, numbers: pa.Array | None, rows: _Numbers
    ) -> _Numbers:
        """Of these rows of the columns, all of one topic. Raises BadRow."""
        count = self.shape(topic).partitions
        found = np.full(len(rows), ANY if count > 1 else 0, np.int64)
        if keys is not None and count > 1:
            mine = keys.take(pa.array(rows))
            keyed = valid_of(mine)
            found[keyed] = key_hashes(mine)[keyed] % self.shape(topic).key_partitions
        if numbers is not None:
            named = numbers.take(pa.array(rows))
            given = valid_of(named)
            found[given] = named.fill_null(0).to_numpy().astype(np.int64)[given]
            self._check(topic, found, rows, given)
        return found

    def _check(self, topic: str, found: _Numbers, rows: _Numbers, given: _Numbers) -> None:
        if self._beyond(topic, found, given).any():
            del self._shapes[topic]  # it may have grown since this task asked
        wrong = np.flatnonzero(self._beyond(topic, found, given))
        if len(wrong):
            number = found[wrong[0]]
            same = rows[wrong[found[wrong] == number]]
            raise BadRow(same, f"there is no partition {number}")

    def _beyond(self, topic: str, found: _Numbers, given: _Numbers) -> _Numbers:
        beyond: _Numbers = given & ((found < 0) | (found >= self.shape(topic).partitions))
        return beyond

    def shape(self, topic: str) -> Shape:
        shape = self._shapes.get(topic)
        if shape is None:
            shape = self._shapes[topic] = self._api.shape(topic)
        return shape


def key_hashes(keys: pa.Array) -> _Numbers:
    """As in nsqd, whoever publishes: a key goes into the same partition. A null has the hash of
    nothing. The library's, as workers may lack the compiled kernel; a call for each key is quicker
    than NumPy over columns, which takes a step for each four bytes."""
    hashes = (mmh3.hash(key or b"", 0, False) for key in keys.to_pylist())
    return np.fromiter(hashes, np.uint32, len(keys))
