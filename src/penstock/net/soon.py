"""Asking for a turn. It is made before the turn, because whoever asks for turns is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


def _no_turn_yet() -> None:
    raise RuntimeError("a turn was asked for, and there is none")


class Soon:
    """`ask` may be handed on at once; `begin` says what is run, `stop` that nothing is any more."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._run: Callable[[], None] = _no_turn_yet
        self._handle: asyncio.Handle | None = None
        self._stopped = False

    def begin(self, run: Callable[[], None]) -> None:
        self._run = run

    def ask(self) -> None:
        """Run a turn at the next chance: someone outside of it has left something to do."""
        if self._handle is None and not self._stopped:
            self._handle = self._loop.call_soon(self._call)

    def _call(self) -> None:
        self._handle = None
        self._run()

    def stop(self) -> None:
        self._stopped = True
        if self._handle is not None:
            self._handle.cancel()
