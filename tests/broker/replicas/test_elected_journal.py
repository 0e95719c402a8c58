"""What an elected replica says of channels before it serves."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from penstock.broker.health import Health, Trouble
from penstock.broker.options import BrokerOptions
from penstock.broker.ports import Syncs
from penstock.broker.replicas.replicated_journal import ElectedJournal
from penstock.log.fold import (
    PARTITION,
    Entry,
    Group,
    cursor_entry,
    encode_record,
    generation_of,
    start_entry,
)
from penstock.log.follower_journal import FollowedJournal
from sim.disk import Fault, SimDisk
from sim.threads import Threads


class Context:
    """As much of the broker's as is asked for."""

    def __init__(self) -> None:
        self.options = BrokerOptions()
        self.threads = Threads()
        self.syncs = Syncs(self.threads)
        self.health = Health()


class Lab:
    def __init__(self) -> None:
        self.disk = SimDisk()
        self.disk.mkdir("/p")
        self.disk.sync_directory("/")
        self.followed = FollowedJournal.open(self.disk, "/p")
        groups = [
            Group(PARTITION, start_entry(4)),
            Group(1, cursor_entry(Entry.CURSOR, 5, 9)),
        ]
        self.followed.replace(encode_record(1, generation_of(3, 0), 0, 12, groups))
        self.context = Context()
        context: Any = self.context
        self.cursors = ElectedJournal(self.followed, 4, context, "orders")
        self.records: list[bytes] = []
        self.synced: list[OSError | None] = []
        self.cursors.on_record = self.records.append
        self.cursors.on_synced = self.synced.append


@pytest.fixture
def lab() -> Lab:
    return Lab()


def test_a_disk_that_refuses_it_is_reported(lab: Lab) -> None:
    fault = lab.disk.inject(Fault("write", errno.ENOSPC, "channels", times=0))
    lab.cursors.begin_generation()
    assert lab.records == []
    assert lab.cursors.is_behind
    assert "No space" in lab.context.health.reason("orders", Trouble.JOURNAL)
    lab.disk.faults.remove(fault)
    lab.cursors.begin_generation()
    assert len(lab.records) == 1
    assert not lab.cursors.is_behind
    assert lab.context.health.reason("orders", Trouble.JOURNAL) == ""
