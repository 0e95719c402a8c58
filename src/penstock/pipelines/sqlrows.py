"""The rows of a query as values that a table, JSON and CSV can show.

Times leave Spark as microseconds since 1970: as objects they would come in the time zone of this
machine, which has hours that exist twice. Here they are texts in UTC. Bytes are shown as the text
that they nearly always are, and otherwise in base64 behind `base64:`.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.errors import PenstockError, QueryRefused
from penstock.pipelines.outages import cause_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_NUMERIC = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")


class Result(NamedTuple):
    names: list[str]
    numeric: list[bool]  # by column: to the right in a table
    rows: Iterator[list[Any]]


def read(frame: DataFrame, limit: int = 0) -> Result:
    """Values of JSON, or Decimal. `limit` 0 is all rows, brought in partition by partition."""
    types = [field.dataType.simpleString() for field in frame.schema.fields]
    return Result(
        distinct(frame.columns), [its.startswith(_NUMERIC) for its in types], _rows(frame, limit)
    )


def distinct(names: list[str]) -> list[str]:
    """A join gives a name twice, which is one key in JSON: the second becomes name_2."""
    given: dict[str, int] = {}
    found = []
    for name in names:
        given[name] = given.get(name, 0) + 1
        found.append(name if given[name] == 1 else f"{name}_{given[name]}")
    return found


def _rows(frame: DataFrame, limit: int) -> Iterator[list[Any]]:
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    names = [f"c{index}" for index in range(len(frame.columns))]
    times = {n for n, f in zip(names, frame.schema.fields, strict=True)
             if f.dataType.typeName() == "timestamp"}  # fmt: skip
    plain = frame.toDF(*names).select(
        *(F.unix_micros(name).alias(name) if name in times else F.col(name) for name in names)
    )
    try:
        found = iter(plain.limit(limit).collect()) if limit else plain.toLocalIterator()
        for row in found:
            yield [
                instant(value) if name in times and value is not None else shown(value)
                for name, value in zip(names, row, strict=True)
            ]
    except PenstockError:
        raise
    except (PySparkException, RuntimeError, OSError) as error:
        raise QueryRefused(cause_line(error)) from error
    except Exception as error:
        if not type(error).__module__.startswith("py4j"):
            raise
        raise QueryRefused(cause_line(error)) from error


def instant(micros: int) -> str:
    moment = _EPOCH + datetime.timedelta(microseconds=micros)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def shown(value: Any) -> Any:
    """A value as JSON has it. Decimal stays: its digits are exact."""
    if value is None or isinstance(value, str | bool | int | decimal.Decimal):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes | bytearray):
        return text_of(bytes(value))
    if isinstance(value, datetime.datetime):
        aware = value.astimezone(datetime.UTC)  # Spark gives it in this machine's zone
        return aware.isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return str(value)
    if hasattr(value, "asDict"):  # a Row: a struct
        return {name: shown(part) for name, part in value.asDict().items()}
    if isinstance(value, dict):
        return {str(shown(name)): shown(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [shown(part) for part in value]
    return str(value)


def text_of(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(value).decode()
