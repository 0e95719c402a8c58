"""What a turn does with a node's part in the cluster."""

from __future__ import annotations

from penstock.cluster import keys
from penstock.cluster.coordinator import Put, Transaction
from penstock.cluster.documents import ACTIVE, CLUSTER, RECORD, Cluster, Membership, Node
from penstock.cluster.elections import Local
from penstock.cluster.keys import PartitionName
from penstock.cluster.participant import Corrupt, Participant, Refused
from penstock.cluster.view import Held
from penstock.limits import MS, SECOND
from penstock.replica.leading import LeaderLine
from penstock.replica.matching import Extent
from penstock.replica.record import Member, Record, Seat
from sim.memory import MemoryCoordinator
from sim.protocol.modellog import ModelLog
from sim.store import Store

NAME = PartitionName("t", 0)
RECORD_OF_ONE = Record(7, 1, None, (Member(0, 70, 1),), 1, (0, 1, 2))


class Played:
    def __init__(self) -> None:
        self.now_ns = 1_000 * SECOND
        self.store = Store()
        self.coordinator = MemoryCoordinator(self.store, lambda: self.now_ns)
        self.put(keys.CLUSTER, CLUSTER.encode(Cluster(1, 1, 1, 0)))
        self.put(keys.partition(*NAME), RECORD.encode(RECORD_OF_ONE))
        self.assigned: list[Record] = []
        self.line: LeaderLine | None = None
        self.part = Participant(
            0,
            Membership(1, 1, "", 0, 11, 0, ACTIVE),
            lambda: Node(11, "host", 1, 2, "host", 3, "0", "", 0, 0),
            self.coordinator,
            lambda name: Local(70, False, True, Extent(0, 0, ()), self.line is not None),
            self.assign,
            self.now_ns,
        )

    def put(self, key: str, value: bytes) -> None:
        self.store.transact(Transaction((), (Put(key, value),)))

    def assign(self, name: PartitionName, held: Held[Record] | None) -> None:
        assert held is not None
        record = held.document
        self.assigned.append(record)
        if record.leader == Seat(0, 11, 70) and self.line is None:
            heard = self.part.offices.heard
            log = ModelLog()
            self.line = LeaderLine(
                log, record, held.revision, record.leader, 1, 0, waits=False, heard=heard
            )
            self.part.offices.took_office(name, self.line)

    def run(self, seconds: float, answers: bool = True) -> None:
        end_ns = self.now_ns + int(seconds * SECOND)
        while self.now_ns < end_ns:
            self.now_ns += 50 * MS
            if answers:
                self.coordinator.run()
            self.part.tick(self.now_ns)
            if self.line is not None:
                self.line.tick(self.now_ns)
            self.part.take_moved()
            self.part.flush()


def test_it_registers_takes_records_in_and_elects_itself() -> None:
    played = Played()
    played.run(15)
    assert played.assigned[0] == RECORD_OF_ONE
    assert played.assigned[-1].leader == Seat(0, 11, 70)
    assert keys.node(0) in played.store.entries
    assert keys.member(0) in played.store.entries


def test_a_leader_that_is_alone_keeps_its_authority_by_the_coordinators_word() -> None:
    played = Played()
    played.run(30)
    assert played.line is not None
    assert played.line.permits == (True, True, True)
    played.run(5, answers=False)
    assert played.line.permits == (False, True, True)
    played.run(60, answers=False)
    assert played.line.permits == (False, False, False)
    played.run(5)
    assert played.line.permits == (True, True, True)


def test_a_view_that_is_behind_confirms_nothing() -> None:
    played = Played()
    played.run(20)
    part = played.part
    confirmed_ns = part.offices.heard.confirmed_ns
    part._answered = played.now_ns, part.view.revision + 1
    part._confirm()
    assert part.offices.heard.confirmed_ns == confirmed_ns
    part.view.revision += 1
    part._confirm()
    assert part.offices.heard.confirmed_ns == played.now_ns


def test_corrupt_logs_are_reported_when_that_changes_and_on_each_new_link() -> None:
    played = Played()
    part = played.part
    name = PartitionName("orders", 0)
    part.linked(1, 21)
    part.found_corrupt(frozenset({name}))
    part.found_corrupt(frozenset({name}))
    part.linked(2, 31)
    part.found_corrupt(frozenset())
    said = [(node, Corrupt(names, ())) for names in ((name,), ()) for node in (1, 2)]
    assert part.out == said
    part.receive(1, Corrupt((name,), ()))
    assert not part.offices.soundness.may_be_given(name, 1)


def test_a_refused_connection_is_reported_to_the_others() -> None:
    played = Played()
    part = played.part
    part.linked(1, 21)
    part.refused(2, 31)
    assert part.out == [(1, Refused(2, 31))]
    assert not part.offices.absence.is_refused(2, 31)
    part.receive(1, Refused(2, 31))
    assert part.offices.absence.is_refused(2, 31)
