"""A filter on any column finds in each table what is there, whoever reads it."""

import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from cases import each
from penstock.pipelines import archive, maintenance, topic_logs, trace
from penstock.pipelines.delta_frames import frame_of
from penstock.pipelines.delta_reader import Among, LakeTable
from penstock.pipelines.lifecycles import lives
from penstock.spark import delta_files
from penstock.spark.delta_table import Shape, TableLocation, commit
from penstock.trace.events import TOPIC

from .deltareaders import READERS, Count, truths, wrong
from .sample import defaults
from .tracetable import healthy

VALUE = pa.struct([("number", pa.int64()), ("name", pa.string())])
ARCHIVE = archive.shape_of(
    defaults(archive.SETTINGS, table="any", columns=("key", "headers"), share_files=False),
    ("key", "headers"),
    VALUE,
)


def write(path: Path, shape: Shape, *parts: pa.Table) -> Path:
    """A file and a transaction for each part, as a pipeline makes them."""
    location = TableLocation(str(path), {})
    location.create(shape, {})
    for version, part in enumerate(parts):
        staged = delta_files.write(location, shape, part.combine_chunks().to_batches())
        commit(location, shape, "test", version, staged)
    return path


def messages(topic: str, offsets: range, tagged: bool) -> pa.Table:
    """Keys, headers and values, or none of them."""

    def row(offset: int) -> dict[str, Any]:
        value = {"number": offset, "name": f"n{offset}"}
        return {
            "topic": topic, "date": date(2026, 11, 20), "partition": 0, "offset": offset,
            "timestamp": datetime(2026, 11, 20, 8, 0, offset, 123456, UTC),
            "id": f"{offset:016x}", "attempts": 1, "body": json.dumps(value).encode(),
            "key": b"k\x00%d" % (offset % 2) if tagged else None,
            "headers": [("h", "1")] if tagged else None,
            "value": value if tagged else None, "bad": None if tagged else "not JSON",
        }  # fmt: skip

    return pa.Table.from_pylist([row(offset) for offset in offsets], schema=ARCHIVE.schema)


def make_archive(path: Path) -> Path:
    parts = (messages("orders", range(3), True), messages("orders", range(3, 5), False))
    return write(path, ARCHIVE, *parts, messages("a.b#ephemeral", range(2), True))


def make_trace(path: Path) -> Path:
    events = healthy(30, ("billing", "mail")).table(trace_ids={3: 77})
    return write(path, trace.SHAPE, events.slice(0, 70), events.slice(70))


def make_lives(path: Path) -> Path:
    traced = make_trace(path.with_name(f"{path.name}_of"))
    topic_logs.claim(TableLocation(str(traced), {}), "test", [TOPIC])
    lives.LifeTable(str(traced), str(path)).update()
    return path


MAKERS = {"archive": make_archive, "trace": make_trace, "lives": make_lives}
SHAPES = {"archive": ARCHIVE, "trace": trace.SHAPE, "lives": lives.SHAPE}
STATES = ("fresh", "compacted", "old", "old and compacted")


@pytest.fixture(scope="module", params=MAKERS)
def tables(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """One table by its states. An old one was made when tables did not say which columns have
    statistics, and its pipeline was started again since."""
    name, base = request.param, tmp_path_factory.mktemp("lake")
    made: dict[str, Path] = {}
    for number, state in enumerate(STATES):
        with pytest.MonkeyPatch.context() as former:
            if state.startswith("old"):
                former.setattr(Shape, "properties", {})
            made[state] = MAKERS[name](base / f"{name}{number}")
            location = TableLocation(str(made[state]), {})
            if state.endswith("compacted"):
                has_several = name != "lives"
                assert bool(maintenance.compact(location, 2)) == has_several
            if state.startswith("old"):
                DeltaTable(made[state]).create_checkpoint()
        location.create(SHAPES[name], {})
    return made


@each("count", READERS.values())
@each("state", STATES)
def test_a_filter_finds_what_is_there(tables: dict[str, Path], state: str, count: Count) -> None:
    assert wrong(tables[state], count) == []


def test_a_filter_of_spark_finds_what_is_there(
    tables: dict[str, Path], spark: SparkSession
) -> None:
    """By the files that the conditions leave, and by the rows of all files; in one job. The dataset
    is that of nsqadmin, which is asked about each state."""
    from pyspark.sql import functions as F

    path = tables["old and compacted"]
    table = LakeTable(str(path))
    data, asked = table.dataset(), list(truths(path))
    whole = frame_of(spark, table.location, data)
    counts = [
        F.count_if(F.col(f"`{name}`").isNull() if value is None else F.col(f"`{name}`") == value)
        for name, value, _ in asked
    ]
    assert list(whole.agg(*counts).collect()[0]) == [there for _, _, there in asked]
    for name, value, there in asked:
        if value is not None and name in ("topic", "offset", "message_id", "timestamp"):
            found = frame_of(spark, table.location, data, [Among(name, [value])])
            assert found.count() == there, name


def test_the_check_finds_a_table_that_does_not_say_what_it_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nsqadmin is right about it all the same."""
    monkeypatch.setattr(Shape, "properties", {})
    path = make_trace(tmp_path / "trace")
    for name in ("pyarrow dataset", "pyarrow table", "DuckDB"):
        assert {column for column, *_ in wrong(path, READERS[name])} >= {"topic", "offset"}
    assert wrong(path, READERS["nsqadmin"]) == []


def test_a_table_is_completed_by_a_commit_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as former:
        former.setattr(Shape, "properties", {})
        path = make_trace(tmp_path / "trace")
    assert wrong(path, READERS["pyarrow dataset"])
    assert commit(TableLocation(str(path), {}), trace.SHAPE, "test", 9, [])
    assert wrong(path, READERS["pyarrow dataset"]) == []
