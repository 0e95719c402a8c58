"""`penstock sql "select ..."`: one line of SQL over topics and tables, on Spark in this process.

Every topic of nsqd is a view of its name; a table is named (`--table NAME=PATH`), or found in a
directory of tables (`--lake DIR`). Names with other characters than letters, digits and _ stand in
backticks. The functions for ids (`guid_time(id)`, ...) are there. Without a statement it is read
from stdin; on a terminal statements are asked for, each ended by a semicolon.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from penstock.errors import ConfigError, PenstockError, QueryRefused
from penstock.pipelines import lakeread, storage
from penstock.pipelines.session import LOG_SETTINGS
from penstock.pipelines.sqldoor import Door
from penstock.pipelines.sqlrows import read
from penstock.pipelines.sqlviews import Catalogue, read_pairs, topics_at
from penstock.spark.session import open_session
from penstock.tools import nodes, sql_output, where
from penstock.tools.verbs import DONE, FAILED, INTERRUPTED, VerbParser, WrongUse, run_verb

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

URL_VARIABLE = "PENSTOCK_NSQD_HTTP_ADDRESS"
LAKE_VARIABLE = "PENSTOCK_LAKE"
# The quick compiler and one collector thread: a short life does not repay more.
_QUICK_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto"
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
_JVM = "spark.driver.extraJavaOptions"
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
        metavar="ADDRESS",
        help=f"nsqd's HTTP address ({URL_VARIABLE}; default {where.DEFAULT_ADDRESS})",
    )
    where.add_context(parser)
    parser.add_argument("--ca-file", metavar="FILE", help="authorities for https")
    parser.add_argument(
        "--lake",
        action="append",
        default=[],
        metavar="DIR",
        help=f"each table in it is a view of its name ({LAKE_VARIABLE}; may be repeated)",
    )
    parser.add_argument(
        "--table",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="a Delta table, or Parquet files, as a view: a path, or s3://... (may be repeated)",
    )
    _add_storage(parser)
    parser.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="NAME=TOPIC",
        help="a topic under another name (may be repeated)",
    )
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
    parser.add_argument("--master", default="local[*]", help="where Spark runs (default local[*])")
    parser.add_argument(
        "--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark"
    )
    return parser


def _add_storage(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--storage-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="of delta-rs, for tables in an object store, as AWS_REGION=eu-west-1; secrets are "
        "better in the environment or a file (may be repeated)",
    )
    parser.add_argument(
        "--storage-options-file", metavar="FILE", help="such options, one a line of the file"
    )


def sql_main(argv: Sequence[str]) -> int:
    return run_verb(parser(), argv, _run)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.limit is not None and arguments.limit < 1:
        raise WrongUse(f"--limit {arguments.limit}: 1 row at least")
    catalogue = _catalogue(arguments)
    asks = arguments.statement is None and sys.stdin.isatty()
    statement = arguments.statement
    if statement is None and not asks:
        statement = sys.stdin.read()
    if not asks and not statement.strip().strip(";"):
        raise WrongUse('there is no statement: penstock sql "select ..."')
    conf = _pairs("conf", arguments.conf, "spark.driver.memory=2g")
    with quiet_session(arguments.master, conf) as spark:
        door = Door(spark, catalogue)
        if asks:
            return _ask(door, arguments)
        _answer(door, statement, arguments)
    return DONE


def _catalogue(arguments: argparse.Namespace) -> Catalogue:
    """What is wrong with names and paths is said before Spark starts."""
    tables: dict[str, str] = {}
    for directory in arguments.lake or filter(None, [os.environ.get(LAKE_VARIABLE, "")]):
        tables |= lakeread.tables_below(directory)
    tables |= _pairs("table", arguments.table, "archive=/data/lake/archive")
    topics = _pairs("topic", arguments.topic, "shouted=ORDERS")
    url, ca_file = place(arguments)
    options = {"minPartitions": str(os.cpu_count() or 1)}
    if ca_file:
        options["caFile"] = ca_file
    named = partial(topics_at, ca_file=ca_file)
    return Catalogue(url, tables, topics, named, options, _storage(arguments))


def _storage(arguments: argparse.Namespace) -> dict[str, str]:
    path = arguments.storage_options_file
    given = storage.options_of("storage-option", arguments.storage_option)
    return {**(storage.read_file(path) if path else {}), **given}


def _pairs(option: str, texts: Sequence[str], example: str) -> dict[str, str]:
    try:
        return read_pairs(option, texts, example)
    except ConfigError as error:
        raise WrongUse(str(error)) from error


def place(arguments: argparse.Namespace) -> tuple[str, str | None]:
    """(nsqd's address, authorities). Of several in the environment it is the first."""
    given = argparse.Namespace(
        nsqd_http_address=[arguments.url] if arguments.url else None, context=arguments.context
    )
    found = where.find(given)
    ca_file = arguments.ca_file or found.context.tls_root_ca_file or None
    members = nodes.addresses_of(found, found.tls())
    if found.name and len(members) > 1:
        names = ", ".join(members)
        raise PenstockError(f"context {found.name} has several nsqds, give --url: {names}")
    return members[0], ca_file


def _answer(door: Door, statement: str, arguments: argparse.Namespace) -> None:
    frame = door.query(statement)
    if arguments.json:
        sql_output.write_json(read(frame, arguments.limit or 0), sys.stdout)
    elif arguments.csv:
        sql_output.write_csv(read(frame, arguments.limit or 0), sys.stdout)
    else:
        limit = arguments.limit or sql_output.TABLE_ROWS
        result = read(frame, limit + 1)
        rows = list(result.rows)
        cut = sql_output.CELL_CHARS_MAX if sys.stdout.isatty() and not arguments.wide else 0
        sql_output.write_table(result._replace(rows=iter(rows[:limit])), sys.stdout, cut)
        if len(rows) > limit:
            print(f"the first {limit:,} rows; --limit N shows more", file=sys.stderr)
    sys.stdout.flush()


def _ask(door: Door, arguments: argparse.Namespace) -> int:
    """Statements of a person, until the end of input. An error ends the statement alone."""
    _edit_lines()
    code = DONE
    for statement in _statements():
        try:
            door.forget()  # messages have come since
            _answer(door, statement, arguments)
            code = DONE
        except QueryRefused as error:
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


@contextmanager
def quiet_session(master: str, conf: dict[str, str]) -> Iterator[SparkSession]:
    """Spark says nothing but errors: a statement's own come as one line."""
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # PySpark's, with stacks
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {**_SETTINGS, **conf}
    logs = f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()} -Dpenstock.spark.log=error"
    settings[_JVM] = f"{logs} {settings.get(_JVM, _QUICK_JVM)}"
    spark = open_session("penstock sql", master, settings)
    try:
        yield spark
    finally:
        spark.stop()
