"""A follower's journal at the end of a link: frames in, records on the disk, acknowledgements."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.broker.commits.jobrow import JobRow
from penstock.broker.commits.shelf import Place
from penstock.broker.commits.stagestore import StageStore
from penstock.broker.followedchannels import FollowedChannels
from penstock.broker.health import Health
from penstock.broker.promises import Promises
from penstock.broker.station import Station
from penstock.broker.syncs import Syncs
from penstock.log.fold import (
    FLAG_SNAPSHOT,
    PARTITION,
    Entry,
    Group,
    Position,
    cursor_entry,
    encode_record,
    generation_of,
    start_entry,
)
from penstock.log.followedjournal import NOTHING, FollowedJournal
from penstock.log.ledger import Ledger
from penstock.log.ledgerfile import Node, ReplicaEntry
from penstock.replica.journalline import (
    AcknowledgePlace,
    AskSnapshot,
    AskSync,
    HelloJournal,
    SendHeld,
    SendRecord,
    TellPlace,
)
from sim.disk import Fault
from sim.threads import Threads

from .following import KEY, LEADER, SESSION, Wire, new_disk

EPOCH, REPLICA = 6, 99


def at(sequence: int, number: int = 0) -> Position:
    return Position(generation_of(EPOCH, number), sequence)


def record(place: Position, cursor: int, start: int = 0) -> bytes:
    flags = FLAG_SNAPSHOT if place.sequence == 0 else 0
    groups = [Group(1, cursor_entry(Entry.CURSOR, cursor, cursor))]
    if start:
        groups.append(Group(PARTITION, start_entry(start)))
    return encode_record(flags, *place, cursor, groups)


class Lab:
    """The follower's node, which has promised the epoch."""

    def __init__(self) -> None:
        self.disk = new_disk()
        ledger = Ledger.create(self.disk, "data", Node(generation=4, life=5))
        ledger.put(KEY, ReplicaEntry(EPOCH, b""))
        self.threads, self.wire, self.health = Threads(), Wire(), Health()
        self.syncs = Syncs(self.threads)
        self.station = Station(3, 5, 4, Promises(ledger, self.syncs), self.wire)
        self.stops: list[str] = []
        self.drops: list[int] = []
        self.open()

    def open(self) -> None:
        self.channels = FollowedChannels(
            self.station, KEY, "orders", REPLICA, FollowedJournal.open(self.disk, "data"),
            self.syncs, self.health, self.drops.append, self.stops.append, self.store(),
        )  # fmt: skip

    def store(self) -> StageStore:
        place = Place("orders", KEY.identity, KEY.partition)
        return StageStore(self.disk, self.health, JobRow(self.syncs), "data", place)

    def turn(self) -> list[Any]:
        for _ in range(5):
            self.syncs.settle()
        self.channels.validate()
        return self.wire.take()

    def send(self, frame: Any, node: int = LEADER) -> list[Any]:
        self.channels.receive(node, frame)
        return self.turn()

    def record(
        self, place: Position, cursor: int, start: int = 0, held: Position = NOTHING
    ) -> list[Any]:
        data = record(place, cursor, start)
        return self.send(SendRecord(3, SESSION, EPOCH, place, data, held))

    def ask(self, place: Position) -> list[Any]:
        return self.send(AskSync(3, SESSION, EPOCH, place))

    @property
    def cursor(self) -> int:
        return self.channels.journal.folding.channels()[1].next


@pytest.fixture
def lab() -> Lab:
    """With a snapshot and a record."""
    lab = Lab()
    lab.send(HelloJournal(3, SESSION, EPOCH))
    lab.record(at(0), 5)
    lab.record(at(1), 6)
    return lab


def acknowledged(written: Position, synced: Position) -> AcknowledgePlace:
    return AcknowledgePlace(SESSION, EPOCH, REPLICA, written, synced)


def test_a_leader_hears_where_the_journal_stands_and_what_is_synced() -> None:
    lab = Lab()
    assert lab.send(HelloJournal(3, SESSION, EPOCH)) == [
        TellPlace(SESSION, EPOCH, REPLICA, NOTHING),
        acknowledged(NOTHING, NOTHING),
    ]
    assert lab.record(at(0), 5) == [acknowledged(at(0), NOTHING), acknowledged(at(0), at(0))]
    assert lab.record(at(1), 6) == [acknowledged(at(1), at(0))]
    assert lab.ask(at(1)) == [acknowledged(at(1), at(1))]
    assert lab.cursor == 6


def test_what_the_disk_does_not_take_is_asked_for_at_housekeeping(lab: Lab) -> None:
    lab.disk.inject(Fault("write"))
    assert lab.record(at(2), 7) == []
    assert "what its leader says of channels cannot be stored" in lab.health.text
    lab.channels.settle(sync=True)
    assert lab.turn() == [AskSnapshot(SESSION, EPOCH)]
    lab.record(at(0, number=1), 7)
    assert (lab.cursor, lab.health.text) == (7, "OK")


def test_a_record_that_is_not_sound_or_elsewhere_is_not_taken(lab: Lab) -> None:
    for data in (record(at(2), 7)[:-1], record(at(3), 7)):
        lab.send(SendRecord(3, SESSION, EPOCH, at(2), data, NOTHING))
        assert lab.cursor == 6
        assert lab.channels.line.place == NOTHING
        assert "the channel journal is not continued" in lab.health.text
    lab.record(at(0, number=1), 7)
    assert (lab.cursor, lab.health.text) == (7, "OK")


def test_a_failed_sync_ends_the_replica(lab: Lab) -> None:
    lab.disk.inject(Fault("sync"))
    lab.record(at(2), 7)
    lab.ask(at(2))
    assert lab.stops == ["a sync of the channel journal failed"]
    assert lab.record(at(3), 8) == []


def test_the_start_of_the_log_is_acted_on_when_the_set_has_it(lab: Lab) -> None:
    lab.record(at(2), 7, start=4)
    assert lab.drops == []
    lab.send(SendHeld(3, SESSION, EPOCH, at(2)))
    assert lab.drops == []  # it is not on this disk yet
    lab.ask(at(2))
    assert lab.drops == [4]


def test_a_start_goes_on_where_the_files_stand(lab: Lab) -> None:
    lab.channels.journal.close()
    lab.open()
    assert lab.send(HelloJournal(3, SESSION + 1, EPOCH))[0].place == at(1)
    data = record(at(2), 7)
    lab.send(SendRecord(3, SESSION + 1, EPOCH, at(2), data, NOTHING))
    assert lab.cursor == 7
