"""The columns of the source and of the sink, and the choice among them.

A user's `.schema(...)` is the projection: Spark has no column pruning for Python sources, so what
is not asked for is simply not made. Spark compares the Arrow schema of what it gets with its own,
and wants them equal, nullability and order included.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class Column(NamedTuple):
    sql_type: str
    always: bool  # without being asked for; a value is never null

    @property
    def arrow_type(self) -> pa.DataType:
        import pyarrow as pa

        if self.sql_type == "map<string,string>":
            return pa.map_(pa.string(), pa.string())
        if self.sql_type == "timestamp":
            return pa.timestamp("us", tz="UTC")
        names = {"int": "int32", "bigint": "int64", "smallint": "int16"}
        return pa.type_for_alias(names.get(self.sql_type, self.sql_type))


COLUMNS: dict[str, Column] = {
    "topic": Column("string", True),
    "partition": Column("int", True),
    "offset": Column("bigint", True),
    "timestamp": Column("timestamp", True),
    "id": Column("string", True),
    "attempts": Column("smallint", True),
    "body": Column("binary", True),
    "key": Column("binary", False),
    "headers": Column("map<string,string>", False),
    "broker": Column("string", False),  # host:port of its nsqd
    "log": Column("string", False),  # the identity of the topic's log
}

BODY_NAMES = ("body", "value")  # as Kafka's
# What the sink writes, and of which types: headers as a JSON object of texts, maps, Kafka's array.
_KAFKA_HEADERS = "array<struct<key:string,value:binary>>"
SINK_COLUMNS: dict[str, tuple[str, ...]] = {
    "body": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "key": ("binary", "string"),
    "headers": ("string", "map<string,binary>", "map<string,string>", _KAFKA_HEADERS),
    "timestamp": ("timestamp",),
}
# A message gets new ones: those that the source gives are passed over, so that a topic is copied
# as it was read. Columns of these names and other types mean something else, and are refused.
_NEWLY_GIVEN = {n: COLUMNS[n].sql_type for n in ("offset", "id", "attempts", "log", "broker")}


def source_schema(included: Collection[str]) -> str:
    """The default schema of a reader, as DDL; `included` are more columns."""
    return ", ".join(
        f"{name} {column.sql_type}"
        for name, column in COLUMNS.items()
        if column.always or name in included
    )


def projection(schema: StructType) -> pa.Schema:
    """The output for this Spark schema. ConfigError for columns that the source lacks."""
    import pyarrow as pa

    fields = []
    for field in schema.fields:
        name = field.name.lower()
        column = COLUMNS.get("body" if name in BODY_NAMES else name)
        if column is None:
            allowed = ", ".join(COLUMNS).replace("body", "body (or value)")
            raise ConfigError("schema", field.name, f"the columns are {allowed}")
        given = field.dataType.simpleString()
        if given != column.sql_type:
            rule = f"its type is {column.sql_type}"
            raise ConfigError("schema", f"{field.name} {given}", rule)
        if not field.nullable and not column.always:
            raise ConfigError("schema", field.name, "it can be null, so it must not be NOT NULL")
        fields.append(pa.field(field.name, column.arrow_type, nullable=field.nullable))
    return pa.schema(fields)


def sink_columns(schema: StructType, topic: str | None) -> dict[str, str]:
    """The name of each written column, by its role in the sink: body, topic, partition, key,
    headers, timestamp. ConfigError for columns that the sink does not accept."""
    found: dict[str, str] = {}
    for field in schema.fields:
        name, given = field.name.lower(), field.dataType.simpleString()
        if _NEWLY_GIVEN.get(name) == given:
            continue
        name = "body" if name in BODY_NAMES else name
        if name not in SINK_COLUMNS:
            allowed = "body (or value), " + ", ".join(list(SINK_COLUMNS)[1:])
            raise ConfigError("column", field.name, f"the columns of the sink are {allowed}")
        if given not in SINK_COLUMNS[name]:
            types = " or ".join(SINK_COLUMNS[name])
            raise ConfigError("column", f"{field.name} {given}", f"its type is {types}")
        if name in found:
            rule = "body and value are the same, and there can be but one of them"
            raise ConfigError("columns", f"{found[name]}, {field.name}", rule)
        found[name] = field.name
    if "body" not in found:
        rule = "a column body (or value), binary or string, is needed"
        raise ConfigError("columns", ", ".join(found.values()) or None, rule)
    if topic is None and "topic" not in found:
        raise ConfigError("option topic", None, "it is needed when there is no column topic")
    if topic is not None:
        found.pop("topic", None)
    return found
