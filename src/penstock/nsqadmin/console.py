"""One SELECT over topics and tables, answered by DuckDB in a process of its own.

    python -m penstock.nsqadmin.console < question > answer

The question and the answer are a JSON document each. The process is bounded in memory, in threads
and by who started it in time, so that no statement hurts nsqadmin. Before the statement runs,
DuckDB loses the right to touch files, the network and extensions, and the right to get it back:
what a statement can see are the views that its names ask for, and nothing else.

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
from penstock.errors import PenstockError, QueryRefused
from penstock.pipelines.lakeread import LakeTable, local_path, tables_below
from penstock.spark.brokerapi import BrokerApi
from penstock.spark.decode import decode

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


class Question(msgspec.Struct, forbid_unknown_fields=True):
    sql: str
    nodes: list[str]  # HTTP addresses of nsqds that answer
    lakes: list[str]
    rows_max: int = 1000
    tables: dict[str, str] = {}  # Delta tables by the names that the statement has for them
    ca_file: str = ""


class Reply(msgspec.Struct):
    columns: list[str] = []
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
    sys.stdout.buffer.write(msgspec.json.encode(reply))
    return 0


def answer(question: Question) -> Reply:
    import duckdb

    connection = duckdb.connect(":memory:", config={"python_enable_replacements": "false"})
    connection.execute(f"SET memory_limit='{limits.ADMIN_SQL_DUCKDB_BYTES}B'")
    connection.execute("SET threads=1")
    _check(question.sql)
    reply = Reply()
    try:
        names = connection.get_table_names(question.sql, qualified=False)
        for name in sorted(names):
            _make_view(connection, name, question, reply)
        connection.execute("SET enable_external_access=false")
        connection.execute("SET lock_configuration=true")
        result = connection.execute(question.sql)
        reply.columns = [column[0] for column in result.description or ()]
        found = result.fetchmany(question.rows_max + 1)
    except duckdb.Error as error:
        raise QueryRefused(str(error)) from error
    reply.is_cut = len(found) > question.rows_max
    reply.rows = [[_shown(value) for value in row] for row in found[: question.rows_max]]
    return reply


def _check(sql: str) -> None:
    """One statement that reads."""
    import duckdb

    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        raise QueryRefused(str(error)) from error
    reading = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)
    if len(statements) != 1 or statements[0].type not in reading:
        raise QueryRefused("one SELECT (or EXPLAIN of one) is answered here, and nothing else")


def _make_view(
    connection: duckdb.DuckDBPyConnection, name: str, question: Question, reply: Reply
) -> None:
    """Of the table or the topic with this name; DuckDB's own views are left to it."""
    tables: dict[str, str] = {}
    for lake in question.lakes:
        tables |= tables_below(lake)
    if name in question.tables:
        tables = {name: local_path(LakeTable(question.tables[name]).path)}
    if name in tables:
        from deltalake import DeltaTable

        connection.register(name, DeltaTable(tables[name]).to_pyarrow_dataset())
        return
    batches = [batch for node in question.nodes for batch in _topic(node, name, question, reply)]
    if batches:
        import pyarrow as pa

        connection.register(name, pa.Table.from_batches(batches))
        return
    if not name.startswith(("duckdb_", "pragma_")):
        there = ", ".join(sorted(tables)) or "none"
        raise QueryRefused(f"{name} is neither a topic with messages nor a table (tables: {there})")


def _topic(node: str, name: str, question: Question, reply: Reply) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

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
        for partition, span in spans.partitions.items():
            start = max(span.earliest, span.end - share)
            if start > span.earliest:
                reply.notes.append(f"{name} on {node}: its newest {share:,} messages")
            for fetched in api.fetches(name, partition, spans.identity, start, span.end):
                yield from decode(fetched.data, schema, name, partition, start, span.end)


def _shown(value: Any) -> Any:
    """As JSON and people have it."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes | bytearray):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return f"0x{bytes(value[:64]).hex()}"
    if isinstance(value, list | dict):
        return json.dumps(value, default=str, ensure_ascii=False)
    return str(value)


if __name__ == "__main__":
    sys.exit(main())
