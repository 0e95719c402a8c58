"""One SELECT over topics and tables, answered by DuckDB in a process of its own.

    python -m penstock.nsqadmin.console < question > answer

The question and the answer are a JSON document each. The process is bounded in memory, in threads
and by who started it in time, so that no statement hurts nsqadmin. Before DuckDB even sees the
statement it loses the right to touch files, the network and extensions, and the right to get it
back (finding out the names in a statement is enough to open what it names): what a statement can
see are the views that its names ask for, and nothing else. The answer is bounded too, in rows, in
what one value may hold and as a whole, because nsqadmin holds it.

- A topic is a view of its newest messages; how many is a limit, which the answer names.
- A table of a lake is a view of its whole.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from penstock import limits
from penstock.command.extras import lacks_extra
from penstock.errors import (
    BrokerRefused,
    ConfigError,
    FetchFailed,
    PenstockError,
    QueryRefused,
)
from penstock.pipelines.lakeread import LakeTable, local_path, tables_below
from penstock.spark.brokerapi import BrokerApi

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

_NO_ROUTE = (404, "NOT_FOUND")  # what the official nsqd answers to a path that it has not
_NAME_MAX = 200  # characters of a column's name


class Question(msgspec.Struct, forbid_unknown_fields=True):
    sql: str
    nodes: list[str]  # HTTP addresses of nsqds that answer
    lakes: list[str]
    rows_max: int = 1000
    tables: dict[str, str] = {}  # Delta tables by the names that the statement has for them
    ca_file: str = ""


class Reply(msgspec.Struct):
    columns: list[str] = []
    types: list[str] = []  # of the columns, as DuckDB names them
    rows: list[list[Any]] = []
    is_cut: bool = False  # there are more rows
    notes: list[str] = []
    error: str = ""


def main() -> int:
    memory = limits.ADMIN_SQL_MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    question = msgspec.json.decode(sys.stdin.buffer.read(), type=Question)
    try:
        reply = answer(question)
    except PenstockError as error:
        reply = Reply(error=str(error))
    except MemoryError:
        reply = Reply(error="the statement needs more memory than it may have")
    except ModuleNotFoundError as error:
        reply = Reply(error=lacks_extra("the SQL console", "sql", error))
    sys.stdout.buffer.write(msgspec.json.encode(reply))
    return 0


def answer(question: Question) -> Reply:
    import duckdb

    connection = duckdb.connect(":memory:", config={"python_enable_replacements": "false"})
    _check(question.sql)
    _lock(connection)
    reply = Reply()
    try:
        names = connection.get_table_names(question.sql, qualified=False)
        for name in sorted(names):
            _make_view(connection, name, question, reply)
        result = connection.execute(question.sql)
        reply.columns = [column[0][:_NAME_MAX] for column in result.description or ()]
        reply.types = [str(column[1])[:_NAME_MAX] for column in result.description or ()]
        _fetch(result, question.rows_max, reply)
    except duckdb.Error as error:
        raise QueryRefused(_short(str(error))) from error
    return reply


def _lock(connection: duckdb.DuckDBPyConnection) -> None:
    for setting in (
        f"memory_limit='{limits.ADMIN_SQL_DUCKDB_BYTES}B'",
        "threads=1",
        "autoinstall_known_extensions=false",
        "autoload_known_extensions=false",
        "enable_external_access=false",
        "lock_configuration=true",
    ):
        connection.execute(f"SET {setting}")


def _fetch(result: duckdb.DuckDBPyConnection, rows_max: int, reply: Reply) -> None:
    """Rows until there are enough of them, or they hold enough."""
    left = limits.ADMIN_SQL_ANSWER_BYTES
    while (row := result.fetchone()) is not None:
        shown = [_shown(value) for value in row]
        left -= sum(len(one) if isinstance(one, str) else 8 for one in shown)
        if len(reply.rows) == rows_max or left < 0:
            reply.is_cut = True
            return
        reply.rows.append(shown)


def _check(sql: str) -> None:
    """One statement that reads."""
    import duckdb

    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        raise QueryRefused(_short(str(error))) from error
    reading = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)
    if len(statements) != 1 or statements[0].type not in reading:
        raise QueryRefused("one SELECT (or EXPLAIN of one) is answered here, and nothing else")


def _make_view(
    connection: duckdb.DuckDBPyConnection, name: str, question: Question, reply: Reply
) -> None:
    """Of the table or the topic with this name; DuckDB's own views are left to it."""
    tables: dict[str, str] = {}
    missing = ""
    for lake in question.lakes:
        try:
            tables |= tables_below(lake)
        except ConfigError as error:
            missing = f"; {error}"  # it may not be there yet, and topics are
    if name in question.tables:
        tables = {name: local_path(LakeTable(question.tables[name]).path)}
    if name in tables:
        from penstock.pipelines.lakedataset import dataset

        connection.register(name, dataset(tables[name]))
        return
    batches = [batch for node in question.nodes for batch in _told(node, name, question, reply)]
    if batches:
        import pyarrow as pa

        connection.register(name, pa.Table.from_batches(batches))
        return
    if not name.startswith(("duckdb_", "pragma_")):
        there = ", ".join(sorted(tables)) or "none"
        if reply.notes:
            raise QueryRefused(f"{name} can't be read: {'; '.join(reply.notes)}")
        raise QueryRefused(
            f"{name} is neither a topic with messages nor a table (tables: {there}{missing})"
        )


def _told(node: str, name: str, question: Question, reply: Reply) -> Iterator[pa.RecordBatch]:
    """Of one that can't tell it is noted: what the others have is still an answer."""
    try:
        yield from _topic(node, name, question, reply)
    except FetchFailed as error:
        lacks = isinstance(error, BrokerRefused) and (error.status, error.code) == _NO_ROUTE
        why = "it is not Penstock's, and its messages can't be read" if lacks else error.reason
        reply.notes.append(f"without {node}: {why}")


def _topic(node: str, name: str, question: Question, reply: Reply) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    from penstock.spark.decode import decode

    schema = pa.schema([
        ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")), ("id", pa.string()),
        ("attempts", pa.int16()), ("body", pa.binary()),
    ])  # fmt: skip
    share = limits.ADMIN_SQL_MESSAGES // max(1, len(question.nodes))
    with BrokerApi(node, ca_file=question.ca_file or None) as api:
        spans = api.positions([name]).topics.get(name)
        if spans is None:
            return
        share = max(1, share // len(spans.partitions))
        for partition, span in spans.partitions.items():
            start = max(span.earliest, span.end - share)
            if start > span.earliest:
                reply.notes.append(f"{name} on {node}: its newest {share:,} messages")
            for fetched in api.fetches(name, partition, spans.identity, start, span.end):
                held = fetched.base_offset, fetched.next_offset
                where = name, partition, start, span.end
                yield from decode(fetched.data, schema, *where, span=held)


def _shown(value: Any) -> Any:
    """As JSON and people have it."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if abs(value) < 1 << 63 else str(value)  # what JSON here can hold
    if isinstance(value, str):
        return _short(value)
    if isinstance(value, bytes | bytearray):
        try:
            return _short(bytes(value).decode())
        except UnicodeDecodeError:
            return f"0x{bytes(value[:64]).hex()}"
    if isinstance(value, list | dict):
        return _short(json.dumps(value, default=str, ensure_ascii=False))
    return _short(str(value))


def _short(text: str) -> str:
    most = limits.ADMIN_SQL_VALUE_CHARS
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


if __name__ == "__main__":
    sys.exit(main())
