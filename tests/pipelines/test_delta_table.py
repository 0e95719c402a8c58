import os
import threading
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from unittest.mock import PropertyMock, patch

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark import cloudpickle
from pyspark.sql.types import StructType

from cases import each
from penstock import limits
from penstock.errors import LakeFailed, SchemaMismatch
from penstock.pipelines import maintenance
from penstock.pipelines.delta_reader import Among, LakeTable, pruned
from penstock.pipelines.delta_sink import Target, sink_to
from penstock.pipelines.topic_logs import archived_spans
from penstock.spark.delta_files import gathered, write
from penstock.spark.delta_table import Shape, Staged, TableLocation, commit, misfit

from .sample import defaults

SHAPE = Shape(
    pa.schema(
        [
            ("topic", pa.string()),
            ("date", pa.date32()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("us", "UTC")),
            ("body", pa.binary()),
        ]
    ),
    ("topic", "date"),
    ("partition", "offset", "timestamp"),
)
DAY = date(2026, 1, 31)


def rows(offsets: range, topic: str = "a", day: date = DAY, partition: int = 0) -> pa.RecordBatch:
    count = len(offsets)
    when = datetime(day.year, day.month, day.day, 12, 0, 0, 123456, UTC)
    columns = [
        pa.array([topic] * count),
        pa.array([day] * count, pa.date32()),
        pa.array([partition] * count, pa.int32()),
        pa.array(offsets, pa.int64()),
        pa.array([when] * count, pa.timestamp("us", "UTC")),
        pa.array([b"x"] * count, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SHAPE.schema)


def stage(location: TableLocation, *batches: pa.RecordBatch) -> list[Staged]:
    return write(location, SHAPE, batches)


def read(location: TableLocation, what: str = 'topic, "offset"') -> list[Any]:
    query = f"SELECT {what} FROM delta_table ORDER BY ALL"
    relation = duckdb.from_arrow(DeltaTable(location.root).to_pyarrow_dataset())
    return relation.query("delta_table", query).fetchall()


def highest(location: TableLocation, topics: set[str], by_broker: bool = False) -> dict[Any, int]:
    spans = archived_spans(LakeTable(location.uri), topics, by_broker)
    return {log: span[-1] for log, span in spans.items()}


@pytest.fixture
def location(tmp_path: Path) -> TableLocation:
    location = TableLocation(str(tmp_path / "lake"), {})
    location.create(SHAPE, {})
    return location


def test_a_version_is_committed_once(location: TableLocation) -> None:
    size = PropertyMock(return_value=1)  # it takes Arrow some time
    many = [type("Batch", (), {"nbytes": size, "num_rows": 1})() for _ in range(50)]
    with patch.object(pa, "concat_batches", len):
        assert (list(gathered(many)), size.call_count) == ([50], 50)
    assert commit(location, SHAPE, "app", 0, stage(location, rows(range(3))))
    assert not commit(location, SHAPE, "app", 0, stage(location, rows(range(3))))
    assert commit(location, SHAPE, "app", 4, stage(location, rows(range(3, 5))))
    assert not commit(location, SHAPE, "app", 2, stage(location, rows(range(9))))
    assert commit(location, SHAPE, "other", 0, stage(location, rows(range(2), "b")))
    assert read(location) == [*(("a", n) for n in range(5)), ("b", 0), ("b", 1)]


def test_rows_go_where_their_partition_is(location: TableLocation) -> None:
    mixed = pa.Table.from_batches(
        [
            rows(range(2), "a"),
            rows(range(2, 4), "b#ephemeral"),
            rows(range(4, 5), "a", date(2026, 2, 1)),
            rows(range(5, 7), "a"),
        ]
    ).combine_chunks()
    staged = stage(location, *mixed.to_batches())
    commit(location, SHAPE, "app", 0, staged)
    assert sorted(
        (each.partition["topic"], each.partition["date"], each.rows) for each in staged
    ) == [("a", "2026-01-31", 4), ("a", "2026-02-01", 1), ("b#ephemeral", "2026-01-31", 2)]
    topics = ["a"] * 2 + ["b#ephemeral"] * 2 + ["a"] * 3
    days = [DAY] * 4 + [date(2026, 2, 1)] + [DAY] * 2
    assert read(location, '"offset", topic, date') == [*zip(range(7), topics, days, strict=True)]


def test_the_statistics_of_a_table_with_structs_and_maps_are_read(tmp_path: Path) -> None:
    """delta-rs reads none of a file when one of them is not as it expects."""
    location = TableLocation(str(tmp_path / "lake"), {})
    kinds = {"offset": pa.int64(), "inner": pa.struct([("n", pa.int64())])}
    shape = Shape(pa.schema({**kinds, "more": pa.map_(pa.string(), pa.binary())}), (), ("offset",))
    location.create(shape, {})
    row = {"offset": 7, "inner": {"n": 1}, "more": [("a", b"b")]}
    batch = pa.RecordBatch.from_pylist([row], schema=shape.schema)
    commit(location, shape, "app", 0, write(location, shape, [batch]))
    (action,) = pa.table(DeltaTable(location.root).get_add_actions(flatten=True)).to_pylist()
    assert (action["min.offset"], action["max.offset"]) == (7, 7)


def test_files_of_any_topic_are_kept_as_long_as_they_are_named(location: TableLocation) -> None:
    commit(location, SHAPE, "app", 0, stage(location, rows(range(3), "a.b#ephemeral")))
    assert highest(location, {"a.b#ephemeral"}) == {("a.b#ephemeral", "", 0): 2}
    table = DeltaTable(location.root)
    gone = table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert (gone, len(read(location))) == ([], 3)
    files = [rows(range(3, 4), "a.b#ephemeral", partition=n) for n in range(2)]
    commit(location, SHAPE, "app", 1, stage(location, *files))
    assert highest(location, {"a.b#ephemeral"})[("a.b#ephemeral", "", 1)] == 3


def test_no_files_are_left_of_a_task_that_failed(location: TableLocation, tmp_path: Path) -> None:
    def failing(error: Exception) -> Iterator[pa.RecordBatch]:
        yield rows(range(3))
        raise error

    with pytest.raises(OSError, match="the source failed"):
        write(location, SHAPE, failing(OSError("the source failed")))
    with pytest.raises(LakeFailed, match=f"table {location.uri}: .* No space left"):
        write(location, SHAPE, failing(OSError(28, "No space left on device")))
    assert list(tmp_path.rglob("*.parquet")) == []


@each(
    ("fields", "partition_by", "output"),
    [
        ({"body": None}, ("topic", "date"), "it has no column body"),
        ({"body": pa.string()}, ("topic", "date"), "its column body is string, not binary"),
        ({"more": pa.int8()}, ("topic", "date"), "it has a column more, which would not be"),
        ({}, ("date",), "it is partitioned by date, not by topic, date"),
        ({"body": pa.large_binary()}, ("topic", "date"), ""),
    ],
)
def test_schema_mismatches_are_named(
    fields: dict[str, Any], partition_by: tuple[str, ...], output: str
) -> None:
    there = {field.name: field.type for field in SHAPE.schema} | fields
    schema = pa.schema([(name, kind) for name, kind in there.items() if kind is not None])
    found = misfit(schema, partition_by, SHAPE)
    assert found.startswith(output)
    assert bool(found) == bool(output)


def test_a_table_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    location = TableLocation(str(tmp_path / "lake"), {})
    other = Shape(pa.schema([("topic", pa.string()), ("date", pa.date32())]), ("topic", "date"))
    location.create(other, {})
    with pytest.raises(SchemaMismatch, match="no column partition"):
        commit(location, SHAPE, "app", 0, stage(location, rows(range(3))))


def test_a_table_that_is_none(tmp_path: Path) -> None:
    assert TableLocation(str(tmp_path / "nothing"), {}).open() is None
    with pytest.raises(LakeFailed, match="there is no table"):
        commit(TableLocation(str(tmp_path / "nothing"), {}), SHAPE, "app", 0, [])


def test_a_file_url_is_a_path(tmp_path: Path) -> None:
    location = TableLocation((tmp_path / "a lake").as_uri(), {})
    assert location.local_path == tmp_path / "a lake"
    location.create(SHAPE, {})
    commit(location, SHAPE, "app", 0, stage(location, rows(range(3))))
    assert len(read(location)) == 3


def test_several_write_at_once_while_files_are_compacted(location: TableLocation) -> None:
    """Every row once, and at each moment whole commits: nobody sees a row twice or half a batch."""
    wrong: list[Any] = []
    done = threading.Event()

    def append(name: str) -> None:
        for version in range(25):
            offsets = range(version * 10, version * 10 + 10)
            commit(location, SHAPE, name, version, stage(location, rows(offsets, name)))

    def tend() -> None:
        while not done.is_set():
            maintenance.compact(location, 4)

    def watch() -> None:
        while not done.is_set():
            seen = read(location)
            if len(seen) != len(set(seen)) or len(seen) % 10:
                wrong.append(seen)

    writers = [threading.Thread(target=append, args=(name,)) for name in ("a", "b")]
    others = [threading.Thread(target=tend), threading.Thread(target=watch)]
    for thread in (*others, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    for thread in others:
        thread.join()
    assert wrong == []
    assert read(location) == [(name, offset) for name in ("a", "b") for offset in range(250)]


def test_small_files_become_one_and_old_ones_go(location: TableLocation, tmp_path: Path) -> None:
    kept = tmp_path / "lake" / "_penstock" / "archive" / "offsets"
    kept.parent.mkdir(parents=True)
    kept.write_text("checkpoint")
    for version in range(8):
        commit(location, SHAPE, "app", version, stage(location, rows(range(version, version + 1))))
    (fresh,), (old,) = stage(location, rows(range(1))), stage(location, rows(range(1)))
    long_ago = time.time() - 3 * 3600
    os.utime(location.full(old.path), (long_ago, long_ago))
    os.utime(kept, (long_ago, long_ago))
    os.utime(location.full(fresh.path), (time.time() - 4000,) * 2)
    assert maintenance.compact(location, 9) == 0
    assert maintenance.compact(location, 8) == 8
    assert [offset for _, offset in read(location)] == list(range(8))
    assert maintenance.vacuum(location, 5400) == 1  # the orphan; the replaced ones are too young
    assert not Path(location.full(old.path)).exists()
    assert Path(location.full(fresh.path)).exists()
    assert kept.read_text() == "checkpoint"


def test_the_log_of_the_table_is_kept_short(tmp_path: Path) -> None:
    """Every commit lists it, so it must not grow for ever."""
    location = TableLocation(str(tmp_path / "lake"), {})
    settings = defaults(maintenance.care_settings(), retain_log=60 * limits.SECOND)
    location.create(SHAPE, maintenance.configuration(settings))
    log = tmp_path / "lake" / "_delta_log"
    for version in range(12):
        commit(location, SHAPE, "app", version, stage(location, rows(range(version, version + 1))))
    long_ago = time.time() - 3600
    for old in log.iterdir():
        os.utime(old, (long_ago, long_ago))
    for version in range(12, 30):
        commit(location, SHAPE, "app", version, stage(location, rows(range(version, version + 1))))
    assert not (log / f"{0:020d}.json").exists()
    assert [offset for _, offset in read(location)] == list(range(30))


def test_a_log_of_many_versions_is_kept_for_less_long(
    location: TableLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in range(5):
        commit(location, SHAPE, "app", version, stage(location, rows(range(version, version + 1))))
    week = 7 * 86_400.0
    log = Path(location.full("_delta_log"))
    for age, old in enumerate(sorted(log.glob("*.json"), reverse=True)):
        os.utime(old, (time.time() - age * 7200,) * 2)
    assert maintenance.retain_log(location, week) == week
    monkeypatch.setattr(limits, "LAKE_LOG_VERSIONS_MAX", 3)
    # It is a version, too.
    assert maintenance.retain_log(location, week) == pytest.approx(7200, abs=60)
    kept = location.properties()["delta.logRetentionDuration"]
    assert 7_100 < float(kept.split()[1]) < 7_300
    monkeypatch.setattr(limits, "LAKE_LOG_VERSIONS_MAX", 9)
    version = location.version()
    maintenance.retain_log(location, 7_000.0)
    assert location.version() == version  # so small a change is not worth one
    location.set_properties(lambda _: {"delta.logRetentionDuration": "7 days"})  # from others
    maintenance.retain_log(location, 7_000.0)
    assert location.properties()["delta.logRetentionDuration"] == "interval 7000 seconds"


def test_topics_may_share_files(tmp_path: Path) -> None:
    shape = Shape(SHAPE.schema, ("date",), ("topic", *SHAPE.statistics))
    location = TableLocation(str(tmp_path / "shared"), {})
    location.create(shape, {})
    for version, topics in enumerate((("a", "b", "c"), ("c",), ("d",))):
        offsets = range(version, version + 9)
        (staged,) = write(location, shape, [rows(offsets, topic) for topic in topics])
        commit(location, shape, "app", version, [staged])
    table = LakeTable(location.uri)
    opened = [len(pruned(table.dataset(), [Among("topic", [one])]).files) for one in "abcd"]
    assert opened == [1, 1, 2, 1]
    for _ in range(2):
        found = highest(location, {"b", "c"})
        assert found == {("b", "", 0): 8, ("c", "", 0): 9}
        maintenance.compact(location, 2)


def test_the_highest_offsets_of_each_nsqd(location: TableLocation) -> None:
    """Files from before the table had the column are of the nsqd without a name."""
    commit(location, SHAPE, "app", 0, stage(location, rows(range(5))))
    broker = pa.field("broker", pa.string())
    location.add_columns([broker])
    shape = Shape(SHAPE.schema.append(broker), SHAPE.partition_by, SHAPE.statistics)
    named = [
        rows(range(end)).append_column("broker", pa.array([name] * end))
        for name, end in (("a:1", 3), ("b:1", 9))
    ]
    commit(location, shape, "app", 1, write(location, shape, named))
    assert highest(location, {"a", "none"}, by_broker=True) == {
        ("a", "", 0): 4,
        ("a", "a:1", 0): 2,
        ("a", "b:1", 0): 8,
    }
    assert highest(location, {"a"}) == {("a", "", 0): 8}


def test_storage_options_reach_the_workers_inside_the_class() -> None:
    known = {"AWS_SECRET_ACCESS_KEY": "geheim"}
    sink = sink_to(Target(TableLocation("s3://lake", known), SHAPE, "app"))
    bound = cloudpickle.loads(cloudpickle.dumps(sink))
    writer = cloudpickle.loads(cloudpickle.dumps(bound({}).streamWriter(StructType(), False)))
    assert writer._target.location.options == known
