"""Many changes in few transactions, each with its own outcome."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.cluster.batches import Batches, Proposal
from penstock.cluster.coordinator import (
    UNKNOWN,
    Compare,
    Delete,
    Exists,
    Put,
    RevisionIs,
    Settled,
    Transaction,
)
from penstock.errors import TransactionTooLarge
from penstock.limits import TRANSACTION_COMPARES_MAX, TRANSACTION_KEYS_MAX
from penstock.replica.leading import Outcome
from sim.store import Store


class Desk:
    """Transactions wait until they are answered."""

    def __init__(self) -> None:
        self.store = Store()
        self.sent: list[tuple[Transaction, Callable[[Settled], None]]] = []
        self.batches = Batches(self)  # type: ignore[arg-type]
        self.outcomes: dict[str, Outcome] = {}

    def transact(self, transaction: Transaction, done: Callable[[Settled], None]) -> None:
        transaction.check()
        self.sent.append((transaction, done))

    def propose(self, key: str, *compares: Compare, besides: tuple[Delete, ...] = ()) -> None:
        def done(settled: Settled) -> None:
            assert key not in self.outcomes
            self.outcomes[key] = settled.outcome

        self.batches.add(Proposal(Put(key, b"1"), compares, done, besides))

    def answer(self, known: bool = True) -> int:
        """Returns how many transactions there were."""
        sent, self.sent = self.sent, []
        for transaction, done in sent:
            settled = self.store.transact(transaction)
            done(settled if known else UNKNOWN)
        return len(sent)


def test_a_turn_is_few_transactions() -> None:
    desk = Desk()
    for number in range(2 * TRANSACTION_KEYS_MAX + 1):
        desk.propose(f"p/{number}", RevisionIs(f"p/{number}", 0))
    desk.batches.flush()
    assert desk.answer() == 3
    assert set(desk.outcomes.values()) == {Outcome.DONE}
    assert len(desk.store.entries) == 2 * TRANSACTION_KEYS_MAX + 1


def test_one_that_is_refused_holds_up_no_other() -> None:
    desk = Desk()
    for name in ("a", "b", "c"):
        desk.propose(name, RevisionIs(name, 9 if name == "b" else 0))
    desk.batches.flush()
    desk.answer()
    assert desk.outcomes == {"b": Outcome.REFUSED}
    desk.batches.flush()
    desk.answer()
    assert desk.outcomes == {"a": Outcome.DONE, "b": Outcome.REFUSED, "c": Outcome.DONE}


def test_an_answer_that_never_came_leaves_each_in_doubt() -> None:
    desk = Desk()
    desk.propose("a")
    desk.propose("b")
    desk.batches.flush()
    desk.answer(known=False)
    assert desk.outcomes == {"a": Outcome.UNKNOWN, "b": Outcome.UNKNOWN}
    assert desk.batches.waiting == []


def test_two_changes_of_a_key_follow_one_another() -> None:
    desk = Desk()
    outcomes: list[Outcome] = []
    for _ in range(2):
        proposal = Proposal(
            Put("a", b"1"),
            (RevisionIs("a", 0),),
            lambda settled: outcomes.append(settled.outcome),
        )
        desk.batches.add(proposal)
    desk.batches.flush()
    assert desk.answer() == 2
    assert outcomes == [Outcome.DONE, Outcome.REFUSED]


def test_what_fits_into_none_is_an_error() -> None:
    desk = Desk()
    desk.propose("a", *(Exists(str(n)) for n in range(TRANSACTION_COMPARES_MAX + 1)))
    with pytest.raises(TransactionTooLarge, match="121 comparisons; at most 120"):
        desk.batches.flush()


def test_a_refusal_that_no_comparison_explains_is_final() -> None:
    """A lease that is gone: trying again would not end."""
    desk = Desk()
    outcomes: list[Outcome] = []
    desk.batches.add(
        Proposal(Put("a", b"", 99), (), lambda settled: outcomes.append(settled.outcome))
    )
    desk.batches.flush()
    desk.answer()
    assert outcomes == [Outcome.REFUSED]
    assert desk.batches.waiting == []
