"""The columns of the source, and the choice among them.

A user's `.schema(...)` is the projection: Spark has no column pruning for Python sources, so what
is not asked for is simply not made. Spark compares the Arrow schema of what it gets with its own,
and wants them equal, nullability and order included.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from penstock.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class Column(NamedTuple):
    sql_type: str
    arrow_type: pa.DataType
    always: bool  # without being asked for; a value is never null


COLUMNS: dict[str, Column] = {
    "topic": Column("string", pa.string(), True),
    "partition": Column("int", pa.int32(), True),
    "offset": Column("bigint", pa.int64(), True),
    "timestamp": Column("timestamp", pa.timestamp("us", tz="UTC"), True),
    "id": Column("string", pa.string(), True),
    "attempts": Column("smallint", pa.int16(), True),
    "body": Column("binary", pa.binary(), True),
    "key": Column("binary", pa.binary(), False),
    "headers": Column("map<string,binary>", pa.map_(pa.string(), pa.binary()), False),
}


def source_schema(include_key: bool, include_headers: bool) -> str:
    """The schema of a reader without one of its own, as DDL."""
    asked = {"key": include_key, "headers": include_headers}
    return ", ".join(
        f"{name} {column.sql_type}"
        for name, column in COLUMNS.items()
        if column.always or asked[name]
    )


def projection(schema: StructType) -> pa.Schema:
    """What to produce for this Spark schema. ConfigError for what the source does not have."""
    fields = []
    for field in schema.fields:
        column = COLUMNS.get(field.name.lower())
        if column is None:
            raise ConfigError("schema", field.name, f"the columns are {', '.join(COLUMNS)}")
        given = field.dataType.simpleString()
        if given != column.sql_type:
            raise ConfigError("schema", f"{field.name} {given}", f"its type is {column.sql_type}")
        if not field.nullable and not column.always:
            raise ConfigError("schema", field.name, "it can be null, so it must not be NOT NULL")
        fields.append(pa.field(field.name, column.arrow_type, nullable=field.nullable))
    return pa.schema(fields)
