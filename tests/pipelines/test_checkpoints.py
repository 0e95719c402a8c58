"""The record of a checkpoint."""

import json

import pytest

from penstock.errors import ConfigError
from penstock.pipelines.checkpoints import checkpoint_of, is_whole, read_record, wanted_record
from penstock.pipelines.settings import Settings

WANTED = wanted_record("/table", ("orders",), "")
WRITTEN = {
    "version": 1, "table": "/table", "topics": ["orders"], "pattern": "",
    "application": "penstock-archive-archive-1", "starting": {"orders": {"0": 7}},
}  # fmt: skip


@pytest.mark.parametrize("lacks", sorted(WRITTEN))
def test_a_record_that_lacks_a_member_is_damaged(lacks: str) -> None:
    """Without its application, or where it began, rows would come twice."""
    left = {name: value for name, value in WRITTEN.items() if name != lacks}
    with pytest.raises(ConfigError, match=rf"damaged.*`{lacks}`"):
        read_record("/c", json.dumps(left), WANTED)


def test_the_table_of_a_record_may_be_written_otherwise() -> None:
    for table in ("/table/", "file:///table"):
        assert read_record("/c", json.dumps(WRITTEN | {"table": table}), WANTED).table == table


def test_a_checkpoint_that_a_vacuum_of_the_table_removes_is_refused() -> None:
    given = Settings({"table": "/t", "storage-option": ()})
    for checkpoint in ("/t/_checkpoint", "/other/t/x", "/t2", "hdfs:///t/x"):
        given.values["checkpoint"] = checkpoint
        assert checkpoint_of(given) == checkpoint
    for checkpoint in ("/t/checkpoint", "/t/a/_b", "file:/t/c", "/t"):
        given.values["checkpoint"] = checkpoint
        with pytest.raises(ConfigError, match="begin with _"):
            checkpoint_of(given)


OFFSETS = 'v1\n{"batchWatermarkMs":0}\n{"topics":{"g":{"partitions":{"0":7}}}}'


def test_a_file_of_sparks_that_is_cut_anywhere_is_not_whole() -> None:
    assert is_whole(OFFSETS, 2)
    assert is_whole('{"id":"c7689004"}', 1)
    assert not any(is_whole(OFFSETS[:length], 2) for length in range(len(OFFSETS)))
