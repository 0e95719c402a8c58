"""`penstock sql`: its forms of output, and one run as a user starts it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import PenstockError
from penstock.pipelines.sqlrows import Result
from penstock.tools import contexts, sql_output, where
from penstock.tools.contexts import Context
from penstock.tools.sql import parser, place, sql_main
from pipelines.test_lakeread import append, rows

RUN_S_MAX = 250


def result(*found: list[Any]) -> Result:
    return Result(["name", "n"], [False, True], iter(found))


def written(write: Any, *found: list[Any], **more: Any) -> str:
    out = io.StringIO()
    write(result(*found), out, **more)
    return out.getvalue()


def test_a_table_is_aligned() -> None:
    text = written(sql_output.write_table, ["a", 5], ["long", None], ["x\ty\x1b[31m", 12345])
    assert text.splitlines() == [
        "name              n",
        "------------  -----",
        "a                 5",
        "long           NULL",
        "x\\ty\\x1b[31m  12345",
    ]


def test_a_cell_is_cut_where_somebody_looks() -> None:
    text = written(sql_output.write_table, ["a" * 20, 1], cell_chars_max=5)
    assert text.splitlines()[-1] == "aaaa…  1"
    assert written(sql_output.write_table).splitlines() == ["name  n", "----  -"]


def test_json_lines_and_csv() -> None:
    found = (["a,\n", Decimal("1.5")], [{"b": [1]}, None], [True, 2])
    lines = written(sql_output.write_json, *found).splitlines()
    assert [json.loads(line) for line in lines] == [
        {"name": "a,\n", "n": 1.5},
        {"name": {"b": [1]}, "n": None},
        {"name": True, "n": 2},
    ]
    text = written(sql_output.write_csv, *found)
    assert text == 'name,n\n"a,\n",1.5\n"{""b"": [1]}",\ntrue,2\n'


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (["select 1", "--limit", "0"], 2, "limit"),
        ([" ; "], 2, "no statement"),
        (["select 1", "--lake", "/nothing/there"], 1, "/nothing/there"),
        (["select 1", "--table", "x"], 2, "archive=/data"),
        (["select 1", "--json", "--csv"], 2, "not allowed with"),
    ],
)
def test_wrong_use_is_said_before_spark_starts(
    argv: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sql_main(argv) == code
    assert said in capsys.readouterr().err


def test_the_address_is_given_or_of_the_environment_or_a_context(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def found(*argv: str) -> tuple[str, str | None]:
        return place(parser().parse_args(["select 1", *argv]))

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in (*where.HTTP, "context"):
        monkeypatch.delenv(f"PENSTOCK_{name.upper()}", raising=False)
    assert found() == ("127.0.0.1:4151", None)
    with contexts.changed() as kept:
        kept.put("one", Context(nsqd_http_address=("one:1",)))
        kept.put("two", Context(nsqd_http_address=("two:1", "two:2")))
        kept.select("one")
    assert found("--ca-file", "ca.pem") == ("one:1", "ca.pem")
    with pytest.raises(PenstockError, match="several nsqds, give --url: two:1, two:2"):
        found("--context", "two")
    monkeypatch.setenv("PENSTOCK_NSQD_HTTP_ADDRESS", "10.0.0.1:4151,10.0.0.2:4151")
    assert found() == ("10.0.0.1:4151", None)
    assert found("--url", "u:1") == ("u:1", None)


@pytest.mark.spark
def test_a_run_over_a_lake(tmp_path: Path) -> None:
    """Nothing but rows on stdout, and a write refused; no nsqd is needed for that."""
    append(tmp_path / "archive", rows("orders", 0))
    command = [sys.executable, "-m", "penstock.tools.main", "sql", "--lake", str(tmp_path)]
    statement = "select topic, count(*) n from archive group by topic"
    ran = subprocess.run(
        [*command, "--json"],
        input=statement,
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    assert (ran.returncode, json.loads(ran.stdout)) == (0, {"topic": "orders", "n": 5}), ran.stderr
    assert "ERROR" not in ran.stderr
