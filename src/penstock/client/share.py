"""How many messages each connection may have in flight (its RDY), so that all together keep within
one bound. No clock, no I/O.

With at least one message per connection the bound is divided evenly, the remainder going to the
first ones. No connection gets more than its nsqd allows; the others get the rest. With fewer,
connections take turns: as many as the bound allows hold RDY 1. One that has brought nothing for a
while passes its turn on, a busy one does after a longer while, and the turn goes to the one that
has waited longest. What is still in flight on connections without a turn counts against the bound.

Back-off is the same rule with a bound of 0 or 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class Seat:
    """One connection, as far as this matters. `changed_s`: when its RDY became, or ceased to be,
    zero; the lowest has waited or held longest."""

    rdy_max: int
    changed_s: float
    rdy: int = 0
    in_flight: int = 0
    heard_s: float = 0.0  # when the last message came


@dataclass(frozen=True, slots=True)
class Turns:
    idle_s: float  # a turn without a message ends after this
    hold_s: float  # and any turn after this


def share(seats: Sequence[Seat], bound: int, now_s: float, turns: Turns) -> list[int]:
    """The RDY of each seat, in order."""
    if bound >= len(seats):
        return _evenly(seats, bound)
    return _by_turns(seats, bound, now_s, turns)


def take_turns(seats: Sequence[Seat], bound: int) -> bool:
    """Whether the answer of `share` depends on the time."""
    return 0 < bound < len(seats)


def _evenly(seats: Sequence[Seat], bound: int) -> list[int]:
    counts = [0] * len(seats)
    left = bound
    in_rising_order = sorted(range(len(seats)), key=lambda place: seats[place].rdy_max)
    for before, place in enumerate(in_rising_order):
        share_of_the_rest = -(-left // (len(seats) - before))
        counts[place] = min(share_of_the_rest, seats[place].rdy_max)
        left -= counts[place]
    return counts


def _by_turns(seats: Sequence[Seat], bound: int, now_s: float, turns: Turns) -> list[int]:
    holding = [place for place, seat in enumerate(seats) if seat.rdy > 0]
    holding = [place for place in holding if not _over(seats[place], now_s, turns)]
    holding.sort(key=lambda place: seats[place].changed_s)
    kept = set(holding[max(len(holding) - bound, 0) :])
    taken = sum(seat.in_flight for place, seat in enumerate(seats) if place not in kept)
    waiting = [place for place in range(len(seats)) if place not in kept]
    waiting.sort(key=lambda place: (seats[place].rdy > 0, seats[place].changed_s))
    free = max(bound - len(kept) - taken, 0)
    chosen = kept.union(waiting[:free])
    return [int(place in chosen) for place in range(len(seats))]


def _over(seat: Seat, now_s: float, turns: Turns) -> bool:
    idle_since_s = max(seat.heard_s, seat.changed_s)
    return now_s - idle_since_s >= turns.idle_s or now_s - seat.changed_s >= turns.hold_s
