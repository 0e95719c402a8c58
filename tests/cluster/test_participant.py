"""What a turn does with a node's part in the cluster."""

from cases import each
from penstock.cluster import keys
from penstock.cluster.coordinator import Delete, Transaction
from penstock.cluster.documents import (
    ACTIVE,
    CLUSTER,
    MEMBERSHIP,
    NODE,
    RECORD,
    Cluster,
    Membership,
    NodeDocument,
)
from penstock.cluster.elections import Local
from penstock.cluster.keys import PartitionName
from penstock.cluster.messages import Corrupt, Heartbeat, Refused
from penstock.cluster.participant import Participant
from penstock.cluster.registration import Registration
from penstock.cluster.view import Versioned, View
from penstock.cluster.watch import Phase, Watching
from penstock.limits import MS, NODE_LEASE_NS, SECOND, WATCH_PROGRESS_NS
from penstock.log.epochs import Extent
from penstock.replication.leader import PartitionLeader
from penstock.replication.record import LeaderId, Member, PartitionRecord
from sim.brokers.port import Port
from sim.protocol.modellog import ModelLog
from sim.store import Store

NAME = PartitionName("t", 0)
RECORD_OF_ONE = PartitionRecord(7, 1, None, (Member(0, 70, 1),), 1, (0, 1, 2))


class Played:
    def __init__(self) -> None:
        self.now_ns = 1_000 * SECOND
        self.store = Store()
        self.coordinator = Port(self.store)
        self.store.put(keys.CLUSTER, CLUSTER.encode(Cluster(1, 1, 1, 0)))
        self.store.put(keys.partition(*NAME), RECORD.encode(RECORD_OF_ONE))
        self.assignment: list[PartitionRecord] = []
        self.machine: PartitionLeader | None = None
        self.part = Participant(
            0,
            Membership(1, 1, "", 0, 11, 0, ACTIVE),
            lambda: NodeDocument(11, "host", 1, 2, "host", 3, "0", "", 0, 0),
            self.coordinator,
            lambda name: Local(70, False, True, Extent(0, 0, ()), self.machine is not None),
            self.now_ns,
        )

    def assign(self, name: PartitionName, held: Versioned[PartitionRecord] | None) -> None:
        assert held is not None
        record = held.document
        self.assignment.append(record)
        if record.leader == LeaderId(0, 11, 70) and self.machine is None:
            evidence = self.part.proposals.evidence
            log = ModelLog()
            self.machine = PartitionLeader(
                log, record, held.revision, record.leader, 1, 0, waits=False, evidence=evidence
            )
            self.part.proposals.leadership_began(name, self.machine)

    def run(self, seconds: float, answers: bool = True) -> None:
        end_ns = self.now_ns + int(seconds * SECOND)
        while self.now_ns < end_ns:
            self.now_ns += 50 * MS
            self.store.run_out(self.now_ns)
            if answers:
                self.coordinator.run(self.now_ns)
            for key, _, after in self.part.look(self.now_ns):
                if key.startswith(keys.PARTITIONS):
                    self.assign(keys.partition_of(key), after)
            self.part.conclude(self.now_ns)
            if self.machine is not None:
                self.machine.tick(self.now_ns)
            self.part.take_moved()
            self.part.flush()


def test_a_lone_leader_keeps_its_authority_through_the_coordinator() -> None:
    played = Played()
    played.run(30)
    assert played.machine is not None
    assert played.machine.permits == (True, True, True)
    played.run(5, answers=False)
    assert played.machine.permits == (False, True, True)
    played.run(60, answers=False)
    assert played.machine.permits == (False, False, False)
    played.run(5)
    assert played.machine.permits == (True, True, True)


def test_corrupt_logs_are_reported_when_that_changes_and_on_each_new_link() -> None:
    played = Played()
    part = played.part
    name = PartitionName("orders", 0)
    part.linked(1, 21)
    part.found_corrupt(frozenset({name}))
    part.found_corrupt(frozenset({name}))
    part.linked(2, 31)
    part.found_corrupt(frozenset())
    text = [(node, Corrupt(names, ())) for names in ((name,), ()) for node in (1, 2)]
    assert part.out == text
    part.receive(1, Corrupt((name,), ()))
    assert not part.proposals.corrupt_replicas.may_be_given(name, 1)


def test_a_refused_connection_is_reported_to_the_others() -> None:
    played = Played()
    part = played.part
    part.linked(1, 21)
    part.refused(2, 31)
    assert part.out == [(1, Refused(2, 31))]
    assert not part.proposals.failure_detector.is_refused(2, 31)
    part.receive(1, Refused(2, 31))
    assert part.proposals.failure_detector.is_refused(2, 31)


# --- A node makes itself known: its start first, then its incarnation ---


LEASE_S = NODE_LEASE_NS / SECOND


class Desk:
    """Node 2, over a coordinator that can be cut off."""

    def __init__(
        self, store: Store | None = None, generation: int = 1, uuid: int = 5, incarnation: int = 0
    ) -> None:
        self.store = store or Store()
        if store is None:
            self.store.put("cluster", CLUSTER.encode(Cluster(1, 1, 1, 0)))
        self.port = Port(self.store)
        self.view = View()
        self.watching = Watching(self.port, self.view)
        incarnation = incarnation or 10 + generation
        self.membership = Membership(uuid, generation, "b", 0, incarnation, 100, ACTIVE)
        self.registration = Registration(2, self.port, self.view, self.membership, self.describe)
        self.now_ns = 0
        self.order: list[str] = []

    def describe(self) -> NodeDocument:
        return NodeDocument(self.membership.incarnation, "h", 1, 2, "h", 3, "", "", 0, 0)

    def run(self, seconds: float = 2.0, hangs: bool = False) -> None:
        for _ in range(int(seconds * 10)):
            self.now_ns += SECOND // 10
            self.store.run_out(self.now_ns)
            if hangs:
                continue
            self.watching.tick(self.now_ns)
            is_current = self.watching.phase is Phase.WATCHING and not self.view.is_pending
            self.registration.tick(self.now_ns, is_current)
            self.port.run(self.now_ns)
            for key, _, after in self.view.apply(100):
                self.order.append(key)
                if key == "nodes/2" and after is None:
                    self.registration.key_gone()

    def is_held(self) -> bool:
        return self.registration.is_held(self.now_ns)

    def stored(self) -> Membership:
        return MEMBERSHIP.decode("members/2", self.store.entries["members/2"].value)


def test_the_start_is_written_before_the_incarnation() -> None:
    desk = Desk()
    desk.run()
    assert desk.is_held()
    assert desk.order == ["members/2", "nodes/2"]
    assert desk.stored() == desk.membership
    assert desk.store.entries["nodes/2"].lease != 0


def test_the_lease_is_kept_while_the_loop_turns() -> None:
    desk = Desk()
    desk.run(4 * LEASE_S)
    assert desk.is_held()
    assert "nodes/2" in desk.store.entries
    desk.run(LEASE_S + 1, hangs=True)
    assert "nodes/2" not in desk.store.entries
    assert not desk.is_held()


def test_a_start_takes_over_the_key_of_the_earlier_incarnation() -> None:
    first = Desk()
    first.run()
    second = Desk(first.store, generation=2)
    second.now_ns = first.now_ns
    second.run(1)
    assert second.is_held()
    node = NODE.decode("nodes/2", first.store.entries["nodes/2"].value)
    assert node.incarnation == 12
    second.run(2 * LEASE_S)  # the lease of the first one runs out
    assert "nodes/2" in first.store.entries


@each(
    ("second", "reason"),
    [
        ({"generation": 8, "uuid": 6}, "another machine has the id 2: 0000"),
        ({"generation": 6}, "this is generation 6 of node 2, and generation 7 was there"),
        # set back by one start: it counts to the same number again, as another incarnation
        ({"generation": 7, "incarnation": 99}, ""),
    ],
)
def test_another_machine_or_one_that_was_set_back_is_refused(
    second: dict[str, int], reason: str
) -> None:
    first = Desk(generation=7)
    first.run()
    other = Desk(first.store, **second)
    other.run()
    assert other.registration.reason.startswith(reason)
    assert first.stored() == first.membership


def test_a_node_whose_key_was_removed_registers_again() -> None:
    desk = Desk()
    desk.run()
    desk.store.transact(Transaction((), (Delete("nodes/2"),)))
    desk.run(1)
    assert desk.is_held()
    assert "nodes/2" in desk.store.entries


def test_a_live_node_registers_again_in_a_restored_etcd() -> None:
    desk = Desk()
    empty = Store().backup()
    desk.run()
    desk.store.restore(empty)
    desk.run(2 * WATCH_PROGRESS_NS / SECOND)
    assert desk.view.frozen
    desk.store.put("cluster", CLUSTER.encode(Cluster(1, 1, 1, 1)))  # restored once
    desk.run(LEASE_S + 10)
    assert desk.is_held()
    assert desk.stored() == desk.membership


def test_a_start_with_an_unknown_outcome_is_written_once() -> None:
    desk = Desk()
    desk.run(0.4)
    desk.port.is_cut = True
    desk.run(3)
    desk.port.is_cut = False
    desk.run(4)
    assert desk.is_held()
    assert desk.stored() == desk.membership


@each(
    ("others_s", "ahead_s"),
    [
        ([], 0),
        ([-70], 70),
        ([60, 64], -60),
        ([-60, 3], 0),  # one of the others is wrong
        ([0, -60, -61], 60),
    ],
)
def test_the_clock_is_compared_with_those_of_other_nodes(others_s: list[int], ahead_s: int) -> None:
    part = Played().part
    part.wall_ns = 1000 * SECOND
    for node, offset_s in enumerate(others_s, 1):
        part.linked(node, 7)
        part.receive(node, Heartbeat(1, part.wall_ns + offset_s * SECOND))
        part.receive(node, Heartbeat(2, part.wall_ns + (offset_s - 7) * SECOND))  # it was late
    assert part.clock_ahead_ns == ahead_s * SECOND
    for node in range(1, len(others_s) + 1):
        part.unlinked(node)
    assert part.clock_ahead_ns == 0
