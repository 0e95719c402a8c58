"""Rows that cannot be messages, put into a Delta table instead of failing the whole write.

Tasks keep them, with the reason and all that the row had, and the driver gets them with the names
of the stages. It commits them before it commits the messages, in one transaction that carries the
app and the version: done again after a crash it changes nothing, and no message is published whose
neighbours are not accounted for.

The columns of a row keep the names that the sink has for them, so that what was repaired is written
to a topic from here. Their number is bounded: a batch of which more are refused has a fault that a
table does not cure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa

from penstock import limits
from penstock.errors import RowsRefused
from penstock.spark.delta_files import gathered, write
from penstock.spark.delta_table import Shape, TableLocation, check_fits, commit
from penstock.spark.encode import pairs_of

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_TIME = pa.timestamp("us", tz="UTC")
COLUMNS = pa.schema(
    [
        ("rejected_at", _TIME),
        ("app", pa.string()),
        ("version", pa.int64()),
        ("reason", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("body", pa.binary()),
        ("key", pa.binary()),
        ("headers", _HEADERS),
        ("timestamp", _TIME),
    ]
)
_SHAPE = Shape(COLUMNS, (), ("rejected_at", "version"))


@dataclass(frozen=True)
class RejectedTable:
    path: str
    rows_max: int
    store: Mapping[str, str]  # of delta-rs; secret

    @property
    def location(self) -> TableLocation:
        return TableLocation(self.path, self.store)

    def prepare(self) -> None:
        """Made when it is not there. SchemaMismatch when it is another table."""
        there = self.location.open()
        if there is None:
            self.location.create(_SHAPE, {})
        else:
            check_fits(self.location, there, _SHAPE)

    def rejects(self, app: str, version: int) -> Rejects:
        return Rejects(self, app, version)

    def check(self, rows: int, size: int, first: pa.RecordBatch) -> None:
        if rows > self.rows_max or size > limits.SPARK_REJECTED_BYTES_MAX:
            raise RowsRefused(rows, self.rows_max, str(first.column("reason")[0]))

    def commit(self, app: str, version: int, batches: Sequence[pa.RecordBatch]) -> None:
        """`app` is counted as the broker counts it: by topic, where all rows have one."""
        if batches:
            rows, size = sum(map(len, batches)), sum(batch.nbytes for batch in batches)
            self.check(rows, size, batches[0])
            staged = write(self.location, _SHAPE, gathered(batches))
            commit(self.location, _SHAPE, f"penstock-rejected/{app}", version, staged)


class Rejects:
    def __init__(self, table: RejectedTable, app: str, version: int) -> None:
        self._table, self._app, self._version = table, app, version
        self.batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def add(self, rows: Mapping[str, pa.Array], reason: str) -> None:
        """`rows` are columns as Spark gave them, by their role in the sink."""
        constants = {
            "rejected_at": datetime.now(UTC),
            "app": self._app,
            "version": self._version,
            "reason": reason,
        }
        made = [_column(field, rows, constants, len(rows["body"])) for field in COLUMNS]
        self.batches.append(pa.RecordBatch.from_arrays(made, schema=COLUMNS))
        self._rows += self.batches[-1].num_rows
        self._bytes += self.batches[-1].nbytes
        self._table.check(self._rows, self._bytes, self.batches[0])


def _column(
    field: pa.Field, rows: Mapping[str, pa.Array], constants: Mapping[str, Any], count: int
) -> pa.Array:
    if field.name in constants:
        return pa.repeat(pa.scalar(constants[field.name], field.type), count)
    if field.name not in rows:
        return pa.nulls(count, field.type)
    if field.name == "headers":
        return pa.array([_entries(each) for each in rows["headers"].to_pylist()], _HEADERS)
    return rows[field.name].cast(field.type)


def _entries(headers: Any) -> list[dict[str, Any]] | None:
    """The entries of a map, of Kafka's array, or of the JSON object of a message. Other text is
    kept whole, without a name."""
    if headers is None:
        return None
    if isinstance(headers, bytes | str):
        try:
            headers = list(msgspec.json.decode(headers, type=dict[str, str | None]).items())
        except (msgspec.DecodeError, ValueError, RecursionError):
            headers = [(None, headers)]
    return [
        {"key": name, "value": value.encode() if isinstance(value, str) else value}
        for name, value in pairs_of(headers)
    ]
