"""The audit over trace tables with planted faults."""

import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock.errors import ConfigError, DataLost
from penstock.pipelines.audit import program as audit
from penstock.pipelines.audit.rules import Rules
from penstock.pipelines.progress import Progress
from penstock.spark.options import read_options

from ..sample import defaults
from ..tracetable import T0_US, healthy, write

LATER = "2026-09-22T00:00:00Z"  # long after the last event


class Audited:
    def __init__(self, capsys: pytest.CaptureFixture[str], spark: SparkSession, **given: Any):
        self.trace = given.get("trace", "")
        settings = defaults(audit.SETTINGS, topic="orders", json=True, **given)
        audit.check(settings)
        self.code = audit.run(spark, settings, Progress("audit", stream=io.StringIO()))
        self.report: dict[str, Any] = json.loads(capsys.readouterr().out)["audit"]

    def channel(self, name: str = "billing") -> dict[str, Any]:
        found: dict[str, Any] = next(c for c in self.report["channels"] if c["name"] == name)
        return found


@pytest.fixture
def audited(spark: SparkSession, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    def run(table: Any, **given: Any) -> Audited:
        path = write(tmp_path / "trace", table)
        return Audited(capsys, spark, trace=str(path), **{"as-of": LATER, **given})

    return run


def test_an_audit_of_nothing_is_refused(audited: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at least one of them"):
        audit.check(defaults(audit.SETTINGS, topic="orders"))
    with pytest.raises(ConfigError, match="as 2026"):
        audit.check(defaults(audit.SETTINGS, topic="orders", trace="x", to="yesterday"))
    with pytest.raises(DataLost, match=r"from \S+Z to \S+Z: nothing can be judged"):
        audited(healthy(10).table(), to="2020-01-01T00:00:00Z", **{"from": "2019-01-01T00:00:00Z"})


def test_the_log_is_read_from_any_time_that_an_archive_has() -> None:
    """A number of milliseconds before 1973 is a time in seconds, or none."""
    session, since = MagicMock(), datetime(1972, 1, 1, tzinfo=UTC)
    rules = Rules(since, since, since, 0, 0)
    audit._log(session, defaults(audit.SETTINGS, topic="orders"), rules)
    given = session.read.format().schema().options.call_args.kwargs
    assert read_options(given, streaming=False).starting.time_ms == since.timestamp() * 1000


# --- audits of a topic with four partitions ---


def partitioned(table: pa.Table) -> pa.Table:
    """Messages 0 to 899 are partition 1, 900 to 939 partition 0, the others partition 3."""
    number = table.column("offset").to_numpy()
    partition = np.select([number < 900, number < 940], [1, 0], 3).astype(np.int32)
    first = np.select([number < 900, number < 940], [0, 900], 940)
    columns = {"partition": pa.array(partition), "offset": pa.array(number - first)}
    for name, column in columns.items():
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table


def archived(spark: SparkSession, path: Path) -> str:
    """A hole in partition 3, a row twice in partition 1, and an id in two partitions."""
    sizes = "VALUES (0, 40, 900), (1, 900, 0), (3, 60, 940)"
    rows = spark.sql(
        f"""SELECT 'orders' AS topic, partition, offset,
            lower(lpad(hex(if(partition = 0 AND offset = 7, 100, offset + first) + (1L << 40)),
                16, '0')) AS id,
            timestamp_micros({T0_US} + offset + first) AS timestamp
        FROM (SELECT col1 AS partition, col3 AS first, explode(sequence(0L, col2 - 1L)) AS offset
            FROM {sizes})"""
    )
    kept = rows.where("NOT (partition = 3 AND offset BETWEEN 20 AND 24)")
    kept.union(rows.where("partition = 1 AND offset = 300")).write.parquet(str(path))
    return str(path)


def test_findings_name_their_partition(audited: Any, spark: SparkSession, tmp_path: Path) -> None:
    events = healthy(1000)
    events.drop("sent", 100)
    events.drop("finished", 100)  # lost
    events.drop("finished", 905)  # stuck
    events.add("sent", 950, T0_US + 950 * 100 + 720, attempts=2)  # delivered twice
    events.swap("sent", 945, 946)
    path = archived(spark, tmp_path / "archive")
    found = audited(partitioned(events.table()), archive=path)
    assert found.code == 1
    by_partition = {f["kind"]: f["partitions"] for f in found.report["findings"]}
    examples = {
        f["kind"]: [(e["partition"], e["offset"]) for e in f["examples"]]
        for f in found.report["findings"]
    }
    assert by_partition == {
        "lost": {"1": 1},
        "stuck": {"0": 1},
        "sent_again": {"3": 1},
        "out_of_order": {"3": 1},
        "gap": {"3": 5},
        "repeated_offset": {"1": 1},
        "id_falls": {"0": 1},
        "same_id": {"1": 1},
    }
    assert examples["lost"] == [(1, 100)]
    assert examples["stuck"] == [(0, 5)]
    assert examples["sent_again"] == [(3, 10)]
    assert examples["out_of_order"] == [(3, 5)]
    assert examples["gap"] == [(3, 25)]
    (same,) = (f for f in found.report["findings"] if f["kind"] == "same_id")
    assert same["examples"][0]["note"] == "also at offset 7 of partition 0"
    assert found.report["coverage"]["basis"] == "only 996 of them counted in the archive"
    assert found.report["partitions"] == [
        {"partition": 0, "traced": 40, "archived": 40, "logged": None},
        {"partition": 1, "traced": 900, "archived": 901, "logged": None},
        {"partition": 3, "traced": 60, "archived": 55, "logged": None},
    ]
