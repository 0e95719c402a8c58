"""What the sink refuses, without a session; what it writes is in test_archive.py."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.types import LongType, StringType, StructType

from penstock.errors import ConfigError
from penstock.pipelines.delta_sink import LakeSink
from penstock.spark import with_store

SCHEMA = StructType().add("topic", StringType()).add("offset", LongType())
GOOD = {"path": "/nowhere", "txnAppId": "a", "checkpointLocation": "/c", "queryName": "q"}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"path": ""}, "option path"),
        ({"txnAppId": ""}, "option txnAppId: .* a name for this query"),
        ({"storageOptions": "{}"}, "option storageoptions"),  # secrets are no options of Spark
        ({"partitionedBy": "topic"}, "option partitionedby: .* the options are path, partitionBy"),
    ],
)
def test_options(changed: dict[str, Any], said: str) -> None:
    LakeSink(GOOD).streamWriter(SCHEMA, overwrite=False)
    with pytest.raises(ConfigError, match=said):
        LakeSink(GOOD | changed).streamWriter(SCHEMA, overwrite=False)


def test_what_is_known_of_the_store_goes_to_the_workers_inside_the_class() -> None:
    known = {"AWS_SECRET_ACCESS_KEY": "geheim"}
    bound = cloudpickle.loads(cloudpickle.dumps(with_store(LakeSink, known)))
    writer = cloudpickle.loads(cloudpickle.dumps(bound(GOOD).streamWriter(SCHEMA, overwrite=False)))
    assert writer._place.options == known
    assert (bound.name(), LakeSink.store) == ("penstock_delta", {})


def test_only_appending() -> None:
    sink = LakeSink(GOOD)
    for make in (sink.streamWriter, sink.writer):
        with pytest.raises(ConfigError, match="rows are only added to the table: append"):
            make(SCHEMA, overwrite=True)
