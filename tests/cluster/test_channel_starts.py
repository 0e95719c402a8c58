"""Who makes a channel, step by step, and many at once."""

import random
from typing import Any

from penstock.cluster import keys
from penstock.cluster.channel_starts import (
    CHANNEL_NUMBERS,
    ChannelCreation,
    ChannelNumbers,
    Create,
    CreationAnswer,
    CreationVerdict,
    KeysFound,
    ReadKeys,
    RequestStart,
    Seen,
)
from penstock.cluster.coordinator import Put, RevisionIs
from penstock.cluster.documents import CHANNEL, TOPIC, Channel, Topic
from penstock.limits import CHANNEL_CONFIRM_NS
from penstock.replication.leader import Outcome
from sim.store import Store

NAME = keys.ChannelName("t", "c")


def taken(machine: ChannelCreation) -> list[Any]:
    out, machine.out = machine.out, []
    return out


TOPIC_SEEN = Seen(Topic(9, 1, 2, False, (), False, ()), 20)


def document(identity: int, number: int, partitions: int = 1) -> Channel:
    return Channel(identity, number, False, (("partitions", partitions),), False)


def new() -> ChannelCreation:
    making = ChannelCreation(NAME, 0, document)
    assert taken(making) == [ReadKeys(1)]
    return making


def made() -> ChannelCreation:
    making = new()
    making.found(1, KeysFound(TOPIC_SEEN, None, None))
    (create,) = taken(making)
    making.created(create.number, Outcome.DONE, 30)
    return making


class TestMaking:
    def test_the_whole_way(self) -> None:
        making = made()
        making.view(29, [0])  # a view from before the creation
        assert taken(making) == []
        making.view(30, [0, 1])
        assert taken(making) == [RequestStart(0, 1), RequestStart(1, 1)]
        making.confirmed(0, 1)
        making.confirmed(1, 77)  # of another channel
        making.request_starts()
        assert taken(making) == [RequestStart(1, 1)]
        making.confirmed(1, 1)
        assert taken(making) == [CreationAnswer(CreationVerdict.MADE)]

    def test_after_five_seconds_it_goes_on_and_names_the_rest(self) -> None:
        making = made()
        making.view(30, [0, 1, 2])
        making.confirmed(1, 1)
        taken(making)
        making.tick(CHANNEL_CONFIRM_NS - 1)
        assert taken(making) == []
        making.tick(CHANNEL_CONFIRM_NS)
        assert taken(making) == [CreationAnswer(CreationVerdict.MADE, (0, 2))]
        making.tick(CHANNEL_CONFIRM_NS)
        making.confirmed(0, 1)
        assert taken(making) == []

    def test_it_says_how_many_partitions_there_were_and_there_was_no_further_one(self) -> None:
        making = new()
        making.found(1, KeysFound(TOPIC_SEEN, None, None, partitions=3))
        (create,) = taken(making)
        assert RevisionIs(keys.partition(NAME.topic, 3), 0) in create.transaction.compares
        put = Put(keys.channel(*NAME), CHANNEL.encode(document(9, 1, partitions=3)))
        assert put in create.transaction.operations

    def test_a_topic_that_is_gone(self) -> None:
        making = new()
        making.found(1, KeysFound(None, None, None))
        assert taken(making) == [CreationAnswer(CreationVerdict.REFUSED)]

    def test_an_unknown_creation_is_tried_again_until_the_deadline(self) -> None:
        making = new()
        making.found(1, KeysFound(TOPIC_SEEN, None, None))
        (create,) = taken(making)
        making.created(create.number, Outcome.UNKNOWN, 0)
        (again,) = taken(making)
        assert again.transaction == create.transaction
        making.created(create.number, Outcome.DONE, 30)  # late
        assert taken(making) == []
        making.tick(CHANNEL_CONFIRM_NS)
        assert taken(making) == [CreationAnswer(CreationVerdict.UNKNOWN)]

    def test_numbers_rise_over_tombstones_and_begin_again_with_another_topic(self) -> None:
        tombstone = Seen(document(9, 4)._replace(deleted=True), 25)
        numbers = Seen(ChannelNumbers(9, 6), 26)
        for counted, expected in ((numbers, 7), (Seen(ChannelNumbers(8, 6), 26), 1)):
            making = new()
            making.found(1, KeysFound(TOPIC_SEEN, tombstone, counted))
            (create,) = taken(making)
            puts = create.transaction.operations
            assert CHANNEL.decode("c", puts[0].value).number == expected
            assert CHANNEL_NUMBERS.decode("n", puts[1].value) == ChannelNumbers(9, expected)


def found_in(store: Store, name: keys.ChannelName) -> KeysFound:
    def seen(key: str, form: Any) -> Seen | None:
        entry = store.entries.get(key)
        return None if entry is None else Seen(form.decode(key, entry.value), entry.revision)

    return KeysFound(
        seen(keys.topic(name.topic), TOPIC),
        seen(keys.channel(*name), CHANNEL),
        seen(keys.numbers(name.topic), CHANNEL_NUMBERS),
    )


def test_many_at_once_get_numbers_of_their_own() -> None:
    for seed in range(50):
        make_many(random.Random(seed))


def make_many(dice: random.Random) -> None:
    store = Store()
    topic = TOPIC.encode(TOPIC_SEEN.document)
    store.put(keys.topic("t"), topic)
    names = [keys.ChannelName("t", f"c{number % 6}") for number in range(10)]
    channel_creations = [(name, ChannelCreation(name, 0, document)) for name in names]
    while any(making.out for _, making in channel_creations):
        name, making = dice.choice(channel_creations)
        for effect in taken(making):
            if isinstance(effect, ReadKeys):
                making.found(effect.number, found_in(store, name))
            elif isinstance(effect, Create):
                settled = store.transact(effect.transaction)
                is_lost = dice.random() < 0.2
                outcome = Outcome.UNKNOWN if is_lost else settled.outcome
                making.created(effect.number, outcome, settled.revision)
    numbers = {name: making.channel_number for name, making in channel_creations}
    for name, making in channel_creations:
        assert making.channel_number == numbers[name]
    assert sorted(numbers.values()) == list(range(1, 7))
