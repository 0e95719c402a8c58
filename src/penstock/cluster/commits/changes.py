"""The transactions of a commit: what each compares, and what it puts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from penstock import limits
from penstock.cluster import keys
from penstock.cluster.commits.values import DECISION, PREPARE, Decision, Prepare
from penstock.cluster.coordinator import Compare, Delete, Exists, Put, RevisionIs, Transaction


class Open(NamedTuple):
    """If the app's record is as it was read, and the key is new."""

    transaction: int
    prepare: Prepare
    revision: int


class Decide(NamedTuple):
    """If the app's record is as it was read, the topics are, and the prepare key is there."""

    decision: Decision
    revision: int
    topics: tuple[tuple[str, int], ...]  # names, and revisions of their keys


class Close(NamedTuple):
    """If the app's record is as it was decided."""

    decision: Decision
    revision: int


class Abandon(NamedTuple):
    """The prepare key goes, so that the transaction can't be decided any more."""

    transaction: int


def abandoned(prepares: Mapping[int, Prepare], wall_ns: int) -> list[Abandon]:
    """Commits whose committer has ended before the decision: as old as stages get. Their stages are
    pinned until the key has gone. A clock that is wrong costs a commit that is tried again."""
    oldest_ns = wall_ns - limits.STAGE_EXPIRE_NS
    return [
        Abandon(transaction)
        for transaction, prepare in sorted(prepares.items())
        if prepare.opened_ns < oldest_ns
    ]


def as_transaction(change: Open | Decide | Close | Abandon) -> Transaction:
    match change:
        case Open(transaction, prepare, revision):
            key = keys.prepare(transaction)
            compares = (RevisionIs(keys.commit(prepare.app), revision), RevisionIs(key, 0))
            return Transaction(compares, (Put(key, PREPARE.encode(prepare)),))
        case Decide(decision):
            record = keys.commit(decision.app)
            put = Put(record, DECISION.encode(decision))
            gone = Delete(keys.prepare(decision.transaction))
            return Transaction(_compared(change), (put, gone))
        case Close(decision, revision):
            record = keys.commit(decision.app)
            closed = DECISION.encode(decision._replace(closed=True))
            return Transaction((RevisionIs(record, revision),), (Put(record, closed),))
        case Abandon(transaction):
            key = keys.prepare(transaction)
            return Transaction((Exists(key),), (Delete(key),))


def _compared(change: Decide) -> tuple[Compare, ...]:
    decision = change.decision
    return (
        RevisionIs(keys.commit(decision.app), change.revision),
        Exists(keys.prepare(decision.transaction)),
        *(RevisionIs(keys.topic(name), revision) for name, revision in change.topics),
    )
