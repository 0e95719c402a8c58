"""Changes of the metadata that are drawn from the view, and tried until the view shows them.

| the view | then |
|---|---|
| shows what is wanted | all who wait are answered |
| does not, and nothing is on its way | the transaction is drawn from it, again when it is due |
| does not after ATTEMPT_NS | what is there may be enough; else they hear that it is not known |

| the transaction is | then |
|---|---|
| done | the view shows it soon |
| refused | another node was quicker, or the view was behind: it shows, and decides |
| unknown | the same; if it was not applied, it is drawn again after COORDINATOR_RETRY_NS |
| not to be drawn from this view | it is drawn again after ATTEMPT_AGAIN_NS: the view moves on |
| about what is not there, or breaks a rule | they hear so |

What is drawn compares all that it was drawn from, so several attempts do no harm.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from penstock.broker.ports import MetadataDone
from penstock.cluster.coordinator import Coordinator, Settled, Transaction
from penstock.errors import ChangeUnknown, GrowthRefused, NotFound, PenstockError, Refused
from penstock.limits import ATTEMPT_AGAIN_NS, ATTEMPT_NS, COORDINATOR_RETRY_NS
from penstock.replica.leading import Outcome

_NO_ANSWER = "the coordinator has not answered in time"


class Goal(NamedTuple):
    """`draw`: None where there is nothing to do but to wait; it raises NotFound and GrowthRefused
    for good, Refused for the moment. `is_enough`: once it is late."""

    what: str
    draw: Callable[[], Transaction | None]
    is_there: Callable[[], bool]
    is_enough: Callable[[], bool]


class _Attempt:
    __slots__ = ("deadline_ns", "done", "draw_ns", "goal", "is_asked", "reason")

    def __init__(self, goal: Goal, now_ns: int) -> None:
        self.goal = goal
        self.deadline_ns = now_ns + ATTEMPT_NS
        self.draw_ns = now_ns
        self.done: list[MetadataDone] = []
        self.is_asked = False  # a transaction is on its way
        self.reason = _NO_ANSWER


class Attempts:
    def __init__(self, coordinator: Coordinator, now_ns: int) -> None:
        self._coordinator = coordinator
        self._now_ns = now_ns
        self._attempts: dict[str, _Attempt] = {}

    @property
    def are_waited_for(self) -> bool:
        return bool(self._attempts)

    def want(self, goal: Goal, done: MetadataDone) -> None:
        """Those who want the same, by its `what`, share an attempt."""
        attempt = self._attempts.get(goal.what)
        if attempt is None:
            if goal.is_there():
                done(None)
                return
            attempt = self._attempts[goal.what] = _Attempt(goal, self._now_ns)
        attempt.done.append(done)
        self._look(attempt)

    def tick(self, now_ns: int) -> None:
        """After what the view shows has come true here."""
        self._now_ns = now_ns
        for attempt in tuple(self._attempts.values()):
            self._look(attempt)

    def _look(self, attempt: _Attempt) -> None:
        goal, is_late = attempt.goal, self._now_ns >= attempt.deadline_ns
        if goal.is_there() or (is_late and goal.is_enough()):
            self._end(attempt, None)
        elif is_late:
            reason = f"{attempt.reason}; it may come true or not, ask again"
            self._end(attempt, ChangeUnknown(goal.what, reason))
        elif not attempt.is_asked and self._now_ns >= attempt.draw_ns:
            self._draw(attempt)

    def _draw(self, attempt: _Attempt) -> None:
        attempt.draw_ns = self._now_ns + ATTEMPT_AGAIN_NS
        try:
            transaction = attempt.goal.draw()
        except (NotFound, GrowthRefused) as error:
            self._end(attempt, error)
            return
        except Refused as error:
            attempt.reason = error.reason
            return
        if transaction is not None:
            attempt.is_asked, attempt.reason = True, _NO_ANSWER
            self._coordinator.transact(transaction, partial(self._settled, attempt))

    def _settled(self, attempt: _Attempt, settled: Settled) -> None:
        is_unknown = settled.outcome is Outcome.UNKNOWN
        attempt.is_asked = False
        attempt.draw_ns = self._now_ns + (COORDINATOR_RETRY_NS if is_unknown else ATTEMPT_AGAIN_NS)

    def _end(self, attempt: _Attempt, error: PenstockError | None) -> None:
        del self._attempts[attempt.goal.what]
        for done in attempt.done:
            done(error)
