"""The rows of `penstock sql` for people (an aligned table) and for programs (JSON lines, CSV).

Times are texts in UTC. Bytes are shown as the text that they nearly always are, and otherwise in
base64 behind `base64:`.
"""

from __future__ import annotations

import base64
import csv
import datetime
import decimal
import itertools
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TextIO

from penstock.command.terminal import printable

CELL_CHARS_MAX = 80  # of a table on a terminal: a body must not push everything else away
TABLE_ROWS = 1000  # of a table, which is held in memory to be aligned
_NULL = "NULL"
_AT_ONCE = 1000  # rows
_NUMERIC = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT",
            "UINTEGER", "UBIGINT", "UHUGEINT", "FLOAT", "DOUBLE", "DECIMAL")  # fmt: skip


class Result(NamedTuple):
    names: list[str]
    numeric: list[bool]  # by column: to the right in a table
    rows: Iterator[list[Any]]

    def first(self, count: int | None) -> Result:
        return self._replace(rows=itertools.islice(self.rows, count or None))


def result_of(answer: Any) -> Result:
    """Of what DuckDB has executed."""
    columns = answer.description or ()
    numeric = [str(column[1]).partition("(")[0] in _NUMERIC for column in columns]
    return Result(distinct([column[0] for column in columns]), numeric, _rows(answer))


def _rows(answer: Any) -> Iterator[list[Any]]:
    while some := answer.fetchmany(_AT_ONCE):
        for row in some:
            yield [shown(value) for value in row]


def distinct(names: Sequence[str]) -> list[str]:
    """A join gives a name twice, which is one key in JSON: the second becomes name_2."""
    given: dict[str, int] = {}
    found = []
    for name in names:
        given[name] = given.get(name, 0) + 1
        found.append(name if given[name] == 1 else f"{name}_{given[name]}")
    return found


def shown(value: Any) -> Any:
    """A value as JSON has it. Decimal stays: its digits are exact."""
    if value is None or isinstance(value, str | bool | int | decimal.Decimal):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes | bytearray):
        return _text_of(bytes(value))
    if isinstance(value, datetime.datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=datetime.UTC)
        text = aware.astimezone(datetime.UTC).isoformat(timespec="microseconds")
        return text.replace("+00:00", "Z")
    if isinstance(value, dict):
        return {str(shown(name)): shown(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [shown(part) for part in value]
    return value.isoformat() if isinstance(value, datetime.date) else str(value)


def _text_of(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(value).decode()


def write_json(result: Result, out: TextIO) -> int:
    """One object a line. The number of rows."""
    count = 0
    for row in result.rows:
        document = dict(zip(result.names, row, strict=True))
        out.write(json.dumps(document, ensure_ascii=False, default=_number) + "\n")
        count += 1
    return count


def _number(value: Any) -> Any:
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    raise TypeError(f"{type(value).__name__} is no value of JSON")


def write_csv(result: Result, out: TextIO) -> int:
    """With a line of names; NULL is an empty field."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(result.names)
    count = 0
    for row in result.rows:
        writer.writerow("" if value is None else _text(value) for value in row)
        count += 1
    return count


def write_table(result: Result, out: TextIO, cell_chars_max: int = 0) -> int:
    """Numbers stand to the right. `cell_chars_max` 0 cuts nothing."""
    rows = [[_cell(value, cell_chars_max) for value in row] for row in result.rows]
    heads = [_cell(name, cell_chars_max) for name in result.names]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for cells in (heads, ["-" * width for width in widths], *rows):
        padded = [
            cell.rjust(width) if numeric else cell.ljust(width)
            for cell, width, numeric in zip(cells, widths, result.numeric, strict=True)
        ]
        out.write("  ".join(padded).rstrip() + "\n")
    return len(rows)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, default=_number)
    return str(value)


def _cell(value: Any, chars_max: int) -> str:
    text = _NULL if value is None else printable(_text(value))
    return text if not chars_max or len(text) <= chars_max else text[: chars_max - 1] + "…"
