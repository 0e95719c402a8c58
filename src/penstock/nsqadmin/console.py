"""One SELECT over topics and tables, answered by DuckDB: nsqadmin's console, and `penstock sql`.

Before DuckDB even sees the statement it loses the right to touch files, the network and extensions,
and the right to get it back (finding out the names in a statement is enough to open what it names):
what a statement can see are the views that its names ask for, and nothing else.

- A topic is a view of its messages, of the newest where there are more than `newest`; with an
  archive among the tables, of the archived ones and of the others in the log.
  An archive is a Delta table of the lake that notes which logs its rows of a topic are from
  (`pipelines/topic_logs.py`). So its rows and those of the live log meet at an offset: no message
  comes twice, and none is missing while retention has not passed the archive. The rows of an
  earlier log, of a topic that was made again, are in the archive alone. An archive may have begun
  at the end of a log (`--from latest`): what came before is in the log alone.
- A table of a lake is a view of its whole; it goes before a topic of the same name.

The console's statements run in a process of their own:

    python -m penstock.nsqadmin.console < question > answer

The question and the answer are a JSON document each. The process is bounded in memory, in threads
and by who started it in time, so that no statement hurts nsqadmin. The answer is bounded too, in
rows, in what one value may hold and as a whole, because nsqadmin holds it.
"""

from __future__ import annotations

import asyncio
import difflib
import itertools
import json
import resource
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from penstock import limits
from penstock.command.extras import lacks_extra
from penstock.errors import (
    BrokerRefused,
    ConfigError,
    DataLost,
    FetchFailed,
    LakeFailed,
    PenstockError,
    QueryRefused,
)
from penstock.ids import guid
from penstock.net.tls import TlsFiles
from penstock.spark.brokerapi import BrokerApi

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa
    import pyarrow.dataset as ds

    from penstock.nsqdapi.calls import Elsewhere, LogSpan
    from penstock.pipelines.delta_reader import LakeTable

T = TypeVar("T")
_NO_ROUTE = (404, "NOT_FOUND")  # what the official nsqd answers to a path that it has not
_REFUSAL_MAX = 10_000  # characters of DuckDB's words
_SHOWN_MAX = 20  # names in a refusal
_LOCK = (
    "TimeZone='UTC'",
    "autoinstall_known_extensions=false",
    "autoload_known_extensions=false",
    "enable_external_access=false",
    "lock_configuration=true",
)
_NUMBER = "CASE WHEN regexp_full_match(id, '[0-9a-fA-F]{16}') THEN ('0x' || id)::UBIGINT END"
_MACROS = {  # what is written in a message id, as in Spark (`spark/functions.py`)
    "guid_time": f"make_timestamp(((({_NUMBER} >> {guid.TICK_SHIFT}) + {guid.TICK_EPOCH})::HUGEINT"
                 " * 131072 // 125)::BIGINT)",
    "guid_node": f"(({_NUMBER} >> {guid.SEQUENCE_BITS}) & {limits.NODE_ID_MAX})::INTEGER",
    "guid_sequence": f"({_NUMBER} & {guid.SEQUENCES_PER_TICK - 1})::INTEGER",
}  # fmt: skip


@dataclass
class Source:
    """The tables and topics that a statement may read, by name."""

    nodes: Sequence[str]  # HTTP addresses of nsqds
    tables: Mapping[str, str]  # paths by name
    topics: Mapping[str, str] = field(default_factory=dict)  # topics under another name
    newest: int = 0  # messages of a topic; 0: all
    tls: TlsFiles | None = None
    storage: Mapping[str, str] = field(default_factory=dict)  # options of tables in object stores
    missing: str = ""  # why tables lack, for a refusal
    needs_all: bool = False  # a node that does not tell is an error, and not a note


class Query:
    """`notes` name the parts missing in the answer."""

    def __init__(self, source: Source, settings: Sequence[str] = ()) -> None:
        import duckdb

        self._source = source
        self.notes: list[str] = []
        self._connection = duckdb.connect(
            ":memory:", config={"python_enable_replacements": "false"}
        )
        for name, text in _MACROS.items():
            self._connection.execute(f"CREATE MACRO {name}(id) AS {text}")
        for setting in (*settings, *_LOCK):
            self._connection.execute(f"SET {setting}")

    def run(self, sql: str) -> duckdb.DuckDBPyConnection:
        """The answer, fetched `within` this time. Raises QueryRefused."""
        _check(sql)
        with within():
            for name in sorted(self._names(sql)):
                self._make_view(name)
            return interruptible(self._connection, lambda: self._connection.execute(sql))

    def _names(self, sql: str) -> set[str]:
        """The names that it reads. Binding a statement opens its tables (USING does), so it is only
        parsed; statements that DuckDB cannot parse this way, such as EXPLAIN, it has to bind."""
        rows = self._connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
        parsed = json.loads(rows[0][0])
        if parsed["error"]:
            return self._connection.get_table_names(sql, qualified=False)
        found, own = set(), set()
        left: list[Any] = [parsed]
        while left:
            node = left.pop()
            if isinstance(node, dict):
                if node.get("type") in ("BASE_TABLE", "SHOW_REF") and not node.get("schema_name"):
                    found.add(str(node.get("table_name") or ""))
                own |= {str(one["key"]) for one in (node.get("cte_map") or {}).get("map", ())}
                left += node.values()
            elif isinstance(node, list):
                left += node
        return found - own - {""}

    def _make_view(self, name: str) -> None:
        """A view of the table or the topic with this name; DuckDB's own views are left alone."""
        source = self._source
        if name in source.tables:
            from penstock.pipelines.delta_reader import dataset_of

            self._connection.register(name, dataset_of(source.tables[name], source.storage))
            return
        topic = source.topics.get(name, name)
        archive = archive_of(topic, source.tables, source.storage, self.notes)
        spans = archive.spans if archive is not None else {}
        read: set[tuple[str, int]] = set()
        batches = [
            batch for node in source.nodes for batch in self._log_batches(node, topic, read, spans)
        ]
        if archive is not None:
            self._join(name, topic, archive, batches)
        elif batches:
            import pyarrow as pa

            self._connection.register(name, pa.Table.from_batches(batches))
        elif not name.startswith(("duckdb_", "pragma_")):
            self._refuse(name)

    def _join(
        self, name: str, topic: str, archive: Archive, batches: Sequence[pa.RecordBatch]
    ) -> None:
        """A view of the archived messages, and of the others of the log."""
        import pyarrow as pa

        live = pa.Table.from_batches(batches, _log_schema())
        columns = [f'"{one}"' for one in live.column_names if one in archive.dataset.schema.names]
        archived, logged = f"{name} archived", f"{name} in the log"
        self._connection.register(archived, archive.dataset)
        self._connection.register(logged, live)
        self._connection.execute(
            f"""CREATE VIEW {quoted(name)} AS
            SELECT {", ".join(columns)} FROM {quoted(archived)} WHERE topic = {literal(topic)}
            UNION ALL BY NAME SELECT * FROM {quoted(logged)}"""
        )

    def _refuse(self, name: str) -> None:
        if self.notes:
            raise QueryRefused(f"{name} can't be read: {'; '.join(self.notes)}")
        there = sorted(self._source.tables)
        near = difflib.get_close_matches(name, [*there, *topics_of(self._source)], 3)
        meant = f"; is it {' or '.join(near)}?" if near else ""
        shown = ", ".join(there[:_SHOWN_MAX]) or "none"
        raise QueryRefused(
            f"{name} is neither a topic nor a table (tables: {shown}{self._source.missing}){meant}"
        )

    def _log_batches(
        self, node: str, name: str, read: set[tuple[str, int]], archived: Spans
    ) -> Iterator[pa.RecordBatch]:
        """A failing node is noted: the others still give an answer."""
        try:
            yield from self._topic(node, name, read, archived)
        except FetchFailed as error:
            if self._source.needs_all:
                raise
            lacks = isinstance(error, BrokerRefused) and (error.status, error.code) == _NO_ROUTE
            why = "it is not Penstock's, and its messages can't be read" if lacks else error.reason
            self.notes.append(f"without {node}: {why}")

    def _topic(
        self, node: str, name: str, read: set[tuple[str, int]], archived: Spans
    ) -> Iterator[pa.RecordBatch]:
        """A node of a cluster names partitions of other leaders, too. `read`: identity and number
        of the partitions that other nodes have named."""
        import pyarrow as pa

        from penstock.spark.decode import decode

        schema = _log_schema()
        with BrokerApi(node, tls=self._source.tls) as api:
            found = api.positions([name])
            self._note_offline(name, found.elsewhere)
            spans = found.topics.get(name)
            if spans is None:
                return
            yield pa.RecordBatch.from_pylist([], schema=schema)  # it may have no message
            others = 1 if found.nodes else len(self._source.nodes)
            share = max(1, self._source.newest // max(1, others * len(spans.partitions)))
            for partition, span in spans.partitions.items():
                if (spans.identity, partition) in read:
                    continue
                read.add((spans.identity, partition))
                covered = archived.get((spans.identity, partition), range(0))
                if covered and covered.stop < span.earliest:
                    gap = f"offsets {covered.stop} to {span.earliest - 1} of partition {partition}"
                    self.notes.append(f"{name}: {gap} are neither archived nor in the log")
                left = share if self._source.newest else span.end
                for part in _beside(span, covered):
                    wanted = part[max(0, len(part) - left) :]
                    left -= len(wanted)
                    if len(wanted) < len(part):
                        self.notes.append(f"{name} on {node}: its newest {share:,} messages")
                    first, end = wanted.start, wanted.stop
                    for fetched in api.fetches(name, partition, spans.identity, first, end):
                        held = fetched.base_offset, fetched.next_offset
                        yield from decode(
                            fetched.data, schema, name, partition, first, end, span=held
                        )

    def _note_offline(self, name: str, elsewhere: Mapping[str, Elsewhere]) -> None:
        if name in elsewhere:
            numbers = ", ".join(map(str, elsewhere[name].partitions))
            reason = f"{name} without partition {numbers}: no leader can be reached"
            if self._source.needs_all:
                raise QueryRefused(reason)
            if reason not in self.notes:
                self.notes.append(reason)


# --- the archive of a topic, and what is beside it in the log ---

_FOLDER = "_penstock_topics"  # of every archive on this machine
Spans = Mapping[tuple[str, int], range]  # archived offsets, by identity and partition of a log


class Archive(NamedTuple):
    dataset: ds.Dataset
    spans: Spans


def archive_of(
    topic: str, tables: Mapping[str, str], storage: Mapping[str, str], notes: list[str]
) -> Archive | None:
    """The first of the tables that has messages of the topic. A table that cannot be read is noted:
    the log still gives an answer. Raises QueryRefused where the rows may be of several logs."""
    from penstock.pipelines import topic_logs

    found = {}
    for name in sorted(tables):
        try:
            table = _opened(tables[name], storage)
            noted = topic_logs.known(table.location).get(topic) if table is not None else None
        except LakeFailed as error:
            notes.append(f"{topic}: without what {name} may have of it: {error}")
            continue
        if table is not None and noted is not None and noted.noted:
            found[name] = table, noted
    if not found:
        return None
    chosen, *others = found
    if others:
        notes.append(f"{topic}: archived rows of {chosen}, not of {', '.join(others)}")
    table, noted = found[chosen]
    by_broker = any("@" in each for each in noted.noted)
    reached = topic_logs.archived_spans(table, {topic}, by_broker)
    spans: dict[tuple[str, int], range] = {}
    for (_, broker, partition), span in reached.items():
        try:
            has_unnamed = (topic, "", partition) in reached
            log = topic_logs.identity_of(noted, topic, broker, has_unnamed), partition
        except DataLost as error:
            rule = f"{topic} is in {chosen} with rows of several logs: name the table instead"
            raise QueryRefused(rule) from error
        spans[log] = topic_logs.joined(span, spans.get(log, span))
    return Archive(table.dataset(), spans)


def _opened(path: str, storage: Mapping[str, str]) -> LakeTable | None:
    """None for a table that cannot be an archive."""
    from penstock.pipelines.delta_reader import LakeTable, is_delta
    from penstock.spark.delta_table import TableLocation

    local = TableLocation(path, storage).local_path
    if local is not None and not (local / _FOLDER).is_dir():
        return None
    return LakeTable(path, storage) if is_delta(path, storage) else None


def _beside(span: LogSpan, archived: range) -> list[range]:
    """The offsets of a log that are not archived, the newest first. The archive may have begun at
    an end of the log, and retention may have passed it."""
    if not archived:
        return [range(span.earliest, span.end)]
    behind = range(max(span.earliest, archived.stop), span.end)
    return [behind, range(span.earliest, min(archived.start, span.end))]


def _log_schema() -> pa.Schema:
    import pyarrow as pa

    from penstock.spark.schema import COLUMNS

    names = [name for name, one in COLUMNS.items() if one.always or name in ("key", "headers")]
    return pa.schema([(name, COLUMNS[name].arrow_type) for name in names])


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def topics_of(source: Source) -> list[str]:
    """The topics of the nodes that answer."""
    found: set[str] = set()
    for node in source.nodes:
        try:
            with BrokerApi(node, tls=source.tls) as api:
                positions = api.positions(only_here=True)
                found |= positions.topics.keys() | positions.elsewhere.keys()
        except FetchFailed:
            if source.needs_all:
                raise
    return sorted(found)


def distinct(names: Sequence[str]) -> list[str]:
    """A join may repeat a name, which is one key in JSON: the second becomes name_2."""
    found: list[str] = []
    for name in names:
        numbered = (f"{name}_{number}" for number in itertools.count(2))
        found.append(next(one for one in itertools.chain([name], numbered) if one not in found))
    return found


def interruptible(connection: duckdb.DuckDBPyConnection, call: Callable[[], T]) -> T:
    """A call of DuckDB in another thread. In the main one Ctrl-C would wait, for some statements to
    their end, and be a RuntimeError."""
    answered: Future[T] = Future()

    def run() -> None:
        try:
            answered.set_result(call())
        except BaseException as error:
            answered.set_exception(error)

    thread = threading.Thread(target=run)
    try:
        thread.start()
        return answered.result()
    except KeyboardInterrupt:
        while thread.is_alive():  # DuckDB forgets it if the statement begins later
            connection.interrupt()
            thread.join(0.05)
        raise


def _check(sql: str) -> None:
    import duckdb

    if sql != sql.encode("utf-8", "replace").decode():
        raise QueryRefused("the statement is no UTF-8")
    with within():
        statements = duckdb.extract_statements(sql)
    reading = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)
    if len(statements) != 1 or statements[0].type not in reading:
        raise QueryRefused("one SELECT (or EXPLAIN of one) is answered here, and nothing else")


@contextmanager
def within() -> Iterator[None]:
    """DuckDB's errors as QueryRefused."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        text = str(error)
        if len(text) > _REFUSAL_MAX:
            text = f"{text[:_REFUSAL_MAX]}… ({len(text):,} characters)"
        if isinstance(error, duckdb.ParserException) and "offset" in text.replace('"offset"', ""):
            text += '\n\nA column of the name offset stands in double quotes: "offset"'
        raise QueryRefused(text) from error


# --- the process ---


_BOUNDS = (f"memory_limit='{limits.ADMIN_SQL_DUCKDB_BYTES}B'", "threads=1")
_NAME_MAX = 200  # characters of a column's name


class Question(msgspec.Struct, forbid_unknown_fields=True):
    sql: str
    nodes: list[str]  # HTTP addresses of nsqds that answer
    lakes: list[str]
    rows_max: int = 1000
    tables: dict[str, str] = {}  # Delta tables by the names that the statement has for them
    tls: TlsFiles | None = None


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

    tables: dict[str, str] = {}
    missing = ""
    for lake in question.lakes:
        try:
            tables |= tables_below(lake)
        except ConfigError as error:
            missing = f"; {error}"  # it may not be there yet, and topics are
    for name, path in question.tables.items():
        tables[name] = LakeTable(path).location.root
    source = Source(question.nodes, tables, newest=limits.ADMIN_SQL_MESSAGES,
                    tls=question.tls, missing=missing)  # fmt: skip
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
    """In the form of JSON and of the table."""
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


async def ask(question: Question) -> Reply:
    """The result, or the reason as `error`."""
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


if __name__ == "__main__":
    sys.exit(main())
