"""Delta tables read through Spark without the JVM's Delta jars.

delta-rs reads the table's log and says which Parquet files belong to a version; Spark then reads
just these files with its own vectorised reader. What is not in the files is put back:

- Partition columns (of the archive: topic and date) are only in the log and in the names of
  directories. Where the names follow Hive's convention, as delta-rs and ours do, Spark takes the
  values from there, under the types that the table's schema names, so a topic called "0123" stays a
  text. Files elsewhere get the values of the log as constants.
- Which rows of a file have been deleted (deletion vectors), and columns that were renamed (column
  mapping), is written in the log alone. Reading around that would give wrong rows, so such tables
  are refused.

Spark reads the files of this machine. Those of an object store are read by its tasks through
delta-rs (`lakestore`).

Columns that are not asked for are not read. Spark sees by itself which it needs of this machine's
files; for a store they have to be named, as Spark does not look into the function that reads.

Data skipping: every file's entry has the least and the greatest value of its columns, so a
condition such as a span of offsets opens only the files that may hold such rows. A file that says
nothing about a column is read. Conditions are also applied to the rows.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from penstock.errors import ConfigError, LakeFailed, TableUnreadable

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyarrow import NativeFile
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

_NULL_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"  # Hive's word for NULL, which is a legal topic name
_REFUSED_FEATURES = ("deletionVectors", "columnMapping")
_AS_IT_IS = {"__globPaths__": "false"}  # a path is no pattern, whatever is in it
# The log keeps the times of a file's rows in milliseconds, cut off: the greatest may be later.
CUT_OFF = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Span:
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


Condition = Span | Among


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
        return condition.may_hold(least, most + CUT_OFF if isinstance(most, datetime) else most)

    def partition_is_in_path(self) -> bool:
        """Whether Spark reads this file's partition values from the names of its directories."""
        wanted = tuple(f"{name}={_text(value)}" for name, value in self.partition.items())
        return tuple(map(unquote, self.directories)) == wanted


def _text(value: Any) -> str:
    """A value as Hive writes it, before the percent signs; what it can't write matches nothing."""
    text = value.isoformat() if isinstance(value, date) else str(value)
    return "/" if value is None or text in ("", _NULL_DIRECTORY) else text


class LakeTable:
    """One version of a Delta table: the newest, or the one that is named."""

    def __init__(
        self,
        path: str,
        version: int | None = None,
        options: Mapping[str, str] | None = None,  # of its store, as delta-rs takes them
    ) -> None:
        self.path = path
        self._options = dict(options or {})
        self._table = _open(path, version, self._options)
        self.root = local_path(self._table.table_uri)
        _refuse_unreadable(path, self._table)
        self._files: list[LakeFile] | None = None

    @property
    def version(self) -> int:
        return int(self._table.version())

    @property
    def delta(self) -> DeltaTable:
        return self._table

    @property
    def identity(self) -> str:
        """Another one after the table was deleted and made again."""
        return str(self._table.metadata().id)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(field.name for field in self._table.schema().fields)

    def files(self, conditions: Iterable[Condition] = ()) -> list[LakeFile]:
        """The files that may hold rows that meet all conditions."""
        if self._files is None:
            self._files = _files(self.root, self._table)
        wanted = tuple(conditions)
        return [file for file in self._files if file.may_hold(wanted)]

    def frame(
        self,
        spark: SparkSession,
        conditions: Sequence[Condition] = (),
        columns: Collection[str] | None = None,
    ) -> DataFrame:
        """The rows that meet all conditions, with the table's columns in their order: all, or those
        of `columns` that it has, and those of the conditions."""
        from pyspark.sql.types import StructType

        schema = StructType.fromJson(json.loads(self._table.schema().to_json()))
        if columns is not None:
            wanted = {*columns, *(condition.column for condition in conditions)}
            schema = StructType([field for field in schema.fields if field.name in wanted])
        files = self.files(conditions)
        if files and is_remote(self.root):
            frame = self._stored(spark, schema, files)
        else:
            frame = _frame(spark, schema, local_path(self.path), files)
        for condition in conditions:
            frame = frame.where(condition.condition())
        return frame

    def _stored(
        self, spark: SparkSession, schema: StructType, files: Sequence[LakeFile]
    ) -> DataFrame:
        from penstock.pipelines.lakestore import StoredFile, frame_of

        stored = [StoredFile(*self._split(file), file.partition) for file in files]
        return frame_of(spark, schema, stored, self._options)

    def _split(self, file: LakeFile) -> tuple[str, str]:
        """A file's place and its path there; not all files are below the table."""
        if file.uri.startswith(f"{self.root}/"):
            return self.root, file.uri.removeprefix(f"{self.root}/")
        place, _, name = file.uri.rpartition("/")
        return place, name

    def opened(self, file: LakeFile) -> NativeFile:
        from penstock.spark.lake import Place

        place, path = self._split(file)
        where = Place(place, self._options)
        return where.files().open_input_file(where.full(path))

    def transaction_version(self, app: str) -> int | None:
        """The last version that this application has committed."""
        version = self._table.transaction_version(app)
        return None if version is None else int(version)


def is_delta(path: str, options: Mapping[str, str] | None = None) -> bool:
    from deltalake import DeltaTable

    place = local_path(path)
    if os.path.isfile(place):
        return False
    try:
        return bool(DeltaTable.is_deltatable(place, dict(options or {}) or None))
    except OSError as error:
        raise LakeFailed(path, f"it can't be opened: {_one_line(error)}") from error


def is_remote(path: str) -> bool:
    return "://" in local_path(path)


def read_table(
    spark: SparkSession,
    path: str,
    conditions: Sequence[Condition] = (),
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """A Delta table, or else a directory (or file) of Parquet, which has no log to skip by."""
    if is_delta(path, options):
        return LakeTable(path, options=options).frame(spark, conditions)
    if options and is_remote(path):
        raise TableUnreadable(path, "it is no Delta table, and only these are read from a store")
    frame = spark.read.options(**_AS_IT_IS).parquet(path)
    for condition in conditions:
        frame = frame.where(condition.condition())
    return frame


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


def _open(path: str, version: int | None, options: Mapping[str, str]) -> DeltaTable:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        return DeltaTable(local_path(path), version=version, storage_options=dict(options) or None)
    except (DeltaError, OSError, ValueError) as error:
        if is_remote(path) and isinstance(error, OSError):  # the store, which may come back
            raise LakeFailed(path, f"it can't be opened: {_one_line(error)}") from error
        wanted = "" if version is None else f" in version {version}"
        reason = str(error).partition("\n")[0]
        raise TableUnreadable(path, f"it is no Delta table{wanted}: {reason}") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _refuse_unreadable(path: str, table: DeltaTable) -> None:
    features = set(table.protocol().reader_features or ())
    settings = table.metadata().configuration
    if settings.get("delta.columnMapping.mode", "none") != "none":
        features.add("columnMapping")
    refused = sorted(features.intersection(_REFUSED_FEATURES))
    if refused:
        reason = f"it uses {' and '.join(refused)}, which are not read without Delta's own jars"
        raise TableUnreadable(path, reason)


def _files(root: str, table: DeltaTable) -> list[LakeFile]:
    import pyarrow as pa

    rows = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    order = table.metadata().partition_columns
    return [_file(root, order, row) for row in rows]


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


def local_path(path: str) -> str:
    """An absolute path where it is one of this machine, and else the address as it is."""
    parts = urlsplit(path)
    if parts.scheme == "file":
        return unquote(parts.path).rstrip("/") or "/"
    return path.rstrip("/") if "://" in path else os.path.abspath(path)


# --- Spark ---


def _frame(
    spark: SparkSession, schema: StructType, root: str, files: Sequence[LakeFile]
) -> DataFrame:
    by_path = [file for file in files if file.partition_is_in_path()]
    by_log: dict[tuple[Any, ...], list[LakeFile]] = {}
    for file in files:
        if not file.partition_is_in_path():
            by_log.setdefault(tuple(file.partition.values()), []).append(file)
    frames = [_read(spark, schema, by_path, root)] if by_path else []
    frames += [_with_constants(spark, schema, group) for group in by_log.values()]
    if not frames:
        return spark.createDataFrame([], schema)
    frame = frames[0]
    for other in frames[1:]:
        frame = frame.union(other)
    return frame


def _read(
    spark: SparkSession, schema: StructType, files: Sequence[LakeFile], root: str | None = None
) -> DataFrame:
    reader = spark.read.schema(schema).options(**_AS_IT_IS)
    if root is not None:
        reader = reader.option("basePath", root)
    frame = reader.parquet(*(file.uri for file in files))
    return frame.select(*(f"`{name}`" for name in schema.names))


def _with_constants(
    spark: SparkSession, schema: StructType, files: Sequence[LakeFile]
) -> DataFrame:
    """Files of the same partition values, which the names of their directories do not tell."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    values = files[0].partition
    stored = StructType([field for field in schema.fields if field.name not in values])
    frame = _read(spark, stored, files)
    return frame.select(
        *(
            F.lit(values[field.name]).cast(field.dataType).alias(field.name)
            if field.name in values
            else F.col(f"`{field.name}`")
            for field in schema.fields
        )
    )
