from __future__ import annotations

from typing import Any

import pytest

from cases import each
from penstock import limits
from penstock.broker.options import BrokerOptions
from penstock.errors import ConfigError


def test_the_defaults_are_those_of_the_limits() -> None:
    options = BrokerOptions()
    assert options.durability == "disk"
    assert options.sync_every_count == limits.SYNC_EVERY_COUNT
    assert options.retain_bytes == limits.RETAIN_BYTES


@each(
    ("wrong", "name"),
    [
        ({"durability": "none"}, "durability"),
        ({"node_id": 1024}, "node-id"),
        ({"sync_every_count": 0}, "sync-every-count"),
        ({"mem_queue_size": -1}, "mem-queue-size"),
        ({"default_partitions": 0}, "default-partitions"),
        ({"default_partitions": 256}, "default-partitions"),
        ({"trace_rate": 1.1}, "trace-rate"),
        ({"trace_rate": -0.1}, "trace-rate"),
    ],
)
def test_what_makes_no_sense_is_named(wrong: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerOptions(**wrong)
    assert caught.value.name == name
