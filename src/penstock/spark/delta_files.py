"""The Parquet files of one task: one for each partition value that its rows have.

A file is written from the first row to the last without holding more than a row group, synced, and
described for the transaction that will name it. Rows keep the order in which they came.
"""

import contextlib
import json
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from penstock import limits
from penstock.errors import LakeFailed
from penstock.spark.delta_table import NULL_DIRECTORY, Shape, Staged, TableLocation, partition_text

_IDS = ("id", "message_id")
_ROW = ""  # beside the partition columns; none of these has no name


def write(location: TableLocation, shape: Shape, batches: Iterable[pa.RecordBatch]) -> list[Staged]:
    """Write all rows, or after an error no file."""
    files, opened = location.files(), dict[tuple[str | None, ...], _File]()
    try:
        for batch in batches:
            for values, rows in _split(batch, shape):
                if values not in opened:
                    opened[values] = _File(files, location, shape, values)
                opened[values].add(rows)
        return [file.finish() for file in opened.values()]
    except BaseException as error:
        for file in opened.values():
            file.abandon()
        if isinstance(error, OSError) and "No space left" in str(error):  # where?
            raise LakeFailed(location.uri, str(error)) from error
        raise


def _split(
    batch: pa.RecordBatch, shape: Shape
) -> Iterator[tuple[tuple[str | None, ...], pa.RecordBatch]]:
    """Rows by their partition values, in their order; as a rule all have the same."""
    if batch.num_rows == 0:
        return
    names = shape.partition_by
    columns = [batch.column(name) for name in names]
    kept = batch.select(shape.file_schema.names)
    found = [pc.unique(column).to_pylist() for column in columns]
    if all(len(values) == 1 for values in found):
        yield tuple(partition_text(values[0]) for values in found), kept
        return
    numbered = pa.table([*columns, np.arange(len(kept))], names=[*names, _ROW])
    groups = numbered.group_by(list(names), use_threads=False).aggregate([(_ROW, "list")])
    keys = groups.select(list(names)).to_pylist()
    for key, rows in zip(keys, groups.column(f"{_ROW}_list"), strict=True):
        yield tuple(map(partition_text, key.values())), kept.take(rows.values)


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Large batches of Spark's small ones: each becomes a row group."""
    held: list[pa.RecordBatch] = []
    size = rows = 0
    for batch in batches:
        held.append(batch)
        size, rows = size + batch.nbytes, rows + batch.num_rows
        if size >= limits.SPARK_HELD_BYTES or rows >= limits.SPARK_ROWS_MAX:
            yield pa.concat_batches(held)
            held, size, rows = [], 0, 0
    if held:
        yield pa.concat_batches(held)


class _File:
    def __init__(
        self,
        files: FileSystem,
        location: TableLocation,
        shape: Shape,
        values: tuple[str | None, ...],
    ) -> None:
        self._partition = dict(zip(shape.partition_by, values, strict=True))
        folders = [
            f"{name}={NULL_DIRECTORY if value is None else quote(value, safe='')}"
            for name, value in self._partition.items()
        ]
        self._relative = "/".join([*folders, f"part-{uuid.uuid4()}.zstd.parquet"])
        self._files, self._path = files, location.full(self._relative)
        self._is_local = location.local_path is not None
        self._named = shape.statistics
        self._metadata: list[pq.FileMetaData] = []  # one, when the file is closed
        if self._is_local:
            Path(self._path).parent.mkdir(parents=True, exist_ok=True)
        self._sink = files.open_output_stream(self._path)
        self._writer = pq.ParquetWriter(
            self._sink,
            shape.file_schema,
            compression="zstd",
            compression_level=1,  # twice as fast as the next, and nearly as small
            write_statistics=list(shape.statistics) or True,
            metadata_collector=self._metadata,
            **_encodings(shape.file_schema),
        )

    def add(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def finish(self) -> Staged:
        self._writer.close()
        self._sink.close()
        if self._is_local:
            _sync(self._path)
            _sync(os.path.dirname(self._path))
        return Staged(
            self._relative,
            self._files.get_file_info(self._path).size,
            self._metadata[0].num_rows,
            self._partition,
            _statistics(self._metadata[0], self._named),
            time.time_ns() // limits.MS,
        )

    def abandon(self) -> None:
        with contextlib.suppress(OSError, pa.ArrowException):  # what broke may break again
            self._writer.close()
            self._sink.close()
        self._files.delete_file(self._path)


def _sync(path: str) -> None:
    """A transaction must not name a file that a power loss can undo."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def store(location: TableLocation, relative: str, content: bytes) -> None:
    """A file beside the table, whole or not at all."""
    path = location.full(relative)
    if location.local_path is not None:
        made = [folder for folder in Path(path).parents if not folder.exists()]
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_durably(Path(path), content)
        for folder in made:
            _sync(str(folder.parent))
        return
    # Without a buffer pyarrow hands over a Buffer, and delta-rs takes bytes only.
    with location.files().open_output_stream(
        path, buffer_size=limits.LAKE_NOTE_BUFFER_BYTES
    ) as file:
        file.write(content)


def write_durably(path: Path, content: bytes, mode: int = 0o666) -> None:
    """In one step: readers find the old content or the new."""
    draft = path.with_name(f"{path.name}.tmp")
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    _sync(str(path.parent))


def _encodings(schema: pa.Schema) -> dict[str, Any]:
    """Numbers that rise, and ids that begin alike, take next to nothing as differences. Columns
    with few values get a dictionary; the others are written as they are."""
    encodings, dictionary = {}, []
    for field in schema:
        if pa.types.is_int64(field.type) or pa.types.is_timestamp(field.type):
            encodings[field.name] = "DELTA_BINARY_PACKED"
        elif field.name in _IDS:
            encodings[field.name] = "DELTA_BYTE_ARRAY"
        elif field.type in (pa.int16(), pa.int32(), pa.string()):
            dictionary.append(field.name)
    return {"column_encoding": encodings, "use_dictionary": dictionary}


def _statistics(metadata: pq.FileMetaData, names: Sequence[str]) -> str:
    """The statistics for readers that skip files, in the form of the Delta log."""
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            if column.path_in_schema in columns:
                columns[column.path_in_schema].append(column.statistics)
    bounded = {
        name: bounds
        for name, found in columns.items()
        if (bounds := [each for each in found if each.has_min_max])
    }
    return json.dumps(
        {
            "numRecords": metadata.num_rows,
            "minValues": {n: _json(min(one.min for one in found)) for n, found in bounded.items()},
            "maxValues": {n: _json(max(one.max for one in found)) for n, found in bounded.items()},
            "nullCount": {n: sum(one.null_count for one in all_) for n, all_ in columns.items()},
        }
    )


def _json(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return value.isoformat() if isinstance(value, date) else value
