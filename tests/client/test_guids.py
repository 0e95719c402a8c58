"""Ids with this host's clocks."""

from __future__ import annotations

import itertools
import time

import pytest

from penstock.client import guid_factory, id_pool
from penstock.errors import ConfigError
from penstock.ids.guid import parse


def test_a_pool_of_real_ids() -> None:
    before_ns = time.time_ns() - (1 << 20)
    with id_pool(7, count_max=100) as pool:
        ids = [pool.take() for _ in range(20_000)]
        text = pool.take_hex()
    assert all(low < high for low, high in itertools.pairwise(ids))
    assert int(text, 16) > ids[-1]
    assert len(text) == 16
    parts = parse(ids[-1])
    assert parts.node == 7
    assert before_ns < parts.time_ns < time.time_ns()


def test_a_worker_id_is_checked() -> None:
    assert parse(guid_factory(1023).new_id()).node == 1023
    with pytest.raises(ConfigError, match="worker_id"):
        id_pool(1024)
