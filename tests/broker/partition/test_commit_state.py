"""The commit rule by itself: the table of states, and rows that are written, synced, or fail."""

import random

from cases import each, seeds
from penstock.broker.partition.commit_state import MOVES, CommitMove, CommitPhase, CommitState
from penstock.replication.authority import Permits
from penstock.replication.leader import PartitionLeader
from penstock.replication.matching import Chain, Extent
from penstock.replication.record import LeaderId, Member, PartitionRecord


class Log:
    """As far as the rule looks at it."""

    def __init__(self, end: int) -> None:
        self.end = self.synced = end

    def extent(self) -> Extent:
        raise NotImplementedError

    def bytes_from(self, offset: int) -> int:
        raise NotImplementedError

    def chain_before(self, offset: int) -> Chain | None:
        raise NotImplementedError


class Line(CommitState):
    """With the rule of a leader that is alone, and its log."""

    def __init__(self, end: int, waits: bool) -> None:
        self.log = Log(end)
        leader_id, members = LeaderId(0, 0, 0), (Member(0, 0, 0),)
        record = PartitionRecord(0, 0, leader_id, members, 1, (0,))
        super().__init__(
            PartitionLeader(self.log, record, 0, leader_id, 0, end, waits), is_alone=True
        )

    def wrote(self, end: int) -> bool:
        self.log.end = end
        return super().wrote(end)

    def synced(self, end: int) -> bool:
        self.log.synced = end
        self.rule.synced()
        return self.advanced()

    @property
    def seen(self) -> tuple[int, int, bool]:
        return self.rule.committed, self.in_flight_end, self.ready


def line(waits: bool = True) -> Line:
    return Line(10, waits)


@each("seed", seeds(8, 50))
def test_any_story(seed: int) -> None:
    """The committed end rises, never beyond what was written, nor what the disk has if it waits."""
    dice = random.Random(seed)
    waits = dice.random() < 0.5
    one = Line(0, waits)
    written = synced = 0
    for _ in range(200):
        before = one.rule.committed
        if one.ready and dice.random() < 0.5:
            written += dice.randrange(1, 5)
            one.wrote(written)
        elif dice.random() < 0.7:
            synced = dice.randrange(synced, written + 1)
            one.synced(synced)
        else:
            moves = [
                move for move in CommitMove if (one.state, move) in MOVES and move < CommitMove.STOP
            ]
            if moves:
                one.move(dice.choice(moves))
        one.validate()
        assert before <= one.rule.committed <= written
        assert not waits or one.rule.committed <= max(synced, before)
        assert not (one.ready and one.state is not CommitPhase.LEADING)


def test_where_others_have_rows_none_is_written_without_the_permit_or_in_a_handover() -> None:
    leader_id, members = LeaderId(0, 0, 0), (Member(0, 0, 0), Member(1, 1, 1))
    record = PartitionRecord(0, 1, leader_id, members, 1, (0, 1))
    rule = PartitionLeader(Log(10), record, 0, leader_id, 0, 10, waits=False)
    shared = CommitState(rule, is_alone=False)
    assert shared.ready
    rule.permits = Permits(False, False, False)
    assert not shared.permitted()
    assert not shared.ready
    shared.validate()
    rule.permits = Permits(False, False, True)
    assert shared.permitted()
    assert shared.ready
    assert not shared.permitted()  # it was before
    rule.linked(1)
    assert rule.hand_over(1, 5)
    assert not shared.permitted()
    assert not shared.ready
    rule.keep_leadership()
    assert shared.permitted()
    shared.move(CommitMove.HOLD)  # a commit has the end, whatever is permitted
    assert not shared.permitted()
    assert not shared.ready
