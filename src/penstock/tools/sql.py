"""`penstock sql "select ..."`: SQL over topics and tables, by DuckDB in this process.

Every topic of nsqd is a view of its name; a table is named (`--table NAME=PATH`), or found in a
directory of tables (`--lake DIR`). Names with other characters than letters, digits and _ stand in
double quotes. The functions for ids (`guid_time(id)`, ...) are there. Without a statement it is
read from stdin; on a terminal statements are asked for, each ended by a semicolon. The engine is
that of nsqadmin's SQL console (`nsqadmin/sqlengine.py`).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence

from penstock.errors import ConfigError, PenstockError, QueryRefused
from penstock.nsqadmin.sqlengine import Query, Source, topics_of, within
from penstock.pipelines import lakeread, storage
from penstock.tools import nodes, sql_output, where
from penstock.tools.sql_output import Result, result_of
from penstock.tools.verbs import DONE, FAILED, INTERRUPTED, VerbParser, WrongUse, run_verb

LAKE_VARIABLE = "PENSTOCK_LAKE"
NEWEST = 1_000_000  # messages of a topic are held in memory
_PROMPT, _MORE = "sql> ", "...> "


def parser() -> argparse.ArgumentParser:
    parser = VerbParser(
        prog="penstock sql",
        description="Ask topics and tables by SQL. Every topic is a view; "
        "'show tables' lists all there is.",
        examples=[
            "penstock sql 'show tables'",
            "penstock sql 'select count(*) from orders' --json",
        ],
    )
    parser.add_argument("statement", nargs="?", metavar="SQL", help="else it is read from stdin")
    parser.add_argument(
        "--url",
        "--http-address",
        action="append",
        metavar="ADDRESS",
        help="HTTP address of an nsqd (may be repeated; "
        f"PENSTOCK_NSQD_HTTP_ADDRESS; default {where.DEFAULT_ADDRESS})",
    )
    where.add_context(parser)
    parser.add_argument("--ca-file", metavar="FILE", help="authorities for https")
    many = {"action": "append", "default": []}
    parser.add_argument(
        "--lake", metavar="DIR", **many,  # type: ignore[arg-type]
        help=f"each table in it is a view of its name ({LAKE_VARIABLE}; may be repeated)",
    )  # fmt: skip
    parser.add_argument(
        "--table", metavar="NAME=PATH", **many,  # type: ignore[arg-type]
        help="a Delta table, or Parquet files, as a view: a path, or s3://... (may be repeated)",
    )  # fmt: skip
    parser.add_argument(
        "--storage-option", metavar="NAME=VALUE", **many,  # type: ignore[arg-type]
        help="of delta-rs, for tables in an object store, as AWS_REGION=eu-west-1; secrets are "
        "better in the environment or a file (may be repeated)",
    )  # fmt: skip
    parser.add_argument(
        "--storage-options-file", metavar="FILE", help="such options, one a line of the file"
    )
    parser.add_argument(
        "--topic", metavar="NAME=TOPIC", **many,  # type: ignore[arg-type]
        help="a topic under another name (may be repeated)",
    )  # fmt: skip
    parser.add_argument(
        "--newest", type=int, default=NEWEST, metavar="N",
        help=f"messages of each topic that are read, 0: all ({NEWEST:,})",
    )  # fmt: skip
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="an object for each row, one a line")
    form.add_argument("--csv", action="store_true", help="with a line of names")
    parser.add_argument(
        "--limit",
        type=int,
        metavar="N",
        help=f"this many rows at most (a table: {sql_output.TABLE_ROWS}; JSON, CSV: all)",
    )
    parser.add_argument("--wide", action="store_true", help="cut no value on a terminal")
    return parser


def sql_main(argv: Sequence[str]) -> int:
    return run_verb(parser(), argv, _run)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.limit is not None and arguments.limit < 1:
        raise WrongUse(f"--limit {arguments.limit}: 1 row at least")
    if arguments.newest < 0:
        raise WrongUse(f"--newest {arguments.newest}: a number of messages, or 0 for all")
    source = _source(arguments)
    asks = arguments.statement is None and sys.stdin.isatty()
    statement = arguments.statement
    if statement is None and not asks:
        statement = sys.stdin.read()
    if asks:
        return _ask(source, arguments)
    if not statement.strip().strip(";"):
        raise WrongUse('there is no statement: penstock sql "select ..."')
    _answer(source, statement, arguments)
    return DONE


def _source(arguments: argparse.Namespace) -> Source:
    tables: dict[str, str] = {}
    for directory in arguments.lake or filter(None, [os.environ.get(LAKE_VARIABLE, "")]):
        tables |= lakeread.tables_below(directory)
    tables |= _pairs("table", arguments.table, "archive=/data/lake/archive")
    topics = _pairs("topic", arguments.topic, "shouted=ORDERS")
    path = arguments.storage_options_file
    options = storage.options_of("storage-option", arguments.storage_option)
    addresses, ca_file = place(arguments)
    return Source(
        addresses, tables, topics, newest=arguments.newest, ca_file=ca_file, needs_all=True,
        storage={**(storage.read_file(path) if path else {}), **options},
    )  # fmt: skip


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


def place(arguments: argparse.Namespace) -> tuple[list[str], str]:
    """(addresses of nsqds, authorities)."""
    given = argparse.Namespace(nsqd_http_address=arguments.url, context=arguments.context)
    found = where.find(given)
    ca_file = arguments.ca_file or found.context.tls_root_ca_file
    return nodes.addresses_of(found, found.tls()), ca_file


def _answer(source: Source, statement: str, arguments: argparse.Namespace) -> None:
    query = Query(source)
    with within():
        result = _asked(query, source, statement)
        for note in query.notes:
            print(f"{note}; --newest N shows more", file=sys.stderr)
        _write(result, arguments)
    sys.stdout.flush()


def _asked(query: Query, source: Source, statement: str) -> Result:
    if " ".join(statement.strip("; \n").lower().split()) != "show tables":
        return result_of(query.run(statement))
    topics = {*topics_of(source), *source.topics} - source.tables.keys()
    rows = [[name, "table", path] for name, path in sorted(source.tables.items())]
    rows += [[name, "topic", source.topics.get(name, name)] for name in sorted(topics)]
    return Result(["name", "kind", "place"], [False] * 3, iter(rows))


def _write(result: Result, arguments: argparse.Namespace) -> None:
    if arguments.json or arguments.csv:
        write = sql_output.write_json if arguments.json else sql_output.write_csv
        write(result.first(arguments.limit), sys.stdout)
        return
    limit = arguments.limit or sql_output.TABLE_ROWS
    rows = list(result.first(limit + 1).rows)
    cut = sql_output.CELL_CHARS_MAX if sys.stdout.isatty() and not arguments.wide else 0
    sql_output.write_table(result._replace(rows=iter(rows[:limit])), sys.stdout, cut)
    if len(rows) > limit:
        print(f"the first {limit:,} rows; --limit N shows more", file=sys.stderr)


def _ask(source: Source, arguments: argparse.Namespace) -> int:
    """Statements of a person, until the end of input. An error ends the statement alone."""
    _edit_lines()
    code = DONE
    for statement in _statements():
        try:
            _answer(source, statement, arguments)
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


def _edit_lines() -> None:
    try:
        import readline  # noqa: F401 (its import gives input() editing and a history)
    except ImportError:
        return
