"""A message's timeline as a drawing and in words: a lane for the topic and for each channel, events
as points, the time between them as bars, and one sentence.

The axis is linear but for long silences. A silence that would press everything else into a corner
is cut out: it has a fixed width and says how long it is. No I/O, no clock.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from penstock.nsqadmin.words import clock_of, fine
from penstock.trace.events import Event, Kind

_CUT_SHARE = 4  # a silence so many times as long as all the rest together is cut out
_CUT_NS_MIN = 500_000_000  # a shorter one is none
_CUT_WIDTH = 14.0  # percent of the axis that it has then
_CUTS_MAX = 4

LEVELS = {
    Kind.PUBLISHED: "ink", Kind.FINISHED: "good", Kind.SENT: "water", Kind.TIMED_OUT: "warn",
    Kind.REQUEUED: "warn", Kind.DISCONNECTED: "warn", Kind.DEAD_LETTERED: "bad",
    Kind.SKIPPED: "bad", Kind.EMPTIED: "bad", Kind.CORRUPT: "bad",
}  # fmt: skip
_ENDS = {
    Kind.FINISHED: "finished", Kind.DEAD_LETTERED: "given up to the dead letters",
    Kind.SKIPPED: "skipped", Kind.FILTERED: "left out by its sample rate",
    Kind.EMPTIED: "emptied by hand", Kind.CORRUPT: "lost: its bytes in the log are corrupt",
}  # fmt: skip
_AGAIN = {Kind.TIMED_OUT: "timed out", Kind.REQUEUED: "requeued", Kind.DISCONNECTED: "dropped"}
_RETURNED = frozenset((*_ENDS, *_AGAIN, Kind.STARTED))


class Point(NamedTuple):
    at: float  # percent of the axis
    event: Event


class Bar(NamedTuple):
    """Between being sent and coming back ("water"), waiting until it is due ("soft"), or a silence
    that was cut out: its length."""

    start: float
    end: float
    what: str


class Lane(NamedTuple):
    topic: str
    channel: str  # "": the topic itself
    points: tuple[Point, ...]
    bars: tuple[Bar, ...]


def drawn(events: Iterable[Event]) -> tuple[list[Lane], list[Bar]]:
    """The lanes, and what is cut out of all of them. `events` in the order of time; at least
    one."""
    ordered = list(events)
    axis = _Axis(sorted({one.time_ns for one in ordered}))
    lanes: dict[tuple[str, str], list[Event]] = {}
    for event in ordered:
        lanes.setdefault((event.topic, event.channel or ""), []).append(event)
    found = []
    for lane, mine in lanes.items():
        points = tuple(Point(axis.at(one.time_ns), one) for one in mine)
        found.append(Lane(*lane, points, tuple(_bars(mine, axis))))
    return found, axis.cuts


class _Axis:
    def __init__(self, times_ns: Sequence[int]) -> None:
        steps = [(after - before, number) for number, (before, after) in
                 enumerate(pairwise(times_ns))]  # fmt: skip
        left = sum(length for length, _ in steps)
        cut: set[int] = set()
        for length, number in sorted(steps, reverse=True):
            rest = left - length
            if len(cut) == _CUTS_MAX or rest <= 0:
                break
            if length < max(_CUT_SHARE * rest, _CUT_NS_MIN):
                break
            cut.add(number)
            left = rest
        linear = 100.0 - _CUT_WIDTH * len(cut)
        position = 0.0
        self.cuts: list[Bar] = []
        self._at = {times_ns[0]: 0.0}
        for length, number in steps:
            width = _CUT_WIDTH if number in cut else linear * length / left
            if number in cut:
                self.cuts.append(Bar(position, position + width, fine(length / 1e9)))
            position += width
            self._at[times_ns[number + 1]] = position

    def at(self, time_ns: int) -> float:
        return round(self._at[time_ns], 2)


def _bars(events: Sequence[Event], axis: _Axis) -> Iterable[Bar]:
    sent: Event | None = None
    delayed: Event | None = None
    for event in events:
        if event.kind is Kind.SENT:
            sent = event
        elif event.kind in _RETURNED and sent is not None:
            yield Bar(axis.at(sent.time_ns), axis.at(event.time_ns), "water")
            sent = None
        if event.kind is Kind.DELAYED:
            delayed = event
        elif event.kind is Kind.RELEASED and delayed is not None:
            yield Bar(axis.at(delayed.time_ns), axis.at(event.time_ns), "soft")
            delayed = None


def summary(events: Iterable[Event]) -> str:
    """The events in a sentence, without guesses."""
    ordered = list(events)
    first = next((one for one in ordered if one.kind is Kind.PUBLISHED), None)
    if first is not None:
        parts = [f"Published at {clock_of(first.time_ns)} in {first.topic}"]
    else:
        parts = ["Its publishing was not traced"]
    since_ns = (first or ordered[0]).time_ns
    channels: dict[str, list[Event]] = {}
    for event in ordered:
        if event.channel and event.kind is not Kind.SWITCHED:
            channels.setdefault(event.channel, []).append(event)
    parts += [_of_channel(name, mine, since_ns) for name, mine in channels.items()]
    if not channels:
        parts.append("no channel was traced")
    return "; ".join(parts) + "."


def _of_channel(name: str, events: Sequence[Event], since_ns: int) -> str:
    sent = sum(one.kind is Kind.SENT for one in events)
    parts = [f"sent to {name} {times(sent)}" if sent else f"not sent to {name}"]
    for kind, words in _AGAIN.items():
        count = sum(one.kind is kind for one in events)
        if count:
            parts.append(f"{words} {times(count)}")
    last = next((one for one in reversed(events) if one.kind in _ENDS), None)
    if last is not None:
        parts.append(f"{_ENDS[last.kind]} after {fine((last.time_ns - since_ns) / 1e9)}")
    elif events[-1].kind is Kind.SENT:
        parts.append("not answered yet")
    return ", ".join(parts)


def times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")
