"""Keeps a view up to date: meet, list, watch, and again after an error.

| phase | on | to |
|---|---|---|
| AWAY | the time of the next attempt | MEETING: `cluster` is read, whose answer has the revision |
| MEETING | it is the cluster of the view, and was never listed, or must be | LISTING |
| MEETING | it is, and only changes are missing | WATCHING, from the view's revision + 1 |
| MEETING | it is not, or an older one | AWAY, and the view is frozen |
| LISTING | the last page | WATCHING |
| WATCHING | compacted | MEETING, then LISTING |
| any | failed | AWAY |

A watch is asked how far it is. If it is behind the view, either its server lags or the coordinator
was restored: a read, which is never behind, says which.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import TypeVar

from penstock.cluster import keys
from penstock.cluster.coordinator import (
    Changes,
    Compacted,
    Coordinator,
    Failed,
    KeyPage,
    KeyWatch,
    Reading,
)
from penstock.cluster.view import View
from penstock.limits import COORDINATOR_RETRY_NS, WATCH_PROGRESS_NS

A = TypeVar("A")  # an answer


class Phase(IntEnum):
    AWAY = 1
    MEETING = 2
    LISTING = 3
    WATCHING = 4


class Watching:
    """`tick` drives it; the shell calls the view's `apply`."""

    def __init__(self, coordinator: Coordinator, view: View) -> None:
        self.coordinator = coordinator
        self.view = view
        self.phase = Phase.AWAY
        self.reason = "not connected yet"  # why it is away
        self.due_ns = 0  # the next attempt
        self._progress_due_ns = 0
        self._is_listed = False
        self._restorations = 0  # of the metadata, when it was listed
        self._since = 0  # the revision from which on changes are wanted
        self._attempt = 0  # answers of earlier ones are dropped
        self._watch: KeyWatch | None = None
        self._reading = False  # the revision, as the watch is behind
        # Something waits in the view. Without a loop the owner polls.
        self.on_changes: Callable[[], None] = lambda: None

    def tick(self, mono_ns: int) -> None:
        if self.view.frozen and self.phase in (Phase.LISTING, Phase.WATCHING):
            self._lose(self.view.frozen)
        if self.phase is Phase.AWAY and mono_ns >= self.due_ns:
            self.due_ns = mono_ns + COORDINATOR_RETRY_NS
            self._meet()
        elif self._watch is not None and mono_ns >= self._progress_due_ns:
            self._progress_due_ns = mono_ns + WATCH_PROGRESS_NS
            self._watch.request_progress()

    def _meet(self) -> None:
        self._attempt += 1
        self.phase = Phase.MEETING
        self.coordinator.read(keys.CLUSTER, self._in_this_attempt(self._met))

    def _in_this_attempt(self, take: Callable[[A], None]) -> Callable[[A | Failed], None]:
        """Later answers are dropped, and a failure ends the attempt."""
        attempt = self._attempt

        def hear(answer: A | Failed) -> None:
            if attempt != self._attempt:
                return
            if isinstance(answer, Failed):
                self._lose(answer.reason)
            else:
                take(answer)

        return hear

    def _met(self, answer: Reading) -> None:
        if not self.view.meet(answer):
            self._lose(self.view.frozen or "the coordinator knows no cluster yet")
        elif self._is_listed and not self._is_restored:
            self._begin_watch()
        else:
            self._list()

    @property
    def _is_restored(self) -> bool:
        """Restored since it was listed: revisions have restarted, and a watch from the old ones
        would miss the restored keys."""
        return self.view.restorations != self._restorations

    def _lose(self, reason: str) -> None:
        self._attempt += 1
        self.phase, self.reason = Phase.AWAY, reason
        if self.view.frozen:  # it has dropped what it had not taken in
            self._is_listed = False
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _list(self) -> None:
        self.phase = Phase.LISTING
        self._is_listed = False
        self._restorations = self.view.restorations
        self.view.begin_list()
        self.coordinator.list("", self._in_this_attempt(self._page))

    def _page(self, answer: KeyPage) -> None:
        self.view.page(answer)
        if answer.is_last:
            self._is_listed = True
            self._since = answer.revision + 1
            self._begin_watch()

    def _begin_watch(self) -> None:
        self.phase, self.reason = Phase.WATCHING, ""
        changed = self._in_this_attempt(self._changed)
        self._watch = self.coordinator.watch("", self._since, changed)

    def _changed(self, answer: Changes | Compacted) -> None:
        if isinstance(answer, Compacted):
            self._is_listed = False
            self._lose("the watch was compacted")
            self._meet()
        elif answer.revision < self._since - 1:
            self._confirm_revision()
        else:
            self._since = answer.revision + 1
            self.view.changes(answer)
            self.on_changes()

    def _confirm_revision(self) -> None:
        if not self._reading:
            self._reading = True
            attempt = self._attempt
            self.coordinator.read(keys.CLUSTER, lambda answer: self._confirmed(attempt, answer))

    def _confirmed(self, attempt: int, answer: Reading | Failed) -> None:
        self._reading = False
        if attempt != self._attempt or not isinstance(answer, Reading):
            return
        if not self.view.meet(answer):
            self._lose(self.view.frozen)
        elif self._is_restored:
            self._lose("the metadata was restored")
            self._meet()
