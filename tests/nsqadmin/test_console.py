"""What a statement of the console sees, and what it can't be made to touch."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from penstock.errors import QueryRefused
from penstock.nsqadmin.console import Question, Reply, answer

from .conftest import Installation


def asked(sql: str, installation: Installation | None = None, lake: Path | None = None) -> Reply:
    nodes = [f"127.0.0.1:{installation.nsqd.http_port}"] if installation else []
    return answer(Question(sql, nodes, [str(lake)] if lake else [], 3))


def test_topics_and_tables_are_views(installation: Installation, tmp_path: Path) -> None:
    for number in range(5):
        installation.nsqd.post("/pub?topic=asked.about", b'{"n": %d}' % number)
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
    installation.nsqd.post("/topic/delete?topic=asked.about")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM read_blob('/proc/self/environ')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM glob('/etc/*')",
        "SELECT * FROM 'http://127.0.0.1:1/x.parquet'",
        "SELECT getenv('HOME')",
        "COPY (SELECT 1) TO '/tmp/never'",
        "ATTACH '/tmp/never.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
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
def test_what_is_refused(sql: str) -> None:
    with pytest.raises(QueryRefused):
        asked(sql)


def test_a_refusal_names_the_tables_that_are_there(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "kept"), pa.table({"n": [0]}))
    with pytest.raises(QueryRefused, match="tables: kept"):
        asked("SELECT * FROM nowhere", lake=tmp_path)
