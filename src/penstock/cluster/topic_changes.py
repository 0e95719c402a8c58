"""Topics that clients create, grow and delete at this node, by `attempts`; dead-letter topics, too.

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
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from penstock.broker.changes import EXTENDED
from penstock.broker.ports import MetadataDone, NewTopic
from penstock.broker.topics.settings import AUTO_CREATE_OFF, TopicSettings
from penstock.cluster.attempts import Attempts, Goal
from penstock.cluster.coordinator import Transaction
from penstock.cluster.creation import WantedTopic, clearance, creation, deletion, growth
from penstock.cluster.documents import ACTIVE, DRAINING, REMOVED, Topic
from penstock.cluster.metadata_topics import CREATED, as_settings
from penstock.cluster.placement import NodeStanding, PlacementNode
from penstock.cluster.view import View
from penstock.errors import GrowthRefused, NotFound
from penstock.limits import PARTITIONS_MAX, REPLICAS_DEFAULT


@dataclass(eq=False)
class TopicChanges:
    """`is_here`: has this node applied everything that the view shows of a topic? `new_id` draws a
    random number that was never used before."""

    _view: View
    _attempts: Attempts
    _is_here: Callable[[str], bool]
    _new_id: Callable[[], int]
    _wall_ns: Callable[[], int]

    # --- requests ---

    def make_topic(self, name: str, new: NewTopic, done: MetadataDone) -> None:
        """`new` is used if the topic does not exist."""
        draw = partial(self._creation, name, new)
        led, there = partial(self._is_led, name), partial(self._is_there, name)
        self._attempts.want(Goal(f"topic {name}", draw, led, there), done)

    def grow_topic(self, name: str, partitions: int, done: MetadataDone) -> None:
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

    def delete_topic(self, name: str, done: MetadataDone) -> None:
        """Deletes the topic of the identity that the view shows."""
        live = self._live(name)
        if live is None:
            done(NotFound("topic", name))
            return
        identity = live.identity

        def is_over() -> bool:
            live = self._live(name)
            return live is None or live.identity != identity

        def is_gone() -> bool:
            return is_over() and clearance(self._view, name) is None and self._is_here(name)

        def draw() -> Transaction | None:
            return clearance(self._view, name) if is_over() else deletion(self._view, name)

        self._attempts.want(Goal(f"the end of topic {name}", draw, is_gone, is_over), done)

    # --- contents of the view ---

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
        held = self._view.topics.get(name)
        return held.document if held is not None and not held.document.deleted else None

    def _is_there(self, name: str) -> bool:
        return self._live(name) is not None

    def _count(self, name: str) -> int:
        live = self._live(name)
        records = (held.document for _, held in self._view.partitions.of(name))
        return sum(1 for one in records if live is not None and one.identity == live.identity)

    def _is_led(self, name: str) -> bool:
        live = self._live(name)
        if live is None or not self._is_here(name):
            return False
        records = [held.document for _, held in self._view.partitions.of(name)]
        is_current = all(one.identity == live.identity for one in records)
        is_whole = len(records) >= live.hash_partitions  # those it was made with
        return is_whole and is_current and all(one.leader is not None for one in records)

    # --- transactions ---

    def _creation(self, name: str, new: NewTopic) -> Transaction | None:
        live = self._live(name)
        if live is not None:
            return self._growth(name, live.hash_partitions)
        like = self._view.topics.get(new.like)
        usual = like.document.replicas if like is not None else REPLICAS_DEFAULT
        chosen = TopicSettings(disable_channel_auto_create=new.registered or None)
        more = {EXTENDED: True} if new.extended else {}
        settings = as_settings(chosen, **{CREATED: self._wall_ns(), **more})
        wanted = WantedTopic(name, self._new_id(), new.partitions, new.replicas or usual, settings)
        return creation(self._view, wanted, self._placement_nodes(), self._new_id)

    def _growth(self, name: str, partitions: int) -> Transaction | None:
        if not self._is_there(name):
            raise NotFound("topic", name)
        return growth(self._view, name, partitions, self._placement_nodes(), self._new_id)

    def _placement_nodes(self) -> list[PlacementNode]:
        view, nodes = self._view, []
        for number, held in sorted(view.memberships.items()):
            node, state = view.nodes.get(number), held.document.state
            if state == REMOVED:
                continue
            standing = NodeStanding.SERVES if state == ACTIVE and node else NodeStanding.MAINTENANCE
            if state == DRAINING:
                standing = NodeStanding.DRAINING
            nodes.append(PlacementNode(number, node.document.zone if node else "", standing))
        return nodes
