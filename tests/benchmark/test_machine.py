from __future__ import annotations

import os

from bench import machine


def test_the_daemon_keeps_its_own_core_while_the_generator_is_pinned() -> None:
    before = machine.cores()
    with machine.pinned(before[1]):
        assert machine.cores() == before
        assert not before[2] or before[0].isdisjoint(os.sched_getaffinity(0))
