"""Ids in stock: a thread makes them ahead of time, and stops while nobody takes any.

It is NSQ's `idPump` with its channel. The pool holds a bounded number. Whoever takes from an empty
one waits, so a program gets no more ids than can be made (4,096 in 1.05 ms), and the time that a
clock steps back is waited for here, not in each caller. Every id was new when it was made; it may
have been in stock since then, so its time is not that of its use.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import Self

from penstock import limits
from penstock.clock import Clock
from penstock.errors import ConfigError, IdNotMade, IdPoolClosed, IdPoolEmpty, SequenceExpired
from penstock.ids.factory import GuidFactory

log = logging.getLogger("penstock.ids")

_RETRY_S = 0.0011  # by then the next tick has begun


class IdPool:
    """`with IdPool(factory, clock) as pool:` starts its thread, and ends it. The clock is for the
    log: a failure is reported once a second."""

    def __init__(
        self,
        factory: GuidFactory,
        clock: Clock,
        count_max: int = limits.ID_POOL_COUNT,
    ) -> None:
        if count_max < 1:
            raise ConfigError("count_max", count_max, "must be 1 or more")
        self._factory = factory
        self._mono_ns = clock.mono_ns
        self._count_max = count_max
        self._ids: deque[int] = deque()
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._quiet_until_ns = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        if self._thread is not None or self._closed.is_set():
            raise IdPoolClosed("an id pool is started once")
        self._thread = threading.Thread(target=self._pump, name="penstock ids", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Whoever waits for an id gets IdPoolClosed."""
        with self._changed:
            self._closed.set()
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def __len__(self) -> int:
        """How many are in stock."""
        return len(self._ids)

    def take(self, timeout_s: float | None = None) -> int:
        """An id, above all that were taken before. Waits for one; raises IdPoolEmpty when none has
        come in time, IdPoolClosed when the pool is not running."""
        with self._changed:
            if self._thread is None:
                raise IdPoolClosed("this id pool was not started")
            self._changed.wait_for(lambda: self._ids or self._closed.is_set(), timeout_s)
            if self._closed.is_set():
                raise IdPoolClosed("this id pool is closed")
            if not self._ids:
                raise IdPoolEmpty(timeout_s or 0)
            was_full = len(self._ids) == self._count_max
            id = self._ids.popleft()
            if was_full:
                self._changed.notify_all()
            return id

    def take_hex(self, timeout_s: float | None = None) -> str:
        """`take`, in the form of NSQ's message ids: 16 hex digits, which sort as the ids do."""
        return f"{self.take(timeout_s):016x}"

    def _pump(self) -> None:
        while self._has_room():
            try:
                id = self._factory.new_id()
            except IdNotMade as error:
                self._note(error)
                self._closed.wait(_RETRY_S)
                continue
            with self._changed:
                self._ids.append(id)
                self._changed.notify()
        log.debug("ids: closing")

    def _has_room(self) -> bool:
        """Waits until there is; False: the pool is closed."""
        with self._changed:
            self._changed.wait_for(
                lambda: len(self._ids) < self._count_max or self._closed.is_set()
            )
            return not self._closed.is_set()

    def _note(self, error: IdNotMade) -> None:
        """A used-up tick is nothing but speed."""
        now_ns = self._mono_ns()
        if isinstance(error, SequenceExpired) or now_ns < self._quiet_until_ns:
            return
        self._quiet_until_ns = now_ns + limits.SECOND
        log.warning("ids: %s; trying again", error)
