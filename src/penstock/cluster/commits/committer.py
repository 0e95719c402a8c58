"""The one who asks for a commit: from the prepare key to the closed record.

| state | on | to | effects |
|---|---|---|---|
| READING | no newer version, the last one closed | OPENING | Open |
| READING | this version or a later one, closed | OVER | Answer: stored before |
| READING | one that is not closed | STORING (it) | AskDone each |
| OPENING | done | PREPARING | AskPrepare each |
| OPENING | refused | READING | Read |
| OPENING | unknown | OVER | Abandon, Answer: refused |
| PREPARING | all are prepared | READING_TOPICS | Read |
| PREPARING | one refuses; `cancel` | OVER | Abandon, Answer: refused |
| READING_TOPICS | the topics are those that were prepared | DECIDING | Decide |
| READING_TOPICS | a topic was deleted or made again | OVER | Abandon, Answer: refused |
| DECIDING | done | STORING | AskDone each |
| DECIDING | unknown | DECIDING | Decide, the same |
| DECIDING | refused | READING_BACK | Read |
| READING_BACK | the record is this transaction's | STORING | AskDone each |
| READING_BACK | the record has moved | READING | Abandon, Read: with another transaction |
| READING_BACK | the prepare key is gone | OVER | Answer: refused |
| READING_BACK | else: a topic's settings have changed | READING_TOPICS | as there |
| STORING | all are done, or gone | CLOSING | Close |
| CLOSING | done, of this commit | OVER | Answer: stored |
| CLOSING | done, of another; refused | READING | Read |
| CLOSING | unknown | CLOSING | Close, the same |

**An unknown decision** is asked for again, unchanged. Each comparison that has failed once fails
for ever (revisions do not come back, and a prepare key is made once): so the refusal of one settles
all that were sent before, and the record then says which it was. A read alone would not: the first
may still be applied after it.

Refused is answered only when this transaction can't be decided any more, or was never proposed.
Who waits no longer after the decision was proposed has to say *unknown*.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from penstock import limits
from penstock.cluster.commits.changes import Abandon, Close, Decide, Open
from penstock.cluster.commits.values import Decision, Part, Prepare, Share, parts_of
from penstock.errors import ConfigError
from penstock.replica.leading import Outcome


class State(IntEnum):
    READING = 1
    OPENING = 2
    PREPARING = 3
    READING_TOPICS = 4
    DECIDING = 5
    READING_BACK = 6
    STORING = 7
    CLOSING = 8
    OVER = 9


class Verdict(IntEnum):
    STORED = 1
    STORED_BEFORE = 2
    REFUSED = 3


class TopicSeen(NamedTuple):
    identity: int
    revision: int  # of its key


class Findings(NamedTuple):
    """Read at once, or the prepare key before the record: where the key is gone, the record that is
    read after it says whether that was the decision."""

    revision: int  # of the record; 0: the app has none
    decision: Decision | None
    is_prepared: bool
    topics: Mapping[str, TopicSeen]  # those that are not deleted


# --- effects ---


class Read(NamedTuple):
    """Answered by `found`."""

    number: int
    app: str
    transaction: int
    topics: tuple[str, ...]


class Transact(NamedTuple):
    """Answered by `outcome`."""

    number: int
    change: Open | Decide | Close | Abandon


class AskPrepare(NamedTuple):
    part: Part
    transaction: int
    revision: int


class AskDone(NamedTuple):
    part: Part
    transaction: int


class Answer(NamedTuple):
    verdict: Verdict
    reason: str = ""


class Committer:
    __slots__ = (
        "_app",
        "_awaited",
        "_deciding",
        "_found",
        "_make_transaction",
        "_number",
        "_opened_ns",
        "_prepare_revision",
        "_record_revision",
        "_repeat",
        "_shares",
        "_target",
        "_target_revision",
        "_version",
        "out",
        "state",
        "transaction",
    )

    def __init__(
        self,
        app: str,
        version: int,
        shares: tuple[Share, ...],
        opened_ns: int,
        make_transaction: Callable[[], int],
    ) -> None:
        """`make_transaction` throws dice. Raises ConfigError."""
        _check(shares)
        self.transaction = make_transaction()
        self.state = State.READING
        self.out: list[Any] = []
        self._app, self._version, self._shares = app, version, shares
        self._opened_ns = opened_ns
        self._make_transaction = make_transaction
        self._number = 0
        self._repeat: Any = None  # what is sent again while its answer does not come
        self._awaited: set[Part] = set()
        self._found = Findings(0, None, False, {})
        self._record_revision = 0  # when the prepare key was made: no other version since
        self._prepare_revision = 0
        self._deciding: Decide | None = None
        self._target: Decision | None = None  # what is being stored: this commit, or another
        self._target_revision = 0
        self._read()

    # --- questions, and that they are asked again ---

    def _read(self) -> None:
        topics = tuple(share.topic for share in self._shares)
        self._number += 1
        self._ask(Read(self._number, self._app, self.transaction, topics))

    def _transact(self, change: Open | Decide | Close) -> None:
        self._number += 1
        self._ask(Transact(self._number, change))

    def _ask(self, question: Read | Transact) -> None:
        self._repeat = question
        self.out.append(question)

    def retry(self) -> None:
        """Some answer did not come for a while. A read is repeated, and what leaders are asked; a
        transaction's outcome is *unknown* when the shell says so, by `outcome`."""
        if self.state is State.PREPARING:
            self._ask_prepares()
        elif self.state is State.STORING:
            self._ask_done()
        elif isinstance(self._repeat, Read):
            self._read()

    # --- what was read ---

    def found(self, number: int, findings: Findings) -> None:
        if number != self._number or not isinstance(self._repeat, Read):
            return
        self._repeat = None
        self._found = findings
        if self.state is State.READING:
            self._begin()
        elif self.state is State.READING_TOPICS:
            self._decide()
        elif self.state is State.READING_BACK:
            self._read_back()

    def _begin(self) -> None:
        before = self._found.decision
        if before is not None and not before.closed:
            self._store(before, self._found.revision)
        elif before is not None and before.version >= self._version:
            self._answer(Verdict.STORED_BEFORE)
        elif not self._are_topics_the_same():
            self._answer(Verdict.REFUSED, "a topic was deleted or made again")
        else:
            self.state = State.OPENING
            self._record_revision = self._found.revision
            prepare = Prepare(self._app, self._version, self._opened_ns, self._shares)
            self._transact(Open(self.transaction, prepare, self._record_revision))

    def _are_topics_the_same(self) -> bool:
        return all(
            share.topic in self._found.topics
            and self._found.topics[share.topic].identity == share.identity
            for share in self._shares
        )

    # --- prepare ---

    def _ask_prepares(self) -> None:
        for part in sorted(self._awaited):
            self.out.append(AskPrepare(part, self.transaction, self._prepare_revision))

    def prepared(self, transaction: int, part: Part) -> None:
        if self.state is not State.PREPARING or transaction != self.transaction:
            return
        self._awaited.discard(part)
        if not self._awaited:
            self.state = State.READING_TOPICS
            self._read()

    def refused(self, transaction: int, reason: str) -> None:
        """By a leader: a stage is not there, or not sound."""
        if self.state is State.PREPARING and transaction == self.transaction:
            self._give_up(reason)

    def cancel(self, reason: str) -> bool:
        """True: refused. False: it may be decided, and goes on."""
        if self.state in (State.READING, State.OPENING, State.PREPARING, State.READING_TOPICS):
            self._give_up(reason)
        return self.state is State.OVER

    def _give_up(self, reason: str) -> None:
        self._abandon()
        self._answer(Verdict.REFUSED, reason)

    def _abandon(self) -> None:
        """The prepare key goes now; else when it is old. Its outcome does not matter here."""
        self.out.append(Transact(0, Abandon(self.transaction)))

    # --- decide ---

    def _decide(self) -> None:
        if not self._are_topics_the_same():
            self._give_up("a topic was deleted or made again")
            return
        seen = self._found.topics
        topics = tuple((s.topic, seen[s.topic].revision) for s in self._shares if s.topic in seen)
        decision = Decision(self._app, self._version, self.transaction, self._shares, False)
        self._deciding = Decide(
            decision,
            self._record_revision,
            topics,
        )
        self.state = State.DECIDING
        self._transact(self._deciding)

    def _read_back(self) -> None:
        now = self._found.decision
        if now is not None and now.transaction == self.transaction:
            self._store(now, self._found.revision)
        elif self._record_revision != self._found.revision:
            self._begin_again()
        elif not self._found.is_prepared:
            self._answer(Verdict.REFUSED, "it took too long, and was abandoned")
        else:
            self._decide()

    def _begin_again(self) -> None:
        self._abandon()
        self.transaction = self._make_transaction()
        self._deciding = None
        self.state = State.READING
        self._read()

    # --- store and close ---

    def _store(self, decision: Decision, revision: int) -> None:
        self._target, self._target_revision = decision, revision
        self._awaited = set(parts_of(decision.shares))
        self.state = State.STORING
        self._ask_done()

    def _ask_done(self) -> None:
        if self._target is not None:
            for part in sorted(self._awaited):
                self.out.append(AskDone(part, self._target.transaction))

    def done(self, transaction: int, part: Part) -> None:
        """It is with its set; or its topic's life is over, as a read of its key has shown."""
        target = self._target
        if self.state is not State.STORING or target is None or transaction != target.transaction:
            return
        self._awaited.discard(part)
        if not self._awaited:
            self.state = State.CLOSING
            self._transact(Close(target, self._target_revision))

    # --- outcomes ---

    def outcome(self, number: int, outcome: Outcome, revision: int) -> None:
        repeat = self._repeat
        if number != self._number or not isinstance(repeat, Transact):
            return
        if outcome is Outcome.UNKNOWN and self.state is not State.OPENING:
            self._transact(repeat.change)  # type: ignore[arg-type]
            return
        self._repeat = None
        if self.state is State.OPENING:
            self._opened(outcome, revision)
        elif self.state is State.DECIDING:
            self._decided(outcome, revision)
        elif self.state is State.CLOSING:
            self._closed(outcome)

    def _opened(self, outcome: Outcome, revision: int) -> None:
        if outcome is Outcome.DONE:
            self._prepare_revision = revision
            self._awaited = set(parts_of(self._shares))
            self.state = State.PREPARING
            self._ask_prepares()
        elif outcome is Outcome.REFUSED:
            self._begin_again()
        else:
            self._give_up("the coordinator did not answer")

    def _decided(self, outcome: Outcome, revision: int) -> None:
        if outcome is Outcome.DONE and self._deciding is not None:
            self._store(self._deciding.decision, revision)
        else:
            self.state = State.READING_BACK
            self._read()

    def _closed(self, outcome: Outcome) -> None:
        target = self._target
        is_own = target is not None and target.version == self._version
        if outcome is Outcome.DONE and is_own:
            self._answer(Verdict.STORED)
        else:
            self.state = State.READING
            self._read()

    def _answer(self, verdict: Verdict, reason: str = "") -> None:
        self.state = State.OVER
        self._repeat = None
        self.out.append(Answer(verdict, reason))


def _check(shares: tuple[Share, ...]) -> None:
    if len(shares) > limits.COMMIT_TOPICS_MAX:
        rule = f"one commit has stages for at most {limits.COMMIT_TOPICS_MAX}"
        raise ConfigError("topics", len(shares), rule)
    count = sum(len(share.numbers) for share in shares)
    if not 0 < count <= limits.COMMIT_PARTS_MAX:
        rule = f"one commit has stages for 1 to {limits.COMMIT_PARTS_MAX}"
        raise ConfigError("partitions", count, rule)
