"""The follower of a partition: what it takes, and what it answers."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.log.epochs import BatchName, Extent
from penstock.replication.effects import (
    Acknowledge,
    Append,
    Begin,
    Matched,
    ReportExtent,
    SaveEpoch,
    Stop,
    Sync,
    Truncate,
)
from penstock.replication.follower import Following, PartitionFollower
from penstock.replication.matching import common_end

from .memorylog import MemoryLog

SESSION = 70


class Follower:
    def __init__(self, log: MemoryLog, committed: int = 0) -> None:
        self.log = log
        self.machine = PartitionFollower(log, 102, 1, 4, committed, waits=True)

    def effects(self) -> list[Any]:
        effects, self.machine.out = self.machine.out, []
        return effects

    def chain(self, end: int) -> BatchName:
        chain = self.log.name_before(end)
        assert chain is not None
        return chain

    def greet(self) -> None:
        """A leader says hello, and what follows from that is done."""
        self.machine.hello(SESSION, 5)
        self.effects()

    def follow(self, end: int) -> None:
        self.greet()
        self.machine.match_at(SESSION, end, self.chain(end))
        del self.log.batches[end:]
        self.log.synced_end = min(self.log.synced_end, end)
        self.effects()


def test_a_new_epoch_is_promised_before_it_is_answered() -> None:
    follower = Follower(MemoryLog([4, 4]))
    follower.machine.hello(SESSION, 5)
    save, report = follower.effects()
    assert save == SaveEpoch(5)
    assert report == ReportExtent(SESSION, 5, 102, 1, follower.log.extent(), 0)


def test_a_tail_beyond_the_common_end_is_cut_before_the_answer() -> None:
    follower = Follower(MemoryLog([4, 4, 4]))
    follower.greet()
    follower.machine.match_at(SESSION, 2, follower.chain(2))
    assert follower.effects() == [
        Truncate(2),
        Matched(SESSION, 2),
        Acknowledge(SESSION, 5, 102, 2, 2),  # not 3, though so much was synced
    ]


def test_another_last_common_batch_stops_the_replica() -> None:
    follower = Follower(MemoryLog([4, 4, 4]))
    follower.greet()
    follower.machine.match_at(SESSION, 2, BatchName(4, 1, 999))
    assert follower.effects() == [Stop("the last common batch is not the leader's")]
    follower.machine.hello(SESSION + 1, 6)
    assert follower.effects() == []


def test_a_log_without_an_intact_batch_stops_the_replica() -> None:
    follower = Follower(MemoryLog([0, 0]))
    follower.machine.hello(SESSION, 5)
    assert follower.effects() == [Stop("no batch of its log is intact")]


def test_committed_batches_are_not_cut() -> None:
    follower = Follower(MemoryLog([4, 4, 4]), committed=3)
    follower.greet()
    follower.machine.match_at(SESSION, 2, follower.chain(2))
    reason = "the leader's log lacks what is known to be committed"
    assert follower.effects() == [Stop(reason)]


def test_unless_the_record_says_that_it_was_given_up() -> None:
    follower = Follower(MemoryLog([4, 4, 4]), committed=3)
    follower.machine.unclean_epoch = 5
    follower.greet()
    follower.machine.match_at(SESSION, 2, follower.chain(2))
    assert Truncate(2) in follower.effects()
    assert follower.machine.committed == 2


def test_a_row_is_acknowledged_when_it_is_synced() -> None:
    follower = Follower(MemoryLog([4, 4]))
    follower.follow(2)
    follower.machine.append(SESSION, 5, follower.chain(2), 2, ["x"], 2)
    assert follower.effects() == [Append(2, ["x"], 2)]
    follower.log.batches.append(5)
    follower.machine.appended(3, 2)
    assert follower.effects() == [Sync()]
    follower.log.synced_end = 3
    follower.machine.synced()
    assert follower.effects() == [Acknowledge(SESSION, 5, 102, 3, 3)]
    assert follower.machine.committed == 2


def test_frames_of_an_older_session_are_dropped() -> None:
    follower = Follower(MemoryLog([4, 4]))
    follower.follow(2)
    follower.machine.hello(SESSION - 1, 5)
    follower.machine.append(SESSION - 1, 5, follower.chain(2), 2, ["x"], 2)
    follower.machine.match_at(SESSION - 1, 1, follower.chain(1))
    assert follower.effects() == []
    assert follower.machine.state is Following.FOLLOWING


def test_an_empty_log_begins_where_the_leader_says() -> None:
    follower = Follower(MemoryLog([]))
    follower.greet()
    follower.machine.begin_at(SESSION, 0)
    assert follower.effects() == [Begin(0), Matched(SESSION, 0), Acknowledge(SESSION, 5, 102, 0, 0)]


def test_it_does_not_begin_again_below_what_is_known_to_be_committed() -> None:
    follower = Follower(MemoryLog([4, 4, 4]), committed=3)
    follower.greet()
    follower.machine.begin_at(SESSION, 2)
    reason = "the leader's log has nothing of what is known to be committed"
    assert follower.effects() == [Stop(reason)]
    assert follower.machine.committed == 3


# --- the common end of two logs, beside a search through all of their batches ---


def extent(epochs_of_batches: list[int], start: int = 0) -> Extent:
    epochs: list[tuple[int, int]] = []
    for offset, epoch in enumerate(epochs_of_batches, start):
        if not epochs or epochs[-1][0] != epoch:
            epochs.append((epoch, offset))
    return Extent(start, start + len(epochs_of_batches), tuple(epochs))


def test_below_the_leaders_start_there_is_nothing_in_common() -> None:
    assert common_end(extent([3, 3], start=10), extent([1, 1])) is None
    assert common_end(extent([3, 3], start=10), extent([2] * 12)) is None
    assert common_end(extent([3, 3], start=10), extent([], start=10)) == 10


@st.composite
def two_replicas(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Logs as leaders make them: each epoch continues a prefix of what one of the two has."""
    logs: list[list[int]] = [[], []]
    for epoch in range(1, draw(st.integers(1, 7)) + 1):
        leader = draw(st.integers(0, 1))
        logs[leader] += [epoch] * draw(st.integers(1, 4))
        if draw(st.booleans()):  # the other one follows, for a part
            end = common_end(extent(logs[leader]), extent(logs[1 - leader]))
            assert end is not None
            upto = draw(st.integers(end, len(logs[leader])))
            logs[1 - leader] = logs[leader][:upto]
    return logs[0], logs[1]


@given(two_replicas())
def test_it_is_where_a_search_finds_the_first_difference(logs: tuple[list[int], list[int]]) -> None:
    one, other = logs
    same = 0
    while same < min(len(one), len(other)) and one[same] == other[same]:
        same += 1
    assert common_end(extent(one), extent(other)) == same
    assert common_end(extent(other), extent(one)) == same
