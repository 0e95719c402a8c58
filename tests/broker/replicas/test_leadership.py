"""A leader with followers: appends go out between write and sync, and are committed when all have
them; what was sent is never said not to be stored."""

import random
from typing import Any

import pytest

from cases import each, seeds
from penstock.broker.partition.group_commit import GroupCommit
from penstock.broker.ports import PeerLane
from penstock.broker.replicas.context import CatchUp
from penstock.broker.replicas.leadership import Leadership, LeadershipPorts, end_of
from penstock.errors import PenstockError, PublishUnknown
from penstock.limits import CATCH_UP_STALL_NS, SECOND
from penstock.log.epochs import Extent
from penstock.nsqd.http.deps import unavailable
from penstock.replication.effects import Acknowledge, Hello, MatchAt, Matched, Propose, ReportExtent
from penstock.replication.frames import AppendFrame, Target
from penstock.replication.leader import PartitionLeader
from penstock.replication.record import LeaderId, Member, PartitionRecord

from ..following import Wire
from ..world import Start, World

EPOCH = 5
LEADER_ID = LeaderId(1, 11, 101)
MEMBERS = (Member(1, 101, 1), Member(2, 102, 1))


class Outside(Wire):
    """Peers, and records of which nothing is to be asked."""

    def propose(self, target: Target, proposal: Propose) -> None:
        raise AssertionError("nothing is to be proposed here")

    def read(self, target: Target) -> None:
        raise AssertionError("nothing is to be read here")


class Shared:
    """Topic t of a world, with a second replica on node 2."""

    def __init__(self, world: World, durability: str = "disk") -> None:
        self.world = world
        self.topic = world.broker.topic("t")
        self.leader = self.topic.leader()
        log = self.leader.log
        self.wire = Outside()
        self.catch_up = CatchUp(1)
        record = PartitionRecord(9, EPOCH, LEADER_ID, MEMBERS, 1, (1, 2))
        waits = durability == "disk"
        machine = PartitionLeader(log, record, 1, LEADER_ID, 1, log.written_end, waits)
        self.leadership = Leadership(
            log, machine, LeadershipPorts(Target(9, 0), self.wire, self.wire, self.catch_up)
        )
        self.group = GroupCommit(self.leader.replica, self.leader.tail, self.leadership)
        self.leader.group, self.leader.leadership = self.group, self.leadership
        self.session = 0

    def link(self, extent: Extent = Extent(0, 0, ()), node: int = 2) -> list[Any]:  # noqa: B008
        """A follower that has this much is matched. Returns what it is sent then."""
        self.leadership.linked(node)
        (hello,) = self.wire.take()
        assert isinstance(hello, Hello)
        self.session = hello.session
        report = ReportExtent(hello.session, EPOCH, 100 + node, 1, extent, 0)
        self.leadership.receive(node, report)
        (match,) = self.wire.take()
        assert isinstance(match, MatchAt)
        self.leadership.receive(node, Matched(hello.session, match.end))
        return self.wire.take()

    def acknowledge(self, end: int, synced: int | None = None) -> None:
        synced = end if synced is None else synced
        self.leadership.receive(2, Acknowledge(self.session, EPOCH, 102, end, synced))
        self.world.turns()

    def publish(self, *bodies: bytes) -> list[PenstockError | None]:
        answers: list[PenstockError | None] = []
        tail, length = self.group.tail, sum(map(len, bodies))
        self.group.publish(
            lambda: [tail.append(body) for body in bodies], len(bodies), length, answers.append
        )
        self.world.turns()
        return answers


@pytest.mark.parametrize("durability", ["disk", "os"])
def test_an_append_is_sent_before_its_sync_and_answered_when_all_have_it(
    start: Start, durability: str
) -> None:
    shared = Shared(start(durability=durability), durability)
    shared.link()
    shared.world.threads.held = True
    answers = shared.publish(b"one", b"two")
    (append,) = shared.wire.take()
    assert isinstance(append, AppendFrame)
    assert (append.start, append.epoch, end_of(append.batches)) == (0, EPOCH, 2)
    shared.world.threads.held = False
    shared.world.threads.run()
    shared.world.turns()
    assert answers == []
    assert shared.leader.tail.committed_end == 0
    shared.acknowledge(2, 2 if durability == "disk" else 0)
    assert answers == [None]
    assert shared.leader.tail.committed_end == 2
    assert shared.wire.take() == []
    shared.leadership.announce_committed()
    (news,) = shared.wire.take()
    assert (news.batches, news.committed) == (b"", 2)


def test_headers_carry_the_agreed_end(start: Start) -> None:
    shared = Shared(start())
    shared.link()
    shared.publish(b"one")
    shared.acknowledge(1)
    shared.leadership.unlinked(2)
    shared.wire.take()
    shared.link(Extent(0, 1, ((EPOCH, 0),)))
    shared.publish(b"two")  # matched again, and nothing acknowledged yet
    assert [header.synced_end for header, _ in shared.leader.log.batches(0)] == [0, 0]
    shared.acknowledge(2)
    shared.publish(b"three")
    assert [header.synced_end for header, _ in shared.leader.log.batches(0)] == [0, 0, 2]


def test_a_failed_sync_makes_the_outcome_unknown(start: Start) -> None:
    shared = Shared(start())
    shared.link()
    ends: list[str] = []
    shared.leadership.on_over = lambda: ends.append(shared.leadership.reason)
    shared.world.threads.error = OSError(5, "the disk is gone")
    answers = shared.publish(b"one")
    assert [type(error) for error in answers] == [PublishUnknown]
    assert len(ends) == 1
    assert shared.topic.refusal
    assert answers[0] is not None
    text = unavailable(answers[0])
    assert (text.status, text.details) == (503, {"stored": "unknown"})


def test_a_follower_far_behind_is_fed_from_the_log(start: Start) -> None:
    shared = Shared(start())
    topic = shared.topic
    shared.link()
    for number in range(3):
        shared.publish(b"%d" % number * 1_900_000)
        shared.acknowledge(number + 1)
    shared.leadership.unlinked(2)
    shared.wire.take()
    (append,) = shared.link()
    assert (append.start, end_of(append.batches)) == (0, 1)
    answers = shared.publish(b"live")
    assert [lane for lane, _ in shared.wire.sent] == [PeerLane.BULK]  # behind what was sent
    shared.wire.take()
    shared.acknowledge(2)
    shared.acknowledge(3)
    shared.acknowledge(4)
    assert answers == [None]
    shared.leadership.announce_committed()
    assert shared.wire.take()[-1].committed == 4
    shared.publish(b"next")
    assert [lane for lane, _ in shared.wire.sent] == [PeerLane.LIVE]
    assert topic.leader() is shared.leader


def test_learners_are_fed_from_the_log_in_turn(start: Start) -> None:
    shared, other = Shared(start()), Target(8, 0)
    shared.link()
    shared.publish(b"one")
    shared.acknowledge(1)
    assert shared.catch_up.request(3, other, 1, 100, lambda: None)
    shared.wire.take()
    assert shared.link(node=3) == []  # the slot on node 3 is taken
    shared.catch_up.leave(3, other)
    (append,) = shared.wire.take()
    assert (append.start, end_of(append.batches)) == (0, 1)
    shared.leadership.receive(3, Acknowledge(shared.session, EPOCH, 103, 1, 1))
    assert shared.catch_up.request(3, other, 1, 100, lambda: None)  # the first has all: it is free
    shared.catch_up.validate()


# --- which learners are fed at a time ---


NODE, OTHER = 2, 3


class Desk:
    def __init__(self, slots: int = 2) -> None:
        self.catch_up = CatchUp(slots)
        self.called: list[int] = []

    def ask(self, number: int, spare: int = 1, missing: int = 100, node: int = NODE) -> bool:
        answer = self.catch_up.request(
            node, Target(number, 0), spare, missing, lambda: self.called.append(number)
        )
        self.catch_up.validate()
        return answer

    def leave(self, number: int) -> list[int]:
        """Returns who is fed instead."""
        self.called.clear()
        self.catch_up.leave(NODE, Target(number, 0))
        self.catch_up.validate()
        return self.called


def test_a_stalled_learner_yields_its_slot_and_goes_to_the_end() -> None:
    desk = Desk(slots=1)
    desk.catch_up.tick(0)
    assert desk.ask(1)
    assert not desk.ask(2)
    desk.catch_up.tick(CATCH_UP_STALL_NS - 1)
    desk.catch_up.progressed(NODE, Target(1, 0))
    desk.catch_up.tick(CATCH_UP_STALL_NS + SECOND)
    assert desk.called == []
    desk.catch_up.tick(2 * CATCH_UP_STALL_NS)
    assert desk.called == [2]
    assert not desk.ask(1, spare=0)
    assert not desk.ask(3, spare=5)
    assert desk.leave(2) == [3]


@each("seed", seeds(3, 20))
def test_slots_are_used_and_never_exceeded(seed: int) -> None:
    dice, desk = random.Random(seed), Desk(slots=3)
    for step in range(400):
        number, node = dice.randrange(8), dice.choice((NODE, OTHER))
        match dice.randrange(5):
            case 0 | 1:
                desk.ask(number, dice.randrange(3), dice.randrange(1000), node)
            case 2:
                desk.catch_up.leave(node, Target(number, 0))
            case 3:
                desk.catch_up.progressed(node, Target(number, 0))
            case 4:
                desk.catch_up.tick(step * SECOND)
        desk.catch_up.validate()
    for number in range(8):
        desk.catch_up.leave_all(Target(number, 0))
    assert desk.ask(9)
