"""Simulated time: events in the order of their times, those of one time in an order of the dice."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

Event = Callable[[], None]


class Schedule:
    def __init__(self, dice: random.Random, now_ns: int = 0) -> None:
        self.now_ns = now_ns
        self.played_count = 0
        self._dice = dice
        self._added_count = 0  # so that no two entries compare by their events
        self._events: list[tuple[int, float, int, Event]] = []

    def at(self, at_ns: int, event: Event) -> None:
        """What is due already comes next, and time does not go back."""
        self._added_count += 1
        entry = max(at_ns, self.now_ns), self._dice.random(), self._added_count, event
        heapq.heappush(self._events, entry)

    def after(self, delay_ns: int, event: Event) -> None:
        self.at(self.now_ns + delay_ns, event)

    def play_until(self, end_ns: int) -> None:
        """Everything that is due until then."""
        while self._events and self._events[0][0] <= end_ns:
            self.now_ns, _, _, event = heapq.heappop(self._events)
            self.played_count += 1
            event()
        self.now_ns = max(self.now_ns, end_ns)
