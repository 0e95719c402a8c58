"""Delta tables without the JVM's jars: which files a version has, and which of them may hold rows.

delta-rs reads the table's log. What is not in the files is put back: partition columns (of the
archive: topic and date) are in the log alone. Which rows of a file have been deleted (deletion
vectors), and columns that were renamed (column mapping), is written there too. Reading around that
would give wrong rows, so such tables are refused.

Data skipping: every file's entry has the least and the greatest value of its columns, so a
condition such as a span of offsets opens only the files that may hold such rows. A file that says
nothing about a column is read.

Spark gets the rows as a frame (`delta_frames`), DuckDB and others as a dataset of pyarrow. A
dataset says of each file what its rows have in common. delta-rs makes such a dataset too, but a
bound that the table's log does not name becomes NULL there, and no row meets a filter on that
column. Our own tables say which columns have bounds (`delta_table`), so every reader is right about
them; tables of other writers may not. Here a column is left out where its bounds are not known.
Only numbers and times are bounded: the bounds of long texts are cut off, and NaN has no order.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

from penstock.errors import ConfigError, TableUnreadable
from penstock.spark.delta_table import (
    NULL_DIRECTORY,
    TableLocation,
    cannot_open,
    local_path,
    partition_text,
)  # fmt: skip

if TYPE_CHECKING:
    from pyspark.sql import Column

_REFUSED_FEATURES = ("deletionVectors", "columnMapping")
# The log keeps the times of a file's rows in milliseconds, cut off: the greatest may be later.
_CUT_OFF = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class ColumnSpan:
    """Rows with `least` <= column < `below`; None is no bound."""

    column: str
    least: Any = None
    below: Any = None

    def may_hold(self, least: Any, most: Any) -> bool:
        """Whether values between these two, both of them possible, can be in the span."""
        if self.below is not None and least >= self.below:
            return False
        return self.least is None or most >= self.least

    def condition(self) -> Column:
        from pyspark.sql import functions as F

        column, met = F.col(f"`{self.column}`"), F.lit(True)
        if self.least is not None:
            met = met & (column >= F.lit(self.least))
        if self.below is not None:
            met = met & (column < F.lit(self.below))
        return met


@dataclass(frozen=True, slots=True)
class Among:
    """Rows whose column has one of these values."""

    column: str
    values: Collection[Any]

    def may_hold(self, least: Any, most: Any) -> bool:
        return any(least <= value <= most for value in self.values)

    def condition(self) -> Column:
        from pyspark.sql import functions as F

        return F.col(f"`{self.column}`").isin(list(self.values))


Condition = ColumnSpan | Among


@dataclass(frozen=True, slots=True)
class LakeFile:
    """One data file of a version of the table, and what the log says of it."""

    uri: str
    directories: tuple[str, ...]  # below the table's own
    size_bytes: int
    rows: int | None
    partition: Mapping[str, Any]
    least: Mapping[str, Any] = field(default_factory=dict)
    most: Mapping[str, Any] = field(default_factory=dict)

    def may_hold(self, conditions: Iterable[Condition]) -> bool:
        return all(self._may_meet(condition) for condition in conditions)

    def _may_meet(self, condition: Condition) -> bool:
        column = condition.column
        if column in self.partition:
            value = self.partition[column]
            return value is not None and condition.may_hold(value, value)
        least, most = self.least.get(column), self.most.get(column)
        if least is None or most is None:
            return True
        return condition.may_hold(least, most + _CUT_OFF if isinstance(most, datetime) else most)

    def partition_is_in_path(self) -> bool:
        """Whether Spark reads this file's partition values from the names of its directories."""
        texts = {name: partition_text(value) for name, value in self.partition.items()}
        if {None, NULL_DIRECTORY} & set(texts.values()):  # a topic may be called so
            return False
        wanted = tuple(f"{name}={text}" for name, text in texts.items())
        return tuple(map(unquote, self.directories)) == wanted


class LakeTable:
    """The newest version of a Delta table."""

    def __init__(
        self,
        path: str,
        options: Mapping[str, str] | None = None,  # of its store, as delta-rs takes them
    ) -> None:
        self.path = path
        self.options = dict(options or {})
        found = TableLocation(path, self.options).open()
        if found is None:
            raise TableUnreadable(path, "it is no Delta table")
        self.delta = found
        self.root = local_path(self.delta.table_uri)
        _refuse_unreadable(path, self.delta)
        self._files: list[LakeFile] | None = None

    @property
    def identity(self) -> str:
        """Another one after the table was deleted and made again."""
        return str(self.delta.metadata().id)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.delta.schema().fields)

    def files(self, conditions: Iterable[Condition] = ()) -> list[LakeFile]:
        if self._files is None:
            order = self.delta.metadata().partition_columns
            actions = pa.table(self.delta.get_add_actions(flatten=True)).to_pylist()
            self._files = [_file(self.root, order, action) for action in actions]
        wanted = tuple(conditions)
        return [file for file in self._files if file.may_hold(wanted)]

    def dataset(self, files: Sequence[LakeFile] | None = None) -> ds.Dataset:
        whole = self.delta.to_pyarrow_dataset()
        fragments = [
            whole.format.make_fragment(
                file.uri.removeprefix(f"{self.root}/"),
                filesystem=whole.filesystem,
                partition_expression=_common(file, whole.schema),
            )
            for file in (self.files() if files is None else files)
        ]
        return ds.FileSystemDataset(fragments, whole.schema, whole.format, whole.filesystem)

    def split(self, file: LakeFile) -> tuple[str, str]:
        """A file's place and its path there; not all files are below the table."""
        if file.uri.startswith(f"{self.root}/"):
            return self.root, file.uri.removeprefix(f"{self.root}/")
        place, _, name = file.uri.rpartition("/")
        return place, name


def is_delta(path: str, options: Mapping[str, str] | None = None) -> bool:
    place = local_path(path)
    if os.path.isfile(place):
        return False
    try:
        return bool(DeltaTable.is_deltatable(place, dict(options or {}) or None))
    except OSError as error:
        raise cannot_open(path, error) from error


def is_remote(path: str) -> bool:
    return "://" in local_path(path)


def dataset_of(path: str, options: Mapping[str, str] | None = None) -> ds.Dataset:
    """A Delta table, or else a directory (or file) of Parquet."""
    if is_delta(path, options):
        return LakeTable(path, options=options).dataset()
    if is_remote(path):
        raise TableUnreadable(path, "it is no Delta table, and only these are read from a store")
    try:
        return ds.dataset(path, format="parquet", partitioning="hive")
    except (OSError, ValueError) as error:
        raise TableUnreadable(path, str(error)) from error


def tables_below(directory: str) -> dict[str, str]:
    """Name to path of the tables in a directory of this machine; itself, when it is a table."""
    if not os.path.isdir(directory):
        raise ConfigError("lake", directory, "it has to be a directory that holds tables")
    if is_delta(directory) or _has_parquet(directory):
        return {os.path.basename(os.path.abspath(directory)): directory}
    found = {}
    for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
        is_table = entry.is_dir() and (is_delta(entry.path) or _has_parquet(entry.path))
        if is_table and not entry.name.startswith((".", "_")):
            found[entry.name] = entry.path
    return found


def _has_parquet(directory: str) -> bool:
    with os.scandir(directory) as entries:
        return any(entry.name.endswith(".parquet") and entry.is_file() for entry in entries)


def _refuse_unreadable(path: str, table: DeltaTable) -> None:
    features = set(table.protocol().reader_features or ())
    settings = table.metadata().configuration
    if settings.get("delta.columnMapping.mode", "none") != "none":
        features.add("columnMapping")
    refused = sorted(features.intersection(_REFUSED_FEATURES))
    if refused:
        reason = f"it uses {' and '.join(refused)}, which are not read without Delta's own jars"
        raise TableUnreadable(path, reason)


def _file(root: str, partition_columns: list[str], row: dict[str, Any]) -> LakeFile:
    path = unquote(row["path"])  # in the log it is a URL
    is_elsewhere = "://" in path or path.startswith("/")
    return LakeFile(
        uri=path if is_elsewhere else f"{root}/{path}",
        directories=() if is_elsewhere else tuple(path.split("/")[:-1]),
        size_bytes=row["size_bytes"],
        rows=row.get("num_records"),
        partition={name: row.get(f"partition.{name}") for name in partition_columns},
        least=_statistics(row, "min."),
        most=_statistics(row, "max."),
    )


def _statistics(row: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Column to value; a column of a struct is named with its dots."""
    return {
        name.removeprefix(prefix): value
        for name, value in row.items()
        if name.startswith(prefix) and value is not None
    }


def _common(file: LakeFile, schema: pa.Schema) -> ds.Expression:
    """What holds for each row of the file."""
    parts = [constants({n: _typed(schema, n, value) for n, value in file.partition.items()})]
    for name in sorted(file.least.keys() & file.most.keys() & set(schema.names)):
        kind = schema.field(name).type
        if pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind):
            most = file.most[name]
            most = most + _CUT_OFF if isinstance(most, datetime) else most
            column = pc.field(name)
            low = column >= _typed(schema, name, file.least[name])
            high = column <= _typed(schema, name, most)
            parts.append((low & high) | column.is_null())
    return reduce(and_, parts)


def constants(values: Mapping[str, pa.Scalar]) -> ds.Expression:
    """Of columns that have one value, as those of a partition."""
    parts = (
        pc.field(name) == value if value.is_valid else pc.field(name).is_null()
        for name, value in values.items()
    )
    return reduce(and_, parts, pc.scalar(True))


def _typed(schema: pa.Schema, name: str, value: Any) -> pa.Scalar:
    return pa.scalar(value, schema.field(name).type)
