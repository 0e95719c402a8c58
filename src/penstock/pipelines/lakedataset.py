"""A Delta table as a dataset of pyarrow, for DuckDB and others that filter by themselves.

A dataset says of each file what its rows have in common: the values of its partition, and bounds of
columns. delta-rs makes such a dataset too, but a bound that the table's log does not name becomes
NULL there, and no row meets a filter on that column. Our own tables say which columns have bounds
(`lake`), so every reader is right about them; tables of other writers may not. Here a column is
left out where its bounds are not known.

Only numbers and times are bounded: the bounds of long texts are cut off, and NaN has no order.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import reduce
from operator import and_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from penstock.errors import TableUnreadable
from penstock.pipelines.lakeread import CUT_OFF, LakeFile, LakeTable


def dataset(path: str, options: Mapping[str, str] | None = None) -> ds.Dataset:
    """The table as it is now; `options` are delta-rs's, for an object store."""
    table = LakeTable(path, options=options)
    whole = table.delta.to_pyarrow_dataset()
    known = {file.uri: file for file in table.files()}
    fragments = [
        whole.format.make_fragment(
            fragment.path,
            filesystem=whole.filesystem,
            partition_expression=_common(_found(table, known, fragment.path), whole.schema),
        )
        for fragment in whole.get_fragments()
    ]
    return ds.FileSystemDataset(fragments, whole.schema, whole.format, whole.filesystem)


def _found(table: LakeTable, known: dict[str, LakeFile], path: str) -> LakeFile:
    file = known.get(f"{table.root}/{path}") or known.get(path)
    if file is None:
        raise TableUnreadable(table.path, f"its log does not name the file {path}")
    return file


def _common(file: LakeFile, schema: pa.Schema) -> ds.Expression:
    """What holds for each row of the file."""
    parts = [
        pc.field(name).is_null() if value is None else pc.field(name) == _typed(schema, name, value)
        for name, value in file.partition.items()
    ]
    for name in sorted(file.least.keys() & file.most.keys() & set(schema.names)):
        if _is_bounded(schema.field(name).type):
            most = file.most[name]
            most = most + CUT_OFF if isinstance(most, datetime) else most
            column = pc.field(name)
            low = column >= _typed(schema, name, file.least[name])
            high = column <= _typed(schema, name, most)
            parts.append((low & high) | column.is_null())
    return reduce(and_, parts, pc.scalar(True))


def _typed(schema: pa.Schema, name: str, value: Any) -> pa.Scalar:
    return pa.scalar(value, schema.field(name).type)


def _is_bounded(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind))
