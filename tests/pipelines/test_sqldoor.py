"""SQL over topics and tables: what is found under a name, what is refused, and how it is said."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import ConfigError, FetchFailed, QueryRefused
from penstock.kernel import Section
from penstock.pipelines.sqldoor import Door
from penstock.pipelines.sqlrows import read
from penstock.pipelines.sqlviews import Catalogue, read_pairs
from pipelines.test_lakeread import append, rows
from spark.fakebroker import FakeBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        yield broker


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logger = logging.getLogger("SQLQueryContextLogger")
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(logging.NOTSET)


def values(door: Door, statement: str) -> list[list[Any]]:
    return list(read(door.query(statement)).rows)


def over(names: Iterable[str]) -> Catalogue:
    return Catalogue(NOWHERE, {}, topics_of=lambda url: names)


@pytest.mark.spark
def test_topics_and_tables_in_one_statement(
    spark: SparkSession, broker: FakeBroker, tmp_path: Path
) -> None:
    append(tmp_path / "archive", rows("orders", 0))
    broker.topic("orders").publish([b"3", b"4", b"5"])
    broker.topic("a.b-c").publish([b"4"])
    broker.topic("empty")
    door = Door(spark, Catalogue(broker.url, {"archive": str(tmp_path / "archive")}))
    statement = """
        WITH bodies AS (SELECT body FROM orders)
        SELECT count(*) FROM bodies JOIN archive USING (body)
        WHERE body NOT IN (SELECT body FROM `a.b-c`);
    """
    assert values(door, statement) == [[1]]
    assert values(door, "SELECT count(*), max(offset) FROM empty") == [[0, None]]
    assert values(door, "SELECT * FROM empty") == []
    assert values(door, "SELECT count(*) FROM ORDERS") == [[3]]
    listed = values(door, "show tables")
    assert [row[:2] for row in listed] == [
        ["archive", "table"],
        ["a.b-c", "topic"],
        ["empty", "topic"],
        ["orders", "topic"],
    ]
    assert len(values(door, "describe archive")) >= 7
    assert "orders" not in values(door, "explain select * from archive")[0][0]
    broker.topic("orders").publish([b"6"])
    door.forget()
    assert values(door, "SELECT count(*) FROM orders") == [[4]]
    door.forget()


@pytest.mark.spark
def test_partitions_keys_and_headers_of_a_topic(spark: SparkSession, broker: FakeBroker) -> None:
    sections = {Section.KEY: {1: b"k"}, Section.HEADERS: {1: b'{"source": "shop"}'}}
    topic = broker.topic("orders")
    topic.partition(0).publish([b"a"])
    topic.partition(3).publish([b"b", b"c"], sections=sections)
    door = Door(spark, Catalogue(broker.url, {}))
    statement = """
        SELECT partition, offset, body, key, headers['source'] FROM orders ORDER BY 1, 2
    """
    assert values(door, statement) == [
        [0, 0, "a", None, None],
        [3, 0, "b", None, None],
        [3, 1, "c", "k", "shop"],
    ]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("insert into a select 1", "INSERT INTO"),
        ("with x as (select 1) insert into a select * from x", "INSERT INTO"),
        ("from a insert into b select *", "INSERT INTO"),
        ("insert overwrite directory '/tmp/x' using parquet select 1", "INSERT INTO DIR"),
        ("create table a (x int)", "CREATE TABLE"),
        ("create temp view x as select 1", "CREATE VIEW"),
        ("drop view a", "DROP VIEW"),
        ("delete from a", "DELETE FROM TABLE"),
        ("set x=1", "SET"),
        ("cache table a", "CACHE TABLE"),
        ("execute immediate 'drop table x'", "EXECUTE IMMEDIATE"),
        ("select transform(a) using 'ls' from b", "SCRIPT TRANSFORMATION"),
        ("explain insert into a select 1", "INSERT INTO"),
        ("begin select 1; end", "COMPOUND BODY"),
    ],
)
def test_a_statement_that_would_do_more_than_read(
    spark: SparkSession, statement: str, what: str
) -> None:
    with pytest.raises(QueryRefused, match=f"that read .*; this is {what}"):
        Door(spark, over(())).query(statement)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("", "there is no statement"),
        ("selec 1", "Syntax error at or near 'selec'.*selec 1"),
        ("select 1; select 2", "extra input"),
        ("select * from ordres", "no table or topic ordres: did you mean orders?"),
        ("select * from zzz", "there is Bills, `a.b-c`, bills, orders$"),
        ("select * from a.b-c", "must be back quoted"),
        ("select * from a.bc", "no table or topic a.bc: did you mean `a.b-c`?"),
        ("select * from BILLS", "Bills and bills differ only by case.*--topic"),
        ("select nothing from values (1) as t(x)", "`nothing` cannot be resolved.*`x`"),
    ],
)
def test_errors_say_what_to_do(spark: SparkSession, statement: str, said: str) -> None:
    with pytest.raises(QueryRefused, match=f"(?s){said}") as caught:
        Door(spark, over(["orders", "a.b-c", "Bills", "bills"])).query(statement)
    assert "SQLSTATE" not in str(caught.value)
    assert "org.apache" not in str(caught.value)


@pytest.mark.spark
def test_a_dotted_name_is_quoted(spark: SparkSession) -> None:
    with pytest.raises(QueryRefused, match=r"write `a\.b`"):
        Door(spark, over(["a.b"])).query("select * from a.b")


@pytest.mark.spark
def test_what_fails_in_the_middle_is_one_line(spark: SparkSession, broker: FakeBroker) -> None:
    broker.topic("orders").publish([b"1", b"2"])
    spark.catalog.dropTempView("orders")  # another door's, in this session
    door = Door(spark, Catalogue(broker.url, {}))
    frame = door.query("select body from orders")
    broker.topics["orders"].damaged = (0, 1)
    with pytest.raises(QueryRefused, match="LOG_DAMAGED") as caught:
        list(read(frame).rows)
    assert "\n" not in str(caught.value)
    door.forget()
    with pytest.raises(QueryRefused, match=r"(?i)division by zero"):
        values(door, "select 1/0")


def test_without_nsqd_the_tables_are_still_there() -> None:
    def silent(url: str) -> list[str]:
        raise FetchFailed(url, "connection refused")

    catalogue = Catalogue(NOWHERE, {"archive": "/lake/archive"}, topics_of=silent)
    assert catalogue.source("Archive").place == "/lake/archive"
    with pytest.raises(QueryRefused, match=r"there is archive; no topics, because .*refused"):
        catalogue.source("zzz")


def test_names_given_by_hand_go_first() -> None:
    catalogue = Catalogue(
        NOWHERE,
        {"orders": "/lake/orders"},
        {"shouted": "ORDERS"},
        topics_of=lambda url: ["orders", "ORDERS"],
    )
    assert catalogue.source("orders").kind == "table"
    assert catalogue.source("shouted").place == "ORDERS"
    assert [source.name for source in catalogue.sources()] == ["orders", "ORDERS", "shouted"]


@pytest.mark.parametrize("texts", [["archive"], ["=x"], ["a="], ["a=1", "a=2"], ["`=x"]])
def test_pairs_of_the_command_line(texts: list[str]) -> None:
    assert read_pairs("table", ["a=/x=y"], "a=b") == {"a": "/x=y"}
    with pytest.raises(ConfigError, match="table"):
        read_pairs("table", texts, "a=b")
