"""Transactions, leases, watches and backups of the coordinator in memory."""

from __future__ import annotations

import random

import pytest

from cases import each
from penstock.cluster.coordinator import (
    Changes,
    Compacted,
    CreatedIs,
    Delete,
    Entry,
    Event,
    Exists,
    Failed,
    Granted,
    LeaseGone,
    Page,
    Put,
    Reading,
    RevisionIs,
    Settled,
    Transaction,
    ValueIs,
)
from penstock.cluster.memory import MemoryCoordinator
from penstock.cluster.store import Store
from penstock.errors import TransactionTooLarge
from penstock.limits import LIST_PAGE_KEYS, SECOND, TRANSACTION_KEYS_MAX
from penstock.replica.leading import Outcome


def put(store: Store, key: str, value: bytes, *compares: object) -> Settled:
    return store.transact(Transaction(compares, (Put(key, value),)))  # type: ignore[arg-type]


def test_a_key_knows_when_it_was_made_and_changed() -> None:
    store = Store()
    first = put(store, "a", b"1").revision
    second = put(store, "a", b"2").revision
    assert store.entries["a"] == Entry("a", b"2", second, first)
    assert second == first + 1
    store.transact(Transaction((), (Delete("a"),)))
    third = put(store, "a", b"3").revision
    assert store.entries["a"].created == third


@each(
    ("compare", "holds"),
    [
        (RevisionIs("a", 2), True),
        (RevisionIs("a", 1), False),
        (RevisionIs("b", 0), True),
        (CreatedIs("a", 2), True),
        (CreatedIs("a", 0), False),
        (CreatedIs("b", 0), True),
        (Exists("a"), True),
        (Exists("b"), False),
        (ValueIs("a", b"1"), True),
        (ValueIs("a", b"2"), False),
        (ValueIs("b", b""), False),
    ],
)
def test_what_a_comparison_says(compare: object, holds: bool) -> None:
    store = Store()
    put(store, "a", b"1")
    settled = put(store, "c", b"", compare)
    assert settled.outcome is (Outcome.DONE if holds else Outcome.REFUSED)
    assert ("c" in store.entries) == holds


def test_all_or_nothing_and_in_one_revision() -> None:
    store = Store()
    refused = store.transact(
        Transaction((RevisionIs("a", 0), Exists("z")), (Put("a", b""), Put("b", b"")))
    )
    assert (refused.outcome, refused.revision, store.entries) == (Outcome.REFUSED, 1, {})
    done = store.transact(Transaction((), (Put("a", b""), Put("b", b""))))
    assert {entry.revision for entry in store.entries.values()} == {done.revision}


def test_a_refusal_shows_what_was_compared() -> None:
    store = Store()
    put(store, "a", b"1")
    refused = put(store, "c", b"", RevisionIs("a", 7), RevisionIs("b", 0))
    assert refused.found == (store.entries["a"],)


def test_a_transaction_has_a_size() -> None:
    puts = tuple(Put(str(n), b"") for n in range(TRANSACTION_KEYS_MAX + 1))
    with pytest.raises(TransactionTooLarge, match="61 keys; at most 60"):
        Store().transact(Transaction((), puts))
    with pytest.raises(ValueError, match="a: a transaction changes a key once"):
        Store().transact(Transaction((), (Put("a", b""), Delete("a"))))


def test_keys_go_with_their_lease() -> None:
    store = Store()
    lease = store.grant(5 * SECOND, 0)
    store.transact(Transaction((), (Put("a", b"", lease), Put("b", b""))))
    assert store.keep(lease, 4 * SECOND)
    store.run_out(8 * SECOND)
    assert set(store.entries) == {"a", "b"}
    store.run_out(9 * SECOND)
    assert set(store.entries) == {"b"}
    assert not store.keep(lease, 9 * SECOND)
    late = store.transact(Transaction((), (Put("a", b"", lease),)))
    assert late.outcome is Outcome.REFUSED


def test_the_changes_of_a_prefix_come_in_their_order() -> None:
    store = Store()
    put(store, "p/a", b"1")
    second = put(store, "q/a", b"1").revision
    third = put(store, "p/b", b"1").revision
    store.transact(Transaction((), (Delete("p/b"),)))
    events = store.events("p/", second)
    assert events == [
        Event("p/b", Entry("p/b", b"1", third, third), third),
        Event("p/b", None, third + 1),
    ]
    store.compact(second)
    assert store.events("p/", second) == Compacted(second)
    assert store.events("p/", third) == events


def test_a_backup_brings_the_revision_back() -> None:
    store = Store()
    put(store, "a", b"1")
    lease = store.grant(SECOND, 0)
    store.transact(Transaction((), (Put("alive", b"", lease),)))
    backup = store.backup()
    put(store, "a", b"2")
    put(store, "b", b"2")
    store.restore(backup)
    assert store.revision == backup.revision
    assert [entry.value for entry in store.entries_of("")] == [b"1"]
    assert put(store, "a", b"3").revision == backup.revision + 1


def test_random_transactions_and_what_a_watch_makes_of_them() -> None:
    """Whoever follows the changes has what the store has."""
    dice = random.Random(1)
    store = Store()
    followed: dict[str, Entry] = {}
    since = 1
    for _ in range(500):
        name = f"k/{dice.randrange(8)}"
        operation = Put(name, b"x") if dice.random() < 0.7 else Delete(name)
        store.transact(Transaction((), (operation, Put("other", b""))))
        if dice.random() < 0.3:
            events = store.events("k/", since)
            assert isinstance(events, list)
            for event in events:
                if event.entry is None:
                    del followed[event.key]
                else:
                    followed[event.key] = event.entry
            since = store.revision + 1
            assert followed == {entry.key: entry for entry in store.entries_of("k/")}


# --- the port ---


class Desk:
    """A coordinator, a clock that is moved, and the answers as they came."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.store = Store()
        self.coordinator = MemoryCoordinator(self.store, lambda: self.now_ns)
        self.answers: list[object] = []


def test_nothing_is_answered_within_its_call() -> None:
    desk = Desk()
    desk.coordinator.transact(Transaction((), (Put("a", b"1"),)), desk.answers.append)
    desk.coordinator.read("a", desk.answers.append)
    assert desk.answers == []
    assert desk.coordinator.run()
    assert desk.answers == [Settled(Outcome.DONE, 2), Reading(2, Entry("a", b"1", 2, 2))]
    assert not desk.coordinator.run()


def test_a_list_comes_by_pages() -> None:
    desk = Desk()
    for number in range(LIST_PAGE_KEYS + 5):
        put(desk.store, f"p/{number:05}", b"")
    desk.coordinator.list("p/", desk.answers.append)
    desk.coordinator.list("q/", desk.answers.append)
    desk.coordinator.run()
    first, second, empty = desk.answers
    assert isinstance(first, Page)
    assert isinstance(second, Page)
    assert (len(first.entries), first.is_last) == (LIST_PAGE_KEYS, False)
    assert (len(second.entries), second.is_last) == (5, True)
    assert empty == Page(desk.store.revision, (), True)


def test_a_watch_of_the_future_is_silent_until_it_is_asked() -> None:
    desk = Desk()
    watch = desk.coordinator.watch("", 10, desk.answers.append)
    put(desk.store, "a", b"1")
    desk.coordinator.run()
    assert desk.answers == []
    watch.ask_progress()
    desk.coordinator.run()
    assert desk.answers == [Changes(2, ())]


def test_a_watch_ends_where_changes_are_not_kept() -> None:
    desk = Desk()
    put(desk.store, "a", b"1")
    put(desk.store, "a", b"2")
    desk.store.compact(2)
    watch = desk.coordinator.watch("", 2, desk.answers.append)
    desk.coordinator.run()
    put(desk.store, "a", b"3")
    desk.coordinator.run()
    assert desk.answers == [Compacted(2)]
    assert watch.is_over


def test_a_watch_that_was_cancelled_says_nothing() -> None:
    desk = Desk()
    desk.coordinator.watch("", 1, desk.answers.append).cancel()
    put(desk.store, "a", b"1")
    desk.coordinator.run()
    assert desk.answers == []


def test_a_lease_lasts_while_it_is_kept() -> None:
    desk = Desk()
    granted: list[Granted | Failed] = []
    desk.coordinator.grant(5 * SECOND, granted.append)
    desk.coordinator.run()
    assert granted == [Granted(1, 5 * SECOND)]
    desk.now_ns = 4 * SECOND
    desk.coordinator.keep(1, desk.answers.append)
    desk.coordinator.run()
    desk.now_ns = 9 * SECOND
    desk.coordinator.keep(1, desk.answers.append)
    desk.coordinator.run()
    desk.coordinator.revoke(1)
    assert desk.answers == [Granted(1, 5 * SECOND), LeaseGone(1)]
