"""Topics that clients make at this node, and those for dead letters: in the metadata.

| the view has | then |
|---|---|
| the topic, led in all partitions, and what is to be of it here | all who wait are answered |
| the topic, but not yet that | the same after TOPIC_MADE_NS at the latest |
| no such topic, or its tombstone | the transaction of `creation`, now and every TOPIC_LOOK_NS |

| the transaction is | then |
|---|---|
| done | the view shows it soon |
| refused | another node was quicker, or the view was behind: it shows, and decides |
| unknown | the same; if it was not applied, it is sent again after COORDINATOR_RETRY_NS |
| not possible by the view: no node takes a partition, a deletion goes on | looked at again |
| still not done after TOPIC_MADE_NS | those who wait hear why; whether it is made is not known |

Each attempt draws another identity, and at most one of them is applied: all compare that there is
no topic of the name. A new topic goes to nodes that live and serve. Those that are away keep what
they have, as far as this transaction goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import NamedTuple

from penstock.broker.changes import EXTENDED
from penstock.broker.ports import MetadataDone, NewTopic
from penstock.broker.settings import TopicSettings
from penstock.cluster.coordinator import Coordinator, Settled
from penstock.cluster.creation import Wanted, creation
from penstock.cluster.documents import ACTIVE, DRAINING, REMOVED, Settings
from penstock.cluster.keys import PartitionName
from penstock.cluster.placed import CREATED, as_settings
from penstock.cluster.placement import Place, Standing
from penstock.cluster.view import Held, View
from penstock.errors import ChangeUnknown, Refused
from penstock.limits import (
    COORDINATOR_RETRY_NS,
    REPLICAS_DEFAULT,
    TOPIC_LOOK_NS,
    TOPIC_MADE_NS,
)
from penstock.replica.leading import Outcome
from penstock.replica.record import Record

_NOT_ASKED = "the coordinator has not answered in time"


class TopicGround(NamedTuple):
    """What the node gives. `is_here`: nothing is left to do of what the view shows of a topic.
    `new_id` draws a random number that was never used before."""

    view: View
    coordinator: Coordinator
    is_here: Callable[[str], bool]
    new_id: Callable[[], int]
    wall_ns: Callable[[], int]


def partitions_of(view: View, topic: str) -> Iterator[tuple[PartitionName, Held[Record]]]:
    """As far as the view has them: their numbers follow one another."""
    for number in count():
        name = PartitionName(topic, number)
        held = view.partitions.get(name)
        if held is None:
            return
        yield name, held


class _Waiting:
    """A topic that is made, and who waits."""

    __slots__ = ("deadline_ns", "done", "is_asked", "reason", "try_ns", "wanted")

    def __init__(self, wanted: NewTopic, now_ns: int) -> None:
        self.wanted = wanted
        self.deadline_ns = now_ns + TOPIC_MADE_NS
        self.try_ns = now_ns
        self.done: list[MetadataDone] = []
        self.is_asked = False  # a transaction is on its way
        self.reason = _NOT_ASKED


class TopicMakings:
    def __init__(self, ground: TopicGround, now_ns: int) -> None:
        self._ground = ground
        self._now_ns = now_ns
        self._waiting: dict[str, _Waiting] = {}

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    def make(self, name: str, wanted: NewTopic, done: MetadataDone) -> None:
        if name not in self._waiting and self._is_served(name):
            done(None)
            return
        waiting = self._waiting.get(name)
        if waiting is None:
            waiting = self._waiting[name] = _Waiting(wanted, self._now_ns)
        waiting.done.append(done)
        self._look(name, waiting)

    def tick(self, now_ns: int) -> None:
        """After what the view shows has come true here."""
        self._now_ns = now_ns
        for name, waiting in tuple(self._waiting.items()):
            self._look(name, waiting)

    def _look(self, name: str, waiting: _Waiting) -> None:
        is_late = self._now_ns >= waiting.deadline_ns
        if self._is_served(name) or (is_late and self._is_made(name)):
            self._end(name, waiting, None)
        elif is_late:
            reason = f"{waiting.reason}; it may be made or not, ask again"
            self._end(name, waiting, ChangeUnknown(f"topic {name}", reason))
        elif not (waiting.is_asked or self._is_made(name)) and self._now_ns >= waiting.try_ns:
            self._try(name, waiting)

    # --- what the view has ---

    def _is_made(self, name: str) -> bool:
        held = self._ground.view.topics.get(name)
        return held is not None and not held.document.deleted

    def _is_served(self, name: str) -> bool:
        view = self._ground.view
        held = view.topics.get(name)
        if held is None or held.document.deleted or not self._ground.is_here(name):
            return False
        records = [one.document for _, one in partitions_of(view, name)]
        is_current = all(one.identity == held.document.identity for one in records)
        return bool(records) and is_current and all(one.leader is not None for one in records)

    def _places(self) -> list[Place]:
        view, places = self._ground.view, []
        for number, held in sorted(view.memberships.items()):
            node, state = view.nodes.get(number), held.document.state
            if state == REMOVED:
                continue
            standing = Standing.SERVES if state == ACTIVE and node else Standing.MAINTENANCE
            if state == DRAINING:
                standing = Standing.DRAINING
            places.append(Place(number, node.document.zone if node else "", standing))
        return places

    # --- the coordinator ---

    def _try(self, name: str, waiting: _Waiting) -> None:
        ground = self._ground
        try:
            topic = self._wanted(name, waiting.wanted)
            transaction = creation(ground.view, topic, self._places(), ground.new_id)
        except Refused as error:
            waiting.reason, waiting.try_ns = error.reason, self._now_ns + TOPIC_LOOK_NS
            return
        waiting.is_asked, waiting.reason = True, _NOT_ASKED
        ground.coordinator.transact(transaction, partial(self._settled, waiting))

    def _wanted(self, name: str, wanted: NewTopic) -> Wanted:
        like = self._ground.view.topics.get(wanted.like)
        replicas = like.document.replicas if like is not None else REPLICAS_DEFAULT
        chosen = TopicSettings(disable_channel_auto_create=wanted.registered or None)
        more = {EXTENDED: True} if wanted.extended else {}
        settings: Settings = as_settings(chosen, **{CREATED: self._ground.wall_ns(), **more})
        return Wanted(name, self._ground.new_id(), wanted.partitions, replicas, settings)

    def _settled(self, waiting: _Waiting, settled: Settled) -> None:
        is_unknown = settled.outcome is Outcome.UNKNOWN
        waiting.is_asked = False
        waiting.try_ns = self._now_ns + (COORDINATOR_RETRY_NS if is_unknown else TOPIC_LOOK_NS)

    def _end(self, name: str, waiting: _Waiting, error: ChangeUnknown | None) -> None:
        del self._waiting[name]
        for done in waiting.done:
            done(error)
