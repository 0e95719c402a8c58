"""Channels that clients make at this node: the coordinator is asked, then the leaders.

Each channel that is waited for has one `ChannelCreation` (`channel_starts`), however many clients
wait. This carries its effects:

| effect | here |
|---|---|
| ReadKeys | three keys of the coordinator; again after a while, when it does not answer |
| Create | a transaction; repeated after a while if it is unknown, by the next look if refused |
| RequestStart | StartRequest to the leader in the view, also here; again every CHANNEL_REQUEST_NS |
| CreationAnswer | all who wait are called, once the channel is here |

A channel that the view has is not read again. When it was confirmed once, nothing is asked any
more: so a SUB of a known channel costs a lookup, and works while the coordinator is away.

Of a channel that another node has just made this one may know before all leaders do. Therefore the
first client of each channel waits here, too.
"""

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, NamedTuple

from penstock.broker.ports import MetadataDone
from penstock.broker.topics.settings import ChannelSettings
from penstock.cluster import keys
from penstock.cluster.channel_starts import (
    CHANNEL_NUMBERS,
    ChannelCreation,
    Create,
    CreationAnswer,
    CreationState,
    CreationVerdict,
    KeysFound,
    ReadKeys,
    RequestStart,
    Seen,
    is_of,
)
from penstock.cluster.coordinator import Coordinator, Failed, KeyValue, Reading, Settled
from penstock.cluster.documents import CHANNEL, TOPIC, Channel
from penstock.cluster.json_form import Form
from penstock.cluster.keys import ChannelName, PartitionName
from penstock.cluster.metadata_topics import CREATED, PARTITIONS, as_settings
from penstock.cluster.participant import StartHeld, StartRequest
from penstock.cluster.view import View
from penstock.errors import (
    ChangeUnknown,
    ChannelUnconfirmed,
    DocumentBroken,
    NotFound,
    PenstockError,
    Refused,
)
from penstock.limits import (
    ATTEMPT_NS,
    CHANNEL_REQUEST_NS,
    CHANNELS_CONFIRMED_MIN,
    COORDINATOR_RETRY_NS,
)
from penstock.replication.leader import Outcome


class CreationDeps(NamedTuple):
    """What the node gives: `send` a message to a node, this one too, and whether the channel of
    that number `is_here`."""

    view: View
    coordinator: Coordinator
    send: Callable[[int, StartRequest], None]
    is_here: Callable[[ChannelName, int], bool]
    wall_ns: Callable[[], int]


_Partitions = dict[str, list[tuple[int, int]]]


class _Made(NamedTuple):
    identity: int
    number: int


class _Waiting:
    """A channel that is being made, and who waits."""

    __slots__ = ("again", "again_ns", "done", "identity", "machine", "requested_ns")

    def __init__(self, machine: ChannelCreation, identity: int) -> None:
        self.machine = machine
        self.identity = identity
        self.done: list[MetadataDone] = []
        self.requested_ns = 0
        self.again: Callable[[], None] | None = None  # what failed, and when it is tried again
        self.again_ns = 0


class _Early(NamedTuple):
    """Wanted before the metadata was read."""

    name: ChannelName
    done: MetadataDone
    deadline_ns: int


class ChannelCreations:
    def __init__(self, deps: CreationDeps, now_ns: int) -> None:
        self._deps = deps
        self._now_ns = now_ns
        self.waiting: dict[ChannelName, _Waiting] = {}
        self._early: list[_Early] = []
        self._confirmed: dict[ChannelName, _Made] = {}
        self._forget_at = CHANNELS_CONFIRMED_MIN

    # --- what is asked for ---

    def make(self, topic: str, channel: str, done: MetadataDone) -> None:
        view, name = self._deps.view, ChannelName(topic, channel)
        held = view.topics.get(topic)
        if held is None and not view.is_listed:  # this node has just started
            self._early.append(_Early(name, done, self._now_ns + ATTEMPT_NS))
            return
        if held is None or held.document.deleted:
            done(NotFound("topic", topic))
            return
        known = view.channels.get(name)
        if known is not None and not is_of(known.document, held.document):
            known = None
        if known is not None and self._is_confirmed(name, known.document):
            done(None)
            return
        waiting = self.waiting.get(name)
        if waiting is None:
            waiting = self._begin(name, held.document.identity)
            if known is not None:
                waiting.machine.known(known.document.number, known.revision)
        waiting.done.append(done)
        if known is not None and self._deps.is_here(name, known.document.number):
            self._look(name, waiting, self._partitions_of({topic}))
        self._work(name, waiting)

    def _is_confirmed(self, name: ChannelName, channel: Channel) -> bool:
        made = _Made(channel.identity, channel.number)
        return self._confirmed.get(name) == made and self._deps.is_here(name, channel.number)

    def _begin(self, name: ChannelName, identity: int) -> _Waiting:
        def settings(identity: int, number: int, partitions: int) -> Channel:
            more = {CREATED: self._deps.wall_ns(), PARTITIONS: partitions}
            chosen = as_settings(ChannelSettings(), **more)
            return Channel(identity, number, False, chosen, False)

        waiting = _Waiting(ChannelCreation(name, self._now_ns, settings), identity)
        self.waiting[name] = waiting
        return waiting

    # --- what comes ---

    def start_held(self, held: StartHeld) -> None:
        for name, waiting in tuple(self.waiting.items()):
            if name.topic == held.name.topic and waiting.identity == held.identity:
                waiting.machine.confirmed(held.name.number, held.channel)
                self._work(name, waiting)

    def tick(self, now_ns: int) -> None:
        """After what the view shows has come true here."""
        self._now_ns = now_ns
        self._make_early()
        if not self.waiting:
            return
        unseen = {name.topic for name, one in self.waiting.items() if one.machine.awaits_view}
        partitions = self._partitions_of(unseen)
        for name, waiting in tuple(self.waiting.items()):
            if waiting.again is not None and waiting.again_ns <= now_ns:
                again, waiting.again = waiting.again, None
                again()
            self._look(name, waiting, partitions)
            waiting.machine.tick(now_ns)
            self._work(name, waiting)

    def _make_early(self) -> None:
        early, self._early = self._early, []
        for one in early:
            if self._deps.view.is_listed:
                self.make(*one.name, one.done)
            elif self._now_ns >= one.deadline_ns:
                one.done(Refused("the metadata of the cluster is not read yet"))
            else:
                self._early.append(one)

    def _partitions_of(self, topics: Collection[str]) -> _Partitions:
        """In one pass, by topic: number and identity."""
        found: _Partitions = {topic: [] for topic in topics}
        for one, held in self._deps.view.partitions.items() if topics else ():
            if one.topic in found:
                found[one.topic].append((one.number, held.document.identity))
        return found

    def _look(self, name: ChannelName, waiting: _Waiting, partitions: _Partitions) -> None:
        machine, view = waiting.machine, self._deps.view
        if machine.state is not CreationState.CONFIRMING:
            return
        held = view.topics.get(name.topic)
        topic = held.document if held is not None else None
        if topic is not None and (topic.deleted or topic.identity != waiting.identity):
            self._end(name, waiting, NotFound("topic", name.topic))
            return
        if machine.awaits_view and name.topic in partitions:
            numbers = [n for n, identity in partitions[name.topic] if identity == waiting.identity]
            machine.view(view.revision, numbers)
            waiting.requested_ns = self._now_ns
        elif waiting.requested_ns + CHANNEL_REQUEST_NS <= self._now_ns:
            waiting.requested_ns = self._now_ns
            machine.request_starts()

    # --- effects ---

    def _work(self, name: ChannelName, waiting: _Waiting) -> None:
        machine = waiting.machine
        while machine.out and self.waiting.get(name) is waiting:
            effect = machine.out.pop(0)
            match effect:
                case ReadKeys(number):
                    self._read(name, waiting, number)
                case Create(number, transaction):
                    created = partial(self._created, name, waiting, number)
                    self._deps.coordinator.transact(transaction, created)
                case RequestStart(partition, channel):
                    self._request_start(
                        PartitionName(name.topic, partition), waiting.identity, channel
                    )
                case CreationAnswer(verdict, unconfirmed):
                    self._end(name, waiting, self._outcome(name, waiting, verdict, unconfirmed))

    def _request_start(self, name: PartitionName, identity: int, channel: int) -> None:
        held = self._deps.view.partitions.get(name)
        leader = held.document.leader if held is not None else None
        if leader is not None:
            self._deps.send(leader.node, StartRequest(name, identity, channel))

    # --- the coordinator ---

    def _read(self, name: ChannelName, waiting: _Waiting, number: int) -> None:
        wanted = keys.topic(name.topic), keys.channel(*name), keys.numbers(name.topic)
        entries: dict[str, KeyValue | None] = {}

        def read(key: str, answer: Reading | Failed) -> None:
            if isinstance(answer, Failed):
                self._try_again(waiting, partial(self._read, name, waiting, number))
                return
            entries[key] = answer.entry
            if len(entries) == len(wanted):
                self._found(name, waiting, number, [entries[key] for key in wanted])

        for key in wanted:
            self._deps.coordinator.read(key, partial(read, key))

    def _found(
        self, name: ChannelName, waiting: _Waiting, number: int, entries: list[KeyValue | None]
    ) -> None:
        try:
            topic = _seen(entries[0], TOPIC)
            channel, numbers = _seen(entries[1], CHANNEL), _seen(entries[2], CHANNEL_NUMBERS)
        except DocumentBroken as error:
            self._end(name, waiting, error)
            return
        if topic is not None and topic.document.deleted:
            topic = None
        if topic is not None:
            waiting.identity = topic.document.identity
        highest = self._highest(name.topic, waiting.identity)
        found = KeysFound(topic, channel, numbers, highest, self._partitions(name, waiting))
        waiting.machine.found(number, found)
        self._work(name, waiting)

    def _partitions(self, name: ChannelName, waiting: _Waiting) -> int:
        """Their numbers follow one another. Where the view does not have the last one yet, the
        transaction is refused, and made again."""
        known = self._partitions_of({name.topic})[name.topic]
        return max((n + 1 for n, identity in known if identity == waiting.identity), default=0)

    def _highest(self, topic: str, identity: int) -> int:
        channels = self._deps.view.channels.items()
        known = [one.document for name, one in channels if name.topic == topic]
        return max((one.number for one in known if one.identity == identity), default=0)

    def _created(self, name: ChannelName, waiting: _Waiting, number: int, settled: Settled) -> None:
        def settle() -> None:
            waiting.machine.created(number, settled.outcome, settled.revision)
            self._work(name, waiting)

        if settled.outcome is Outcome.UNKNOWN:
            self._try_again(waiting, settle)
        elif settled.outcome is Outcome.REFUSED:
            self._try_again(waiting, settle, 0)  # the view may be behind
        else:
            settle()

    def _try_again(
        self, waiting: _Waiting, act: Callable[[], None], after_ns: int = COORDINATOR_RETRY_NS
    ) -> None:
        if waiting.again is None:
            waiting.again, waiting.again_ns = act, self._now_ns + after_ns

    # --- the end ---

    def _outcome(
        self,
        name: ChannelName,
        waiting: _Waiting,
        verdict: CreationVerdict,
        unconfirmed: tuple[int, ...],
    ) -> PenstockError | None:
        number = waiting.machine.channel_number
        if verdict is CreationVerdict.REFUSED:
            return NotFound("topic", name.topic)
        if verdict is CreationVerdict.UNKNOWN:
            reason = "the coordinator has not answered in time: it may be made or not, ask again"
            return ChangeUnknown(f"channel {name.channel} of topic {name.topic}", reason)
        if not self._deps.is_here(name, number):
            reason = "it is made, but this node does not have it yet: ask again"
            return ChangeUnknown(f"channel {name.channel} of topic {name.topic}", reason)
        if unconfirmed:
            return ChannelUnconfirmed(*name, unconfirmed)
        self._confirmed[name] = _Made(waiting.identity, number)
        self._forget_gone()
        return None

    def _forget_gone(self) -> None:
        """Each time that there are twice as many."""
        if len(self._confirmed) < self._forget_at:
            return
        channels = self._deps.view.channels
        self._confirmed = {
            name: made
            for name, made in self._confirmed.items()
            if name in channels and _is_live(channels[name].document, made)
        }
        self._forget_at = max(2 * len(self._confirmed), CHANNELS_CONFIRMED_MIN)

    def _end(self, name: ChannelName, waiting: _Waiting, error: PenstockError | None) -> None:
        if self.waiting.get(name) is waiting:
            del self.waiting[name]
            for done in waiting.done:
                done(error)


def _is_live(channel: Channel, made: _Made) -> bool:
    return not channel.deleted and (channel.identity, channel.number) == made


def _seen(entry: KeyValue | None, form: Form[Any]) -> Seen | None:
    """Raises DocumentBroken."""
    return None if entry is None else Seen(form.decode(entry.key, entry.value), entry.revision)
