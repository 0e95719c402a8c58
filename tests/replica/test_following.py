"""The follower of a partition: what it takes, and what it answers."""

from __future__ import annotations

from typing import Any

from penstock.replica.effects import (
    Acknowledge,
    Append,
    Begin,
    Cut,
    Matched,
    SaveEpoch,
    Stop,
    Sync,
    Tell,
)
from penstock.replica.following import FollowerLine, Following
from penstock.replica.matching import Chain

from .memorylog import MemoryLog

SESSION = 70


class Follower:
    def __init__(self, log: MemoryLog, committed: int = 0) -> None:
        self.log = log
        self.line = FollowerLine(log, 102, 1, 4, committed, waits=True)

    def effects(self) -> list[Any]:
        effects, self.line.out = self.line.out, []
        return effects

    def chain(self, end: int) -> Chain:
        chain = self.log.chain_before(end)
        assert chain is not None
        return chain

    def follow(self, end: int) -> None:
        self.line.hello(SESSION, 5)
        self.line.match_at(SESSION, end, self.chain(end))
        del self.log.batches[end:]
        self.log.synced = min(self.log.synced, end)
        self.effects()


def test_a_new_epoch_is_promised_before_it_is_answered() -> None:
    follower = Follower(MemoryLog([4, 4]))
    follower.line.hello(SESSION, 5)
    save, tell = follower.effects()
    assert save == SaveEpoch(5)
    assert tell == Tell(SESSION, 5, 102, 1, follower.log.extent(), 0)


def test_what_is_beyond_the_common_end_is_cut_before_the_answer() -> None:
    follower = Follower(MemoryLog([4, 4, 4]))
    follower.line.hello(SESSION, 5)
    follower.effects()
    follower.line.match_at(SESSION, 2, follower.chain(2))
    assert follower.effects() == [
        Cut(2),
        Matched(SESSION, 2),
        Acknowledge(SESSION, 5, 102, 2, 2),  # not 3, though so much was synced
    ]


def test_another_last_common_batch_stops_the_replica() -> None:
    follower = Follower(MemoryLog([4, 4, 4]))
    follower.line.hello(SESSION, 5)
    follower.effects()
    follower.line.match_at(SESSION, 2, Chain(4, 1, 999))
    assert follower.effects() == [Stop("the last common batch is not the leader's")]
    follower.line.hello(SESSION + 1, 6)
    assert follower.effects() == []


def test_what_is_known_to_be_committed_is_not_cut() -> None:
    follower = Follower(MemoryLog([4, 4, 4]), committed=3)
    follower.line.hello(SESSION, 5)
    follower.effects()
    follower.line.match_at(SESSION, 2, follower.chain(2))
    reason = "the leader's log lacks what is known to be committed"
    assert follower.effects() == [Stop(reason)]


def test_unless_the_record_says_that_it_was_given_up() -> None:
    follower = Follower(MemoryLog([4, 4, 4]), committed=3)
    follower.line.unclean_epoch = 5
    follower.line.hello(SESSION, 5)
    follower.effects()
    follower.line.match_at(SESSION, 2, follower.chain(2))
    assert Cut(2) in follower.effects()
    assert follower.line.committed == 2


def test_a_row_is_acknowledged_when_it_is_synced() -> None:
    follower = Follower(MemoryLog([4, 4]))
    follower.follow(2)
    follower.line.row(SESSION, 5, follower.chain(2), 2, ["x"], 2)
    assert follower.effects() == [Append(2, ["x"], 2)]
    follower.log.batches.append(5)
    follower.line.appended(3, 2)
    assert follower.effects() == [Sync()]
    follower.log.synced = 3
    follower.line.synced()
    assert follower.effects() == [Acknowledge(SESSION, 5, 102, 3, 3)]
    assert follower.line.committed == 2


def test_frames_of_an_older_session_are_dropped() -> None:
    follower = Follower(MemoryLog([4, 4]))
    follower.follow(2)
    follower.line.hello(SESSION - 1, 5)
    follower.line.row(SESSION - 1, 5, follower.chain(2), 2, ["x"], 2)
    follower.line.match_at(SESSION - 1, 1, follower.chain(1))
    assert follower.effects() == []
    assert follower.line.state is Following.FOLLOWING


def test_an_empty_log_begins_where_the_leader_says() -> None:
    follower = Follower(MemoryLog([]))
    follower.line.hello(SESSION, 5)
    follower.effects()
    follower.line.begin_at(SESSION, 0)
    assert follower.effects() == [
        Begin(0),
        Matched(SESSION, 0),
        Acknowledge(SESSION, 5, 102, 0, 0),
    ]


def test_it_does_not_begin_again_below_what_is_known_to_be_committed() -> None:
    follower = Follower(MemoryLog([4, 4, 4]), committed=3)
    follower.line.hello(SESSION, 5)
    follower.effects()
    follower.line.begin_at(SESSION, 2)
    reason = "the leader's log has nothing of what is known to be committed"
    assert follower.effects() == [Stop(reason)]
    assert follower.line.committed == 3
