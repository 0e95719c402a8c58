"""JSON bodies, decoded by a schema: the column `value`, and `bad` with the reason of a failure.

The body is kept as it came in any case, so nothing is lost by a schema that was wrong.
"""

import re
from functools import reduce
from operator import or_
from pathlib import Path

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from penstock.errors import ConfigError

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


def decoded(frame: DataFrame, ddl: str) -> DataFrame:
    """With the columns `value` and `bad`, one of which is null."""
    wanted = parsed_schema(ddl)
    parsed_as = StructType([*wanted.fields]).add(_CORRUPT, StringType())
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    document = F.col("_document")
    parsed = (
        frame.withColumn("_text", F.expr("try_validate_utf8(string(body))"))
        .withColumn("_document", _document(F.col("_text")))
        .withColumn("_parsed", F.from_json(F.col("_text"), parsed_as, options))
    )
    found = F.col("_parsed")
    fits = found.isNotNull() & found[_CORRUPT].isNull()
    beyond = [
        _is_beyond(F.col("_text"), found[field.name])
        for field in wanted.fields
        if re.search("float|double", field.dataType.simpleString())
    ]
    reason = (
        F.when(F.col("_text").isNull(), NOT_TEXT)
        .when(document.isNull(), NOT_JSON)
        .when(~F.schema_of_variant(document).startswith("OBJECT"), NOT_OBJECT)
        .when(reduce(or_, beyond, ~fits), NO_FIT)
    )
    value = F.struct(*[found[field.name].alias(field.name) for field in wanted.fields])
    decoded = F.when(F.col("bad").isNull(), value).alias("value")
    return parsed.withColumn("bad", reason).select(*frame.columns, decoded, "bad")


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
