"""Rows that cannot be messages, put into a Delta table instead of failing the whole write.

Tasks write them to files beside the table, with the reason and all that the row had. The driver
commits these files before it commits the messages, in one transaction that carries the app and the
version: done again after a crash it changes nothing, and no message is published whose neighbours
are not accounted for. What a failed attempt wrote is named by no transaction; a vacuum takes it.

The columns of a row keep the names that the sink has for them, so that what was repaired is written
to a topic from here. Their number is bounded: a batch of which more are refused has a fault that a
table does not cure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from penstock.errors import RowsRefused
from penstock.spark.delta_files import Stager
from penstock.spark.delta_table import Shape, Staged, TableLocation, check_fits, commit

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
    """The target of rejected rows, and their maximum in one batch."""

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

    def check(self, count: int, reason: str) -> None:
        if count > self.rows_max:
            raise RowsRefused(count, self.rows_max, reason)

    def commit(self, app: str, version: int, rejected: Sequence[Rejected]) -> None:
        """`app` is counted as the broker counts it: by topic, where all rows have one."""
        rejected = [each for each in rejected if each.rows]
        if rejected:
            self.check(sum(each.rows for each in rejected), rejected[0].reason)
            staged = [file for each in rejected for file in each.files]
            commit(self.location, _SHAPE, f"penstock-rejected/{app}", version, staged)


class Rejected(NamedTuple):
    """Of one task: it is pickled."""

    files: tuple[Staged, ...] = ()
    rows: int = 0
    reason: str = ""  # of the first one


class Rejects:
    """For one task."""

    def __init__(self, table: RejectedTable, app: str, version: int) -> None:
        self._table, self._app, self._version = table, app, version
        self._files = Stager(table.location, _SHAPE)
        self._rows = 0
        self._reason = ""

    def add(self, rows: Mapping[str, pa.Array], reason: str) -> None:
        """`rows` are columns as Spark gave them, by their role in the sink."""
        count = len(rows["body"])
        self._reason = self._reason or reason
        self._rows += count
        self._table.check(self._rows, self._reason)
        constants = {
            "rejected_at": datetime.now(UTC),
            "app": self._app,
            "version": self._version,
            "reason": reason,
        }
        made = [_column(field, rows, constants, count) for field in COLUMNS]
        self._files.add(pa.RecordBatch.from_arrays(made, schema=COLUMNS))

    def finish(self) -> Rejected:
        return Rejected(tuple(self._files.finish()), self._rows, self._reason)

    def abandon(self) -> None:
        self._files.abandon()


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
    pairs = [tuple(each.values()) if isinstance(each, dict) else each for each in headers]
    return [
        {"key": name, "value": value.encode() if isinstance(value, str) else value}
        for name, value in (pair or (None, None) for pair in pairs)
    ]
