"""Every reader that the documents name, asked how many rows of a table meet a condition."""

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder

from penstock.nsqadmin.console import Question, answer

Count = Callable[[Path, str, Any], int]  # of the rows whose column has that value; None is NULL


def pyarrow_dataset(path: Path, column: str, value: Any) -> int:
    data, field = DeltaTable(path).to_pyarrow_dataset(), pc.field(column)
    there = pa.scalar(value, data.schema.field(column).type)
    return int(data.to_table(filter=field.is_null() if value is None else field == there).num_rows)


def pyarrow_table(path: Path, column: str, value: Any) -> int:
    where = pc.field(column).is_null() if value is None else [(column, "=", value)]
    return int(DeltaTable(path).to_pyarrow_table(filters=where).num_rows)


def delta_rs(path: Path, column: str, value: Any) -> int:
    sql = f"SELECT count(*) AS n FROM t WHERE {_condition(column, value, _RS_BYTES)}"
    batches = QueryBuilder().register("t", DeltaTable(path)).execute(sql)
    return int(pa.table(batches.read_all()).column("n")[0].as_py())


def polars(path: Path, column: str, value: Any) -> int:
    import polars as pl

    field = pl.col(column)
    met = field.is_null() if value is None else field == pl.lit(value)
    return int(pl.scan_delta(str(path)).filter(met).select(pl.len()).collect().item())


def duck(path: Path, column: str, value: Any) -> int:
    rows = duckdb.from_arrow(DeltaTable(path).to_pyarrow_dataset())
    sql = f"SELECT count(*) FROM t WHERE {_condition(column, value, _DUCK_BYTES)}"
    return int(rows.query("t", sql).fetchall()[0][0])


def console(path: Path, column: str, value: Any) -> int:
    sql = f'SELECT count(*) FROM "{path.name}" WHERE {_condition(column, value, _DUCK_BYTES)}'
    reply = answer(Question(sql, [], [str(path.parent)]))
    return int(reply.rows[0][0])


# pandas has the rows of pyarrow's table.
READERS: dict[str, Count] = {
    "pyarrow dataset": pyarrow_dataset,
    "pyarrow table": pyarrow_table,
    "delta-rs": delta_rs,
    "Polars": polars,
    "DuckDB": duck,
    "nsqadmin": console,
}
_RS_BYTES = "decode('{}', 'hex')"
_DUCK_BYTES = "from_hex('{}')"


def _condition(column: str, value: Any, of_bytes: str) -> str:
    if value is None:
        return f'"{column}" IS NULL'
    if isinstance(value, bytes):
        return f'"{column}" = {of_bytes}'.format(value.hex())
    if isinstance(value, datetime):
        return f"\"{column}\" = TIMESTAMPTZ '{value.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}+00:00'"
    if isinstance(value, date):
        return f"\"{column}\" = DATE '{value.isoformat()}'"
    return f"\"{column}\" = '{value}'" if isinstance(value, str) else f'"{column}" = {value}'


def truths(path: Path) -> Iterator[tuple[str, Any, int]]:
    """(column, value, rows) for values of each column, the table being read as a whole."""
    rows = DeltaTable(path).to_pyarrow_table()
    for name in rows.column_names:
        column = rows[name].combine_chunks()
        if column.null_count:
            yield name, None, column.null_count
        if pa.types.is_nested(column.type):
            continue
        values = pc.unique(column).drop_null()
        for value in (
            values.take(pa.array(sorted({0, len(values) // 2, max(len(values) - 1, 0)})))
            if len(values)
            else []
        ):
            yield name, value.as_py(), int(pc.sum(pc.equal(column, value)).as_py())


def wrong(path: Path, count: Count) -> list[tuple[str, Any, int, int]]:
    """(column, value, counted, there) where the reader does not find what is there."""
    asked = [(name, value, count(path, name, value), there) for name, value, there in truths(path)]
    if not asked:
        raise AssertionError(f"{path} has no rows, so this shows nothing")
    return [each for each in asked if each[2] != each[3]]
