"""A Delta table without Java: Parquet files by pyarrow, one transaction for each batch by delta-rs.

Whoever writes rows puts a file where the table is, under a name of its own, and hands on what a
transaction has to say of it (`Staged`). Nobody sees the file until a commit names it. A commit
carries (application, version) into the table's log, in the same transaction as the files: the
table itself knows the last version of each application, so a commit that is repeated, because
somebody died before he could write down that it was done, changes nothing. Files that no commit has
named are removed by `vacuum` once they are old.

Several may write at once. Appends do not disturb each other, nor does compaction disturb an append;
where delta-rs sees a conflict all the same, the commit is tried again on the newer table.

A file's entry has the least and the greatest value of some columns only, and the table has to say
which. Where it does not, readers expect them of the first 32 columns, and delta-rs takes a missing
one for "no row can match": a filter on such a column then finds nothing, without a word.

The partition columns are not in the files. What a file holds of them stands in the transaction,
which is what readers go by; the directories are named for people.
"""

import os
import random
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, RemoveAction
from pyarrow.fs import FileSystem, LocalFileSystem, PyFileSystem

from penstock import limits
from penstock.errors import LakeFailed, SchemaMismatch

NULL_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"  # Hive's word for NULL, which is a legal topic name
_STATISTICS = "delta.dataSkippingStatsColumns"

T = TypeVar("T")
Properties = Mapping[str, str]
Needs = Callable[[Properties], Properties]  # what to set, given what there is; it may refuse


@dataclass(frozen=True)
class Shape:
    """The layout of a table. Files are in the order in which rows came.

    `statistics` are the columns whose least and greatest value stand in the log. Every file of the
    table needs those of all of them, so none can be added for a table that has files.
    """

    schema: pa.Schema
    partition_by: tuple[str, ...]
    statistics: tuple[str, ...] = ()

    @property
    def properties(self) -> Properties:
        return {_STATISTICS: ",".join(self.statistics)}

    @property
    def file_schema(self) -> pa.Schema:
        return pa.schema([field for field in self.schema if field.name not in self.partition_by])


class Staged(NamedTuple):
    """A written file that is not part of the table yet."""

    path: str  # relative to the table
    size: int
    rows: int
    partition: dict[str, str | None]
    statistics: str  # JSON, as the Delta log has it
    modified_ms: int


def local_path(path: str) -> str:
    """An absolute path where it is one of this machine, and else the address as it is."""
    parts = urlsplit(path)
    if parts.scheme == "file":
        return unquote(parts.path).rstrip("/") or "/"
    return path.rstrip("/") if "://" in path else os.path.abspath(path)


def cannot_open(uri: str, error: Exception) -> LakeFailed:
    return LakeFailed(uri, f"it can't be opened: {' '.join(str(error).split())}")


def partition_text(value: Any) -> str | None:
    """In the form of a partition value in the Delta log."""
    if value is None or isinstance(value, str):
        return value or None
    return value.isoformat() if isinstance(value, date) else str(value)


@dataclass(frozen=True)
class TableLocation:
    """The location of a table for delta-rs: a path, file:, s3:, ... and its storage options."""

    uri: str
    options: Mapping[str, str]

    @property
    def root(self) -> str:
        return local_path(self.uri)

    @property
    def local_path(self) -> Path | None:
        return None if "://" in self.root else Path(self.root)

    def open(self) -> DeltaTable | None:
        """None when there is no table yet."""
        try:
            return DeltaTable(self.root, storage_options=dict(self.options) or None)
        except TableNotFoundError:
            return None
        except (DeltaError, OSError, ValueError) as error:
            raise cannot_open(self.uri, error) from error

    def version(self) -> int | None:
        table = self.open()
        return None if table is None else int(table.version())

    def files(self) -> FileSystem:
        if self.local_path is None:
            handler = DeltaStorageHandler(self.root, dict(self.options) or None)
            return PyFileSystem(handler)
        return LocalFileSystem()

    def full(self, relative: str) -> str:
        path = self.local_path
        return relative if path is None else str(path / relative)

    def create(self, shape: Shape, configuration: Properties) -> None:
        """Create the table if missing; two may do this at once. An existing one gets the properties
        that its layout needs."""
        path = self.local_path
        if path is not None:
            path.mkdir(parents=True, exist_ok=True)
        try:
            DeltaTable.create(
                self.root,
                shape.schema,
                mode="ignore",
                partition_by=list(shape.partition_by),
                configuration={**configuration, **shape.properties},
                storage_options=dict(self.options) or None,
            )
        except (DeltaError, OSError, ValueError) as error:
            if self.open() is None:
                raise LakeFailed(self.uri, f"the table can't be made: {error}") from error
        self.set_properties(lambda known: _changed(known, shape.properties))

    def properties(self) -> Properties:
        table = self.open()
        return {} if table is None else dict(table.metadata().configuration)

    def add_columns(self, fields: Sequence[pa.Field]) -> None:
        """Add missing columns, also within structs; existing rows have null in them. Others may do
        the same meanwhile."""

        def add(table: DeltaTable) -> bool:
            there = {f.name: _plain(f.type) for f in pa.schema(table.schema().to_arrow())}
            fresh = [
                Field.from_arrow(each)
                for each in fields
                if each.name not in there
                or (pa.types.is_struct(each.type) and _plain(each.type) != there[each.name])
            ]
            if fresh:
                table.alter.add_columns(fresh)
            return True

        self.change(add, "columns can't be added")

    def set_properties(self, wanted: Needs) -> None:
        """Apply the result of `wanted` for the table's properties, in one step: when they change
        meanwhile, it is called again."""

        def put(table: DeltaTable) -> bool:
            fresh = dict(wanted(table.metadata().configuration))
            if fresh:
                table.alter.set_table_properties(fresh, raise_if_not_exists=False)
            return True

        self.change(put, "its properties can't be set")

    def change(self, write: Callable[[DeltaTable], T | None], failed: str) -> T:
        """One transaction, and its result. When another was faster, or the result is None, repeat
        with the table as it is then."""
        for left in range(limits.LAKE_COMMIT_TRIES - 1, -1, -1):
            table = self.open()
            if table is None:
                raise LakeFailed(self.uri, "there is no table")
            try:
                done = write(table)
                if done is not None:
                    return done
            except CommitFailedError as error:
                if left == 0:
                    raise LakeFailed(self.uri, f"{failed}: {error}") from error
                time.sleep(random.uniform(0.5, 1) * limits.LAKE_COMMIT_PAUSE_NS / limits.SECOND)
            except (DeltaError, OSError) as error:
                raise LakeFailed(self.uri, f"{failed}: {error}") from error
        raise LakeFailed(self.uri, f"{failed}: its properties are changed again and again")


def _changed(known: Properties, wanted: Properties) -> Properties:
    return {name: value for name, value in wanted.items() if known.get(name) != value}


# --- does a table fit ---


def check_fits(
    location: TableLocation, table: DeltaTable, shape: Shape, addable: Collection[str] = ()
) -> None:
    """SchemaMismatch names the first column that does not fit. Columns that are `addable`, and
    their fields, may be missing."""
    there, partition_by = pa.schema(table.schema().to_arrow()), table.metadata().partition_columns
    wrong = misfit(there, partition_by, shape, addable)
    if wrong:
        raise SchemaMismatch(location.uri, wrong)


def misfit(
    there: pa.Schema, partition_by: Sequence[str], shape: Shape, addable: Collection[str] = ()
) -> str:
    """The first mismatch, "" without one."""
    if tuple(partition_by) != shape.partition_by:
        has, wanted = ", ".join(partition_by) or "nothing", ", ".join(shape.partition_by)
        return f"it is partitioned by {has}, not by {wanted}"
    for field in shape.schema:
        is_addable = field.name in addable
        if field.name not in there.names:
            if is_addable:
                continue
            return f"it has no column {field.name} ({field.type})"
        has = there.field(field.name).type
        needed = _narrowed(field.type, has) if is_addable else field.type
        if _plain(has) != _plain(needed):
            return f"its column {field.name} is {has}, not {needed}"
    for field in there:
        if field.name not in shape.schema.names:
            return f"it has a column {field.name}, which would not be written"
    return ""


def _narrowed(wanted: pa.DataType, there: pa.DataType) -> pa.DataType:
    """Without the fields that the table's column lacks."""
    if not (pa.types.is_struct(wanted) and pa.types.is_struct(there)):
        return wanted
    has = {field.name: field.type for field in there}
    kept = [field for field in wanted if field.name in has]
    return pa.struct([field.with_type(_narrowed(field.type, has[field.name])) for field in kept])


def _plain(kind: pa.DataType) -> str:
    """A type by its meaning: Arrow has several for one, and names inner fields at will."""
    if pa.types.is_struct(kind):
        inner = (f"{field.name}:{_plain(field.type)}" for field in kind)
        return f"struct<{','.join(inner)}>"
    if pa.types.is_map(kind):
        return f"map<{_plain(kind.key_type)},{_plain(kind.item_type)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list<{_plain(kind.value_type)}>"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    return re.sub(r"^large_|_view$", "", str(kind))


# --- the transaction ---


def commit(
    location: TableLocation,
    shape: Shape,
    application: str,
    version: int,
    staged: Sequence[Staged],
    prepared: Callable[[Properties], bool] | None = None,
) -> bool:
    """One transaction. False when this version, or a later one, is committed already. `prepared`
    sees the properties, and returns whether it has changed them; the last ones that it saw hold
    when the commit is done, as a change in between makes it fail and begin again.

    The files are left where they are, whatever happens: after an error nobody can be sure that the
    transaction is not in the table.
    """
    added: list[AddAction | RemoveAction] = [
        AddAction(each.path, each.size, each.partition, each.modified_ms, True, each.statistics)
        for each in staged
    ]

    def write(table: DeltaTable) -> bool | None:
        last = table.transaction_version(application)
        if last is not None and last >= version:
            return False
        check_fits(location, table, shape)
        known = table.metadata().configuration
        if _changed(known, shape.properties):
            location.set_properties(lambda known: _changed(known, shape.properties))
            return None
        if prepared is not None and prepared(known):
            return None
        named = CommitProperties(app_transactions=[Transaction(application, version)])
        by = list(shape.partition_by)
        table.create_write_transaction(
            added, "append", table.schema(), partition_by=by, commit_properties=named
        )
        return True

    return location.change(write, "the commit failed")
