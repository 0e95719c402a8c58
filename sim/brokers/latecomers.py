"""Channels that clients make in the middle of a history, at any node, and delete again.

| a client asks | and hears | from then on |
|---|---|---|
| for a channel | that it is made | it gets all that is published from now on |
| | anything else | nothing is promised |
| for its end | whatever it is | nothing is promised; the next one of its name is another |

Nothing comes to a channel that was answered OK before the coordinator had it. What has another
answer may be committed later.

There are few names, so that a name is soon made again. A channel is known by its number.
"""

import random
from collections.abc import Iterator

from penstock.cluster import keys
from penstock.cluster.documents import CHANNEL
from penstock.errors import PenstockError
from sim.brokers.cluster import STEP_NS
from sim.brokers.node import JoinedNode
from sim.brokers.observer import Feed, Observer
from sim.histories import Breach
from sim.store import Store

TOPIC = "orders"
NAMES = ("late", "later")


class Asked:
    """For a channel, or for its end."""

    def __init__(self, node: JoinedNode, name: str, deletes: bool) -> None:
        self.node, self.incarnation, self.name, self.deletes = node, node.incarnation, name, deletes
        self.answers: list[PenstockError | None] = []


class Late:
    """A channel, by its number."""

    __slots__ = ("born_ns", "is_ended", "made_ns", "name", "number")

    def __init__(self, name: str, number: int, now_ns: int) -> None:
        self.name, self.number = name, number
        self.born_ns = now_ns  # the coordinator has had it for a step at most
        self.made_ns: int | None = None  # when a client heard so; None: nothing is promised
        self.is_ended = False  # a client has asked for that

    @property
    def feed(self) -> Feed:
        return Feed(TOPIC, 0, f"{self.name}#{self.number}")


class Latecomers:
    def __init__(self, dice: random.Random, store: Store) -> None:
        self._dice = dice
        self._store = store
        self._rate = dice.choice((0.0, 0.05, 0.2))  # requests a second
        self._asked: list[Asked] = []
        self.known: dict[int, Late] = {}

    def request(self, nodes: list[JoinedNode]) -> None:
        """Once a second: now and then a client wants something."""
        wants = self._dice.random() < self._rate
        if not wants or not nodes:
            return
        node, name = self._dice.choice(nodes), self._dice.choice(NAMES)
        deletes = self._dice.random() < 0.3
        metadata = node.cluster_node.replica_host.metadata
        if metadata is None or TOPIC not in node.broker.topics:
            return
        if deletes:
            for late in self.known.values():
                late.is_ended |= late.name == name
        asked = Asked(node, name, deletes)
        act = metadata.delete_channel if deletes else metadata.make_channel
        self._asked.append(asked)
        act(TOPIC, name, asked.answers.append)

    def turn(self, now_ns: int) -> None:
        """What the coordinator has now, and what was answered."""
        for name in NAMES:
            entry = self._store.entries.get(keys.channel(TOPIC, name))
            if entry is not None:
                number = CHANNEL.decode(entry.key, entry.value).number
                self.known.setdefault(number, Late(name, number, now_ns))
        for asked in [asked for asked in self._asked if asked.answers]:
            self._asked.remove(asked)
            if asked.answers == [None] and not asked.deletes:
                self._note(asked, now_ns)

    def _note(self, asked: Asked, now_ns: int) -> None:
        late = self.known.get(_number_at(asked.node, asked.name))
        if late is not None and late.made_ns is None:  # None: another client has deleted it
            late.made_ns = now_ns

    def note_ended(self, incarnation: int) -> None:
        """A process: who asked it hears nothing."""
        self._asked = [asked for asked in self._asked if asked.incarnation != incarnation]

    def channels_at(self, node: JoinedNode) -> Iterator[Late]:
        """Those that this node has now."""
        topic = node.broker.topics.get(TOPIC)
        for name in NAMES if topic is not None else ():
            late = self.known.get(_number_at(node, name))
            if late is not None:
                yield late

    def promised(self) -> list[Late]:
        return [
            late for late in self.known.values() if late.made_ns is not None and not late.is_ended
        ]

    # --- the end ---

    def check(self, observer: Observer) -> None:
        """I23: nothing comes that was answered before the channel was made."""
        if self._asked:
            asked = self._asked[0]
            what = "end" if asked.deletes else "making"
            raise Breach("L-g", f"the {what} of channel {asked.name} was never answered")
        for late in self.known.values():
            for body in observer.seen(late.feed).received:
                publish = observer.publishes[body]
                answered_ns = publish.answered_ns if publish.is_ok else None
                if answered_ns is not None and answered_ns < late.born_ns - STEP_NS:
                    raise Breach(
                        "I23", f"{late.feed.channel} got {body!r}, from before it was made"
                    )


def _number_at(node: JoinedNode, name: str) -> int:
    """0: it is not there."""
    channel = node.broker.topics[TOPIC].channels.get(name)
    return channel.number if channel is not None else 0
