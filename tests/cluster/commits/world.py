"""Commits over several leaders in a world that fails: a walk at random, each promise checked.

Parties: apps that stage and commit versions, committers (several at once for one version, too),
three partitions of two topics, and the coordinator. Any committer may end between any two steps; a
leader may give way to another at any time; messages come late, out of order, or never; a
transaction is applied late, or never, or its outcome is lost; views are late; a topic is deleted
and made again; stages expire; retention removes what it may.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from penstock.cluster import keys
from penstock.cluster.commits.changes import Abandon, Close, Decide, Open, as_transaction
from penstock.cluster.commits.committer import (
    Answer,
    AskDone,
    AskPrepare,
    Committer,
    Findings,
    Read,
    State,
    TopicSeen,
    Transact,
    Verdict,
)
from penstock.cluster.commits.partline import CommitsView, Decided
from penstock.cluster.commits.values import DECISION, Decision, Part, Share, parts_of
from penstock.cluster.coordinator import Put, Transaction
from penstock.replica.leading import Outcome
from sim.store import Store
from tests.cluster.commits.partition import Breach, Copy, Partition

PLACES = (("a", 0), ("a", 1), ("b", 0))
APPS = ("x", "y")
COMMITTERS_MAX = 3
STEPS = 400
CALM_ROUNDS = 60

Focus = tuple[tuple[str, int], ...]

EVENTS: dict[str, int] = {
    "commit": 20,
    "commit_again": 3,
    "crash": 4,
    "retry": 15,
    "deliver": 200,
    "lose": 4,
    "apply": 60,
    "apply_unanswered": 4,
    "give_up": 3,
    "forget": 3,
    "look": 60,
    "replicate": 150,
    "acknowledge": 70,
    "write": 25,
    "publish": 10,
    "fail_over": 15,
    "expire": 3,
    "retain": 8,
    "sweep": 2,
    "make_again": 2,
    "configure": 3,
}


class Pending(NamedTuple):
    committer: int
    number: int
    change: Open | Decide | Close | Abandon


class Snapshot(NamedTuple):
    revision: int
    decisions: tuple[tuple[int, Decision], ...]  # that are not closed
    prepares: frozenset[int]


class World:
    def __init__(self, seed: int, focus: Focus = ()) -> None:
        self.dice = random.Random(seed)
        self.events = {**EVENTS, **dict(focus)}
        self.store = Store()
        self.identities = {"a": 1, "b": 1}
        for topic in self.identities:
            self._put_topic(topic)
        self.history = [self._snapshot()]
        self.partitions = {place: self._make(place) for place in PLACES}
        self.committers: dict[int, Committer] = {}
        self.asked: dict[int, tuple[str, int]] = {}  # by committer: app, version
        self.wire: list[tuple[Any, ...]] = []
        self.pending: list[Pending] = []
        self.made = 0  # committers and transactions so far
        self.versions = dict.fromkeys(APPS, 1)
        self.shares: dict[tuple[str, int], tuple[Share, ...]] = {}
        # what has happened
        self.decided: dict[int, tuple[int, Decision]] = {}
        self.refused: set[int] = set()
        self.answers = dict.fromkeys(Verdict, 0)
        self.fail_overs_in_a_part = 0
        for app in APPS:
            self._stage(app)

    # --- the coordinator ---

    def _put_topic(self, topic: str) -> None:
        value = str(self.identities[topic]).encode()
        self.store.transact(Transaction((), (Put(keys.topic(topic), value),)))

    def _snapshot(self) -> Snapshot:
        entries = self.store.entries
        found = [
            (entry.revision, DECISION.decode(key, entry.value))
            for key, entry in entries.items()
            if key.startswith(keys.COMMITS)
        ]
        prepares = [key for key in entries if key.startswith(keys.PREPARES)]
        return Snapshot(
            self.store.revision,
            tuple(sorted(one for one in found if not one[1].closed)),
            frozenset(int(key.removeprefix(keys.PREPARES), 16) for key in prepares),
        )

    def _view(self, part: Part, snapshot: Snapshot) -> CommitsView:
        decided = [
            Decided(revision, decision.transaction)
            for revision, decision in snapshot.decisions
            if part in parts_of(decision.shares)
        ]
        return CommitsView(snapshot.revision, tuple(decided), snapshot.prepares)

    def _apply(self, pending: Pending, answered: bool) -> None:
        settled = self.store.transact(as_transaction(pending.change))
        if settled.outcome is Outcome.DONE:
            if isinstance(pending.change, Decide):
                self._note_decision(pending.change.decision, settled.revision)
            self.history.append(self._snapshot())
        outcome = settled.outcome if answered else Outcome.UNKNOWN
        self._answer(pending, outcome, settled.revision)

    def _answer(self, pending: Pending, outcome: Outcome, revision: int) -> None:
        self.wire.append(("outcome", pending.committer, pending.number, outcome, revision))

    def _note_decision(self, decision: Decision, revision: int) -> None:
        name = f"{decision.app} {decision.version}"
        for _, other in self.decided.values():
            if (other.app, other.version) == (decision.app, decision.version):
                raise Breach("I33", f"{name} is decided twice")
        if decision.transaction in self.refused:
            raise Breach("I33", f"{name} is decided, and its commit was refused")
        for share in decision.shares:
            if self.identities[share.topic] != share.identity:
                raise Breach("I33", f"{name} is decided for a topic whose life is over")
        self.decided[decision.transaction] = revision, decision

    def _findings(self, read: Read) -> Findings:
        entry = self.store.entries.get(keys.commit(read.app))
        decision = DECISION.decode(entry.key, entry.value) if entry is not None else None
        topics = {
            topic: TopicSeen(self.identities[topic], self.store.entries[keys.topic(topic)].revision)
            for topic in read.topics
        }
        is_prepared = keys.prepare(read.transaction) in self.store.entries
        return Findings(entry.revision if entry else 0, decision, is_prepared, topics)

    # --- apps ---

    def _stage(self, app: str) -> None:
        """The stages of the app's present version, in the present life of its topics."""
        version = self.versions[app]
        before = self.shares.get((app, version))
        if before is None or not self._lives(before):
            places = sorted(self.dice.sample(PLACES, self.dice.randint(1, 3)))
            topics = sorted({topic for topic, _ in places})
            self.shares[app, version] = tuple(
                Share(topic, self.identities[topic], tuple(n for t, n in places if t == topic))
                for topic in topics
            )
        for part in parts_of(self.shares[app, version]):
            self.partitions[part.topic, part.number].stages.add(f"{app} {version}")

    def _lives(self, shares: tuple[Share, ...]) -> bool:
        return all(self.identities[share.topic] == share.identity for share in shares)

    def _make(self, place: tuple[str, int]) -> Partition:
        part = Part(place[0], self.identities[place[0]], place[1])
        return Partition(part, self._view(part, self.history[-1]))

    def _new_number(self) -> int:
        self.made += 1
        return self.made

    def begin(self, app: str, version: int) -> None:
        if len(self.committers) >= COMMITTERS_MAX:
            return
        shares = self.shares[app, version]
        number = self._new_number()
        committer = Committer(app, version, shares, 0, self._new_number)
        self.committers[number] = committer
        self.asked[number] = app, version
        self._carry_out(number)

    def _carry_out(self, number: int) -> None:
        committer = self.committers[number]
        while committer.out:
            effects, committer.out = committer.out, []
            for effect in effects:
                if isinstance(effect, Answer):
                    self._answered(number, effect)
                elif isinstance(effect, Transact):
                    self.pending.append(Pending(number, effect.number, effect.change))
                else:
                    self.wire.append(("ask", number, effect))
        if committer.state is State.OVER:
            del self.committers[number]

    def _answered(self, number: int, answer: Answer) -> None:
        app, version = self.asked[number]
        self.answers[answer.verdict] += 1
        if answer.verdict is Verdict.REFUSED:
            self._note_refusal(self.committers[number].transaction)
        else:
            self._check_stored(app, version)
            if version == self.versions[app]:
                self.versions[app] += 1
        self._stage(app)

    def _note_refusal(self, transaction: int) -> None:
        if transaction in self.decided:
            raise Breach("I33", "a commit is refused that was decided")
        self.refused.add(transaction)

    # --- messages ---

    def _deliver(self, message: tuple[Any, ...]) -> None:
        kind, number, *rest = message
        committer = self.committers.get(number)
        if kind == "ask":
            self._ask(number, rest[0])
            return
        if committer is None:
            return
        if kind == "found":
            committer.found(*rest)
        elif kind == "outcome":
            committer.outcome(*rest)
        elif kind == "prepared":
            committer.prepared(*rest)
        elif kind == "done":
            committer.done(*rest)
        else:
            committer.refused(rest[0], "a stage is gone")
        self._carry_out(number)

    def _ask(self, number: int, question: Any) -> None:
        if isinstance(question, Read):
            self.wire.append(("found", number, question.number, self._findings(question)))
            return
        part: Part = question.part
        partition = self.partitions[part.topic, part.number]
        if partition.part != part:  # its topic was made again
            kind = "done" if isinstance(question, AskDone) else "refused"
            self.wire.append((kind, number, question.transaction, part))
        elif isinstance(question, AskPrepare):
            app, version = self.asked[number]
            stage = f"{app} {version}"
            count = messages_of(stage, part)
            partition.prepare(question.transaction, stage, count, question.revision)
        else:
            partition.asked(question.transaction)
        self._post(partition)

    def _post(self, partition: Partition) -> None:
        """To all committers: which of them it concerns, they know."""
        messages, partition.messages = partition.messages, []
        for kind, transaction in messages:
            for number in self.committers:
                self.wire.append((kind, number, transaction, partition.part))

    # --- events ---

    def run(self, steps: int = STEPS) -> None:
        names, weights = list(self.events), list(self.events.values())
        for _ in range(steps):
            name = self.dice.choices(names, weights)[0]
            getattr(self, f"_do_{name}")()
            for partition in self.partitions.values():
                self._post(partition)
                self.check(partition)

    def _any(self) -> Partition:
        return self.partitions[self.dice.choice(PLACES)]

    def _take(self, things: list[Any]) -> Any:
        return things.pop(self.dice.randrange(len(things))) if things else None

    def _do_commit(self) -> None:
        app = self.dice.choice(APPS)
        self.begin(app, self.versions[app])

    def _do_commit_again(self) -> None:
        app, version = self.dice.choice(list(self.shares))
        self.begin(app, version)

    def _do_crash(self) -> None:
        if self.committers:
            number = self.dice.choice(list(self.committers))
            del self.committers[number]
            self._stage(self.asked[number][0])

    def _do_retry(self) -> None:
        if self.committers:
            number = self.dice.choice(list(self.committers))
            self.committers[number].retry()
            self._carry_out(number)

    def _do_deliver(self) -> None:
        if (message := self._take(self.wire)) is not None:
            self._deliver(message)

    def _do_lose(self) -> None:
        message = self._take(self.wire)
        if message is not None and message[0] == "outcome":
            self.wire.append((*message[:3], Outcome.UNKNOWN, 0))

    def _do_apply(self) -> None:
        if (pending := self._take(self.pending)) is not None:
            self._apply(pending, answered=True)

    def _do_apply_unanswered(self) -> None:
        if (pending := self._take(self.pending)) is not None:
            self._apply(pending, answered=False)

    def _do_give_up(self) -> None:
        """Its sender waits no longer; it may still be applied."""
        if self.pending:
            self._answer(self.dice.choice(self.pending), Outcome.UNKNOWN, 0)

    def _do_forget(self) -> None:
        if (pending := self._take(self.pending)) is not None:
            self._answer(pending, Outcome.UNKNOWN, 0)

    def _do_look(self) -> None:
        """A leader's view comes further, or is an older one that comes late."""
        partition = self._any()
        snapshot = self.dice.choice(self.history[-6:])
        partition.see(self._view(partition.part, snapshot))

    def _do_replicate(self) -> None:
        partition = self._any()
        partition.replicate(self.dice.randrange(3), self.dice.random() < 0.5)

    def _do_acknowledge(self) -> None:
        self._any().acknowledge()

    def _do_write(self) -> None:
        self._any().write(self.dice.randint(1, 2))

    def _do_publish(self) -> None:
        self._any().publish()

    def _do_fail_over(self) -> None:
        partition = self._any()
        self.fail_overs_in_a_part += partition.line.is_storing
        leader = self.dice.choice([place for place in range(3) if place != partition.leader])
        partition.take_office(leader, self._view(partition.part, self.history[-1]))

    def _do_expire(self) -> None:
        self._any().expire()

    def _do_retain(self) -> None:
        self._any().retain()

    def _do_sweep(self) -> None:
        """A prepare key that is old is removed, whoever has made it."""
        prepares = sorted(self.history[-1].prepares)
        if prepares:
            self.pending.append(Pending(0, 0, Abandon(self.dice.choice(prepares))))

    def _do_make_again(self) -> None:
        topic = self.dice.choice(list(self.identities))
        self.identities[topic] += 1
        self._put_topic(topic)
        self.history.append(self._snapshot())
        for place in PLACES:
            if place[0] == topic:
                self.partitions[place] = self._make(place)
        for app in APPS:
            self._stage(app)

    def _do_configure(self) -> None:
        """A topic's key changes, and its identity does not."""
        self._put_topic(self.dice.choice(list(self.identities)))
        self.history.append(self._snapshot())

    # --- calm ---

    def calm(self) -> None:
        """Nothing fails any more: all that is decided is stored, and nothing is left."""
        for _ in range(CALM_ROUNDS):
            self._calm_round()
            if not self._is_busy():
                break
        for partition in self.partitions.values():
            if partition.line.pins or partition.line.is_storing:
                raise Breach("L-d", f"{partition.part} keeps {partition.line.pins}")
        if self.history[-1].decisions:
            raise Breach("L-d", "a commit is not closed")
        for _, decision in self.decided.values():
            self._check_stored(decision.app, decision.version)

    def _is_busy(self) -> bool:
        pins = any(partition.line.pins for partition in self.partitions.values())
        return pins or bool(self.committers or self.pending or self.history[-1].decisions)

    def _calm_round(self) -> None:
        while self.pending:
            self._do_apply()
        while self.wire:
            self._do_deliver()
        for prepare in self.history[-1].prepares if not self.committers else ():
            self.pending.append(Pending(0, 0, Abandon(prepare)))
        for _, decision in self.history[-1].decisions:
            self.begin(decision.app, decision.version)
        for number in list(self.committers):
            self.committers[number].retry()
            self._carry_out(number)
        for partition in self.partitions.values():
            for place in range(3):
                partition.replicate_all(place)
            partition.acknowledge()
            partition.write(100)
            partition.see(self._view(partition.part, self.history[-1]))
            self._post(partition)
            self.check(partition)

    # --- promises ---

    def _check_stored(self, app: str, version: int) -> None:
        found = [one for one in self.decided.values() if one[1][:2] == (app, version)]
        if not found:
            raise Breach("I33", f"{app} {version} is answered, and was never decided")
        for part in parts_of(found[0][1].shares):
            partition = self.partitions[part.topic, part.number]
            if partition.part != part:
                continue
            stage = f"{app} {version}"
            committed = min(copy.end for copy in partition.copies)
            have = sum(
                batch.end - batch.base
                for batch in partition.own.log
                if batch.stage == stage and batch.end <= committed
            )
            if have != messages_of(stage, part):
                raise Breach("I33", f"{stage} is answered, and {part} has {have} messages of it")

    def check(self, partition: Partition) -> None:
        self._check_once(partition)
        self._check_order(partition)
        for copy in partition.copies:
            self._check_visible(partition, copy)

    def _check_once(self, partition: Partition) -> None:
        places: dict[str, int] = {}
        ends: dict[str, int] = {}
        for batch in partition.own.log:
            if batch.mark is None:
                continue
            if batch.mark.transaction not in self.decided:
                raise Breach("I33", f"{batch.stage} is stored, and not decided")
            if batch.mark.place != places.get(batch.stage, 0):
                raise Breach("I33", f"{batch.stage} goes on with message {batch.mark.place}")
            if batch.base != ends.get(batch.stage, batch.base):
                raise Breach("I32", f"something stands within {batch.stage}")
            places[batch.stage] = batch.mark.place + batch.end - batch.base
            ends[batch.stage] = batch.end
            if places[batch.stage] > messages_of(batch.stage, partition.part):
                raise Breach("I33", f"{batch.stage} is stored twice")

    def _check_order(self, partition: Partition) -> None:
        marks = [batch.mark.transaction for batch in partition.own.log if batch.mark]
        revisions = [self.decided[transaction][0] for transaction in marks]
        if revisions != sorted(revisions):
            raise Breach("I34", f"parts in {partition.part} are out of order")

    def _check_visible(self, partition: Partition, copy: Copy) -> None:
        visible = partition.visible(copy)
        if visible > copy.known:
            raise Breach("I32", "what is visible is not committed")
        counts: dict[str, int] = {}
        for batch in copy.log:
            if batch.mark is not None and batch.end <= visible:
                counts[batch.stage] = counts.get(batch.stage, 0) + batch.end - batch.base
        for stage, count in counts.items():
            if count != messages_of(stage, partition.part):
                raise Breach("I32", f"{count} messages of {stage} are visible")


def messages_of(stage: str, part: Part) -> int:
    app, version = stage.split()
    return 1 + (int(version) * 5 + APPS.index(app) * 3 + part.number) % 8


def play(seed: int, focus: Focus = ()) -> World:
    """Raises Breach."""
    world = World(seed, focus)
    world.run()
    world.calm()
    return world
