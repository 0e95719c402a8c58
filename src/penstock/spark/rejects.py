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
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa

from penstock.errors import RowsRefused

if TYPE_CHECKING:
    from penstock.spark.delta_table import Shape, Staged, TableLocation

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


@dataclass(frozen=True)
class RejectedTable:
    """Where they go, and how many of one batch may."""

    path: str
    rows_max: int
    store: Mapping[str, str]  # of delta-rs; secret

    def place(self) -> TableLocation:
        from penstock.spark.delta_table import TableLocation

        return TableLocation(self.path, self.store)

    def prepare(self) -> None:
        """Made when it is not there. SchemaMismatch when it is another table."""
        from penstock.spark.delta_table import check_fits

        place = self.place()
        there = place.open()
        if there is None:
            place.create(_shape(), {})
        else:
            check_fits(place, there, _shape())

    def check(self, count: int, reason: str) -> None:
        if count > self.rows_max:
            raise RowsRefused(count, self.rows_max, reason)

    def commit(self, app: str, version: int, rejected: Sequence[Rejected]) -> None:
        """`app` is counted as the broker counts it: by topic, where all rows have one."""
        from penstock.spark.delta_table import commit

        staged = [file for each in rejected for file in each.files]
        if staged:
            commit(self.place(), _shape(), f"penstock-rejected/{app}", version, staged)


class Rejected(NamedTuple):
    """By one task: it is pickled."""

    files: tuple[Staged, ...] = ()
    rows: int = 0
    reason: str = ""  # of the first one


class Rejects:
    """Of one task."""

    def __init__(self, table: RejectedTable, app: str, version: int) -> None:
        from penstock.spark.delta_files import Stager

        self._table, self._app, self._version = table, app, version
        self._files = Stager(table.place(), _shape())
        self._rows = 0
        self._reason = ""

    def add(self, rows: Mapping[str, pa.Array], reason: str) -> None:
        """`rows` are columns as Spark gave them, by what they are to the sink."""
        count = len(rows["body"])
        self._reason = self._reason or reason
        self._rows += count
        self._table.check(self._rows, self._reason)
        said = {
            "rejected_at": datetime.now(UTC),
            "app": self._app,
            "version": self._version,
            "reason": reason,
        }
        made = [_column(field, rows, said, count) for field in COLUMNS]
        self._files.add(pa.RecordBatch.from_arrays(made, schema=COLUMNS))

    def finish(self) -> Rejected:
        return Rejected(tuple(self._files.finish()), self._rows, self._reason)

    def abandon(self) -> None:
        self._files.abandon()


def _shape() -> Shape:
    from penstock.spark.delta_table import Shape

    return Shape(COLUMNS, (), ("rejected_at", "version"))


def _column(
    field: pa.Field, rows: Mapping[str, pa.Array], said: Mapping[str, Any], count: int
) -> pa.Array:
    if field.name in said:
        return pa.repeat(pa.scalar(said[field.name], field.type), count)
    if field.name not in rows:
        return pa.nulls(count, field.type)
    if field.name == "headers":
        return pa.array([_entries(each) for each in rows["headers"].to_pylist()], _HEADERS)
    return rows[field.name].cast(field.type)


def _entries(headers: Any) -> list[dict[str, Any]] | None:
    """Of a map, of Kafka's array, or of the JSON object that a message has. A text that is none is
    kept whole, under no name."""
    if headers is None:
        return None
    if isinstance(headers, bytes | str):
        headers = _members(headers)
    pairs = [_pair(each) for each in headers]
    return [
        {"key": name, "value": value.encode() if isinstance(value, str) else value}
        for name, value in pairs
    ]


def _members(text: bytes | str) -> list[tuple[str | None, Any]]:
    try:
        return list(msgspec.json.decode(text, type=dict[str, str | None]).items())
    except (msgspec.DecodeError, ValueError, RecursionError):
        return [(None, text)]


def _pair(entry: Any) -> tuple[Any, Any]:
    if isinstance(entry, dict):
        return entry["key"], entry["value"]
    return entry or (None, None)
