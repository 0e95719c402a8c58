"""What a statement of the console sees, and what it can't be made to touch."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from unittest.mock import MagicMock

import duckdb
import msgspec
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from nicegui import Client, ui
from nicegui.page import page

from cases import each
from penstock import limits
from penstock.errors import QueryRefused
from penstock.nsqadmin import console
from penstock.nsqadmin.console import Question, Reply, answer, interruptible
from penstock.nsqadmin.pages.grid import Grid, column
from penstock.nsqadmin.pages.sql import columns_of

from .conftest import Installation
from .official import Calls, Nsqd


def asked(sql: str, installation: Installation | None = None, lake: Path | None = None) -> Reply:
    nodes = [f"127.0.0.1:{installation.nsqd.http_port}"] if installation else []
    return answer(Question(sql, nodes, [str(lake)] if lake else [], 3))


def test_columns_are_asked_for_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    running: list[str] = []

    async def ask(question: Question) -> Reply:
        running.append(question.sql)
        assert len(running) == 1
        await asyncio.sleep(0.01)
        running.pop()
        return Reply()

    async def opened() -> None:
        await asyncio.gather(*(columns_of(MagicMock(), name) for name in "abc"))

    monkeypatch.setattr(console, "ask", ask)
    asyncio.run(opened())


def test_a_table_that_is_replaced_is_freed() -> None:
    """A page that is open for hours shows one result after the other."""

    async def shown() -> object:
        with Client(page("/x"), request=None):
            area = ui.element("div")
            with area:
                grid = Grid([column("a", "A")], "a", "none", "Rows")
            held = weakref.ref(grid)
            del grid
            area.clear()
            gc.collect()
            return held()

    assert asyncio.run(shown()) is None


def test_an_official_nsqd_among_ours_is_left_out(installation: Installation) -> None:
    """It has no messages that could be read, and theirs are still an answer."""
    sql = 'SELECT decode(body) FROM "asked.mixed"'
    mixed = installation.topic("asked.mixed", bodies=[b"ours"])
    with mixed, Nsqd("official", Calls()) as official:
        left_out = f"without {official.address}: it is not Penstock's"
        ours = f"127.0.0.1:{installation.nsqd.http_port}"
        reply = answer(Question(sql, [ours, official.address], [], 3))
        assert reply.rows == [["ours"]]
        assert reply.notes == [f"{left_out}, and its messages can't be read"]
        with pytest.raises(QueryRefused, match=left_out):
            answer(Question(sql, [official.address], [], 3))


def test_topics_and_tables_are_views(installation: Installation, tmp_path: Path) -> None:
    with installation.topic("asked.about", bodies=[b'{"n": %d}' % n for n in range(5)]):
        write_deltalake(str(tmp_path / "kept"), pa.table({"n": [0, 1, 2]}))
        reply = asked(
            'SELECT count(*), max("offset"), sum(k.n) FROM "asked.about" a'
            " JOIN kept k ON json_extract(decode(a.body), '$.n') = k.n",
            installation,
            tmp_path,
        )  # fmt: skip
        assert [row[:2] for row in reply.rows] == [[3, 2]]
        cut = asked('SELECT body FROM "asked.about" ORDER BY "offset"', installation)
        assert cut.rows == [['{"n": 0}'], ['{"n": 1}'], ['{"n": 2}']]
        assert cut.is_cut


def test_a_lake_that_is_not_there_yet_hides_no_topic(
    installation: Installation, tmp_path: Path
) -> None:
    with installation.topic("early", bodies=[b"x"]):
        reply = asked("SELECT body FROM early", installation, tmp_path / "none")
        assert (reply.rows, reply.types) == ([["x"]], ["BLOB"])
        with pytest.raises(QueryRefused, match="has to be a directory that holds tables"):
            asked("SELECT * FROM no_such_topic", installation, tmp_path / "none")


@each(
    "sql",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM glob('/etc/*')",
        "SELECT * FROM 'http://127.0.0.1:1/x.parquet'",
        "SELECT * FROM query('COPY (SELECT 1) TO ''/tmp/never''')",
        "SELECT * FROM duckdb_secrets()",
        "SELECT * FROM pandas_scan(140000000)",
        "SELECT * FROM enable_logging('x', storage='file', storage_path='/tmp/never')",
        "EXPLAIN ANALYZE SELECT * FROM read_text('/etc/passwd')",
        "WITH a AS (SELECT * FROM read_text('/etc/passwd')) SELECT * FROM a",
        "EXPORT DATABASE '/tmp/never'",
        "INSERT INTO x VALUES (1)",
        "CALL pragma_version()",
        "RESET lock_configuration",
        "PREPARE p AS SELECT 1",
        "SET python_enable_replacements=true",
        "SELECT getenv('HOME')",
        "COPY (SELECT 1) TO '/tmp/never'",
        "ATTACH '/tmp/never.db'",
        "INSTALL httpfs",
        "SET enable_external_access=true",
        "PRAGMA database_list",
        "CREATE TABLE t AS SELECT 1",
        "SELECT 1; SELECT 2",
        "",
        "nonsense",
        "SELECT * FROM nowhere",
        "SELECT * FROM question",
    ],
)
def test_refused_statements(sql: str) -> None:
    with pytest.raises(QueryRefused):
        asked(sql)


@pytest.mark.parametrize(
    "sql", ["SELECT * FROM read_csv('{file}')", "SELECT 1 FROM sqlite_scan('{file}', 't')"]
)
def test_not_even_the_names_in_a_statement_are_looked_for_outside(tmp_path: Path, sql: str) -> None:
    """Finding out which topics a statement names binds it: by then files and the network, from
    which DuckDB would load extensions, are out of reach."""
    with pytest.raises(QueryRefused) as refused:
        asked(sql.format(file=tmp_path / "missing.csv"))
    for text in ("No files found", "Failed to download", "HTTP"):
        assert text not in str(refused.value)


def test_an_answer_is_small_whatever_is_asked() -> None:
    """nsqadmin and a browser have to hold it."""
    (row,) = asked("SELECT repeat('x', 50_000_000), 2::HUGEINT << 90").rows
    assert row[0].startswith("xxx")
    assert row[0].endswith("(50,000,000 characters)")
    assert len(row[0]) <= limits.ADMIN_SQL_VALUE_CHARS + 50
    assert row[1] == str(2 << 90)
    many = answer(Question("SELECT repeat('x', 9000) FROM range(1000)", [], [], 1000))
    assert many.is_cut
    assert len(msgspec.json.encode(many)) < 1.1 * limits.ADMIN_SQL_ANSWER_BYTES
    named = asked(f'SELECT 1 AS "{"n" * 5000}"')
    assert len(named.columns[0]) < 1000
    with pytest.raises(QueryRefused) as refused:
        asked(f'SELECT "{"n" * 50_000}"')
    assert len(str(refused.value)) < 2 * limits.ADMIN_SQL_VALUE_CHARS


def test_a_refusal_names_the_tables_that_are_there(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "kept"), pa.table({"n": [0]}))
    with pytest.raises(QueryRefused, match="tables: kept"):
        asked("SELECT * FROM nowhere", lake=tmp_path)
    with pytest.raises(QueryRefused, match=r'in double quotes: "offset"'):
        asked("SELECT n, offset FROM kept", lake=tmp_path)


def test_without_its_packages_it_says_what_to_install(tmp_path: Path) -> None:
    missing = "raise ModuleNotFoundError(\"No module named 'duckdb'\", name='duckdb')\n"
    (tmp_path / "duckdb.py").write_text(missing)
    done = subprocess.run(
        [sys.executable, "-m", "penstock.nsqadmin.console"],
        input=msgspec.json.encode(Question("SELECT 1", [], [])),
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    error = msgspec.json.decode(done.stdout, type=Reply).error
    assert error.startswith("the SQL console needs the extra `sql`: install it with")


def test_ctrl_c_ends_a_statement_that_has_not_begun_yet() -> None:
    endless = "SELECT count(*) FROM range(100000000000) a, range(1000) b"
    connection, begins = duckdb.connect(), threading.Event()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it is ignored
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    threading.Timer(0.3, begins.set).start()
    with pytest.raises(KeyboardInterrupt):
        interruptible(connection, lambda: begins.wait() and connection.execute(endless))
