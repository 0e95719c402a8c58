"""Where a channel starts in each partition, and when everyone may rely on it.

A channel is made by one transaction. Then the leader of each partition decides where it starts
there, as a record of its journal, and confirms when the set has synced that. From then on the
channel gets every message that the partition acknowledges, whoever leads it.

Where that is, `broker.partition.journal` says: at the start of the log where the partition is
younger than the channel, at the topic's own queue where that was kept for it, else at the end.

It is the *visible* end, not the written one: a row in flight may be acknowledged after the
confirmation. And a leader decides when everything of its log at the start of its epoch is
committed: before, its committed end may be lower than what its predecessor had acknowledged.

A start is confirmed by the channel's **number**, which only a node knows that has seen it made.
Numbers are not used again in a topic's life; the first channel has 1. Metadata that went back to a
backup has lost the last ones, so a number is above all that the node which makes the channel knows
of. A confirmation counts for later epochs, too: it is in the journal of every member that can be
elected.

Which partitions are younger than a channel, its document says: it has the number of those that the
topic had, and the transaction compares that there was no further one. Revisions would not do. A
channel that is made again over a tombstone has the key, and its first revision, of the one before,
and restored metadata counts them from another number.

Whoever makes a channel is a `ChannelCreation`:

| state | on | to | effects |
|---|---|---|---|
| CREATING | `found`: there is none, a tombstone, or one of an earlier topic | CREATING | Create |
| CREATING | `found`: there is one | CONFIRMING | |
| CREATING | `known`: the view has it | CONFIRMING | |
| CREATING | `found`: the topic is gone | OVER | CreationAnswer: refused |
| CREATING | created: done | CONFIRMING | |
| CREATING | created: unknown | CREATING | Create, the same |
| CREATING | created: refused | CREATING | ReadKeys |
| CREATING | `tick` at the deadline | OVER | CreationAnswer: unknown |
| CONFIRMING | `view` of the creation's revision or later | CONFIRMING | RequestStart each leader |
| CONFIRMING | all have confirmed | OVER | CreationAnswer: made |
| CONFIRMING | `tick` at the deadline | OVER | CreationAnswer: made, and who has not confirmed |

Who has asked a leader where a channel starts: the leader's side of `channel_creation`.

| a node asks, and | then |
|---|---|
| the set of this leadership has the start | it is answered at once |
| it does not, or the channel is not known here yet | the node is noted, and answered then |
| the partition is not led here | nothing: the node asks the next leader |

A note lasts as long as the one who asked waits.
"""

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any, NamedTuple

from penstock.cluster import keys
from penstock.cluster.coordinator import Put, RevisionIs, Transaction
from penstock.cluster.documents import CHANNEL, U32, Channel, Identity, Topic
from penstock.cluster.json_form import form_of
from penstock.cluster.keys import PartitionName
from penstock.cluster.participant import StartHeld, StartRequest
from penstock.limits import CHANNEL_CONFIRM_NS
from penstock.replication.leader import Outcome


class ChannelNumbers(NamedTuple):
    identity: Identity  # of the topic
    last: U32


CHANNEL_NUMBERS = form_of(ChannelNumbers)


class CreationState(IntEnum):
    CREATING = 1
    CONFIRMING = 2
    OVER = 3


class CreationVerdict(IntEnum):
    MADE = 1
    REFUSED = 2
    UNKNOWN = 3


class Seen(NamedTuple):
    """A document and the revision of its key."""

    document: Any
    revision: int


class KeysFound(NamedTuple):
    """What was read; None: there is none, or a topic's tombstone."""

    topic: Seen | None
    channel: Seen | None
    numbers: Seen | None
    highest: int = 0  # number of a channel of this topic that the node knows of
    partitions: int = 1  # that the node knows of


class ReadKeys(NamedTuple):
    number: int


class Create(NamedTuple):
    number: int
    transaction: Transaction


class RequestStart(NamedTuple):
    partition: int
    channel_number: int


class CreationAnswer(NamedTuple):
    verdict: CreationVerdict
    unconfirmed: tuple[int, ...] = ()  # partitions: their promises begin later


class ChannelCreation:
    __slots__ = (
        "_awaited",
        "_creating",
        "_deadline_ns",
        "_name",
        "_number",
        "_settings",
        "channel_number",
        "out",
        "revision",
        "state",
    )

    def __init__(
        self,
        name: keys.ChannelName,
        now_ns: int,
        settings: Callable[[int, int, int], Channel],
    ) -> None:
        """`settings` makes the document, of the topic's identity, the channel's number and how many
        partitions there are."""
        self.state = CreationState.CREATING
        self.channel_number = 0
        self.revision = 0  # of the creation
        self.out: list[Any] = []
        self._name = name
        self._settings = settings
        self._deadline_ns = now_ns + CHANNEL_CONFIRM_NS
        self._number = 0
        self._creating: Create | None = None
        self._awaited: set[int] | None = None  # None: no view yet that knows the creation
        self._read()

    # --- created ---

    def known(self, channel_number: int, revision: int) -> None:
        """It is in the view, and where it starts may not be confirmed yet."""
        self.out.clear()
        self._made(channel_number, revision)

    def _read(self) -> None:
        self._number += 1
        self._creating = None
        self.out.append(ReadKeys(self._number))

    def found(self, number: int, found: KeysFound) -> None:
        if number != self._number or self.state is not CreationState.CREATING or self._creating:
            return
        if found.topic is None:
            self._answer(CreationAnswer(CreationVerdict.REFUSED))
        elif found.channel is not None and is_of(found.channel.document, found.topic.document):
            self._made(found.channel.document.number, found.channel.revision)
        else:
            self._create(found.topic, found)

    def _create(self, topic: Seen, found: KeysFound) -> None:
        identity = topic.document.identity
        last = found.highest
        if found.numbers is not None and found.numbers.document.identity == identity:
            last = max(last, found.numbers.document.last)
        self.channel_number = last + 1
        channel_key = keys.channel(*self._name)
        numbers_key = keys.numbers(self._name.topic)
        compares = (
            RevisionIs(keys.topic(self._name.topic), topic.revision),
            RevisionIs(channel_key, _revision(found.channel)),
            RevisionIs(numbers_key, _revision(found.numbers)),
            RevisionIs(keys.partition(self._name.topic, found.partitions), 0),  # no further one
        )
        made = self._settings(identity, self.channel_number, found.partitions)
        document = CHANNEL.encode(made)
        numbers = CHANNEL_NUMBERS.encode(ChannelNumbers(identity, self.channel_number))
        puts = (Put(channel_key, document), Put(numbers_key, numbers))
        self._submit(Transaction(compares, puts))

    def _submit(self, transaction: Transaction) -> None:
        self._number += 1
        self._creating = Create(self._number, transaction)
        self.out.append(self._creating)

    def created(self, number: int, outcome: Outcome, revision: int) -> None:
        if (
            number != self._number
            or self._creating is None
            or self.state is not CreationState.CREATING
        ):
            return
        if outcome is Outcome.DONE:
            self._made(self.channel_number, revision)
        elif outcome is Outcome.REFUSED:
            self._read()
        else:
            self._submit(self._creating.transaction)

    def _made(self, channel_number: int, revision: int) -> None:
        self.channel_number, self.revision = channel_number, revision
        self.state = CreationState.CONFIRMING

    # --- confirmed ---

    def view(self, revision: int, partitions: Iterable[int]) -> None:
        """The topic's partitions, as of a revision."""
        if self.awaits_view and revision >= self.revision:
            self._awaited = set(partitions)
            self.request_starts()
            self._end_if_all()

    @property
    def awaits_view(self) -> bool:
        """It has not seen one yet that knows the creation."""
        return self.state is CreationState.CONFIRMING and self._awaited is None

    def request_starts(self) -> None:
        """Those that have not confirmed, once more."""
        for partition in sorted(self._awaited or ()):
            self.out.append(RequestStart(partition, self.channel_number))

    def confirmed(self, partition: int, channel_number: int) -> None:
        if self.state is CreationState.CONFIRMING and channel_number == self.channel_number:
            if self._awaited is not None:
                self._awaited.discard(partition)
            self._end_if_all()

    def _end_if_all(self) -> None:
        if self._awaited is not None and not self._awaited:
            self._answer(CreationAnswer(CreationVerdict.MADE))

    def tick(self, now_ns: int) -> None:
        if self.state is CreationState.OVER or now_ns < self._deadline_ns:
            return
        if self.state is CreationState.CREATING:
            self._answer(CreationAnswer(CreationVerdict.UNKNOWN))
        else:
            self._answer(CreationAnswer(CreationVerdict.MADE, tuple(sorted(self._awaited or ()))))

    def _answer(self, answer: CreationAnswer) -> None:
        self.state = CreationState.OVER
        self.out.append(answer)


def is_of(channel: Channel, topic: Topic) -> bool:
    """A topic may be made again before all channels of the deleted one are tombstones. Their
    numbers mean nothing in the new one: no partition of it would ever confirm them."""
    return not channel.deleted and channel.identity == topic.identity


def _revision(seen: Seen | None) -> int:
    return 0 if seen is None else seen.revision


SendAnswer = Callable[[int, StartHeld], None]


class StartRequests:
    def __init__(
        self, is_held: Callable[[PartitionName, int, int], bool | None], answer: SendAnswer
    ) -> None:
        """`is_held`: by partition, identity of the topic and number of the channel; None: it is not
        led here."""
        self._is_held = is_held
        self._answer = answer
        self.waiting: dict[StartRequest, dict[int, int]] = {}  # nodes, and until when they wait

    def receive(self, node: int, request: StartRequest, now_ns: int) -> None:
        held = self._is_held(*request)
        if held:
            self._answer(node, StartHeld(*request))
        elif held is not None:
            self.waiting.setdefault(request, {})[node] = now_ns + CHANNEL_CONFIRM_NS

    def held(self, name: PartitionName, identity: int, channel: int) -> None:
        for node in self.waiting.pop(StartRequest(name, identity, channel), ()):
            self._answer(node, StartHeld(name, identity, channel))

    def tick(self, now_ns: int) -> None:
        for request, nodes in tuple(self.waiting.items()):
            for node in [node for node, until_ns in nodes.items() if until_ns <= now_ns]:
                del nodes[node]
            if not nodes:
                del self.waiting[request]
