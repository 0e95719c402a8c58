"""The rows of `penstock sql` for people (an aligned table) and for programs (JSON lines, CSV)."""

from __future__ import annotations

import csv
import decimal
import json
from typing import Any, TextIO

from penstock.command.terminal import printable
from penstock.pipelines.sqlrows import Result

CELL_CHARS_MAX = 80  # of a table on a terminal: a body must not push everything else away
TABLE_ROWS = 1000  # of a table, which is held in memory to be aligned
_NULL = "NULL"


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
