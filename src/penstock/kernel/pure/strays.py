"""Messages outside the cursor's path: waiting to be sent again, delayed, or in flight again.

A table by id holds them. The queue of the waiting and the heap of the delayed refer to what is in
the table; a reference whose message has since changed state is passed over when it comes up, so
that a change of state is one step.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import count

from penstock.kernel.pure.flight import (
    BEHIND,
    DELAYED,
    EXHAUSTED,
    FLYING,
    GONE,
    WAITING,
    Flight,
)

Queue = deque[tuple[Flight, int]]  # with the turn in which it began to wait


class Strays:
    def __init__(self) -> None:
        self._table: dict[int, Flight] = {}
        self.queue: Queue = deque()
        # due, id, turn, message: what is due at the same time comes in the order of the ids
        self._heap: list[tuple[int, int, int, Flight]] = []
        self._exhausted: Queue = deque()  # not yet taken
        self._turns = count(1)
        self._counts = [0] * (BEHIND + 1)

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[Flight]:
        return iter(self._table.values())

    @property
    def waiting(self) -> int:
        return self._counts[WAITING]

    @property
    def delayed(self) -> int:
        return self._counts[DELAYED]

    @property
    def flying(self) -> int:
        return self._counts[FLYING]

    @property
    def exhausted(self) -> int:
        return self._counts[EXHAUSTED]

    @property
    def behind(self) -> int:
        return self._counts[BEHIND]

    def get(self, id: int) -> Flight | None:
        return self._table.get(id)

    def add(self, flight: Flight) -> None:
        """Take in a message; what it does is said next, by `wait`, `sleep` or `fly`."""
        if flight.id in self._table:
            raise RuntimeError(f"message {flight.id:016x} is a stray already")
        self._table[flight.id] = flight
        flight.state = GONE

    def _enter(self, flight: Flight, state: int) -> int:
        self._counts[flight.state] -= 1
        self._counts[state] += 1
        flight.state = state
        flight.turn = next(self._turns)
        return flight.turn

    def wait(self, flight: Flight, queue: Queue | None = None) -> None:
        """In the queue of all, or another."""
        place = (flight, self._enter(flight, WAITING))
        (self.queue if queue is None else queue).append(place)

    def sleep(self, flight: Flight, due_ns: int) -> None:
        flight.due_ns = due_ns
        heapq.heappush(self._heap, (due_ns, flight.id, self._enter(flight, DELAYED), flight))

    def fly(self, flight: Flight) -> None:
        self._enter(flight, FLYING)

    def exhaust(self, flight: Flight) -> None:
        self._exhausted.append((flight, self._enter(flight, EXHAUSTED)))

    def stand_behind(self, flight: Flight) -> None:
        self._enter(flight, BEHIND)

    def take_exhausted(self) -> Flight | None:
        """The next one that was not taken yet."""
        while self._exhausted:
            flight, turn = self._exhausted.popleft()
            if flight.turn == turn:
                return flight
        return None

    def remove(self, flight: Flight) -> None:
        self._counts[flight.state] -= 1
        self._counts[GONE] += 1
        flight.state = flight.turn = GONE
        del self._table[flight.id]

    def rename(self, flight: Flight, id: int) -> None:
        del self._table[flight.id]
        flight.id = id
        self._table[id] = flight

    @staticmethod
    def first_of(queue: Queue) -> Flight | None:
        """The message that has waited longest in it."""
        while queue:
            flight, turn = queue[0]
            if flight.turn == turn:
                return flight
            queue.popleft()
        return None

    @property
    def due_ns(self) -> int:
        """When the first delayed message is due, 0 when there is none."""
        while self._heap:
            due_ns, _, turn, flight = self._heap[0]
            if flight.turn == turn:
                return due_ns
            heapq.heappop(self._heap)
        return 0

    def take_due(self, wall_ns: int) -> Flight | None:
        due_ns = self.due_ns
        if due_ns == 0 or due_ns > wall_ns:
            return None
        return heapq.heappop(self._heap)[3]

    def validate(self, queues: Iterable[Queue]) -> None:
        """`queues`: those beside the queue of all."""
        states = [flight.state for flight in self._table.values()]
        for state in (WAITING, DELAYED, FLYING, EXHAUSTED, BEHIND):
            if states.count(state) != self._counts[state]:
                raise RuntimeError(f"count of strays in state {state} does not add up")
        if not {WAITING, DELAYED, FLYING, EXHAUSTED, BEHIND}.issuperset(states):
            raise RuntimeError("a stray is in no state")
        places = [place for queue in (self.queue, *queues) for place in queue]
        queued = {flight.id for flight, turn in places if flight.turn == turn}
        if queued != {flight.id for flight in self if flight.state == WAITING}:
            raise RuntimeError("the queue of waiting strays does not match the table")
