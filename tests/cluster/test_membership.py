"""Who is dropped from a set, and when a leadership is given up."""

import pytest

from penstock.cluster.keys import PartitionName
from penstock.cluster.membership import Members, Slowness
from penstock.limits import PEER_STALL_NS, REPLICA_TIMEOUT_NS, SECOND, SLOW_LOOKS, SLOW_LOOKS_MIN
from penstock.replication.effects import Propose
from penstock.replication.leader import Outcome, PartitionLeader
from penstock.replication.record import LeaderId, Member, PartitionRecord
from sim.protocol.modellog import Batch, ModelLog

NAME = PartitionName("orders", 0)
A, B, C = Member(1, 101, 1), Member(2, 102, 1), Member(3, 103, 1)
LEADER_ID = LeaderId(1, 11, 101)
RECORD = PartitionRecord(7, 5, LEADER_ID, (A, B, C), 2, (1, 2, 3))
LATE_NS = REPLICA_TIMEOUT_NS


class Desk:
    """Node 1 leads; nodes 2 and 3 have everything."""

    def __init__(self, record: PartitionRecord = RECORD) -> None:
        self.resigned: list[str] = []
        self.moved: set[PartitionName] = set()
        self.members = Members(lambda name, reason: self.resigned.append(reason), self.moved)
        self.log = ModelLog()
        self.append()
        self.machine = PartitionLeader(self.log, record, 40, LEADER_ID, 1, 0, waits=False)
        for member in (B, C):
            self.members.linked(member.node, 0)
            self.link(member)
        self.members.leadership_began(NAME, self.machine, 0)
        self.members.committed(NAME)
        self.machine.out.clear()
        self.now_ns = 0

    def pass_to(self, mono_ns: int) -> None:
        """As a broker does it: no look is long after the one before."""
        while self.now_ns + PEER_STALL_NS // 2 < mono_ns:
            self.now_ns += PEER_STALL_NS // 2
            self.members.tick(self.now_ns)
        self.now_ns = mono_ns
        self.members.tick(mono_ns)

    def append(self) -> None:
        self.log.append(Batch(4, self.log.written_end, 0))

    def link(self, member: Member) -> None:
        self.machine.linked(member.node)
        session = self.machine.peers[member.node].session
        self.machine.extent_reported(member.node, session, member.replica, 1, self.log.extent())
        self.machine.matched(member.node, session, self.log.written_end)
        self.acknowledge(member)

    def acknowledge(self, member: Member) -> None:
        session, end = self.machine.peers[member.node].session, self.log.written_end
        self.machine.acknowledged(member.node, session, 5, member.replica, end, end)

    def write(self, mono_ns: int = 0) -> None:
        self.append()
        self.members.wrote(NAME, mono_ns)
        self.machine.wrote(self.log.written_end)

    def proposed(self) -> tuple[Member, ...] | None:
        out, self.machine.out = self.machine.out, []
        sets = [one.record.members for one in out if isinstance(one, Propose)]
        assert not sets or NAME in self.moved  # else nobody would send it
        return sets[-1] if sets else None

    def done(self, members: tuple[Member, ...]) -> None:
        proposal = self.machine._proposed
        assert proposal is not None
        assert self.proposed() == proposal.record.members == members
        self.machine.outcome(proposal.number, Outcome.DONE, self.machine.revision + 1)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_a_late_follower_is_dropped(desk: Desk) -> None:
    desk.write()
    desk.acknowledge(B)
    desk.pass_to(LATE_NS - 1)
    assert desk.proposed() is None
    desk.pass_to(LATE_NS)
    assert desk.proposed() == (A, B)
    assert desk.members.readmission.held_off == {3}


def test_a_follower_without_a_link_is_dropped_though_nothing_is_written(desk: Desk) -> None:
    desk.members.unlinked(2, 0)
    desk.machine.unlinked(2)
    desk.pass_to(LATE_NS - 1)
    assert desk.proposed() is None
    desk.pass_to(LATE_NS)
    assert desk.proposed() == (A, C)
    assert desk.members.readmission.held_off == set(), "mostly its process was started again"


def test_a_replica_that_failed_is_dropped_at_once(desk: Desk) -> None:
    desk.members.failed(NAME, 3, 0)
    assert desk.proposed() == (A, B)


def test_a_repeatedly_slow_follower_is_dropped(desk: Desk) -> None:
    desk.write()
    for _ in range(SLOW_LOOKS_MIN):
        desk.members.waited([NAME])  # for both of the others
    assert desk.members.slowness.slow_nodes() == []
    desk.acknowledge(B)
    for _ in range(SLOW_LOOKS_MIN):
        desk.members.waited([NAME])
    desk.pass_to(SECOND)
    assert desk.proposed() == (A, B)


def test_a_leader_with_a_slow_disk_is_slow(desk: Desk) -> None:
    desk.machine.waits = True
    desk.write()
    for _ in range(SLOW_LOOKS_MIN):
        desk.members.waited([NAME])
    assert not desk.members.take_slow_here()
    desk.acknowledge(B)
    desk.acknowledge(C)
    for _ in range(SLOW_LOOKS_MIN):
        desk.members.waited([NAME])
    desk.pass_to(SECOND)
    assert desk.members.take_slow_here()
    assert not desk.members.take_slow_here()
    assert desk.proposed() is None


def test_a_node_that_was_cut_off_is_not_slow(desk: Desk) -> None:
    desk.write()
    desk.acknowledge(B)
    desk.members.unlinked(3, 0)
    for _ in range(SLOW_LOOKS):
        desk.members.waited([NAME])
    desk.members.linked(3, 0)
    assert desk.members.slowness.slow_nodes() == []


def test_a_leadership_in_which_nothing_can_be_committed_is_given_up() -> None:
    desk = Desk(RECORD._replace(members_min=3))
    desk.write()
    desk.pass_to(2 * LATE_NS - 1)
    assert desk.resigned == []
    desk.pass_to(2 * LATE_NS)
    (reason,) = desk.resigned
    assert "nothing could be committed: node" in reason


def test_too_few_links_end_a_leadership_that_has_nothing_to_do() -> None:
    desk = Desk(RECORD._replace(members_min=3))
    desk.members.unlinked(2, 0)
    desk.pass_to(LATE_NS)
    desk.pass_to(3 * LATE_NS - 1)
    assert desk.resigned == []
    desk.pass_to(3 * LATE_NS)
    assert len(desk.resigned) == 1


def test_a_held_off_follower_is_admitted_after_its_pause(desk: Desk) -> None:
    desk.members.failed(NAME, 3, 0)
    desk.done((A, B))
    desk.acknowledge(C)
    assert desk.proposed() is None
    desk.pass_to(60 * SECOND)
    assert desk.proposed() == (A, B, C)


def test_no_follower_is_held_off_while_commits_need_it(desk: Desk) -> None:
    desk.members.failed(NAME, 3, 0)
    desk.done((A, B))
    desk.acknowledge(C)
    desk.members.unlinked(2, 0)
    desk.machine.unlinked(2)
    desk.members.drop_from_all(2, 0)
    desk.pass_to(0)
    desk.done((A, B, C))
    desk.members.drop_from_all(2, 0)
    assert desk.proposed() == (A, C)


def test_a_follower_that_stopped_in_order_rejoins_once_it_has_caught_up(desk: Desk) -> None:
    """However often. Until then it is not fed, though its link lasts a while."""
    for _ in range(3):
        desk.members.leaving(3, desk.now_ns)
        desk.done((A, B))
        desk.acknowledge(C)
        desk.pass_to(desk.now_ns + 60 * SECOND)
        assert desk.proposed() is None
        desk.machine.unlinked(3)
        desk.members.unlinked(3, desk.now_ns)
        desk.members.linked(3, desk.now_ns)
        desk.link(C)
        desk.pass_to(desk.now_ns + SECOND)
        desk.done((A, B, C))


def test_a_new_leadership_drops_who_stops_and_looks_at_no_other(desk: Desk) -> None:
    desk.members.leadership_ended(NAME)
    desk.members.leaving(3, 0)
    desk.members.machines[PartitionName("bills", 0)] = desk.machine
    desk.members.leadership_began(NAME, desk.machine, 0)
    assert desk.proposed() == (A, B)


def test_a_learner_that_hangs_before_the_end_is_abandoned() -> None:
    desk = Desk(RECORD._replace(members=(A, B), members_min=2, wanted=(1, 2)))
    desk.machine._demand(C)
    desk.write()
    desk.acknowledge(B)
    desk.pass_to(LATE_NS - 1)
    assert desk.machine.committed < desk.machine.end
    desk.pass_to(LATE_NS)
    assert desk.machine.committed == desk.machine.end
    assert desk.moved == {NAME}  # else nobody would hear of the commit
    assert desk.members.readmission.held_off == {3}  # else it would be demanded again at once
    assert desk.resigned == []


# --- this process stands still ---


def test_a_pause_of_this_process_makes_no_follower_late(desk: Desk) -> None:
    desk.pass_to(SECOND)
    desk.write(SECOND)
    desk.members.tick(SECOND + 2 * LATE_NS)  # the answers are there, and were not read yet
    assert (desk.proposed(), desk.resigned) == (None, [])
    desk.acknowledge(B)
    desk.now_ns = SECOND + 2 * LATE_NS
    desk.pass_to(SECOND + 3 * LATE_NS - 1)
    assert desk.proposed() is None
    desk.pass_to(SECOND + 3 * LATE_NS)
    assert desk.proposed() == (A, B)


# --- which node holds up the others ---


def look(slowness: Slowness, count: int, *nodes: int) -> None:
    for _ in range(count):
        slowness.looked(frozenset(nodes))


def test_a_node_that_delays_half_of_the_commits_is_slow() -> None:
    slowness = Slowness()
    look(slowness, SLOW_LOOKS)
    look(slowness, SLOW_LOOKS_MIN - 1, 3)
    assert slowness.slow_nodes() == []
    look(slowness, 1, 3)
    assert slowness.slow_nodes() == [3]


def test_two_slow_nodes_are_not_slow() -> None:
    slowness = Slowness()
    look(slowness, SLOW_LOOKS, 2, 3)
    assert slowness.slow_nodes() == []


def test_old_observations_and_dropped_nodes_are_forgotten() -> None:
    slowness = Slowness()
    look(slowness, SLOW_LOOKS, 3)
    look(slowness, SLOW_LOOKS - SLOW_LOOKS_MIN + 1)
    assert slowness.slow_nodes() == []
    look(slowness, SLOW_LOOKS, 3)
    slowness.forget(3)
    assert slowness.slow_nodes() == []
