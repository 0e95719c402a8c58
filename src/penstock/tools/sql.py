"""`penstock sql "select ..."`: SQL over topics and tables, by DuckDB in this process.

Every topic of nsqd is a view of its name; a table is named (`--table NAME=PATH`), or found in a
directory of tables (`--lake DIR`). Names with other characters than letters, digits and _ stand in
double quotes. The functions for ids (`guid_time(id)`, ...) are there. Without a statement it is
read from stdin; on a terminal statements are asked for, each ended by a semicolon. The engine is
that of nsqadmin's SQL console (`nsqadmin/console.py`).

Rows are an aligned table for people, JSON lines or CSV for programs. Times are texts in UTC. Bytes
are shown as the text that they nearly always are, and otherwise in base64 behind `base64:`.
"""

from __future__ import annotations

import base64
import csv
import datetime
import decimal
import itertools
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Annotated, Any, NamedTuple, TextIO

from penstock.command import terminal
from penstock.errors import ConfigError, PenstockError, QueryRefused
from penstock.nsqadmin.console import Query, Source, distinct, interruptible, topics_of, within
from penstock.pipelines import settings
from penstock.tools.app import Json, Several, app, arg, opt, switch, verb
from penstock.tools.connection import OPTIONS, ContextName, Options, find
from penstock.tools.output import DONE, FAILED, INTERRUPTED, WrongUse

LAKE_VARIABLE = "PENSTOCK_LAKE"
CELL_CHARS_MAX = 80  # of a table on a terminal: a body must not push everything else away
TABLE_ROWS = 1000  # of a table, which is held in memory to be aligned
_NULL = "NULL"
_AT_ONCE = 1000  # rows
_NUMERIC = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT",
            "UINTEGER", "UBIGINT", "UHUGEINT", "FLOAT", "DOUBLE", "DECIMAL")  # fmt: skip
_PLAN = ["explain_key", "explain_value"]  # the columns of an EXPLAIN: a drawing of many lines
_PROMPT, _MORE = "sql> ", "...> "


class Addresses(Options):
    """Addresses of nsqds also under their names in the pipelines."""

    nsqd_http_address: Annotated[
        Several,
        opt(*OPTIONS["nsqd_http_address"], "--nsqd-http-address", "--http-address", "--url"),
    ] = None
    lookupd_http_address: Annotated[Several, opt(*OPTIONS["lookupd_http_address"])] = None
    tls_root_ca_file: Annotated[
        str | None, opt(*OPTIONS["tls_root_ca_file"], "--tls-root-ca-file", "--ca-file")
    ] = None
    tls_cert: Annotated[str | None, opt(*OPTIONS["tls_cert"], "--tls-cert", "--cert-file")] = None
    tls_key: Annotated[str | None, opt(*OPTIONS["tls_key"], "--tls-key", "--key-file")] = None
    context: ContextName = None


@verb(app, "sql 'show tables'", "sql 'select count(*) from orders' --json")
def sql(
    at: Addresses,
    statement: Annotated[str | None, arg("SQL", "else it is read from stdin")] = None,
    lake: Annotated[Several, opt("DIR", "each table in it is a view; may be repeated")] = None,
    table: Annotated[
        Several, opt("NAME=PATH", "a Delta table, or Parquet; may be repeated")
    ] = None,
    storage_option: Annotated[
        Several, opt("NAME=VALUE", "of delta-rs, as AWS_REGION=eu-west-1")
    ] = None,
    storage_options_file: Annotated[str | None, opt("FILE", "such options, one a line")] = None,
    topic: Annotated[Several, opt("NAME=TOPIC", "a topic under another name")] = None,
    newest: Annotated[
        int, opt("N", "messages of each topic that are read; 0: all", min=0)
    ] = 1_000_000,
    limit: Annotated[int | None, opt("N", f"rows (a table: {TABLE_ROWS})", min=1)] = None,
    wide: Annotated[bool, switch("cut no value on a terminal")] = False,
    as_csv: Annotated[bool, switch("with a line of names", "--csv")] = False,
    as_json: Json = False,
) -> int:
    """Query topics and tables with SQL. Every topic is a view; 'show tables' lists them all."""
    if as_csv and as_json:
        raise WrongUse("--json and --csv are two forms: give one of them")
    import duckdb  # noqa: F401 (where it is missing, the extra `sql` is what is named)

    from penstock.pipelines.delta_reader import tables_below

    tables: dict[str, str] = {}
    for directory in lake or filter(None, [os.environ.get(LAKE_VARIABLE, "")]):
        tables |= tables_below(directory)
    tables |= _pairs("table", table or (), "archive=/data/lake/archive")
    options = settings.options_of("storage-option", storage_option or [])
    found = find(vars(at))
    source = Source(
        found.speakers(), tables, _pairs("topic", topic or (), "shouted=ORDERS"), newest=newest,
        tls=found.tls_files(), needs_all=True,
        storage={**(settings.options_of_file(storage_options_file) if storage_options_file else {}),
                 **options},
    )  # fmt: skip
    write = partial(_write, write_json if as_json else write_csv if as_csv else None, limit, wide)
    if statement is None and sys.stdin.isatty():
        return _ask(source, write)
    statement = sys.stdin.read() if statement is None else statement
    if not statement.strip().strip(";"):
        raise WrongUse('there is no statement: penstock sql "select ..."')
    _answer(source, statement, write)
    return DONE


def _pairs(option: str, texts: Sequence[str], example: str) -> dict[str, str]:
    """NAME=VALUE of the command line."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name or not value or name in found:
            rule = "the name is given twice" if name in found else f"it has to be as {example}"
            raise WrongUse(str(ConfigError(option, text, rule)))
        found[name] = value
    return found


def _answer(source: Source, statement: str, write: Write) -> None:
    query = Query(source)
    with within():
        with terminal.Progress("reading"):
            result = _asked(query, source, statement)
        for note in query.notes:
            print(f"{note}; --newest N shows more", file=sys.stderr)
        write(result)
    sys.stdout.flush()


def _asked(query: Query, source: Source, statement: str) -> Result:
    if " ".join(statement.strip("; \n").lower().split()) != "show tables":
        return result_of(query.run(statement))
    topics = {*topics_of(source), *source.topics} - source.tables.keys()
    rows = [[name, "table", path] for name, path in sorted(source.tables.items())]
    rows += [[name, "topic", source.topics.get(name, name)] for name in sorted(topics)]
    return Result(["name", "kind", "location"], [False] * 3, iter(rows))


def _write(
    write: Callable[[Result, TextIO], None] | None, limit: int | None, is_wide: bool, result: Result
) -> None:
    """`write` None: for people."""
    if write is not None:
        write(result.first(limit), sys.stdout)
        return
    if result.names == _PLAN:
        write_plan(result, sys.stdout)
        return
    limit = limit or TABLE_ROWS
    rows = list(result.first(limit + 1).rows)
    cut = CELL_CHARS_MAX if sys.stdout.isatty() and not is_wide else 0
    write_table(result._replace(rows=iter(rows[:limit])), sys.stdout, cut)
    if len(rows) > limit:
        print(f"the first {limit:,} rows; --limit N shows more", file=sys.stderr)


def _ask(source: Source, write: Write) -> int:
    """Statements of a person, until the end of input. An error ends the statement alone."""
    with suppress(ImportError):
        import readline  # noqa: F401 (its import gives input() editing and a history)
    code = DONE
    for statement in _statements():
        try:
            _answer(source, statement, write)
            code = DONE
        except (QueryRefused, PenstockError) as error:
            print(error, file=sys.stderr)
            code = FAILED
        except KeyboardInterrupt:
            print(file=sys.stderr)
            code = INTERRUPTED
    return code


def _statements() -> Iterator[str]:
    text = ""
    while True:
        try:
            line = input(_MORE if text else _PROMPT)
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print()
            text = ""
            continue
        text = f"{text}\n{line}".strip()
        if text.lower() in ("exit", "quit"):
            return
        if text.endswith(";") and text.strip("; \n"):
            yield text
            text = ""


# --- rows ---


class Result(NamedTuple):
    names: list[str]
    numeric: list[bool]  # by column: to the right in a table
    rows: Iterator[list[Any]]

    def first(self, count: int | None) -> Result:
        return self._replace(rows=itertools.islice(self.rows, count or None))


Write = Callable[[Result], None]


def result_of(answer: Any) -> Result:
    """Of an executed statement of DuckDB."""
    columns = answer.description or ()
    numeric = [str(column[1]).partition("(")[0] in _NUMERIC for column in columns]
    return Result(distinct([column[0] for column in columns]), numeric, _rows(answer))


def _rows(answer: Any) -> Iterator[list[Any]]:
    while some := interruptible(answer, lambda: answer.fetchmany(_AT_ONCE)):
        for row in some:
            yield [shown(value) for value in row]


def shown(value: Any) -> Any:
    """A value in JSON. Decimal stays: its digits are exact."""
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


def write_json(result: Result, out: TextIO) -> None:
    """One object a line."""
    for row in result.rows:
        document = dict(zip(result.names, row, strict=True))
        out.write(json.dumps(document, ensure_ascii=False, default=_number) + "\n")


def _number(value: Any) -> Any:
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    raise TypeError(f"{type(value).__name__} is no value of JSON")


def write_csv(result: Result, out: TextIO) -> None:
    """With a line of names; NULL is an empty field."""
    lines = SimpleNamespace(write=lambda line: out.write(line.removesuffix("\r\n") + "\n"))
    writer = csv.writer(lines)  # whose own end of a line is CRLF, so that it quotes a lone CR
    writer.writerow(result.names)
    for row in result.rows:
        writer.writerow("" if value is None else _text(value) for value in row)


def write_plan(result: Result, out: TextIO) -> None:
    for _, plan in result.rows:
        out.writelines(f"{terminal.printable(line)}\n" for line in plan.splitlines())


def write_table(result: Result, out: TextIO, cell_chars_max: int = 0) -> None:
    """Numbers stand to the right. `cell_chars_max` 0 cuts nothing."""
    rows = [[_cell(value, cell_chars_max) for value in row] for row in result.rows]
    heads = [_cell(name, cell_chars_max) for name in result.names]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    sides = [">" if numeric else "<" for numeric in result.numeric]
    for cells in (heads, ["-" * width for width in widths], *rows):
        columns = zip(cells, sides, widths, strict=True)
        line = "  ".join(f"{cell:{side}{width}}" for cell, side, width in columns)
        out.write(line.rstrip() + "\n")


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, default=_number)
    return str(value)


def _cell(value: Any, chars_max: int) -> str:
    text = _NULL if value is None else terminal.printable(_text(value))
    return text if not chars_max or len(text) <= chars_max else text[: chars_max - 1] + "…"
