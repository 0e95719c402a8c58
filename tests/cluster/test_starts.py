"""Where channels start: both machines step by step, then failovers at random."""

from __future__ import annotations

import random
from typing import Any

from cases import each, seeds
from penstock.cluster import keys
from penstock.cluster.coordinator import Put, RevisionIs, Transaction
from penstock.cluster.documents import CHANNEL, TOPIC, Channel, Topic
from penstock.cluster.starts import (
    CHANNEL_NUMBERS,
    FIRST,
    Answer,
    AskStart,
    ChannelMade,
    ChannelMaking,
    ChannelNumbers,
    ChannelStarts,
    Confirm,
    Create,
    Ends,
    Found,
    KeepStart,
    Read,
    Seen,
    Verdict,
)
from penstock.cluster.store import Store
from penstock.limits import CHANNEL_CONFIRM_NS
from penstock.replica.leading import Outcome

NAME = keys.ChannelName("t", "c")
ENDS = Ends(start=10, handed=20, visible=90, committed=95, written=100)


def taken(machine: ChannelStarts | ChannelMaking) -> list[Any]:
    out, machine.out = machine.out, []
    return out


# --- at the leader ---


class TestStarts:
    def test_at_the_visible_end_and_confirmed_when_the_set_has_it(self) -> None:
        starts = ChannelStarts({}, 1, 95)
        starts.seen([ChannelMade(2, 5)], ENDS)
        assert taken(starts) == [KeepStart(2, 90)]
        starts.asked(2)
        assert taken(starts) == []
        starts.kept(2)
        starts.kept(2)
        assert taken(starts) == [Confirm(2)]
        starts.asked(2)
        assert taken(starts) == [Confirm(2)]

    def test_the_first_channel_gets_what_the_topic_has_kept(self) -> None:
        starts = ChannelStarts({}, 1, 95)
        starts.seen([ChannelMade(FIRST, 5)], ENDS)
        assert taken(starts) == [KeepStart(FIRST, 20)]

    def test_a_channel_made_while_the_topic_is_paused(self) -> None:
        starts = ChannelStarts({}, 1, 95)
        starts.seen([ChannelMade(2, 5)], ENDS._replace(gathers=True))
        assert taken(starts) == [KeepStart(2, 20)]

    def test_a_partition_younger_than_the_channel(self) -> None:
        starts = ChannelStarts({}, 6, 95)
        starts.seen([ChannelMade(2, 5)], ENDS)
        assert taken(starts) == [KeepStart(2, 10)]

    def test_not_before_all_of_the_log_at_the_start_of_the_epoch_is_committed(self) -> None:
        starts = ChannelStarts({}, 1, 100)
        starts.seen([ChannelMade(2, 5)], ENDS)
        assert taken(starts) == []
        starts.go_on(ENDS._replace(visible=100, committed=100))
        assert taken(starts) == [KeepStart(2, 100)]

    def test_a_start_in_the_journal_stays(self) -> None:
        starts = ChannelStarts({2: 40}, 1, 95)
        starts.seen([ChannelMade(2, 5)], ENDS)
        assert taken(starts) == []
        starts.kept(2)  # with the snapshot of the new leader
        assert taken(starts) == [Confirm(2)]

    def test_nobody_confirms_what_it_does_not_know(self) -> None:
        starts = ChannelStarts({}, 1, 95)
        starts.asked(2)
        starts.kept(2)
        assert taken(starts) == []


# --- who makes a channel ---

TOPIC_SEEN = Seen(Topic(9, 1, 2, False, (), False, ()), 20)


def document(identity: int, number: int, partitions: int = 1) -> Channel:
    return Channel(identity, number, False, (("partitions", partitions),), False)


def new() -> ChannelMaking:
    making = ChannelMaking(NAME, 0, document)
    assert taken(making) == [Read(1)]
    return making


def made() -> ChannelMaking:
    making = new()
    making.found(1, Found(TOPIC_SEEN, None, None))
    (create,) = taken(making)
    making.created(create.number, Outcome.DONE, 30)
    return making


class TestMaking:
    def test_the_whole_way(self) -> None:
        making = made()
        making.view(29, [0])  # a view from before the creation
        assert taken(making) == []
        making.view(30, [0, 1])
        assert taken(making) == [AskStart(0, 1), AskStart(1, 1)]
        making.confirmed(0, 1)
        making.confirmed(1, 77)  # of another channel
        making.ask()
        assert taken(making) == [AskStart(1, 1)]
        making.confirmed(1, 1)
        assert taken(making) == [Answer(Verdict.MADE)]

    def test_after_five_seconds_it_goes_on_and_names_the_rest(self) -> None:
        making = made()
        making.view(30, [0, 1, 2])
        making.confirmed(1, 1)
        taken(making)
        making.tick(CHANNEL_CONFIRM_NS - 1)
        assert taken(making) == []
        making.tick(CHANNEL_CONFIRM_NS)
        assert taken(making) == [Answer(Verdict.MADE, (0, 2))]
        making.tick(CHANNEL_CONFIRM_NS)
        making.confirmed(0, 1)
        assert taken(making) == []

    def test_one_that_exists_is_confirmed_all_the_same(self) -> None:
        making = new()
        making.found(1, Found(TOPIC_SEEN, Seen(document(9, 4), 25), None))
        making.view(25, [0])
        assert taken(making) == [AskStart(0, 4)]

    def test_one_of_an_earlier_topic_of_the_name_is_replaced(self) -> None:
        making = new()
        making.found(1, Found(TOPIC_SEEN, Seen(document(8, 4), 25), None))
        (create,) = taken(making)
        assert RevisionIs(keys.channel(*NAME), 25) in create.transaction.compares
        renewed = Put(keys.channel(*NAME), CHANNEL.encode(document(9, 1)))
        assert renewed in create.transaction.operations

    def test_it_says_how_many_partitions_there_were_and_there_was_no_further_one(self) -> None:
        making = new()
        making.found(1, Found(TOPIC_SEEN, None, None, partitions=3))
        (create,) = taken(making)
        assert RevisionIs(keys.partition(NAME.topic, 3), 0) in create.transaction.compares
        put = Put(keys.channel(*NAME), CHANNEL.encode(document(9, 1, partitions=3)))
        assert put in create.transaction.operations

    def test_no_number_is_used_again_that_the_node_knows(self) -> None:
        making = new()
        making.found(1, Found(TOPIC_SEEN, None, Seen(ChannelNumbers(9, 4), 3), highest=7))
        taken(making)
        assert making.channel_number == 8

    def test_a_topic_that_is_gone(self) -> None:
        making = new()
        making.found(1, Found(None, None, None))
        assert taken(making) == [Answer(Verdict.REFUSED)]

    def test_an_unknown_creation_is_tried_again_until_the_deadline(self) -> None:
        making = new()
        making.found(1, Found(TOPIC_SEEN, None, None))
        (create,) = taken(making)
        making.created(create.number, Outcome.UNKNOWN, 0)
        (again,) = taken(making)
        assert again.transaction == create.transaction
        making.created(create.number, Outcome.DONE, 30)  # late
        assert taken(making) == []
        making.tick(CHANNEL_CONFIRM_NS)
        assert taken(making) == [Answer(Verdict.UNKNOWN)]

    def test_numbers_rise_over_tombstones_and_begin_again_with_another_topic(self) -> None:
        tombstone = Seen(document(9, 4)._replace(deleted=True), 25)
        numbers = Seen(ChannelNumbers(9, 6), 26)
        for counted, expected in ((numbers, 7), (Seen(ChannelNumbers(8, 6), 26), 1)):
            making = new()
            making.found(1, Found(TOPIC_SEEN, tombstone, counted))
            (create,) = taken(making)
            puts = create.transaction.operations
            assert CHANNEL.decode("c", puts[0].value).number == expected
            assert CHANNEL_NUMBERS.decode("n", puts[1].value) == ChannelNumbers(9, expected)


def found_in(store: Store, name: keys.ChannelName) -> Found:
    def seen(key: str, form: Any) -> Seen | None:
        entry = store.entries.get(key)
        return None if entry is None else Seen(form.decode(key, entry.value), entry.revision)

    return Found(
        seen(keys.topic(name.topic), TOPIC),
        seen(keys.channel(*name), CHANNEL),
        seen(keys.numbers(name.topic), CHANNEL_NUMBERS),
    )


@each("seed", seeds(8, 50))
def test_many_at_once_get_numbers_of_their_own(seed: int) -> None:
    dice = random.Random(seed)
    store = Store()
    topic = TOPIC.encode(TOPIC_SEEN.document)
    store.transact(Transaction((), (Put(keys.topic("t"), topic),)))
    names = [keys.ChannelName("t", f"c{number % 6}") for number in range(10)]
    makings = [(name, ChannelMaking(name, 0, document)) for name in names]
    while any(making.out for _, making in makings):
        name, making = dice.choice(makings)
        for effect in taken(making):
            if isinstance(effect, Read):
                making.found(effect.number, found_in(store, name))
            elif isinstance(effect, Create):
                settled = store.transact(effect.transaction)
                is_lost = dice.random() < 0.2
                outcome = Outcome.UNKNOWN if is_lost else settled.outcome
                making.created(effect.number, outcome, settled.revision)
    numbers = {name: making.channel_number for name, making in makings}
    for name, making in makings:
        assert making.channel_number == numbers[name]
    assert sorted(numbers.values()) == list(range(1, 7))


# --- failovers at random ---


class Breach(Exception):
    pass


class Partition:
    """Three copies of a log and a journal. A channel is made at some time, and then confirmed."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.is_young = self.dice.random() < 0.2
        self.ends = [0, 0, 0]
        self.known = [0, 0, 0]  # to be committed
        self.journals: list[list[KeepStart]] = [[], [], []]
        self.leader = 0
        self.acknowledged = 0
        self.before_it_was_made: int | None = None  # messages acknowledged
        self.confirmed_at: int | None = None  # the same, at the confirmation
        self.starts = self.take_office(0)

    @property
    def channels(self) -> list[ChannelMade]:
        return [] if self.before_it_was_made is None else [ChannelMade(2, 5)]

    def take_office(self, leader: int) -> ChannelStarts:
        self.leader = leader
        for copy in range(3):
            self.ends[copy] = min(self.ends[copy], self.ends[leader])
            self.known[copy] = min(self.known[copy], self.ends[copy])
            del self.journals[copy][len(self.journals[leader]) :]
        offsets = {record.number: record.offset for record in self.journals[leader]}
        number = 5 if self.is_young else 4
        self.starts = ChannelStarts(offsets, number, self.ends[leader])
        self.starts.seen(self.channels, self.seen_ends())
        self.carry_out()
        return self.starts

    def seen_ends(self) -> Ends:
        known = self.known[self.leader]
        return Ends(0, 0, known, known, self.ends[self.leader])

    def carry_out(self) -> None:
        for effect in taken(self.starts):
            if isinstance(effect, KeepStart):
                self.journals[self.leader].append(effect)
            elif self.confirmed_at is None:
                self.confirmed_at = self.acknowledged

    def step(self) -> None:
        what = self.dice.choice(("publish", "copy", "copy", "copy", "commit", "make", "fail_over"))
        getattr(self, f"do_{what}")()
        self.carry_out()
        self.check()

    def do_publish(self) -> None:
        self.ends[self.leader] += self.dice.randint(1, 3)

    def do_copy(self) -> None:
        copy = self.dice.randrange(3)
        if self.dice.random() < 0.5:
            self.ends[copy] = min(self.ends[copy] + 2, self.ends[self.leader])
            self.known[copy] = max(self.known[copy], min(self.known[self.leader], self.ends[copy]))
        elif len(self.journals[copy]) < len(self.journals[self.leader]):
            self.journals[copy].append(self.journals[self.leader][len(self.journals[copy])])

    def do_commit(self) -> None:
        self.known[self.leader] = max(self.known[self.leader], min(self.ends))
        self.acknowledged = max(self.acknowledged, self.known[self.leader])
        if min(map(len, self.journals)) == len(self.journals[self.leader]) > 0:
            self.starts.kept(2)
        self.starts.go_on(self.seen_ends())

    def do_make(self) -> None:
        if self.before_it_was_made is None and self.dice.random() < 0.3:
            self.before_it_was_made = 0 if self.is_young else self.acknowledged
        if self.dice.random() < 0.5:  # else the leader hears of it later
            self.starts.seen(self.channels, self.seen_ends())

    def do_fail_over(self) -> None:
        self.take_office(self.dice.randrange(3))

    def check(self) -> None:
        start = self.starts.offsets.get(2)
        if self.confirmed_at is None or self.before_it_was_made is None:
            return
        if start is None or start > self.confirmed_at:
            raise Breach(f"{start} is above {self.confirmed_at}, which it was confirmed for")
        if start < self.before_it_was_made:
            raise Breach(f"{start} is older than the channel, {self.before_it_was_made}")
        if self.is_young and start > 0:
            raise Breach(f"a partition younger than its channel starts it at {start}")


def play(seed: int) -> Partition:
    partition = Partition(seed)
    for _ in range(60):
        partition.step()
    return partition


def test_a_confirmed_channel_gets_what_comes_and_nothing_older() -> None:
    played = [play(seed) for seed in range(1000)]
    assert sum(one.confirmed_at is not None for one in played) > 200
