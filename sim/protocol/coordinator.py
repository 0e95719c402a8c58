"""The coordinator as a model: transactions that are late, lost or answered by silence.

One partition's record and one entry for each node. A transaction is applied at some later time, or
never; its answer arrives, or is lost, which its sender learns as *unknown*. Changes are numbered by
revision; every node reads them in this order, each at its own pace.
"""

from typing import NamedTuple

from penstock.replication.leader import Outcome
from penstock.replication.record import PartitionRecord


class Entry(NamedTuple):
    """Of a node: what its last start has written."""

    generation: int
    memory_lost_generation: int
    incarnation: int


class Transaction(NamedTuple):
    node: int
    incarnation: int
    number: int
    record: PartitionRecord
    revision: int  # compared; -1: not
    generations: tuple[tuple[int, int], ...]


class Change(NamedTuple):
    revision: int
    record: PartitionRecord | None
    node: int = -1
    entry: Entry | None = None


class Answer(NamedTuple):
    node: int
    incarnation: int
    number: int
    outcome: Outcome
    revision: int
    record: PartitionRecord


class Coordinator:
    def __init__(self, record: PartitionRecord, nodes: int) -> None:
        self.record = record
        self.revision = 1  # of the record
        self.last = 1
        self.entries = [Entry(0, 0, 0)] * nodes
        self.changes: list[Change] = []
        self.pending: list[Transaction] = []
        self.answers: list[Answer] = []
        self.applied: list[
            tuple[PartitionRecord, PartitionRecord]
        ] = []  # for the observer, which empties it

    def register(self, node: int, entry: Entry) -> None:
        self.entries[node] = entry
        self.last += 1
        self.changes.append(Change(self.last, None, node, entry))

    def submit(self, transaction: Transaction) -> None:
        self.pending.append(transaction)

    def may_install(self, transaction: Transaction) -> bool:
        """Could this transaction still be applied?"""
        if transaction.revision not in (-1, self.revision):
            return False
        return all(
            self.entries[node].generation == generation
            for node, generation in transaction.generations
        )

    def apply(self, index: int, answered: bool) -> None:
        """One that is pending takes effect, or is refused."""
        transaction = self.pending.pop(index)
        outcome = Outcome.REFUSED
        if self.may_install(transaction):
            outcome = Outcome.DONE
            self.applied.append((self.record, transaction.record))
            self.put(transaction.record)
        self._answer(transaction, outcome if answered else Outcome.UNKNOWN)

    def forget(self, index: int) -> None:
        """It never arrives, which its sender cannot know."""
        self._answer(self.pending.pop(index), Outcome.UNKNOWN)

    def give_up(self, index: int) -> None:
        """Its sender waits no longer; it may still be applied."""
        self._answer(self.pending[index], Outcome.UNKNOWN)

    def _answer(self, transaction: Transaction, outcome: Outcome) -> None:
        node, incarnation, number = transaction[:3]
        self.answers.append(Answer(node, incarnation, number, outcome, self.revision, self.record))

    def put(self, record: PartitionRecord) -> None:
        self.last += 1
        self.record, self.revision = record, self.last
        self.changes.append(Change(self.last, record))
