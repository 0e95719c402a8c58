"""Channels that clients create at this node, and their start in each partition.

A channel is made by one transaction. Then the leader of each partition decides where it starts
there, as a record of its journal, and confirms when the set has synced that. From then on the
channel gets every message that the partition acknowledges, whoever leads it.

Where that is, `broker.partition.journal` says: at the start of the log where the partition is
younger than the channel, at the topic's own queue where that was kept for it, else at the end.

It is the *visible* end, not the written one: an append in flight may be acknowledged after the
confirmation. And a leader decides when everything of its log at the start of its epoch is
committed: before, its committed end may be lower than what its predecessor had acknowledged.

A start is confirmed by the channel's **number**, which only a node knows that has seen it made.
Numbers are not used again in a topic; the first channel has 1. Metadata that went back to a
backup has lost the last ones, so a number is above all that the node which makes the channel knows
of. A confirmation counts for later epochs, too: it is in the journal of every member that can be
elected.

Which partitions are younger than a channel, its document says: it has the number of those that the
topic had, and the transaction compares that there was no further one. Revisions would not do. A
channel that is made again over a tombstone has the key, and its first revision, of the one before,
and restored metadata counts them from another number.

| a channel that is wanted | then |
|---|---|
| was confirmed here once | it is answered at once, also while the coordinator is away |
| is not in the view | its transaction is drawn (`attempts`) |
| is in the view | the leaders of its partitions are asked, again every CHANNEL_REQUEST_NS |
| all have confirmed, and it is here | all who wait are answered |
| is in the view and here, and late | they hear which partitions have not confirmed it |

Of a channel that another node has just made this one may know before all leaders do. Therefore the
first client of each channel waits here, too.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from penstock.broker.ports import MetadataDone
from penstock.broker.topics.settings import ChannelSettings
from penstock.cluster import keys
from penstock.cluster.attempts import Attempts, Goal
from penstock.cluster.coordinator import Put, RevisionIs, Transaction
from penstock.cluster.documents import (
    CHANNEL,
    CHANNEL_NUMBERS,
    Channel,
    ChannelNumbers,
    identity_text,
)
from penstock.cluster.keys import ChannelName, PartitionName
from penstock.cluster.messages import StartHeld, StartRequest
from penstock.cluster.metadata_topics import CREATED, PARTITIONS, as_settings
from penstock.cluster.view import View, revision_of
from penstock.errors import ChannelUnconfirmed, NotFound, Refused
from penstock.limits import CHANNEL_CONFIRM_NS, CHANNEL_REQUEST_NS, CHANNELS_CONFIRMED_MIN


@dataclass(slots=True, eq=False)
class _Starts:
    """A channel that is waited for: the partitions that have not confirmed its start yet."""

    channel: Channel | None = None  # None: the view does not have it yet
    awaited: set[int] = field(default_factory=set)
    requested_ns: int = 0


@dataclass(eq=False)
class ChannelCreations:
    """`send` sends a message to a node, which may be this one. `has`: does this node have the
    channel of that number?"""

    _view: View
    _attempts: Attempts
    _send: Callable[[int, StartRequest], None]
    _has: Callable[[ChannelName, int], bool]
    _wall_ns: Callable[[], int]
    _now_ns: int
    _starts: dict[ChannelName, _Starts] = field(default_factory=dict)
    _confirmed: dict[ChannelName, tuple[int, int]] = field(default_factory=dict)

    def make(self, topic: str, channel: str, done: MetadataDone) -> None:
        name, view = ChannelName(topic, channel), self._view
        held = view.channel(name)
        if held is not None and self._is_confirmed(name, held.document):
            done(None)
            return
        starts = self._starts.setdefault(name, _Starts())
        self._request(name, starts)
        goal = Goal(
            _what(name), partial(self._draw, name), partial(self._is_made, name),
            partial(self._is_here, name),
            lambda: ChannelUnconfirmed(*name, tuple(sorted(starts.awaited))),
        )  # fmt: skip
        self._attempts.want(goal, done)

    def start_held(self, held: StartHeld) -> None:
        for name, starts in self._starts.items():
            channel = starts.channel
            if name.topic != held.topic or channel is None:
                continue
            if (identity_text(channel.identity), channel.number) == (held.identity, held.channel):
                starts.awaited.discard(held.partition)

    def tick(self, now_ns: int) -> None:
        """Call after the reconciler has applied the view, and before the attempts are checked."""
        self._now_ns = now_ns
        waiting = self._attempts.waiting
        self._starts = {name: one for name, one in self._starts.items() if _what(name) in waiting}
        for name, starts in self._starts.items():
            self._request(name, starts)

    def _request(self, name: ChannelName, starts: _Starts) -> None:
        view, held = self._view, self._view.channel(name)
        if held is None or view.revision < held.revision:  # not all of its transaction is in
            return
        channel = held.document
        if not (starts.channel and starts.channel.instance == channel.instance):
            starts.awaited = {one.number for one, _ in view.records_of(name.topic)}
            starts.requested_ns = self._now_ns - CHANNEL_REQUEST_NS
        starts.channel = channel
        if starts.requested_ns + CHANNEL_REQUEST_NS <= self._now_ns:
            starts.requested_ns = self._now_ns
            for number in sorted(starts.awaited):
                self._request_start(PartitionName(name.topic, number), channel)

    def _request_start(self, name: PartitionName, channel: Channel) -> None:
        held = self._view.partitions.get(name)
        leader = held.document.leader if held is not None else None
        if leader is not None:
            identity = identity_text(channel.identity)
            self._send(leader.node, StartRequest(*name, identity, channel.number))

    # --- known channels ---

    def _is_confirmed(self, name: ChannelName, channel: Channel) -> bool:
        is_known = self._confirmed.get(name) == channel.instance
        return is_known and self._has(name, channel.number)

    def _is_here(self, name: ChannelName) -> bool:
        held = self._view.channel(name)
        return held is not None and self._has(name, held.document.number)

    def _is_made(self, name: ChannelName) -> bool:
        starts, held = self._starts.get(name), self._view.channel(name)
        if starts is None or held is None or starts.channel is None or starts.awaited:
            return False
        if starts.channel.instance != held.document.instance or not self._is_here(name):
            return False
        channels = self._view.channels
        if len(self._confirmed) > 2 * len(channels) + CHANNELS_CONFIRMED_MIN:
            self._confirmed = {one: it for one, it in self._confirmed.items() if one in channels}
        self._confirmed[name] = held.document.instance
        return True

    # --- the transaction ---

    def _draw(self, name: ChannelName) -> Transaction | None:
        view, topic = self._view, self._view.topic(name.topic)
        if topic is None and not view.is_listed:  # this node has just started
            raise Refused("the metadata of the cluster is not read yet")
        if topic is None:
            raise NotFound("topic", name.topic)
        if view.channel(name) is not None:
            if not self._is_here(name):
                raise Refused("it is made, but this node does not have it yet")
            return None
        identity = topic.document.identity
        number = self._last_number(name.topic, identity) + 1
        partitions = len(view.records_of(name.topic))
        more = {CREATED: self._wall_ns(), PARTITIONS: partitions}
        made = Channel(identity, number, False, as_settings(ChannelSettings(), **more), False)
        numbers = CHANNEL_NUMBERS.encode(ChannelNumbers(identity, number))
        channel_key, numbers_key = keys.channel(*name), keys.numbers(name.topic)
        for key in (channel_key, numbers_key):
            view.check_intact(key)
        compares = (
            RevisionIs(keys.topic(name.topic), topic.revision),
            RevisionIs(channel_key, revision_of(view.channels.get(name))),
            RevisionIs(numbers_key, revision_of(view.numbers.get(name.topic))),
            RevisionIs(keys.partition(name.topic, partitions), 0),  # no further one
        )
        changes = (Put(channel_key, CHANNEL.encode(made)), Put(numbers_key, numbers))
        return Transaction(compares, changes)

    def _last_number(self, topic: str, identity: int) -> int:
        view, counted = self._view, self._view.numbers.get(topic)
        known = [
            held.document.number
            for _, held in view.channels.of(topic)
            if held.document.identity == identity
        ]
        if counted is not None and counted.document.identity == identity:
            known.append(counted.document.last)
        return max(known, default=0)


def _what(name: ChannelName) -> str:
    return f"channel {name.channel} of topic {name.topic}"


SendAnswer = Callable[[int, StartHeld], None]


class StartRequests:
    """Who has asked this leader where a channel starts.

    | a node asks, and | then |
    |---|---|
    | the set of this leadership has the start | it is answered at once |
    | it does not, or the channel is not known here yet | the node is noted, and answered then |
    | the partition is not led here | nothing: the node asks the next leader |

    A note lasts as long as the one who asked waits.
    """

    def __init__(self, is_held: Callable[[StartRequest], bool | None], answer: SendAnswer) -> None:
        """`is_held` returns None where this node does not lead the partition."""
        self._is_held = is_held
        self._answer = answer
        self.waiting: dict[StartRequest, dict[int, int]] = {}  # nodes, and until when they wait

    def receive(self, node: int, request: StartRequest, now_ns: int) -> None:
        held = self._is_held(request)
        if held:
            self._answer(node, _held(request))
        elif held is not None:
            self.waiting.setdefault(request, {})[node] = now_ns + CHANNEL_CONFIRM_NS

    def held(self, request: StartRequest) -> None:
        for node in self.waiting.pop(request, ()):
            self._answer(node, _held(request))

    def tick(self, now_ns: int) -> None:
        for request, nodes in tuple(self.waiting.items()):
            for node in [node for node, until_ns in nodes.items() if until_ns <= now_ns]:
                del nodes[node]
            if not nodes:
                del self.waiting[request]


def _held(request: StartRequest) -> StartHeld:
    return StartHeld(request.topic, request.partition, request.identity, request.channel)
