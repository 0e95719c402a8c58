"""The leader of a partition: what a commit waits for, and how the set changes."""

from collections.abc import Callable
from typing import Any

import pytest

from penstock.limits import AUTHORITY_NS, ISOLATED_DELIVERY_NS, ISOLATED_PUBLISH_NS, SECOND
from penstock.log.epochs import Extent
from penstock.replication.authority import ALL_PERMITS, NO_PERMITS, Evidence, Permits
from penstock.replication.effects import Authority, CommitTo, Hello, Leave, Propose, ReadRecord
from penstock.replication.leader import Outcome, PartitionLeader
from penstock.replication.record import LeaderId, Member, PartitionRecord, elected

from .memorylog import MemoryLog

A, B, C = Member(1, 101, 1), Member(2, 102, 1), Member(3, 103, 1)
LEADER_ID = LeaderId(1, 11, 101)
RECORD = PartitionRecord(7, 5, LEADER_ID, (A, B), 1, (1, 2, 3))
REVISION = 40


class Leadership:
    """A leader whose log is in memory, and what it wants done."""

    def __init__(self, record: PartitionRecord = RECORD, log: MemoryLog | None = None) -> None:
        self.log = log or MemoryLog([4, 4])
        self.machine = PartitionLeader(self.log, record, REVISION, LEADER_ID, 1, 0, waits=True)

    def effects(self) -> list[Any]:
        self.machine.validate()
        effects, self.machine.out = self.machine.out, []
        return effects

    def write(self, count: int = 1) -> None:
        self.log.batches += [self.machine.record.epoch] * count
        self.machine.wrote(self.log.written_end)

    def sync(self) -> None:
        self.log.synced_end = self.log.written_end
        self.machine.synced()

    def store(self) -> None:
        self.write()
        self.sync()

    def match(self, member: Member, end: int) -> int:
        """A follower that is matched, and has acknowledged so far. Returns its session."""
        machine = self.machine
        machine.linked(member.node)
        session = next(one.session for one in self.effects() if isinstance(one, Hello))
        extent = Extent(0, end, self.log.extent().epochs if end else ())
        machine.extent_reported(member.node, session, member.replica, member.generation, extent)
        machine.matched(member.node, session, end)
        self.acknowledge(member, session, end)
        return session

    def acknowledge(self, member: Member, session: int, end: int) -> None:
        epoch = self.machine.record.epoch
        self.machine.acknowledged(member.node, session, epoch, member.replica, end, end)

    def proposal(self) -> Propose:
        return next(one for one in self.effects() if isinstance(one, Propose))


def test_a_level_replica_is_needed_before_it_is_a_member() -> None:
    leadership = Leadership()
    of_b = leadership.match(B, 2)
    leadership.match(C, 2)
    proposal = leadership.proposal()
    assert proposal.record.members == (A, B, C)
    assert proposal.generations == ((3, 1),)
    leadership.store()
    leadership.acknowledge(B, of_b, 3)
    assert CommitTo(3) not in leadership.effects()
    leadership.machine.outcome(proposal.number, Outcome.DONE, 41)
    assert leadership.machine.record.members == (A, B, C)
    assert leadership.machine.possible_sets == [(A, B, C)]


def test_acknowledgements_of_a_removed_replica_are_forgotten() -> None:
    """Its node moves it aside, and makes another one when it is wanted again."""
    leadership = Leadership(RECORD._replace(wanted=(1, 2)))
    leadership.match(B, 2)
    session = leadership.match(C, 2)
    machine = leadership.machine
    machine.seen(41, RECORD._replace(wanted=(1, 2), members_min=2))
    leadership.acknowledge(C, session, 2)
    machine.seen(42, RECORD)
    assert machine.possible_sets == [(A, B)]
    assert not any(isinstance(one, Propose) for one in leadership.effects())
    leadership.match(C._replace(replica=104), 2)
    assert leadership.proposal().record.members == (A, B, C._replace(replica=104))


def test_a_learner_that_is_near_is_waited_for_and_proposed_when_it_has_what_is_committed() -> None:
    leadership = Leadership(RECORD._replace(members=(A,)), MemoryLog([4, 4]))
    leadership.sync()
    session = leadership.match(C, 0)
    for _ in range(2):
        leadership.store()
    assert leadership.machine.committed == 4
    leadership.acknowledge(C, session, 2)  # two batches behind are not near
    assert leadership.machine.possible_sets == [(A,)]
    leadership.acknowledge(C, session, 3)
    assert leadership.machine.possible_sets == [(A,), (A, C)]
    assert not any(isinstance(one, Propose) for one in leadership.effects())
    leadership.store()
    assert leadership.machine.committed == 4  # the append waits for it
    leadership.acknowledge(C, session, 5)
    effects = leadership.effects()
    assert CommitTo(5) in effects
    assert any(isinstance(one, Propose) for one in effects)


@pytest.mark.parametrize("other", [B, C])
def test_a_leader_without_an_intact_batch_leaves_the_partition_to_a_member(other: Member) -> None:
    leadership = Leadership(log=MemoryLog([0, 0]))
    leadership.match(other, 2)
    assert leadership.machine.over is (other in RECORD.members)


def test_a_learner_that_does_not_get_there_is_waited_for_no_more() -> None:
    leadership = Leadership(RECORD._replace(members=(A,)))
    leadership.sync()
    session = leadership.match(C, 0)
    leadership.store()
    leadership.acknowledge(C, session, 2)
    leadership.store()
    assert leadership.machine.committed == 3
    assert leadership.machine.withdraw((2,)) is None
    assert leadership.machine.withdraw((3,)) == 3
    assert CommitTo(4) in leadership.effects()
    assert leadership.machine.withdraw((3,)) is None


def test_an_unknown_outcome_is_settled_by_a_change_and_not_by_a_read() -> None:
    leadership = Leadership()
    leadership.match(B, 2)
    leadership.match(C, 2)
    growth = leadership.proposal()
    leadership.machine.outcome(growth.number, Outcome.UNKNOWN, 0)
    assert leadership.effects() == [ReadRecord()]
    leadership.machine.read(REVISION, RECORD)
    touch = leadership.proposal()
    assert touch.record == RECORD
    assert (A, B, C) in leadership.machine.possible_sets
    leadership.machine.read(REVISION, RECORD)  # an answer to an earlier question
    assert (A, B, C) in leadership.machine.possible_sets
    leadership.machine.outcome(touch.number, Outcome.DONE, 41)
    assert growth.record.members not in leadership.machine.possible_sets or leadership.proposal()


def test_a_dropped_member_is_needed_until_the_coordinator_confirms() -> None:
    leadership = Leadership()
    leadership.match(B, 2)
    leadership.effects()
    leadership.store()
    leadership.effects()
    assert leadership.machine.drop((2,))
    proposal = leadership.proposal()
    assert proposal.record.members == (A,)
    assert leadership.machine.committed == 2
    leadership.machine.outcome(proposal.number, Outcome.DONE, 41)
    assert CommitTo(3) in leadership.effects()


def test_a_leader_renews_its_own_entry_when_it_has_everything() -> None:
    log = MemoryLog([4, 4])
    record = RECORD._replace(members=(A,))
    machine = PartitionLeader(log, record, REVISION, LEADER_ID, 3, 0, waits=True)
    proposal = next(one for one in machine.out if isinstance(one, Propose))
    assert proposal.record.members == (A._replace(generation=3),)


# --- authority ---

DELIVERS = Permits(False, True, True)
PUBLISHES = Permits(False, False, True)


def ticked(leadership: Leadership, mono_ns: int) -> Permits:
    before = leadership.machine.permits
    leadership.machine.tick(mono_ns)
    effects = leadership.effects()
    after = leadership.machine.permits
    assert effects == ([Authority(after)] if after != before else [])
    return after


def witnessed() -> tuple[Leadership, Evidence]:
    """With a follower, and what is known of who has answered."""
    leadership = Leadership()
    leadership.machine.evidence = Evidence()
    leadership.match(B, 2)
    leadership.effects()
    return leadership, leadership.machine.evidence


def test_authority_lasts_from_the_answer_of_each_needed_member() -> None:
    leadership, evidence = witnessed()
    evidence.answered(2, 10 * SECOND)
    assert ticked(leadership, 10 * SECOND + AUTHORITY_NS) == ALL_PERMITS
    over_ns = 10 * SECOND + AUTHORITY_NS + 1
    assert ticked(leadership, over_ns) == DELIVERS
    assert ticked(leadership, over_ns + ISOLATED_DELIVERY_NS) == PUBLISHES
    evidence.answered(3, over_ns + ISOLATED_DELIVERY_NS)  # no member
    assert ticked(leadership, over_ns + ISOLATED_DELIVERY_NS) == PUBLISHES
    evidence.confirmed(over_ns + ISOLATED_DELIVERY_NS)
    assert ticked(leadership, over_ns + ISOLATED_DELIVERY_NS) == ALL_PERMITS


def hear_of_another_replica(leadership: Leadership) -> None:
    machine = leadership.machine
    machine.extent_reported(2, machine.peers[2].session, B.replica + 1, 1, Extent(0, 0, ()))


@pytest.mark.parametrize(
    "change",
    [
        lambda leadership: leadership.machine.linked(2),
        lambda leadership: leadership.machine.unlinked(2),
        hear_of_another_replica,
        lambda leadership: leadership.match(C, 2),
        lambda leadership: leadership.machine.leave("enough"),
    ],
    ids=["another session", "no link", "another replica", "another member", "the end"],
)
def test_it_rests_until_its_authority_hangs_on_more_than_answers(
    change: Callable[[Leadership], None],
) -> None:
    leadership = Leadership()
    evidence = leadership.machine.evidence = Evidence()
    evidence.confirmed(10 * SECOND)
    assert ticked(leadership, 10 * SECOND) == ALL_PERMITS
    assert not leadership.machine.rests, "the coordinator has to be asked again"
    leadership.match(B, 2)
    leadership.effects()
    evidence.answered(2, 20 * SECOND)
    assert ticked(leadership, 20 * SECOND) == ALL_PERMITS
    assert leadership.machine.rests
    change(leadership)
    assert not leadership.machine.rests


def test_an_answer_counts_for_its_time_also_when_the_link_is_lost() -> None:
    leadership, evidence = witnessed()
    evidence.answered(2, 10 * SECOND)
    assert ticked(leadership, 10 * SECOND) == ALL_PERMITS
    evidence.lost(2)
    assert ticked(leadership, 10 * SECOND + AUTHORITY_NS) == ALL_PERMITS
    assert ticked(leadership, 10 * SECOND + AUTHORITY_NS + 1) != ALL_PERMITS
    evidence.answered(2, 20 * SECOND)
    assert ticked(leadership, 20 * SECOND) == ALL_PERMITS
    leadership.machine.leave("it ended")
    assert leadership.effects() == [Leave("it ended")]
    assert ticked(leadership, 20 * SECOND) == NO_PERMITS


def test_a_lone_leader_publishes_while_the_coordinator_was_there_lately() -> None:
    leadership = Leadership(RECORD._replace(members=(A,)))
    leadership.store()
    leadership.effects()
    assert ticked(leadership, AUTHORITY_NS) == ALL_PERMITS
    assert ticked(leadership, ISOLATED_PUBLISH_NS) == DELIVERS
    assert leadership.machine.ready
    assert ticked(leadership, ISOLATED_PUBLISH_NS + 1) == NO_PERMITS
    assert not leadership.machine.ready
    leadership.machine.confirmed(ISOLATED_PUBLISH_NS)
    assert ticked(leadership, ISOLATED_PUBLISH_NS + 1) == ALL_PERMITS


# --- who is held off, and who takes over ---


def test_a_leadership_is_handed_over_to_a_member_that_has_everything() -> None:
    leadership = Leadership()
    session = leadership.match(B, 2)
    leadership.sync()
    leadership.write()
    leadership.effects()
    assert not leadership.machine.hand_over(3, 33), "it is no member"
    assert leadership.machine.hand_over(2, 22)
    assert leadership.effects() == [], "an append is in flight"
    leadership.acknowledge(B, session, 3)
    leadership.sync()
    assert not leadership.machine.ready, "no append is begun that would have an unknown outcome"
    proposal = leadership.proposal()
    assert proposal.record == elected(RECORD, LeaderId(2, 22, 102))
    leadership.machine.keep_leadership()
    assert leadership.machine.ready, "the coordinator does not answer: no commit waits for that"
    leadership.machine.outcome(proposal.number, Outcome.DONE, REVISION + 1)
    assert leadership.effects() == [Leave("the leadership was handed over")]


def test_a_successor_that_is_matched_later_gets_a_leadership_that_has_nothing_in_flight() -> None:
    leadership = Leadership()
    leadership.match(B, 2)
    leadership.sync()
    leadership.machine.unlinked(2)
    leadership.machine.hand_over(2, 22)
    assert not any(isinstance(one, Propose) for one in leadership.effects())
    leadership.match(B, 2)
    assert leadership.proposal().record.epoch == RECORD.epoch + 1


def test_a_leadership_whose_successor_falls_silent_goes_on() -> None:
    leadership = Leadership()
    session = leadership.match(B, 2)
    leadership.sync()
    leadership.write()
    leadership.machine.hand_over(2, 22)
    leadership.machine.keep_leadership()
    leadership.acknowledge(B, session, 3)
    leadership.sync()
    assert not any(isinstance(one, Propose) for one in leadership.effects())
    assert leadership.machine.ready
