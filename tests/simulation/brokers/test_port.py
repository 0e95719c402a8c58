"""Calls that take their time, get lost, or arrive when their process has ended."""

from typing import Any

from penstock.cluster.coordinator import UNKNOWN, Put, RevisionIs, Transaction
from penstock.limits import SECOND
from penstock.replication.leader import Outcome
from sim.brokers.port import ANSWER_NS, NEVER_NS, Passage, Port
from sim.store import Store


class Played:
    def __init__(self, *passages: Passage) -> None:
        self.store = Store()
        waiting = list(passages)
        self.port = Port(self.store, lambda: waiting.pop(0))
        self.heard: list[tuple[str, Any]] = []

    def put(self, key: str, revision: int | None = None) -> None:
        compares = () if revision is None else (RevisionIs(key, revision),)
        self.port.transact(
            Transaction(compares, (Put(key, b""),)),
            lambda settled: self.heard.append((key, settled.outcome)),
        )


def test_an_answer_that_is_lost_says_nothing_of_what_was_done() -> None:
    played = Played(Passage(1, NEVER_NS), Passage(NEVER_NS, 0))
    played.put("done")
    played.put("lost")
    played.port.run(ANSWER_NS)
    assert played.heard == [("done", UNKNOWN.outcome), ("lost", UNKNOWN.outcome)]
    assert list(played.store.entries) == ["done"]
    assert list(played.port.pending()) == []


def test_a_transaction_arrives_though_its_author_has_given_up() -> None:
    played = Played(Passage(3 * SECOND, 0))
    played.put("late", 0)
    played.port.run(ANSWER_NS)
    assert played.heard == [("late", Outcome.UNKNOWN)]
    assert len(list(played.port.pending())) == 1
    played.port.run(3 * SECOND)
    assert list(played.store.entries) == ["late"]
    assert list(played.port.pending()) == []


def test_a_transaction_arrives_though_its_process_has_ended() -> None:
    played = Played(Passage(50, 0), Passage())
    played.put("late")
    played.put("never sent")
    played.port.close()
    played.port.run(50)
    assert list(played.store.entries) == ["late"]
    assert played.heard == []
