"""One SELECT over topics and tables, answered by DuckDB in a process of its own.

    python -m penstock.nsqadmin.console < question > answer

The question and the answer are a JSON document each. The process is bounded in memory, in threads
and by who started it in time, so that no statement hurts nsqadmin; the engine (`sqlengine.py`) sees
to what a statement may touch. The answer is bounded too, in rows, in what one value may hold and as
a whole, because nsqadmin holds it.
"""

from __future__ import annotations

import json
import resource
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from penstock import limits
from penstock.command.extras import lacks_extra
from penstock.errors import ConfigError, PenstockError
from penstock.nsqadmin.sqlengine import Query, Source, within

if TYPE_CHECKING:
    import duckdb
import asyncio

_BOUNDS = (f"memory_limit='{limits.ADMIN_SQL_DUCKDB_BYTES}B'", "threads=1")
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
    from penstock.pipelines.delta_reader import LakeTable, tables_below
    from penstock.spark.delta_table import local_path

    tables: dict[str, str] = {}
    missing = ""
    for lake in question.lakes:
        try:
            tables |= tables_below(lake)
        except ConfigError as error:
            missing = f"; {error}"  # it may not be there yet, and topics are
    for name, path in question.tables.items():
        tables[name] = local_path(LakeTable(path).path)
    source = Source(question.nodes, tables, newest=limits.ADMIN_SQL_MESSAGES,
                    ca_file=question.ca_file, missing=missing)  # fmt: skip
    query = Query(source, _BOUNDS)
    result = query.run(question.sql)
    reply = Reply(notes=query.notes)
    reply.columns = [column[0][:_NAME_MAX] for column in result.description or ()]
    reply.types = [str(column[1])[:_NAME_MAX] for column in result.description or ()]
    with within():
        _fetch(result, question.rows_max, reply)
    return reply


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


async def ask(question: Question) -> Reply:
    """What it gives, or the reason why not as `error`."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "penstock.nsqadmin.console",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        out, errors = await asyncio.wait_for(
            process.communicate(msgspec.json.encode(question)), limits.ADMIN_SQL_S
        )
    except TimeoutError:
        return Reply(error=f"stopped: it took more than {limits.ADMIN_SQL_S:.0f} seconds")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        last = errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return Reply(error=f"the statement failed: {last or 'the process was ended'}")
    return msgspec.json.decode(out, type=Reply)
