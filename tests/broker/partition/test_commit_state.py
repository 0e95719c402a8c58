"""When a partition may begin a row, by its commit rule."""

from penstock.broker.partition.commit_state import CommitMove, CommitState
from penstock.replication.authority import Permits
from penstock.replication.leader import PartitionLeader
from penstock.replication.record import LeaderId, Member, PartitionRecord
from sim.protocol.modellog import ModelLog


def test_where_others_have_rows_none_is_written_without_the_permit_or_in_a_handover() -> None:
    leader_id, members = LeaderId(0, 0, 0), (Member(0, 0, 0), Member(1, 1, 1))
    record = PartitionRecord(0, 1, leader_id, members, 1, (0, 1))
    rule = PartitionLeader(ModelLog(), record, 0, leader_id, 0, 0, waits=False)
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
