"""The controller: its office, what it elects, moves and plans; then clusters that fail."""

from __future__ import annotations

import random
from typing import Any

import pytest

from penstock import limits
from penstock.cluster import keys
from penstock.cluster.commits.changes import Abandon
from penstock.cluster.commits.values import Prepare
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
from penstock.cluster.moves import MOVE, Move
from penstock.cluster.placement import Reason, Standing
from penstock.cluster.store import Store
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
    broken_rule,
    elected,
    regrouped,
    successor,
    superfluous,
)

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

    def test_a_broken_watch_begins_that_again(self) -> None:
        controller, now_ns = acting(situation(NODES, CALM))
        controller.watch_broken(now_ns)
        controller.tick(situation({}, CALM), now_ns + CONTROLLER_SETTLE_NS - 1)
        assert controller.duty is Duty.SETTLING

    def test_it_ends_with_the_key(self) -> None:
        controller, now_ns = acting(situation(NODES, CALM))
        controller.tick(situation({}, CALM, controller=66), now_ns + 1)
        assert (controller.duty, taken(controller)) == (Duty.IDLE, [])

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

    def test_nobody_is_left(self) -> None:
        gone = {number: node(number, life=None) for number in (1, 2, 3)}
        assert self.elect(situation(NODES, CALM), situation(gone, CALM)) == []


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

    def test_a_node_that_comes_back_in_time_is_kept(self) -> None:
        nodes = {number: node(number) for number in range(1, 5)}
        controller, now_ns = acting(situation(nodes, CALM))
        left = situation({**nodes, 3: node(3, life=None)}, CALM)
        controller.tick(left, now_ns)
        controller.tick(situation(nodes, CALM), now_ns + NODE_REPLACE_NS - 1)
        controller.tick(left, now_ns + NODE_REPLACE_NS)
        assert changes(controller) == []


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

    def test_another_minimum(self) -> None:
        controller, now_ns = acting(situation(NODES, CALM))
        controller.tick(situation(NODES, {T0: CALM[T0]._replace(members_min=3)}), now_ns + 1)
        (change,) = changes(controller)
        assert change.move == Move(T0, (1, 2, 3), (1, 2, 3), 3, 2)

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


def test_commits_that_nobody_decides_are_given_up_after_a_day() -> None:
    prepares = {number: Prepare("app", 1, number * SECOND, ()) for number in (1, 2, 3)}
    controller, now_ns = acting(situation(NODES, CALM))
    wall_ns = limits.STAGE_EXPIRE_NS + 3 * SECOND
    controller.tick(situation(NODES, CALM, prepares=prepares, wall_ns=wall_ns), now_ns)
    assert taken(controller) == [Abandon(1), Abandon(2)]


# --- clusters that fail ---


class Cluster:
    """Nodes that come and go, leaders that do what leaders do, and two controllers of which one is
    late: it decides on the ground of an older view."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.store = Store()
        self.now_ns = 0
        self.nodes = {number: node(number) for number in range(1, self.dice.randint(5, 8))}
        self.replicas = self.dice.randint(1, 3)
        self.names = [PartitionName("t", number) for number in range(self.dice.randint(1, 6))]
        for name in self.names:
            wanted = tuple(self.dice.sample(list(self.nodes), self.replicas))
            self.put(name, record(wanted[0], wanted, wanted))
        self.lives = 100
        self.controllers = [Controller(1), Controller(2)]
        self.before = self.look()

    def put(self, name: PartitionName, one: Record) -> None:
        self.store.transact(Transaction((), (Put(keys.partition(*name), RECORD.encode(one)),)))

    def partition(self, name: PartitionName) -> PartitionSeen:
        entry = self.store.entries[keys.partition(*name)]
        move = self.store.entries.get(keys.move(*name))
        return PartitionSeen(
            RECORD.decode(entry.key, entry.value),
            entry.revision,
            self.replicas,
            True,
            0,
            None if move is None else MOVE.decode(move.key, move.value),
            0 if move is None else move.revision,
        )

    def look(self) -> Situation:
        key = self.store.entries.get(keys.CONTROLLER)
        return Situation(
            None if key is None else int(key.value),
            0 if key is None else key.created,
            dict(self.nodes),
            {name: self.partition(name) for name in self.names},
        )

    # --- events ---

    def control(self, controller: Controller, now: Situation) -> None:
        controller.tick(now, self.now_ns)
        for effect in taken(controller):
            if isinstance(effect, Campaign):
                create = Put(keys.CONTROLLER, str(self.controllers.index(controller) + 1).encode())
                self.store.transact(Transaction((CreatedIs(keys.CONTROLLER, 0),), (create,)))
            else:
                before = {name: self.partition(name).record for name in self.names}
                settled = self.store.transact(transaction_of(effect))
                if settled.outcome is Outcome.DONE:
                    for name, one in before.items():
                        assert broken_rule(one, self.partition(name).record) is None

    def lead(self, name: PartitionName) -> None:
        """What the leader, and where there is none what the members do."""
        one = self.partition(name).record
        leader = one.leader
        if leader is None or self.nodes[leader.node].life != leader.life:
            return
        there = {number for number, seen in self.nodes.items() if seen.life is not None}
        for number in one.wanted:
            if one.member_on(number) is None and number in there and self.dice.random() < 0.5:
                one = regrouped(one, added=(member(number),))
        dead = tuple(m for m in one.members if m.node not in there)
        gone = (*dead, *(member(number) for number in superfluous(one)))
        if len(one.members) - len(set(gone)) >= one.members_min:
            one = regrouped(one, gone=gone)
        heir = successor(one, there)
        if heir is not None:
            one = elected(one, Seat(heir, self.nodes[heir].life or 0, 100 + heir))
        if one != self.partition(name).record:
            self.put(name, one)

    def missing(self) -> list[int]:
        return [number for number, seen in self.nodes.items() if seen.life is None]

    def fail(self) -> None:
        number = self.dice.choice(list(self.nodes))
        self.lives += 1
        life = None if not self.missing() else self.lives
        self.nodes[number] = self.nodes[number]._replace(life=life)

    def resign(self) -> None:
        """The key of the controller goes with its lease."""
        self.store.transact(Transaction((), (Delete(keys.CONTROLLER),)))

    def run(self, rounds: int, is_calm: bool) -> None:
        for _ in range(rounds):
            self.now_ns += 5 * SECOND
            now = self.look()
            late = now if is_calm else self.before
            for controller, situation_ in zip(self.controllers, (now, late), strict=True):
                self.control(controller, situation_)
            self.before = now if self.dice.random() < 0.3 else self.before
            for name in self.names:
                self.lead(name)
            if not is_calm:
                what = self.dice.random()
                if what < 0.03:
                    self.fail()
                elif what < 0.05:
                    self.resign()
                elif what < 0.07:
                    self.replicas = self.dice.randint(1, 3)


@pytest.mark.parametrize("first", range(0, 60, 15))
def test_after_all_failures_everything_is_where_it_should_be(first: int) -> None:
    waiting = 0
    for seed in range(first, first + 15):
        cluster = Cluster(seed)
        cluster.run(150, is_calm=False)
        for number in cluster.missing()[1:]:
            cluster.nodes[number] = node(number)
        rounds = limits.NODE_REPLACE_NS // (5 * SECOND) + 100
        cluster.run(rounds, is_calm=True)
        missing = cluster.missing()
        for name, one in cluster.look().partitions.items():
            nodes = {m.node for m in one.record.members}
            if nodes <= set(missing):  # there is nothing to copy from: an operator decides
                waiting += 1
                continue
            text = f"seed {seed}: {name} {one}, {missing} are missing"
            assert one.move is None, text
            assert nodes == set(one.record.wanted), text
            assert len(nodes) == cluster.replicas, text
            assert not nodes & set(missing), text
            assert one.record.members_min == (cluster.replicas + 1) // 2, text
    assert waiting < 10
