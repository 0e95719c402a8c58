"""The one who asks for a commit, by the table of its states."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from penstock.cluster import keys
from penstock.cluster.commits.changes import Abandon, Close, Decide, Open, as_transaction
from penstock.cluster.commits.committer import (
    Answer,
    AskDone,
    AskPrepare,
    Committer,
    Findings,
    Read,
    State,
    TopicSeen,
    Transact,
    Verdict,
)
from penstock.cluster.commits.values import DECISION, PREPARE, Decision, Part, Prepare, Share
from penstock.cluster.coordinator import Delete, Exists, RevisionIs
from penstock.errors import ConfigError
from penstock.limits import COMMIT_PARTS_MAX, COMMIT_TOPICS_MAX, DOCUMENT_BYTES_MAX, NAME_BYTES_MAX
from penstock.replica.leading import Outcome

SHARES = (Share("t", 9, (0, 1)),)
PARTS = (Part("t", 9, 0), Part("t", 9, 1))
TOPICS = {"t": TopicSeen(9, 30)}
NOTHING = Findings(0, None, True, TOPICS)
DECISION_7 = Decision("app", 7, 101, SHARES, False)


def taken(committer: Committer) -> list[Any]:
    out, committer.out = committer.out, []
    return out


def new() -> tuple[Committer, int]:
    """And the number of its first question."""
    numbers = count(101)
    committer = Committer("app", 7, SHARES, 5, lambda: next(numbers))
    (read,) = taken(committer)
    assert read == Read(1, "app", 101, ("t",))
    return committer, read.number


def opened() -> Committer:
    committer, number = new()
    committer.found(number, NOTHING)
    (transact,) = taken(committer)
    assert transact.change == Open(101, Prepare("app", 7, 5, SHARES), 0)
    committer.outcome(transact.number, Outcome.DONE, 40)
    assert taken(committer) == [AskPrepare(part, 101, 40) for part in PARTS]
    return committer


def deciding() -> tuple[Committer, int]:
    committer = opened()
    for part in PARTS:
        committer.prepared(101, part)
    (read,) = taken(committer)
    committer.found(read.number, NOTHING)
    (transact,) = taken(committer)
    assert transact.change == Decide(DECISION_7, 0, (("t", 30),))
    return committer, transact.number


def storing() -> Committer:
    committer, number = deciding()
    committer.outcome(number, Outcome.DONE, 50)
    assert taken(committer) == [AskDone(part, 101) for part in PARTS]
    return committer


def read_back(committer: Committer, findings: Findings) -> list[Any]:
    (read,) = taken(committer)
    assert isinstance(read, Read)
    committer.found(read.number, findings)
    return taken(committer)


def test_the_whole_way() -> None:
    committer = storing()
    for part in PARTS:
        committer.done(101, part)
    (transact,) = taken(committer)
    assert transact.change == Close(DECISION_7, 50)
    committer.outcome(transact.number, Outcome.DONE, 60)
    assert taken(committer) == [Answer(Verdict.STORED)]
    assert committer.state is State.OVER


@pytest.mark.parametrize("version", [7, 8])
def test_a_repeat_is_answered_from_the_record(version: int) -> None:
    committer, number = new()
    before = DECISION_7._replace(version=version, closed=True)
    committer.found(number, Findings(50, before, False, TOPICS))
    assert taken(committer) == [Answer(Verdict.STORED_BEFORE)]


def test_what_is_not_closed_is_finished_first() -> None:
    committer, number = new()
    before = Decision("app", 6, 55, SHARES, False)
    committer.found(number, Findings(50, before, False, TOPICS))
    assert taken(committer) == [AskDone(part, 55) for part in PARTS]
    for part in PARTS:
        committer.done(55, part)
    (transact,) = taken(committer)
    assert transact.change == Close(before, 50)
    committer.outcome(transact.number, Outcome.DONE, 60)
    closed = Findings(60, before._replace(closed=True), False, TOPICS)
    (transact,) = read_back(committer, closed)
    assert transact.change == Open(101, Prepare("app", 7, 5, SHARES), 60)


def test_a_topic_that_was_made_again_is_refused() -> None:
    committer, number = new()
    committer.found(number, Findings(0, None, False, {"t": TopicSeen(10, 31)}))
    assert taken(committer) == [Answer(Verdict.REFUSED, "a topic was deleted or made again")]


def test_a_leader_refuses() -> None:
    committer = opened()
    committer.refused(101, "stage s7 is not there")
    abandon, answer = taken(committer)
    assert abandon == Transact(0, Abandon(101))
    assert answer == Answer(Verdict.REFUSED, "stage s7 is not there")


def test_a_refused_decision_while_settings_of_a_topic_changed() -> None:
    committer, number = deciding()
    committer.outcome(number, Outcome.REFUSED, 51)
    changed = Findings(0, None, True, {"t": TopicSeen(9, 51)})
    (transact,) = read_back(committer, changed)
    assert transact.change == Decide(DECISION_7, 0, (("t", 51),))


def test_cancel_before_and_after_the_decision_was_proposed() -> None:
    committer = opened()
    assert committer.cancel("too late")
    assert taken(committer)[-1] == Answer(Verdict.REFUSED, "too late")
    committer, _ = deciding()
    assert not committer.cancel("too late")
    assert taken(committer) == []


# --- transactions and documents ---


def test_what_the_decision_compares() -> None:
    transaction = as_transaction(Decide(DECISION_7, 4, (("t", 30),)))
    assert transaction.compares == (
        RevisionIs(keys.commit("app"), 4),
        Exists(keys.prepare(101)),
        RevisionIs(keys.topic("t"), 30),
    )
    assert transaction.operations[1] == Delete(keys.prepare(101))


def test_the_largest_decision_fits() -> None:
    share = COMMIT_PARTS_MAX // COMMIT_TOPICS_MAX
    names = [f"{number:0{NAME_BYTES_MAX}}" for number in range(COMMIT_TOPICS_MAX)]
    numbers = tuple(range(255 - share, 255))
    shares = tuple(Share(name, (1 << 64) - 1, numbers) for name in names)
    decision = Decision("app", 7, 101, shares, False)
    as_transaction(Decide(decision, 0, tuple((name, 1) for name in names))).check()
    data = DECISION.encode(decision)
    assert len(data) < DOCUMENT_BYTES_MAX
    assert DECISION.decode("commits/x", data) == decision
    prepare = Prepare("app", 7, 5, shares)
    assert PREPARE.decode("prepares/x", PREPARE.encode(prepare)) == prepare


@pytest.mark.parametrize(
    ("shares", "text"),
    [
        ((), "partitions: 0 is not valid: one commit has stages for 1 to 4000"),
        (tuple(Share(str(n), 1, (0,)) for n in range(101)), "topics: 101 is not valid"),
        (tuple(Share(str(n), 1, tuple(range(255))) for n in range(16)), "partitions: 4080 is not"),
    ],
)
def test_a_commit_that_is_too_large(shares: tuple[Share, ...], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Committer("app", 7, shares, 0, lambda: 1)
