"""A topic in SQL over its archive and its live log: no message twice, none missing."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from penstock.errors import QueryRefused
from penstock.nsqadmin.console import Query, Source
from penstock.pipelines.topic_logs import note
from penstock.spark.delta_table import TableLocation
from spark.fakebroker import FakeBroker

COUNTS = 'SELECT count(*), count(DISTINCT "offset"), max("offset") FROM orders'


@pytest.fixture
def broker() -> FakeBroker:
    broker = FakeBroker()
    broker.topic("orders").publish([b"%d" % number for number in range(10)])
    with broker:
        yield broker


def archived(path: Path, broker: FakeBroker, below: int, *logs: str, first: int = 0) -> Source:
    """A lake whose archive has the messages from one offset to another, of these logs."""
    rows = Query(Source([broker.url], {})).run(
        f'SELECT * FROM orders WHERE "offset" >= {first} AND "offset" < {below} AND key IS NULL'
    )
    names = [column[0] for column in rows.description or ()]
    table = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows.fetchall()])
    table = table.drop_columns(["key", "headers"])
    write_deltalake(str(path), table, partition_by=["topic"])
    location = TableLocation(str(path), {})
    noted = {("orders", log) for log in logs or [broker.topics["orders"].identity]}
    note(location, "penstock-archive-x", noted, location.properties())
    return Source([broker.url], {"archive": str(path)})


def test_the_log_continues_the_archive(broker: FakeBroker, tmp_path: Path) -> None:
    source = archived(tmp_path / "archive", broker, 6)
    query = Query(source)
    assert query.run(COUNTS).fetchall() == [(10, 10, 9)]
    assert query.notes == []
    rows = Query(source).run("SELECT decode(body), key FROM orders ORDER BY id").fetchall()
    assert rows == [(str(number), None) for number in range(10)]
    later = archived(tmp_path / "later", broker, 6, first=3)  # begun by --from latest
    assert Query(later).run(COUNTS).fetchall() == [(10, 10, 9)]
    broker.topics["orders"].earliest = 6  # retention follows the archive
    assert Query(source).run(COUNTS).fetchall() == [(10, 10, 9)]


def test_a_gap_behind_the_archive_is_noted(broker: FakeBroker, tmp_path: Path) -> None:
    source = archived(tmp_path / "archive", broker, 6)
    broker.topics["orders"].earliest = 8
    query = Query(source)
    assert query.run(COUNTS).fetchall() == [(8, 8, 9)]
    gap = "orders: offsets 6 to 7 of partition 0 are neither archived nor in the log"
    assert query.notes == [gap]


def test_an_archive_that_cannot_be_read_is_noted(broker: FakeBroker, tmp_path: Path) -> None:
    source = archived(tmp_path / "archive", broker, 6)
    for file in (tmp_path / "archive" / "_delta_log").iterdir():
        file.write_bytes(b"{")
    query = Query(source)
    assert query.run(COUNTS).fetchall() == [(10, 10, 9)]
    (missing,) = query.notes
    assert missing.startswith("orders: without what archive may have of it: table ")


def test_the_newest_messages_are_those_behind_the_archive(
    broker: FakeBroker, tmp_path: Path
) -> None:
    source = archived(tmp_path / "archive", broker, 6)
    source.newest = 4
    query = Query(source)
    assert query.run(COUNTS).fetchall() == [(10, 10, 9)]
    assert query.notes == []


def test_a_topic_made_again_has_all_of_both_logs(broker: FakeBroker, tmp_path: Path) -> None:
    source = archived(tmp_path / "archive", broker, 10)
    broker.topics["orders"].identity = "another"
    assert Query(source).run("SELECT count(*) FROM orders").fetchall() == [(20,)]


def test_a_deleted_topic_is_read_from_its_archive(broker: FakeBroker, tmp_path: Path) -> None:
    source = archived(tmp_path / "archive", broker, 10)
    del broker.topics["orders"]
    assert Query(source).run(COUNTS).fetchall() == [(10, 10, 9)]


def test_an_archive_with_rows_of_several_logs_is_refused(
    broker: FakeBroker, tmp_path: Path
) -> None:
    source = archived(tmp_path / "archive", broker, 6, "one", "two")
    with pytest.raises(QueryRefused, match="rows of several logs: name the table instead"):
        Query(source).run(COUNTS)
    assert Query(source).run("SELECT count(*) FROM archive").fetchall() == [(6,)]


def test_other_tables_are_no_archive(broker: FakeBroker, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "kept"), pa.table({"topic": ["orders"], "offset": [3]}))
    source = Source([broker.url], {"kept": str(tmp_path / "kept")})
    assert Query(source).run(COUNTS).fetchall() == [(10, 10, 9)]
