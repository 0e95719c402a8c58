"""JSON bodies, decoded by a schema: the column `value`, and `bad` with the reason of a failure.

The body is kept as it came in any case, so nothing is lost by a schema that was wrong. What a
schema would drop of a body that is an object (`rescue`) can be had in a column of its own; then a
value that does not fit makes only its own column null, and not the whole `value`.
"""

import re
from functools import reduce
from operator import or_
from pathlib import Path

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DecimalType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from penstock.errors import ConfigError

RESCUE_COLUMN = "_rescued"
_CORRUPT = "_penstock_corrupt"
NOT_TEXT, NOT_JSON = "not UTF-8", "not JSON"
NOT_OBJECT, NO_FIT = "not a JSON object", "does not fit the schema"


def read_schema(given: str) -> str:
    """The DDL, or the content of the file named after @."""
    if not given.startswith("@"):
        return given
    try:
        return Path(given[1:]).read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        raise ConfigError("schema", given, f"the file can't be read: {error}") from error


def parsed_schema(ddl: str) -> StructType:
    try:
        found = StructType.fromDDL(ddl)
    except PySparkException as error:
        reason = (error.getMessage() or str(error)).strip().splitlines()[0]
        raise ConfigError("schema", ddl, f"columns as Spark's DDL has them: {reason}") from error
    if not isinstance(found, StructType) or not found.fields:
        raise ConfigError("schema", ddl, "columns as Spark's DDL has them: a INT, b STRING")
    return found


def ordered(ddl: StructType, there: pa.DataType) -> StructType:
    """The fields that the type of a table's column has first, in its order."""
    if not pa.types.is_struct(there):
        return ddl
    names = [field.name for field in there if field.name in ddl.names]
    fields = [ddl[name] for name in dict.fromkeys((*names, *ddl.names))]
    return StructType(
        [
            StructField(one.name, ordered(one.dataType, there.field(one.name).type), one.nullable)
            if one.name in names and isinstance(one.dataType, StructType)
            else one
            for one in fields
        ]
    )


def decoded(frame: DataFrame, ddl: str, rescue_column: str = "") -> DataFrame:
    """With the columns `value` and `bad`, one of which is null. And a `rescue_column`, if named:
    JSON text of the fields outside the schema, null without any."""
    wanted = parsed_schema(ddl)
    parsed_as = StructType([*wanted.fields]).add(_CORRUPT, StringType())
    text = F.expr("try_validate_utf8(string(body))")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    document = F.col("_document")
    parsed = (
        frame.withColumn("_text", text)
        .withColumn("_document", _document(F.col("_text")))
        .withColumn("_parsed", F.from_json(F.col("_text"), parsed_as, options))
    )
    found = F.col("_parsed")
    fits = found.isNotNull() & found[_CORRUPT].isNull()
    beyond = {
        field.name: _is_beyond(F.col("_text"), found[field.name])
        for field in wanted.fields
        if re.search("float|double", field.dataType.simpleString())
    }
    reason = (
        F.when(F.col("_text").isNull(), NOT_TEXT)
        .when(document.isNull(), NOT_JSON)
        .when(~F.schema_of_variant(document).startswith("OBJECT"), NOT_OBJECT)
    )
    if not rescue_column:
        reason = reason.when(reduce(or_, beyond.values(), ~fits), NO_FIT)
    for name, is_beyond in beyond.items():
        found = found.withField(f"`{name}`", F.when(~is_beyond, F.col("_parsed")[name]))
    value = F.struct(*[found[field.name].alias(field.name) for field in wanted.fields])
    reported = parsed.withColumn("bad", reason)
    made = [F.when(F.col("bad").isNull(), value).alias("value"), F.col("bad")]
    if rescue_column:
        dropped = _dropped_members(wanted, found, document)
        left = F.when(F.size(dropped) > 0, F.to_json(F.to_variant_object(dropped)))
        made.append(F.when(F.col("bad").isNull(), left).alias(rescue_column))
    return reported.select(*frame.columns, *made)


def _document(text: Column) -> Column:
    """A variant, null for what is no JSON. Spark's parsers do not look behind the first value, and
    a body may have several, as JSON lines: so it is parsed as the first of two in an array."""
    pair = F.try_parse_json(F.concat(F.lit("["), text, F.lit(",null]")))
    first, second, third = (F.try_variant_get(pair, f"$[{n}]", "variant") for n in range(3))
    return F.when(F.is_variant_null(second) & third.isNull(), first)


def _is_beyond(text: Column, value: Column) -> Column:
    """Does it hold a number like 1e400, which Spark takes for infinite? "Infinity" in quotes is."""
    may_be = text.rlike("[0-9][eE]|[0-9]{39}") & ~text.rlike("Infinity|INF")
    return may_be & F.to_json(F.struct(value)).contains("Infinity")


# --- the rescue column: fields outside the schema, as JSON ---
#
# Spark's `from_json` leaves out members that the schema does not name, and gives null for a value
# that is not of its type. Both are silent. Here the object is parsed a second time without a
# schema (a variant), and what of it is not found in the first one's columns is what was dropped:
# a member without a column; a value whose column is null although the value is not. Inside
# structs only the members that are concerned are kept, arrays and maps are kept whole, so that
# the positions of their elements are not lost.
#
# All of it is Spark's own expressions: no Python runs for a row.

_EXACT = "decimal(38,18)"  # to compare numbers of types that cut off digits without a word


def _dropped_members(schema: StructType, parsed: Column, document: Column) -> Column:
    """A map of variants, by name. `document` is the variant of an object, `parsed` the result of
    from_json."""
    members = F.try_variant_get(document, "$", "map<string,variant>")

    def dropped(name: Column, member: Column) -> Column:
        found = F.when(F.lit(False), member)
        for field in schema.fields:
            value = parsed.getField(field.name)
            found = found.when(name == field.name, _dropped(field.dataType, value, member))
        return found.otherwise(member)

    return F.map_filter(F.transform_values(members, dropped), lambda _, left: left.isNotNull())


def _dropped(kind: DataType, value: Column, original: Column) -> Column:
    """A variant, null where nothing is dropped, wherever in the value."""
    is_lost = value.isNull() & original.isNotNull() & ~F.is_variant_null(original)
    inside = F.lit(False)
    if isinstance(kind, StructType):
        members = _dropped_members(kind, value, original)
        rest = F.when(F.size(members) > 0, F.to_variant_object(members))
        return F.when(is_lost, original).otherwise(rest)
    if isinstance(kind, ArrayType):
        element, members = kind.elementType, F.try_variant_get(original, "$", "array<variant>")
        pairs = F.zip_with(value, members, lambda one, other: _dropped(element, one, other))
        inside = F.exists(pairs, lambda dropped: dropped.isNotNull())
    elif isinstance(kind, MapType):
        inner = kind.valueType
        inside = F.exists(
            F.map_entries(F.try_variant_get(original, "$", "map<string,variant>")),
            lambda entry: _dropped(inner, value[entry["key"]], entry["value"]).isNotNull(),
        )
    elif isinstance(kind, ByteType | DecimalType):
        inside = value.try_cast(_EXACT) != F.try_variant_get(original, "$", _EXACT)
    return F.when(is_lost | F.coalesce(inside, F.lit(False)), original)
