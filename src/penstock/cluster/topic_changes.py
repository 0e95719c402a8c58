"""Topics that clients make, grow and delete at this node, by `attempts`; those for dead letters.

| wanted | the view shows it when | it is enough when |
|---|---|---|
| a topic | it is led in all partitions, and what is to be of it here is | it is there |
| more partitions | there are that many, and the same holds | there are that many |
| that it goes | there is a tombstone, and nothing else; nothing is here | there is a tombstone |

A topic with more partitions than go into one transaction gets the others by growth. One that is
made draws another identity with each attempt, and at most one of them is applied: all compare that
there is no topic of the name. New partitions go to nodes that live and serve. Those that are away
keep what they have, as far as this goes.

What a deletion leaves in the metadata, the node that was asked for it removes, some of it in each
transaction. If that node ends meanwhile, whoever asks again goes on.

Changes of the metadata that are drawn from the view, and tried until the view shows them.

| the view | then |
|---|---|
| shows what is wanted | all who wait are answered |
| does not, and nothing is on its way | the transaction is drawn from it, again when it is due |
| does not after ATTEMPT_NS | what is there may be enough; else they hear that it is not known |

| the transaction is | then |
|---|---|
| done | the view shows it soon |
| refused | another node was quicker, or the view was behind: it shows, and decides |
| unknown | the same; if it was not applied, it is drawn again after COORDINATOR_RETRY_NS |
| not to be drawn from this view | it is drawn again after ATTEMPT_AGAIN_NS: the view moves on |
| about what is not there, or breaks a rule | they hear so |

What is drawn compares all that it was drawn from, so several attempts do no harm.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import NamedTuple

from penstock.broker.changes import EXTENDED
from penstock.broker.ports import MetadataDone, NewTopic
from penstock.broker.topics.settings import AUTO_CREATE_OFF, TopicSettings
from penstock.cluster.coordinator import Coordinator, Settled, Transaction
from penstock.cluster.creation import WantedTopic, clearance, creation, deletion, growth
from penstock.cluster.documents import ACTIVE, DRAINING, REMOVED, Topic
from penstock.cluster.keys import PartitionName
from penstock.cluster.metadata_topics import CREATED, as_settings
from penstock.cluster.placement import NodeStanding, PlacementNode
from penstock.cluster.view import Versioned, View
from penstock.errors import ChangeUnknown, GrowthRefused, NotFound, PenstockError, Refused
from penstock.limits import (
    ATTEMPT_AGAIN_NS,
    ATTEMPT_NS,
    COORDINATOR_RETRY_NS,
    PARTITIONS_MAX,
    REPLICAS_DEFAULT,
)
from penstock.replication.leader import Outcome
from penstock.replication.record import PartitionRecord


class TopicDeps(NamedTuple):
    """What the node gives. `is_here`: nothing is left to do of what the view shows of a topic.
    `new_id` draws a random number that was never used before."""

    view: View
    coordinator: Coordinator
    is_here: Callable[[str], bool]
    new_id: Callable[[], int]
    wall_ns: Callable[[], int]


def partitions_of(
    view: View, topic: str
) -> Iterator[tuple[PartitionName, Versioned[PartitionRecord]]]:
    """As far as the view has them: their numbers follow one another."""
    for number in count():
        name = PartitionName(topic, number)
        held = view.partitions.get(name)
        if held is None:
            return
        yield name, held


class TopicChanges:
    def __init__(self, deps: TopicDeps, now_ns: int) -> None:
        self._deps = deps
        self._attempts = Attempts(deps.coordinator, now_ns)
        self.tick, self.waiting = self._attempts.tick, self._attempts.waiting

    # --- what is wanted ---

    def make(self, name: str, new: NewTopic, done: MetadataDone) -> None:
        """`new` is for one that is not there."""
        draw = partial(self._creation, name, new)
        led, there = partial(self._is_led, name), partial(self._is_there, name)
        self._attempts.want(Goal(f"topic {name}", draw, led, there), done)

    def grow(self, name: str, partitions: int, done: MetadataDone) -> None:
        def has_grown() -> bool:
            return self._count(name) >= partitions

        def is_led() -> bool:
            return has_grown() and self._is_led(name)

        have = self._count(name)
        if not have <= partitions <= PARTITIONS_MAX:
            rule = f"it can have {have} to {PARTITIONS_MAX}, as a topic never gets fewer"
            done(GrowthRefused(f"topic {name} has {have} partitions, not {partitions}: {rule}"))
            return
        draw = partial(self._growth, name, partitions)
        what = f"{partitions} partitions of topic {name}"
        self._attempts.want(Goal(what, draw, is_led, has_grown), done)

    def delete(self, name: str, done: MetadataDone) -> None:
        """The life of it that the view has."""
        live = self._live(name)
        if live is None:
            done(NotFound("topic", name))
            return
        identity = live.identity

        def is_over() -> bool:
            held = self._deps.view.topics.get(name)
            is_live = held is not None and not held.document.deleted
            return not (is_live and held is not None and held.document.identity == identity)

        def is_gone() -> bool:
            return is_over() and self._left(name) is None and self._deps.is_here(name)

        def draw() -> Transaction | None:
            return self._left(name) if is_over() else deletion(self._deps.view, name)

        self._attempts.want(Goal(f"the end of topic {name}", draw, is_gone, is_over), done)

    # --- what the view has ---

    def shape(self, name: str) -> NewTopic | None:
        live = self._live(name)
        if live is None:
            return None
        settings = dict(live.settings)
        extended, registered = bool(settings.get(EXTENDED)), bool(settings.get(AUTO_CREATE_OFF))
        count = self._count(name)
        missing = max(live.hash_partitions - count, 0)
        return NewTopic(count, extended, registered, replicas=live.replicas, missing=missing)

    def _live(self, name: str) -> Topic | None:
        held = self._deps.view.topics.get(name)
        return held.document if held is not None and not held.document.deleted else None

    def _is_there(self, name: str) -> bool:
        return self._live(name) is not None

    def _count(self, name: str) -> int:
        """Of the present life."""
        live = self._live(name)
        records = (held.document for _, held in partitions_of(self._deps.view, name))
        return sum(1 for one in records if live is not None and one.identity == live.identity)

    def _is_led(self, name: str) -> bool:
        live = self._live(name)
        if live is None or not self._deps.is_here(name):
            return False
        records = [held.document for _, held in partitions_of(self._deps.view, name)]
        is_current = all(one.identity == live.identity for one in records)
        is_whole = len(records) >= live.hash_partitions  # those it was made with
        return is_whole and is_current and all(one.leader is not None for one in records)

    def _left(self, name: str) -> Transaction | None:
        """Of one that was deleted."""
        return clearance(self._deps.view, name)

    # --- transactions ---

    def _creation(self, name: str, new: NewTopic) -> Transaction | None:
        live = self._live(name)
        if live is not None:
            return self._growth(name, live.hash_partitions)
        deps = self._deps
        like = deps.view.topics.get(new.like)
        usual = like.document.replicas if like is not None else REPLICAS_DEFAULT
        chosen = TopicSettings(disable_channel_auto_create=new.registered or None)
        more = {EXTENDED: True} if new.extended else {}
        settings = as_settings(chosen, **{CREATED: deps.wall_ns(), **more})
        wanted = WantedTopic(name, deps.new_id(), new.partitions, new.replicas or usual, settings)
        return creation(deps.view, wanted, self._placement_nodes(), deps.new_id)

    def _growth(self, name: str, partitions: int) -> Transaction | None:
        if not self._is_there(name):
            raise NotFound("topic", name)
        return growth(self._deps.view, name, partitions, self._placement_nodes(), self._deps.new_id)

    def _placement_nodes(self) -> list[PlacementNode]:
        view, nodes = self._deps.view, []
        for number, held in sorted(view.memberships.items()):
            node, state = view.nodes.get(number), held.document.state
            if state == REMOVED:
                continue
            standing = NodeStanding.SERVES if state == ACTIVE and node else NodeStanding.MAINTENANCE
            if state == DRAINING:
                standing = NodeStanding.DRAINING
            nodes.append(PlacementNode(number, node.document.zone if node else "", standing))
        return nodes


_NO_ANSWER = "the coordinator has not answered in time"


class Goal(NamedTuple):
    """`draw`: None where there is nothing to do but to wait; it raises NotFound and GrowthRefused
    for good, Refused for the moment. `is_enough`: once it is late."""

    what: str
    draw: Callable[[], Transaction | None]
    is_there: Callable[[], bool]
    is_enough: Callable[[], bool]


class _Attempt:
    __slots__ = ("deadline_ns", "done", "draw_ns", "goal", "is_requested", "reason")

    def __init__(self, goal: Goal, now_ns: int) -> None:
        self.goal = goal
        self.deadline_ns = now_ns + ATTEMPT_NS
        self.draw_ns = now_ns
        self.done: list[MetadataDone] = []
        self.is_requested = False  # a transaction is on its way
        self.reason = _NO_ANSWER


class Attempts:
    def __init__(self, coordinator: Coordinator, now_ns: int) -> None:
        self._coordinator = coordinator
        self._now_ns = now_ns
        self.waiting: dict[str, _Attempt] = {}

    def want(self, goal: Goal, done: MetadataDone) -> None:
        """Those who want the same, by its `what`, share an attempt."""
        attempt = self.waiting.get(goal.what)
        if attempt is None:
            if goal.is_there():
                done(None)
                return
            attempt = self.waiting[goal.what] = _Attempt(goal, self._now_ns)
        attempt.done.append(done)
        self._look(attempt)

    def tick(self, now_ns: int) -> None:
        """After what the view shows has come true here."""
        self._now_ns = now_ns
        for attempt in tuple(self.waiting.values()):
            self._look(attempt)

    def _look(self, attempt: _Attempt) -> None:
        goal, is_late = attempt.goal, self._now_ns >= attempt.deadline_ns
        if goal.is_there() or (is_late and goal.is_enough()):
            self._end(attempt, None)
        elif is_late:
            reason = f"{attempt.reason}; it may come true or not, ask again"
            self._end(attempt, ChangeUnknown(goal.what, reason))
        elif not attempt.is_requested and self._now_ns >= attempt.draw_ns:
            self._draw(attempt)

    def _draw(self, attempt: _Attempt) -> None:
        attempt.draw_ns = self._now_ns + ATTEMPT_AGAIN_NS
        try:
            transaction = attempt.goal.draw()
        except (NotFound, GrowthRefused) as error:
            self._end(attempt, error)
            return
        except Refused as error:
            attempt.reason = error.reason
            return
        if transaction is not None:
            attempt.is_requested, attempt.reason = True, _NO_ANSWER
            self._coordinator.transact(transaction, partial(self._settled, attempt))

    def _settled(self, attempt: _Attempt, settled: Settled) -> None:
        is_unknown = settled.outcome is Outcome.UNKNOWN
        attempt.is_requested = False
        attempt.draw_ns = self._now_ns + (COORDINATOR_RETRY_NS if is_unknown else ATTEMPT_AGAIN_NS)

    def _end(self, attempt: _Attempt, error: PenstockError | None) -> None:
        del self.waiting[attempt.goal.what]
        for done in attempt.done:
            done(error)
