"""The controller: its office, what it elects, moves and plans."""

from __future__ import annotations

from typing import Any

from penstock.cluster import keys
from penstock.cluster.controller import (
    Campaign,
    Change,
    Controller,
    Duty,
    NodeSeen,
    PartitionSeen,
    Propose,
    Situation,
    transaction_of,
)
from penstock.cluster.coordinator import CreatedIs, Delete, Put, Transaction
from penstock.cluster.documents import RECORD
from penstock.cluster.keys import PartitionName
from penstock.cluster.moves import Move
from penstock.cluster.placement import Reason, Standing
from penstock.limits import (
    CONTROLLER_SETTLE_NS,
    ELECT_AFTER_NS,
    NODE_REPLACE_NS,
    NODE_STEADY_NS,
    SECOND,
)
from penstock.replica.leading import Outcome
from penstock.replica.record import (
    Member,
    Record,
    Seat,
    elected,
)
from sim.store import Store

T0 = PartitionName("t", 0)


def node(number: int, **fields: Any) -> NodeSeen:
    return NodeSeen("", Standing.SERVES, 1, 0, 10 + number)._replace(**fields)


def member(number: int) -> Member:
    return Member(number, 100 + number, 1)


def record(leader: int | None, members: tuple[int, ...], wanted: tuple[int, ...]) -> Record:
    seat = None if leader is None else Seat(leader, 10 + leader, 100 + leader)
    least = (len(wanted) + 1) // 2
    return Record(7, 5, seat, tuple(map(member, members)), least, wanted)


def seen(one: Record, **fields: Any) -> PartitionSeen:
    return PartitionSeen(one, 30, len(one.wanted), True)._replace(**fields)


def situation(
    nodes: dict[int, NodeSeen], partitions: dict[PartitionName, PartitionSeen], **fields: Any
) -> Situation:
    return Situation(77, 9, nodes, partitions)._replace(**fields)


def taken(controller: Controller) -> list[Any]:
    out, controller.out = controller.out, []
    return out


def changes(controller: Controller) -> list[Change]:
    return [change for propose in taken(controller) for change in propose.changes]


CALM = {T0: seen(record(1, (1, 2, 3), (1, 2, 3)))}
NODES = {number: node(number) for number in (1, 2, 3)}


def acting(now: Situation) -> tuple[Controller, int]:
    """A controller that has settled, and seen the nodes for long enough."""
    controller = Controller(77)
    controller.tick(now, 0)
    now_ns = CONTROLLER_SETTLE_NS + NODE_STEADY_NS
    controller.tick(now, now_ns)
    assert controller.duty is Duty.ACTING
    taken(controller)
    return controller, now_ns


class TestOffice:
    def test_it_stands_for_election_when_nobody_has_the_key(self) -> None:
        controller = Controller(77)
        controller.tick(situation(NODES, CALM, controller=None), 0)
        assert taken(controller) == [Campaign()]
        controller.tick(situation(NODES, CALM, controller=66), 0)
        assert taken(controller) == []
        assert controller.duty is Duty.IDLE

    def test_it_does_nothing_before_it_has_settled(self) -> None:
        controller = Controller(77)
        gone = situation({1: node(1), 2: node(2)}, CALM)
        for now_ns in range(0, CONTROLLER_SETTLE_NS, SECOND):
            controller.tick(gone, now_ns)
        assert (controller.duty, taken(controller)) == (Duty.SETTLING, [])

    def test_its_transactions_compare_when_the_key_was_made(self) -> None:
        change = Change(T0, CALM[T0], CALM[T0].record)
        transaction = transaction_of(Propose(9, (change,)))
        assert CreatedIs(keys.CONTROLLER, 9) in transaction.compares
        store = Store()
        store.transact(Transaction((), (Put(keys.CONTROLLER, b"66"),)))
        put = Put(keys.partition(*T0), RECORD.encode(CALM[T0].record))
        store.transact(Transaction((), (put,)))
        revision = store.revision
        late = Change(T0, CALM[T0]._replace(revision=revision), CALM[T0].record)
        assert store.transact(transaction_of(Propose(9, (late,)))).outcome is Outcome.REFUSED
        assert store.transact(transaction_of(Propose(2, (late,)))).outcome is Outcome.DONE


class TestElections:
    def elect(self, before: Situation, after: Situation) -> list[Change]:
        controller, now_ns = acting(before)
        controller.tick(after, now_ns)
        controller.tick(after, now_ns + ELECT_AFTER_NS - 1)
        assert changes(controller) == []
        controller.tick(after, now_ns + ELECT_AFTER_NS)
        return changes(controller)

    def test_a_leader_whose_node_is_missing_is_replaced_and_left_out(self) -> None:
        gone = situation({**NODES, 1: node(1, life=None)}, CALM)
        (change,) = self.elect(situation(NODES, CALM), gone)
        assert change.record == elected(CALM[T0].record, Seat(2, 12, 102), (member(1),))

    def test_one_that_answers_is_not_missing(self) -> None:
        """Its key has gone with the coordinator's trouble."""
        gone = situation({**NODES, 1: node(1, life=None)}, CALM, reachable={1})
        assert self.elect(situation(NODES, CALM), gone) == []

    def test_another_life_is_the_end_of_the_office(self) -> None:
        again = situation({**NODES, 1: node(1, life=99)}, CALM)
        (change,) = self.elect(situation(NODES, CALM), again)
        assert change.record is not None
        assert change.record.leader == Seat(2, 12, 102)
        assert len(change.record.members) == 3

    def test_a_leader_that_does_not_take_office(self) -> None:
        silent = situation(NODES, {T0: CALM[T0]._replace(in_office=False)})
        (change,) = self.elect(situation(NODES, CALM), silent)
        assert change.record is not None
        assert change.record.leader == Seat(2, 12, 102)

    def test_who_may_not_lead_is_passed_over(self) -> None:
        suspect = node(2, generation=2, memory_lost_generation=2)
        nodes = {1: node(1, life=None), 2: suspect, 3: node(3), 4: node(4)}
        one = seen(record(None, (1, 2, 3, 4), (1, 2, 3, 4)), waits=False)
        after = situation(nodes, {T0: one._replace(unable=frozenset({3}))})
        (change,) = self.elect(situation(NODES, CALM), after)
        assert change.record is not None
        assert change.record.leader == Seat(4, 14, 104)

    def test_what_was_asked_a_moment_ago_is_not_asked_again(self) -> None:
        controller, now_ns = acting(situation(NODES, CALM))
        gone = situation({**NODES, 1: node(1, life=None)}, CALM)
        counts = []
        for tenths in range(0, 80, 5):
            controller.tick(gone, now_ns + tenths * SECOND // 10)
            counts.append(len(taken(controller)))
        assert counts == [0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0]


class TestReplacing:
    def lose(self, missing: set[int], count: int) -> tuple[list[Change], Controller]:
        nodes = {number: node(number) for number in range(1, count + 1)}
        controller, now_ns = acting(situation(nodes, CALM))
        left = {n: node(n, life=None) if n in missing else one for n, one in nodes.items()}
        after = situation(left, {T0: seen(record(1, (1, 2), (1, 2, 3)))})
        controller.tick(after, now_ns)
        controller.tick(after, now_ns + NODE_REPLACE_NS - 1)
        assert changes(controller) == []
        controller.tick(after, now_ns + NODE_REPLACE_NS)
        return changes(controller), controller

    def test_a_lost_node_is_replaced_after_a_while(self) -> None:
        (change,), controller = self.lose({3}, 4)
        assert change.move == Move(T0, (1, 2, 3), (1, 2, 4), 2, 2)
        assert controller.last_plan.changes[0].reason is Reason.LOST

    def test_not_while_more_than_a_fifth_is_missing(self) -> None:
        assert self.lose({3, 4}, 9)[0] == []
        assert len(self.lose({3, 4}, 10)[0]) == 1


class TestPlans:
    def test_a_drained_node_is_left_at_once(self) -> None:
        nodes = {number: node(number) for number in range(1, 5)}
        controller, now_ns = acting(situation(nodes, CALM))
        nodes[2] = node(2, standing=Standing.DRAINING)
        controller.tick(situation(nodes, CALM), now_ns + 1)
        (change,) = changes(controller)
        assert change.move == Move(T0, (1, 2, 3), (1, 4, 3), 2, 2)
        moving = {T0: CALM[T0]._replace(move=change.move, move_revision=31)}
        controller.tick(situation(nodes, moving), now_ns + 2)
        (change,) = changes(controller)
        assert change.record == CALM[T0].record._replace(wanted=(1, 4, 3, 2))

    def test_a_plan_that_changes_while_a_move_is_under_way(self) -> None:
        nodes = {number: node(number) for number in range(1, 6)}
        wide = seen(record(1, (1, 2, 3), (1, 2, 3))._replace(wanted=(1, 4, 3, 2)), replicas=3)
        moving = wide._replace(move=Move(T0, (1, 2, 3), (1, 4, 3), 2, 2), move_revision=31)
        controller, now_ns = acting(situation(nodes, {T0: moving}))
        nodes[2] = node(2, standing=Standing.DRAINING)
        nodes[4] = node(4, standing=Standing.DRAINING)
        controller.tick(situation(nodes, {T0: moving}), now_ns + 1)
        (change,) = changes(controller)
        assert change.move == Move(T0, (1, 2, 3), (1, 5, 3), 2, 2)

    def test_a_move_that_is_done_is_forgotten(self) -> None:
        done = CALM[T0]._replace(move=Move(T0, (1, 2), (1, 2, 3), 2, 1), move_revision=31)
        controller = Controller(77)
        controller.tick(situation(NODES, {T0: done}), 0)
        controller.tick(situation(NODES, {T0: done}), CONTROLLER_SETTLE_NS)
        (propose,) = taken(controller)
        assert transaction_of(propose).operations == (Delete(keys.move("t", 0)),)

    def test_large_changes_go_in_several_transactions(self) -> None:
        names = [PartitionName("t", number) for number in range(100)]
        partitions = {name: seen(record(1, (1,), (1,)), replicas=2) for name in names}
        controller = Controller(77)
        controller.tick(situation(NODES, partitions), 0)
        controller.tick(situation(NODES, partitions), CONTROLLER_SETTLE_NS + NODE_STEADY_NS)
        controller.tick(situation(NODES, partitions), CONTROLLER_SETTLE_NS + 2 * NODE_STEADY_NS)
        proposals = taken(controller)
        assert len(proposals) > 1
        for propose in proposals:
            transaction_of(propose).check()
