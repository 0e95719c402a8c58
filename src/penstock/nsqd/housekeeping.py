"""What a node looks at each second, and the search for delayed messages between turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock import limits
from penstock.broker.broker import Broker
from penstock.net.turn import Turn

EVERY_S = 1.0


class Housekeeping:
    """`each_second` is called before the broker looks at its topics."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        broker: Broker,
        turn: Turn,
        each_second: Callable[[], None],
        on_fault: Callable[[Exception], None],
    ) -> None:
        self._loop = loop
        self._broker = broker
        self._turn = turn
        self._each_second = each_second
        self._on_fault = on_fault
        self._timer: asyncio.TimerHandle | None = None
        self._searching: asyncio.TimerHandle | None = None  # the next slice of a search

    def start(self) -> None:
        self._keep()

    def stop(self) -> None:
        for timer in (self._timer, self._searching):
            if timer is not None:
                timer.cancel()

    def _keep(self) -> None:
        self._timer = self._loop.call_later(EVERY_S, self._keep)
        self._each_second()
        try:
            self._broker.housekeeping()
        except Exception as error:
            self._on_fault(error)
            return
        if self._searching is None:
            self._search()
        self._turn.tick()  # also after the wall clock was set, when no timer knows it

    def _search(self) -> None:
        """For delayed messages in logs, a slice between turns and then a pause."""
        self._searching = None
        try:
            more = self._broker.search()
        except Exception as error:
            self._on_fault(error)
            return
        if more:
            pause_s = limits.SEARCH_PAUSE_NS / limits.SECOND
            self._searching = self._loop.call_later(pause_s, self._search)
            self._turn.soon()
