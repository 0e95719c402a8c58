"""Who makes a channel, step by step, and many at once."""

from collections.abc import Callable
from typing import Any

from penstock.cluster import keys
from penstock.cluster.attempts import Attempts
from penstock.cluster.channel_creation import ChannelCreations
from penstock.cluster.coordinator import RevisionIs, Settled, Transaction
from penstock.cluster.documents import (
    CHANNEL,
    CHANNEL_NUMBERS,
    Channel,
    ChannelNumbers,
    Topic,
    identity_text,
)
from penstock.cluster.keys import PartitionName
from penstock.cluster.messages import StartHeld, StartRequest
from penstock.cluster.view import Versioned, View
from penstock.errors import ChangeUnknown, ChannelUnconfirmed, NotFound, PenstockError, Refused
from penstock.limits import ATTEMPT_NS, CHANNEL_REQUEST_NS, COORDINATOR_RETRY_NS, MS
from penstock.replication.leader import Outcome
from penstock.replication.record import LeaderId, Member, PartitionRecord
from sim.brokers.cluster import JoinedCluster

NAME = keys.ChannelName("t", "c")


def record(leader: int) -> PartitionRecord:
    return PartitionRecord(9, 1, LeaderId(leader, 1, 1), (Member(leader, 1, 1),), 1, (leader,))


class World:
    """One node: its view, and what it asks the coordinator and the leaders."""

    def __init__(self, partitions: int = 2) -> None:
        self.view = View()
        self.view.is_listed, self.view.revision = True, 29
        self.view.topics["t"] = Versioned(Topic(9, 1, 2, False, (), False, ()), 20, 20)
        for number in range(partitions):
            self.view.partitions[PartitionName("t", number)] = Versioned(record(number), 21, 21)
        self.transactions: list[tuple[Transaction, Callable[[Settled], None]]] = []
        self.requests: list[tuple[int, StartRequest]] = []
        self.answers: list[PenstockError | None] = []
        self.now_ns = 0
        coordinator: Any = self
        self.attempts = Attempts(self.view, coordinator, 0)
        self.creations = ChannelCreations(
            self.view, self.attempts, self.send, lambda *_: True, lambda: 0, 0
        )

    def transact(self, transaction: Transaction, done: Callable[[Settled], None]) -> None:
        self.transactions.append((transaction, done))

    def send(self, node: int, request: StartRequest) -> None:
        self.requests.append((node, request))

    def make(self) -> Transaction | None:
        self.creations.make(*NAME, self.answers.append)
        return self.transactions[-1][0] if self.transactions else None

    def settle(self, outcome: Outcome, revision: int = 0) -> None:
        self.transactions.pop()[1](Settled(outcome, revision, ()))

    def show(self, channel: Channel, revision: int, seen: int) -> None:
        self.view.channels[NAME] = Versioned(channel, revision, revision)
        self.view.revision = seen
        self.pass_time(0)

    def hold(self, partition: int, number: int = 1) -> None:
        self.creations.start_held(StartHeld("t", partition, identity_text(9), number))
        self.pass_time(0)

    def pass_time(self, elapsed_ns: int) -> None:
        self.now_ns += elapsed_ns
        self.creations.tick(self.now_ns)
        self.attempts.tick(self.now_ns)


def document(identity: int, number: int, deleted: bool = False) -> Channel:
    return Channel(identity, number, False, (("created_ns", 0), ("partitions", 2)), deleted)


def made(transaction: Transaction | None) -> tuple[Channel, ChannelNumbers]:
    assert transaction is not None
    channel, numbers = transaction.operations
    assert channel.key == keys.channel(*NAME)
    return CHANNEL.decode("c", channel.value), CHANNEL_NUMBERS.decode("n", numbers.value)


def test_a_creation_from_request_to_answer() -> None:
    world = World()
    transaction = world.make()
    assert made(transaction) == (document(9, 1), ChannelNumbers(9, 1))
    assert transaction is not None
    assert RevisionIs(keys.partition("t", 2), 0) in transaction.compares  # no further one
    world.settle(Outcome.DONE, 30)
    world.show(document(9, 1), 30, seen=29)  # its transaction is not all in the view
    assert world.requests == []
    world.show(document(9, 1), 30, seen=30)
    requests = [(n, StartRequest("t", n, identity_text(9), 1)) for n in (0, 1)]
    assert world.requests == requests
    world.hold(0)
    world.hold(1, number=77)  # another channel
    world.pass_time(CHANNEL_REQUEST_NS)
    assert world.requests[2:] == requests[1:]
    assert world.answers == []
    world.hold(1)
    assert world.answers == [None]
    world.make()  # confirmed once: nobody is asked
    assert world.answers == [None, None]
    assert (world.transactions, len(world.requests)) == ([], 3)


def test_a_creation_answers_after_five_seconds_and_names_the_missing_nodes() -> None:
    world = World(partitions=3)
    world.show(document(9, 1), 28, seen=29)
    assert world.make() is None  # the view has it
    world.hold(1)
    world.pass_time(ATTEMPT_NS - 1)
    assert world.answers == []
    world.pass_time(1)
    (error,) = world.answers
    assert isinstance(error, ChannelUnconfirmed)
    assert error.partitions == (0, 2)


def test_a_deleted_topic() -> None:
    world = World()
    world.make()
    world.settle(Outcome.REFUSED)
    world.view.topics["t"] = Versioned(Topic(9, 1, 2, False, (), True, ()), 31, 20)
    world.view.revision = 31
    world.pass_time(0)
    world.make()
    assert [type(error) for error in world.answers] == [NotFound, NotFound]


def test_a_refused_creation_is_drawn_again_once_the_view_has_moved() -> None:
    world = World()
    world.make()
    world.settle(Outcome.REFUSED)
    world.pass_time(MS)
    assert world.transactions == []
    world.view.numbers["t"] = Versioned(ChannelNumbers(9, 1), 30, 30)  # another channel was made
    world.view.revision = 30
    world.pass_time(MS)
    assert made(world.transactions[-1][0]) == (document(9, 2), ChannelNumbers(9, 2))


def test_an_unknown_creation_is_tried_again_until_the_deadline() -> None:
    world = World()
    first = world.make()
    world.settle(Outcome.UNKNOWN)
    world.pass_time(COORDINATOR_RETRY_NS - 1)
    assert world.transactions == []
    world.pass_time(1)
    assert world.transactions[-1][0] == first
    world.pass_time(ATTEMPT_NS)
    (error,) = world.answers
    assert isinstance(error, ChangeUnknown)


def test_a_document_that_is_broken_is_named() -> None:
    world = World()
    world.view.broken[keys.numbers("t")] = "numbers/t is no JSON"
    assert world.make() is None
    world.pass_time(ATTEMPT_NS)
    (error,) = world.answers
    assert isinstance(error, Refused)
    assert "numbers/t is no JSON" in str(error)


def test_numbers_rise_over_tombstones_and_begin_again_with_another_topic() -> None:
    for counted, expected in ((ChannelNumbers(9, 6), 7), (ChannelNumbers(8, 6), 5)):
        world = World()
        world.view.channels[NAME] = Versioned(document(9, 4, deleted=True), 25, 22)
        world.view.channels[keys.ChannelName("t", "old")] = Versioned(document(8, 40), 5, 5)
        world.view.numbers["t"] = Versioned(counted, 26, 22)
        transaction = world.make()
        assert made(transaction) == (document(9, expected), ChannelNumbers(9, expected))
        assert transaction is not None
        assert RevisionIs(keys.channel(*NAME), 25) in transaction.compares
        assert RevisionIs(keys.numbers("t"), 26) in transaction.compares


def test_many_at_once_get_numbers_of_their_own(cluster: JoinedCluster) -> None:
    cluster.make("orders", partitions=2)
    answers: list[PenstockError | None] = []
    for number in range(12):
        metadata = cluster.nodes[number % 3].cluster_node.replica_host.metadata
        metadata.make_channel("orders", f"c{number % 8}", answers.append)  # some at two nodes
    took_s = cluster.until(lambda: len(answers) == 12)
    assert answers == [None] * 12
    assert took_s < 3
    found = [
        CHANNEL.decode(key, entry.value).number
        for key, entry in cluster.store.entries.items()
        if key.startswith("channels/orders/")
    ]
    assert sorted(found) == list(range(1, 9))
