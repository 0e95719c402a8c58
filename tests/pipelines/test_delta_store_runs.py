"""Every pipeline with its tables in an object store: a real nsqd, a real Spark, a store of S3."""

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from e2e.daemon import Daemon
from penstock.pipelines import archive, replay
from penstock.pipelines.audit import program as audit
from penstock.pipelines.progress import Progress
from penstock.pipelines.runner import Pipeline
from spark.patience import patiently

from .node import Node, in_the_log, numbered
from .sample import defaults
from .store import SECRET, Store


def run(spark: SparkSession, pipeline: Pipeline, bucket: Store, **given: Any) -> int:
    settings = defaults(pipeline.settings, storage_option=bucket.pairs, **given)
    if pipeline.check is not None:
        pipeline.check(settings)
    progress = Progress(pipeline.name, stream=io.StringIO())
    return patiently(lambda: pipeline.run(spark, settings, progress))


def test_archived_audited_and_replayed(
    spark: SparkSession, bucket: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = bucket.table("archive")
    with Daemon(tmp_path / "nsqd") as daemon:
        node = Node(daemon)
        node.publish("orders", numbered(100))
        checkpoint = str(tmp_path / "checkpoint")
        given = {"url": node.url, "table": table}
        run(spark, archive.PIPELINE, bucket, once=True, pattern="orders.*", checkpoint=checkpoint,
            **given)  # fmt: skip
        plans = tmp_path / "plans"
        run(spark, replay.PIPELINE, bucket, to="again", name="one", plans=str(plans),
            from_offset=10, topics=("orders",), **given)  # fmt: skip
        rows = in_the_log(node, "again", pa.schema([("body", pa.binary())])).to_pylist()
        assert [row["body"] for row in rows] == numbered(90, 10)
        with Daemon(tmp_path / "small", "--max-msg-size=1") as small:
            rejected = bucket.table("rejected")
            there = {**given, "url": Node(small).url, "rejected_table": rejected}
            run(spark, replay.PIPELINE, bucket, to="again", name="two", plans=str(plans),
                to_offset=15, topics=("orders",), **there)  # fmt: skip
            assert Node(small).end("again") == 10
        found = DeltaTable(rejected, storage_options=bucket.options).to_pyarrow_table()
        assert sorted(found.column("body").to_pylist()) == numbered(5, 10)
        assert SECRET not in "".join(path.read_text() for path in plans.iterdir())
    capsys.readouterr()
    clean = {"topic": "orders", "archive": table, "json": True}
    assert run(spark, audit.PIPELINE, bucket, **clean) == 0
    assert '"findings": []' in capsys.readouterr().out
