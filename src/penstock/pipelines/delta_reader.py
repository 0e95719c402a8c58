"""Delta tables without the JVM's jars: one dataset of pyarrow for all readers.

delta-rs reads the table's log. What is not in the files is put back: partition columns (of the
archive: topic and date) are in the log alone. Which rows of a file have been deleted (deletion
vectors), and columns that were renamed (column mapping), is written there too. Reading around that
would give wrong rows, so such tables are refused.

Data skipping: every file's entry has the least and the greatest value of its columns. A dataset
says of each file what its rows have in common, so a condition such as a span of offsets opens only
the files that may hold such rows. A file that says nothing about a column is read.

DuckDB reads the dataset itself, Spark's tasks read its files (`delta_frames`). delta-rs makes such
a dataset too, but a bound that the table's log does not name becomes NULL there, and no row meets a
filter on that column. Our own tables say which columns have bounds (`delta_table`), so every reader
is right about them; tables of other writers may not. Here a column is left out where its bounds are
not known.
"""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import reduce
from operator import and_
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

from penstock.errors import ConfigError, TableUnreadable
from penstock.spark.delta_table import TableLocation, cannot_open, local_path

_REFUSED_FEATURES = ("deletionVectors", "columnMapping")
# The log keeps the times of a file's rows in milliseconds, cut off: the greatest may be later.
_CUT_OFF = timedelta(milliseconds=1)
_TEXT_CHARS_CUT = 32  # a writer may cut off longer bounds, which are none then
_BOUNDED = (pa.types.is_integer, pa.types.is_date, pa.types.is_timestamp)  # NaN has no order


@dataclass(frozen=True, slots=True)
class ColumnSpan:
    """Rows with `least` <= column < `below`; None is no bound, and one of them there is."""

    column: str
    least: Any = None
    below: Any = None

    def met(self, column: Any) -> Any:
        """For a column of Spark or a field of pyarrow, which have the same operators."""
        bounds = [column >= self.least] if self.least is not None else []
        bounds += [column < self.below] if self.below is not None else []
        return reduce(and_, bounds)


@dataclass(frozen=True, slots=True)
class Among:
    column: str
    values: Collection[Any]

    def met(self, column: Any) -> Any:
        return column.isin(list(self.values))


Condition = ColumnSpan | Among


def expression(conditions: Iterable[Condition]) -> ds.Expression:
    met = (condition.met(pc.field(condition.column)) for condition in conditions)
    return reduce(and_, met, pc.scalar(True))


@dataclass(frozen=True, slots=True)
class LakeFile:
    """One data file of a version of the table, with its entry in the log."""

    path: str  # below the table; of a clone it may be elsewhere on this machine
    size_bytes: int
    partition: Mapping[str, Any]
    least: Mapping[str, Any] = field(default_factory=dict)
    most: Mapping[str, Any] = field(default_factory=dict)


class LakeTable:
    """The newest version of a Delta table."""

    def __init__(
        self,
        path: str,
        options: Mapping[str, str] | None = None,  # of its store, as delta-rs takes them
    ) -> None:
        self.location = TableLocation(path, dict(options or {}))
        found = self.location.open()
        if found is None:
            raise TableUnreadable(path, "it is no Delta table")
        self.delta = found
        features = set(found.protocol().reader_features or ())
        if found.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
            features.add("columnMapping")
        if refused := sorted(features.intersection(_REFUSED_FEATURES)):
            reason = f"it uses {' and '.join(refused)}, which are not read without Delta's own jars"
            raise TableUnreadable(path, reason)
        self._files: list[LakeFile] | None = None
        self._dataset: ds.Dataset | None = None  # of all files

    @property
    def identity(self) -> str:
        """Another one after the table was deleted and made again."""
        return str(self.delta.metadata().id)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.delta.schema().fields)

    def files(self) -> list[LakeFile]:
        if self._files is None:
            names = self.delta.metadata().partition_columns
            self._files = [
                LakeFile(
                    path=unquote(row["path"]),  # in the log it is a URL
                    size_bytes=row["size_bytes"],
                    partition={name: row.get(f"partition.{name}") for name in names},
                    least=_statistics(row, "min."),
                    most=_statistics(row, "max."),
                )
                for row in pa.table(self.delta.get_add_actions(flatten=True)).to_pylist()
            ]
        return self._files

    def dataset(self) -> ds.Dataset:
        if self._dataset is None:
            self._dataset = self.with_files(self.files())
        return self._dataset

    def with_files(self, files: Sequence[LakeFile]) -> ds.Dataset:
        """A dataset of these files alone."""
        whole, system = self.delta.to_pyarrow_dataset(), self.location.files()
        fragments = [
            whole.format.make_fragment(
                self.location.full(file.path),
                filesystem=system,
                partition_expression=_common(file, whole.schema),
            )
            for file in files
        ]
        return ds.FileSystemDataset(fragments, whole.schema, whole.format, system)


def is_delta(path: str, options: Mapping[str, str] | None = None) -> bool:
    location = local_path(path)
    if os.path.isfile(location):
        return False
    try:
        return bool(DeltaTable.is_deltatable(location, dict(options or {}) or None))
    except OSError as error:
        raise cannot_open(path, error) from error


def dataset_of(
    path: str, options: Mapping[str, str] | None = None, conditions: Sequence[Condition] = ()
) -> ds.Dataset:
    """A Delta table, with the files that may hold rows that meet the conditions; or a directory (or
    file) of Parquet, which has no log to skip by."""
    if is_delta(path, options):
        return pruned(LakeTable(path, options).dataset(), conditions)
    location = local_path(path)
    if "://" in location:
        raise TableUnreadable(path, "it is no Delta table, and only these are read from a store")
    try:
        return ds.dataset(location, format="parquet", partitioning="hive")
    except FileNotFoundError as error:
        raise TableUnreadable(path, "there is no table") from error
    except (OSError, ValueError) as error:
        raise TableUnreadable(path, str(error)) from error


def pruned(data: ds.Dataset, conditions: Sequence[Condition]) -> ds.Dataset:
    if not conditions:
        return data
    found = list(data.get_fragments(expression(conditions)))
    return ds.FileSystemDataset(found, data.schema, data.format, data.filesystem)


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


def _statistics(row: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Column to value; a column of a struct is named with its dots."""
    return {
        name.removeprefix(prefix): value
        for name, value in row.items()
        if name.startswith(prefix) and value is not None
    }


def _common(file: LakeFile, schema: pa.Schema) -> ds.Expression:
    """A condition that each row of the file meets."""
    parts = [constants(file.partition, schema)]
    for name in sorted(file.least.keys() & file.most.keys() & set(schema.names)):
        kind, most = schema.field(name).type, file.most[name]
        is_text = pa.types.is_string(kind) and len(most) < _TEXT_CHARS_CUT
        if is_text or any(is_kind(kind) for is_kind in _BOUNDED):
            most = most + _CUT_OFF if isinstance(most, datetime) else most
            column, null = pc.field(name), pc.field(name).is_null()
            # each bound by itself: pyarrow looks into no other form
            parts.append((column >= _typed(schema, name, file.least[name])) | null)
            parts.append((column <= _typed(schema, name, most)) | null)
    return reduce(and_, parts)


def constants(values: Mapping[str, Any], schema: pa.Schema) -> ds.Expression:
    """Columns with one value, as those of a partition."""
    parts = (
        pc.field(name).is_null() if value is None else pc.field(name) == _typed(schema, name, value)
        for name, value in values.items()
    )
    return reduce(and_, parts, pc.scalar(True))


def _typed(schema: pa.Schema, name: str, value: Any) -> pa.Scalar:
    return pa.scalar(value, schema.field(name).type)
