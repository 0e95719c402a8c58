"""Changes of the metadata on behalf of clients: drawn from the view and retried until the view
shows them.

| the view | then |
|---|---|
| shows what is wanted | all who wait are answered |
| does not, and nothing is on its way | the transaction is drawn from it, again when it is due |
| does not after ATTEMPT_NS | what is there may be enough; else they hear the reason, and that the |
| | outcome is not known, if a transaction may have been applied |

| the transaction is | then |
|---|---|
| done | the view shows it soon |
| refused | another node was quicker, or the view was behind: once it has moved, it decides |
| unknown | the same; if it was not applied, it is drawn again after COORDINATOR_RETRY_NS |
| not to be drawn from this view | it is drawn again after ATTEMPT_AGAIN_NS: the view moves on |
| about what is not there, or breaks a rule | they hear so |

What is drawn compares all that it was drawn from, so several attempts do no harm.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from penstock.broker.ports import MetadataDone
from penstock.cluster.coordinator import Coordinator, Settled, Transaction
from penstock.cluster.view import View
from penstock.errors import (
    ChangeUnknown,
    DocumentBroken,
    GrowthRefused,
    NotFound,
    PenstockError,
    Refused,
)
from penstock.limits import ATTEMPT_AGAIN_NS, ATTEMPT_NS, COORDINATOR_RETRY_NS
from penstock.replication.leader import Outcome

_NO_ANSWER = "the coordinator has not answered in time"


class Goal(NamedTuple):
    """`draw` returns None while there is nothing to propose; it raises Refused to be retried later,
    and any other error to fail. `is_enough` tells whether to answer when late, with the
    `shortfall`. `applied` runs once the transaction is done, with its revision."""

    what: str
    draw: Callable[[], Transaction | None]
    is_there: Callable[[], bool]
    is_enough: Callable[[], bool] = lambda: False
    shortfall: Callable[[], PenstockError | None] = lambda: None
    applied: Callable[[int], None] = lambda revision: None


class _Attempt:
    def __init__(self, goal: Goal, now_ns: int) -> None:
        self.goal = goal
        self.deadline_ns = now_ns + ATTEMPT_NS
        self.draw_ns = now_ns
        self.done: list[MetadataDone] = []
        self.is_requested = False  # a transaction is on its way
        self.refused_at: int | None = None  # the view's revision, as what was refused was drawn
        self.reason = _NO_ANSWER
        self.unrefused = 0  # transactions that are applied, or may be


class Attempts:
    def __init__(self, view: View, coordinator: Coordinator, now_ns: int) -> None:
        self._view = view
        self._coordinator = coordinator
        self._now_ns = now_ns
        self.waiting: dict[object, _Attempt] = {}

    def want(self, goal: Goal, done: MetadataDone, shared: bool = True) -> None:
        """Requests for the same change, by its `what`, share an attempt."""
        key = goal.what if shared else object()
        attempt = self.waiting.get(key)
        if attempt is None:
            if goal.is_there():
                done(None)
                return
            attempt = self.waiting[key] = _Attempt(goal, self._now_ns)
        attempt.done.append(done)
        self._look(key, attempt)

    def tick(self, now_ns: int) -> None:
        """Call after the reconciler has applied the view."""
        self._now_ns = now_ns
        for key, attempt in tuple(self.waiting.items()):
            self._look(key, attempt)

    def _look(self, key: object, attempt: _Attempt) -> None:
        goal, is_late = attempt.goal, self._now_ns >= attempt.deadline_ns
        if goal.is_there():
            self._end(key, attempt, None)
        elif is_late and goal.is_enough():
            self._end(key, attempt, goal.shortfall())
        elif is_late and not attempt.unrefused:
            self._end(key, attempt, Refused(attempt.reason))
        elif is_late:
            reason = f"{attempt.reason}; the outcome is unknown, ask again"
            self._end(key, attempt, ChangeUnknown(goal.what, reason))
        elif not attempt.is_requested and self._is_due(attempt):
            self._draw(key, attempt)

    def _is_due(self, attempt: _Attempt) -> bool:
        refused_at = attempt.refused_at
        has_moved = refused_at is not None and self._view.revision > refused_at
        return has_moved or self._now_ns >= attempt.draw_ns

    def _draw(self, key: object, attempt: _Attempt) -> None:
        attempt.draw_ns, attempt.refused_at = self._now_ns + ATTEMPT_AGAIN_NS, None
        try:
            transaction = attempt.goal.draw()
        except (NotFound, GrowthRefused, DocumentBroken) as error:
            self._end(key, attempt, error)
            return
        except Refused as error:
            attempt.reason = error.reason
            return
        if transaction is not None:
            attempt.is_requested, attempt.reason = True, _NO_ANSWER
            attempt.unrefused += 1
            settled = partial(self._settled, attempt, self._view.revision)
            self._coordinator.transact(transaction, settled)
        elif attempt.goal.is_there():
            self._end(key, attempt, None)

    def _settled(self, attempt: _Attempt, drawn_at: int, settled: Settled) -> None:
        attempt.is_requested = False
        attempt.draw_ns = self._now_ns + ATTEMPT_AGAIN_NS
        if settled.outcome is Outcome.UNKNOWN:
            attempt.reason = settled.reason or _NO_ANSWER
            attempt.draw_ns = self._now_ns + COORDINATOR_RETRY_NS
        elif settled.outcome is Outcome.REFUSED:
            attempt.refused_at = drawn_at
            attempt.unrefused -= 1
        else:
            attempt.goal.applied(settled.revision)

    def _end(self, key: object, attempt: _Attempt, error: PenstockError | None) -> None:
        del self.waiting[key]
        for done in attempt.done:
            done(error)
