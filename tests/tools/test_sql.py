"""`penstock sql`: its forms of output, and what it answers."""

import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

from penstock import limits
from penstock.ids import guid
from penstock.kernel import Section
from penstock.tools.sql import Result, write_csv, write_json, write_plan, write_table
from pipelines.test_delta_reader import append, rows
from spark.fakebroker import FakeBroker

from .utilities import Run, as_json, err_of


def result(*found: list[Any]) -> Result:
    return Result(["name", "n"], [False, True], iter(found))


def written(write: Any, *found: list[Any], **more: Any) -> str:
    out = io.StringIO()
    write(result(*found), out, **more)
    return out.getvalue()


def test_a_cell_is_cut_where_somebody_looks() -> None:
    text = written(write_table, ["a" * 20, 1], cell_chars_max=5)
    assert text.splitlines()[-1] == "aaaa…  1"
    assert written(write_table).splitlines() == ["name  n", "----  -"]


def test_json_lines_and_csv() -> None:
    found = (["a,\n", Decimal("1.5")], [{"b": [1]}, None], ["a\rb", 2])
    lines = written(write_json, *found).splitlines()
    assert [json.loads(line) for line in lines] == [
        {"name": "a,\n", "n": 1.5},
        {"name": {"b": [1]}, "n": None},
        {"name": "a\rb", "n": 2},
    ]
    text = written(write_csv, *found)
    assert text == 'name,n\n"a,\n",1.5\n"{""b"": [1]}",\n"a\rb",2\n'


def test_a_plan_is_drawn_on_lines_of_its_own() -> None:
    out = io.StringIO()
    plan = Result(["explain_key", "explain_value"], [False] * 2, iter([["plan", "a\nb\x1b\n"]]))
    write_plan(plan, out)
    assert out.getvalue() == "a\nb\\x1b\n"


def asked(sql: str, url: str, lake: Path, penstock: Run, *more: str) -> Any:
    code, out, err = penstock("sql", sql, "--json", "--url", url, "--lake", lake, *more)
    assert code == 0, err
    return [list(json.loads(line).values()) for line in out.splitlines()]


def test_topics_and_tables_in_one_statement(tmp_path: Path, penstock: Run) -> None:
    append(tmp_path / "archive", rows("orders", 0))
    sections = {Section.KEY: {1: b"k"}, Section.HEADERS: {1: b'{"source": "shop"}'}}
    with FakeBroker() as broker:
        topic = broker.topic("orders")
        topic.partition(0).publish([b"3"])
        topic.partition(3).publish([b"4", b"\xff\x00"], sections=sections)
        broker.topic("empty")
        where_ = broker.url, tmp_path, penstock
        joined = "SELECT count(*) FROM orders JOIN archive USING (body)"
        assert asked(joined, *where_) == [[2]]
        assert asked('SELECT count(*), max("offset") FROM empty', *where_) == [[0, None]]
        named = "SELECT partition, body, key, headers['source'] FROM shouted ORDER BY ALL"
        assert asked(named, *where_, "--topic", "shouted=orders") == [
            [0, "3", None, None], [3, "4", None, None], [3, "base64:/wA=", "k", "shop"],
        ]  # fmt: skip
        assert [row[:2] for row in asked("show  tables;", *where_)] == [
            ["archive", "table"], ["empty", "topic"], ["orders", "topic"],
        ]  # fmt: skip
        assert asked("SELECT count(*) FROM orders", *where_, "--newest", "2") == [[2]]
        code, _, err = penstock("sql", "SELECT * FROM ordres", "--url", broker.url)
        rule = "neither a topic nor a table (tables: none); is it orders?"
        assert (code, rule in err) == (1, True)
        assert "one SELECT" in err_of(penstock("sql", "DROP TABLE orders", "--url", broker.url), 1)


def test_times_ids_and_names(penstock: Run) -> None:
    id = guid.make(guid.tick_of(1_795_627_625 * limits.SECOND), 7, 5)
    statement = f"""
        SELECT guid_time('{id:016x}') t, guid_node('{id:016x}') n, guid_sequence('{id:016x}') s,
               guid_node('no id') s, 1.50 m, date '2026-11-01' d, 'nan'::DOUBLE f, true y,
               TIMESTAMPTZ '2026-11-01 05:30:00.000001Z' z
    """
    found = as_json(penstock("sql", statement, "--json", "--url", "127.0.0.1:1"))
    assert found.pop("t").startswith("2026-11-25T17:27:0")
    assert found == {"n": 7, "s": 5, "s_2": None, "m": 1.5, "d": "2026-11-01", "f": "nan",
                     "y": True, "z": "2026-11-01T05:30:00.000001Z"}  # fmt: skip


def test_a_statement_on_stdin_over_a_lake(tmp_path: Path, penstock: Run) -> None:
    """No nsqd is needed for that."""
    append(tmp_path / "archive", rows("orders", 0))
    statement = b"select topic, count(*) n from archive group by topic"
    answer = penstock("sql", "--lake", tmp_path, "--json", stdin=statement)
    assert as_json(answer) == {"topic": "orders", "n": 5}
