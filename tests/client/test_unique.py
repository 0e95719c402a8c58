"""The maker of this process."""

from __future__ import annotations

import os
from datetime import UTC

from penstock import limits
from penstock.client.unique import new_unique_ids, unique_ids
from penstock.clock import SystemClock
from penstock.ids import unique


def test_an_id_says_who_made_it_and_when() -> None:
    before_ms = SystemClock().wall_ns() // limits.MS
    parts = unique.decode(new_unique_ids(UTC).next())
    after_ms = SystemClock().wall_ns() // limits.MS
    assert parts.pid == os.getpid() & 0xFFFF
    assert before_ms <= unique.time_ms(parts, after_ms + 1, UTC) <= after_ms


def test_there_is_one_maker_per_process() -> None:
    assert unique_ids() is unique_ids()
    first, second = (unique.decode(unique_ids().next()) for _ in range(2))
    assert second.counter == first.counter + 1
    assert unique.decode(new_unique_ids().next()).hash != first.hash
