"""Retries failed disk operations about once a second until they succeed; `/ping` names them
meanwhile.

| what failed | the try |
|---|---|
| a stage could not be read | it is read whole |
| a stage could not be written | a file of the same length, in the same steps, which is removed |
| stages could not be removed | they are removed; a start would do that, too |
| the decision of a commit could not be written | as for a stage |
| a commit could not be noted as done | the same record is written |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.broker.health import Health, Trouble
    from penstock.broker.ports import Job

Submit = Callable[["Job", Callable[[OSError | None], None]], None]
Ended = Callable[[Mapping[Any, Any], OSError | None], None]


def _nothing(*_: object) -> None:
    """No caller waits for the end."""


@dataclass(eq=False)
class Retries:
    """Retries of one trouble, one attempt at a time. `job` makes a job from some failed items;
    None: not now. `on_end` is called after each attempt, before health reports that the trouble is
    over."""

    _health: Health
    _trouble: Trouble
    _reason: Callable[[Any], str]
    _submit: Submit
    _job: Callable[[Mapping[Any, Any]], Job | None]
    _on_end: Ended = _nothing
    at_a_time: int = 1
    failed: dict[Any, Any] = field(default_factory=dict)  # the one that was tried last stands last
    busy: bool = False

    def note(self, key: Any, error: OSError, what: Any = None) -> None:
        self.failed.pop(key, None)
        self.failed[key] = what
        self._health.report("", self._trouble, f"{self._reason(key)}: {error}")

    def forget(self, keys: Iterable[Any]) -> None:
        """The items succeeded otherwise, or do not matter any more."""
        for key in keys:
            self.failed.pop(key, None)
        self._clear_if_done()

    def _clear_if_done(self) -> None:
        if not self.failed:
            self._health.clear("", self._trouble)

    def settle(self) -> None:
        if self.failed and not self.busy:
            self.busy = True
            if not self.run(dict(islice(self.failed.items(), self.at_a_time)), self._rest):
                self.busy = False

    def _rest(self) -> None:
        self.busy = False

    def run(self, things: Mapping[Any, Any], done: Callable[[], None]) -> bool:
        """Try these now. `done` is called when they are through, or left for later."""
        job = self._job(things)
        if job is None:
            return False
        self._submit(job, partial(self._ended, things, job, done))
        return True

    def _ended(
        self, things: Mapping[Any, Any], job: Job, done: Callable[[], None], error: OSError | None
    ) -> None:
        left = () if error is None else getattr(job, "left", things)
        for key in things:
            self.failed.pop(key, None)
        if error is not None:
            for key in left:
                self.note(key, error, things[key])
        done()
        self._on_end(things, error)
        self._clear_if_done()
