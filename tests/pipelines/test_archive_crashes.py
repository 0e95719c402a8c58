"""The archive is killed at each step; afterwards every message is in the table exactly once.

The steps that matter are hit for certain: a process of Spark's kills itself when it gets there.
"""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.pipelines import delta_sink, topic_logs
from penstock.pipelines.delta_sink import LakeSink, LakeWriter

from .node import Node, numbered
from .test_archive import Archive

write_topics = topic_logs._write


class DyingWriter(LakeWriter):
    """Its process dies at the step that a file beside the table names, once."""

    def _dies_at(self, step: str) -> None:
        orders = Path(self._target.location.uri + ".dies")
        if orders.exists() and orders.read_text() == step:
            orders.unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        self._dies_at("before anything was written")
        message = super().write(iterator)
        self._dies_at("after the files were written")
        return message

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._dies_at("before the commit")
        with patch.object(topic_logs, "_write", self._write_topics):
            super().commit(messages, batchId)
        self._dies_at("after the commit")

    def _write_topics(self, *what: Any) -> None:
        write_topics(*what)
        self._dies_at("after the topics were written")


class DyingSink(LakeSink):
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return DyingWriter(self.target, schema)


STEPS = (
    "after the topics were written",  # the first batch does that
    "before anything was written",
    "after the files were written",
    "before the commit",
    "after the commit",
)


def test_a_process_dies_at_each_step(
    spark: SparkSession, node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    monkeypatch.setattr(delta_sink, "LakeSink", DyingSink)
    made = Archive(spark, node, tmp_path / "lake")
    published = 0
    try:
        for step in STEPS:
            published = node.publish("orders", numbered(50, published))
            (tmp_path / "lake.dies").write_text(step)
            with pytest.raises(StreamingQueryException):
                made.run()
            assert not (tmp_path / "lake.dies").exists()
            made.run()
            assert made.rows('"offset"') == [(n,) for n in range(published)], step
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
