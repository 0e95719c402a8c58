"""Many changes in few transactions, with an outcome for each change.

The proposals of a turn are gathered and sent together, up to TRANSACTION_KEYS_MAX keys in one. Each
stands for itself:

| the transaction was | a proposal is |
|---|---|
| done | done |
| unknown | unknown: it may be applied yet |
| refused, and its own comparison does not hold | refused |
| refused, and its own comparisons hold | sent again with the next ones: it was never applied |

What several proposals of a turn want besides their own key (that a node's key goes) is done once.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.cluster.coordinator import (
    Compare,
    Coordinator,
    Operation,
    Settled,
    Transaction,
    holds,
)
from penstock.limits import TRANSACTION_COMPARES_MAX, TRANSACTION_KEYS_MAX
from penstock.replication.leader import Outcome


class Proposal(NamedTuple):
    change: Operation
    compares: tuple[Compare, ...]
    done: Callable[[Settled], None]
    besides: tuple[Operation, ...] = ()


@dataclass(slots=True, eq=False)
class _Batch:
    """Proposals that fit into one transaction."""

    proposals: list[Proposal] = field(default_factory=list)
    changes: dict[str, Operation] = field(default_factory=dict)
    compares: dict[Compare, None] = field(default_factory=dict)

    def takes(self, proposal: Proposal) -> bool:
        changes = {one.key: one for one in (proposal.change, *proposal.besides)}
        if proposal.change.key in self.changes:
            return False
        if any(self.changes.get(key, one) != one for key, one in changes.items()):
            return False
        compares = {**self.compares, **dict.fromkeys(proposal.compares)}
        keys_count = len(self.changes.keys() | changes.keys())
        if keys_count > TRANSACTION_KEYS_MAX or len(compares) > TRANSACTION_COMPARES_MAX:
            return False
        self.proposals.append(proposal)
        self.changes.update(changes)
        self.compares = compares
        return True

    def transaction(self) -> Transaction:
        return Transaction(tuple(self.compares), tuple(self.changes.values()))


class Batches:
    def __init__(self, coordinator: Coordinator) -> None:
        self.coordinator = coordinator
        self.waiting: list[Proposal] = []

    def add(self, proposal: Proposal) -> None:
        """Sent by the next `flush`. A proposal that fits into no transaction is an error of its
        author: `flush` raises TransactionTooLarge."""
        self.waiting.append(proposal)

    def flush(self) -> None:
        waiting, self.waiting = self.waiting, []
        batches: list[_Batch] = []
        for proposal in waiting:
            if not (batches and batches[-1].takes(proposal)):
                batches.append(_Batch())
                if not batches[-1].takes(proposal):
                    batches.pop()
                    changes = proposal.change, *proposal.besides
                    self._send([proposal], Transaction(proposal.compares, changes))
        for batch in batches:
            self._send(batch.proposals, batch.transaction())

    def _send(self, proposals: list[Proposal], transaction: Transaction) -> None:
        self.coordinator.transact(transaction, lambda settled: self._settled(proposals, settled))

    def _settled(self, proposals: list[Proposal], settled: Settled) -> None:
        if settled.outcome is Outcome.REFUSED:
            self._refused(proposals, settled)
            return
        for proposal in proposals:
            proposal.done(settled)

    def _refused(self, proposals: list[Proposal], settled: Settled) -> None:
        found = {entry.key: entry for entry in settled.found}
        at_fault = [
            proposal
            for proposal in proposals
            if not all(holds(one, found.get(one.key)) for one in proposal.compares)
        ]
        for proposal in proposals:
            if proposal in at_fault or not at_fault:
                proposal.done(settled)
            else:
                self.waiting.append(proposal)
