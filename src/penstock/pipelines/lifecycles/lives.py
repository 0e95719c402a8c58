"""Lives: of events, one record for each message and channel; records of one life add up to one.

All that is kept of a life is a least, a greatest or a count, so it does not matter how the events
were cut into parts, nor in which order the parts come: `merged` of the lives of two parts are the
lives of both. What happens to the topic itself (`published`) is the life in channel 0.

`sent_at` is the place of the first delivery in `_trace` as one number: events of one microsecond
still have an order there. `last_step` is the place of the last step, and what it left the message
in.

Events are sorted once, by message, channel and place; then each column is one reduction over the
segments. Nothing is done for a single event in Python.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.pipelines.lifecycles.events import ENDED, GIVEN_BACK, Numbers
from penstock.trace.events import Kind

NEVER = np.iinfo(np.int64).max  # of what is a least: it has not happened
NO_ATTEMPT = np.iinfo(np.int32).max
NO_TRACE = np.iinfo(np.int64).min
# What the last step left a message in.
OUT, DELAYED, BACK = 1, 2, 3
_STEP_BITS = 2

KEY = (("partition", "<i4"), ("offset", "<i8"), ("message_id", "<u8"), ("channel", "<i4"))
LEASTS = (
    ("published", "<i8"),
    ("published_at", "<i8"),
    ("first_sent", "<i8"),
    ("finished", "<i8"),
    ("sent_at", "<i8"),
    ("first_attempt", "<i4"),
)
MOSTS = (("trace_id", "<i8"), ("last", "<i8"), ("last_step", "<i8"), ("attempts", "<i4"))
COUNTS = tuple(
    (name, "<i4") for name in ("sends", "finishes", "given_back", "endings", "delays", "releases")
)
LIFE = np.dtype([*KEY, *LEASTS, *MOSTS, *COUNTS])

# A delivery or finish right after one with which it does not go: `life` is its place in the lives.
STEP = np.dtype(
    [("life", "<i8"), ("kind", "u1"), ("before", "u1"), ("time_us", "<i8"), ("place", "<i8")]
)


def last_state(last_step: Numbers) -> Numbers:
    """OUT, DELAYED, BACK; 0 before the first step."""
    return np.where(last_step < 0, 0, last_step & ((1 << _STEP_BITS) - 1))


def sorted_events(events: Numbers) -> Numbers:
    """By message, channel and place."""
    if len(events) and not (np.diff(events["place"]) >= 0).all():
        events = events[np.argsort(events["place"], kind="stable")]
    return events[_order(events)]


def _order(rows: Numbers) -> Numbers:
    """Stable, by the key. As a rule an offset has one id, and the key fits into one number."""
    if not len(rows):
        return np.empty(0, np.int64)
    partition, offset, channel = (rows[name] for name in ("partition", "offset", "channel"))
    low, width = int(offset.min()), int(channel.max()) + 1
    span, bits = int(offset.max()) - low + 1, len(rows).bit_length()
    partitions = int(partition.max()) + 1
    if (partitions * span * width).bit_length() + bits < 63:
        place = partition.astype(np.int64) * span + (offset - low)
        numbered = ((place * width + channel) << bits) | np.arange(len(rows))
        numbered.sort()  # several times as fast as an argsort
        order: Numbers = numbered & ((1 << bits) - 1)
        at, ids = place[order], rows["message_id"][order]
        if not ((at[1:] == at[:-1]) & (ids[1:] != ids[:-1])).any():
            return order
    return np.lexsort((channel, rows["message_id"], offset, partition))


def _changes(rows: Numbers, names: tuple[str, ...]) -> Numbers:
    """Where another key begins."""
    changed = np.zeros(len(rows), bool)
    changed[:1] = True
    for name in names:
        column = rows[name]
        changed[1:] |= column[1:] != column[:-1]
    return changed


_MESSAGE = ("partition", "offset", "message_id")
_KEY = (*_MESSAGE, "channel")


def message_numbers(lives: Numbers) -> Numbers:
    """Of sorted lives: which of them are of one message."""
    return np.cumsum(_changes(lives, _MESSAGE)) - 1


def begins_of(lives: Numbers) -> Numbers:
    """Of sorted lives: where each message begins."""
    return np.flatnonzero(_changes(lives, _MESSAGE))


class _Segments:
    """Reductions over the rows of each life."""

    def __init__(self, begins: Numbers) -> None:
        self._begins = begins

    def count(self, mask: Numbers) -> Numbers | int:
        if not mask.any():
            return 0
        return np.add.reduceat(mask.view(np.uint8), self._begins, dtype=np.int32)

    def least(self, values: Numbers, mask: Numbers, none: int = NEVER) -> Numbers | int:
        if not mask.any():
            return none
        return np.minimum.reduceat(np.where(mask, values, none), self._begins)

    def most(self, values: Numbers, mask: Numbers, none: int) -> Numbers | int:
        if not mask.any():
            return none
        return np.maximum.reduceat(np.where(mask, values, none), self._begins)


def lives_of(events: Numbers) -> Numbers:
    """Of events as `sorted_events` gives them; sorted by their key."""
    begins = np.flatnonzero(_changes(events, _KEY))
    lives = np.empty(len(begins), LIFE)
    if not len(begins):
        return lives
    kind, time_us, place = (np.ascontiguousarray(events[n]) for n in ("kind", "time_us", "place"))
    attempts = events["attempts"].astype(np.int32)
    per = _Segments(begins)
    published, sent, done = (kind == k for k in (Kind.PUBLISHED, Kind.SENT, Kind.FINISHED))
    every, traced = np.ones(len(events), bool), events["trace_id"] != 0
    columns: dict[str, Any] = {
        "published": per.least(time_us, published),
        "published_at": per.least(place, published),
        "first_sent": per.least(time_us, sent),
        "finished": per.least(time_us, done),
        "sent_at": per.least(place, sent),
        "first_attempt": per.least(attempts, sent, NO_ATTEMPT),
        "trace_id": per.most(events["trace_id"], traced, NO_TRACE),
        "last": per.most(time_us, every, 0),
        "last_step": per.most((place << _STEP_BITS) | _left_in(kind), _left_in(kind) > 0, -1),
        "attempts": per.most(attempts, every, 0),
        "sends": per.count(sent),
        "finishes": per.count(done),
        "given_back": per.count(np.isin(kind, GIVEN_BACK)),
        "endings": per.count(np.isin(kind, ENDED)),
        "delays": per.count(kind == Kind.DELAYED),
        "releases": per.count(kind == Kind.RELEASED),
    }
    for name in _KEY:
        lives[name] = events[name][begins]
    for name, column in columns.items():
        lives[name] = column
    return lives


def _left_in(kind: Numbers) -> Numbers:
    return _LEFT_IN[kind]


_LEFT_IN = np.zeros(256, np.int64)
_LEFT_IN[[Kind.SENT, Kind.TOUCHED]] = OUT
_LEFT_IN[Kind.DELAYED] = DELAYED
_LEFT_IN[[*GIVEN_BACK, Kind.RELEASED]] = BACK


def merged(lives: Numbers) -> Numbers:
    """Lives of several parts, in any order, each once; sorted by their key."""
    lives = lives[_order(lives)]
    begins = np.flatnonzero(_changes(lives, _KEY))
    if len(begins) == len(lives):
        return lives
    found = lives[begins].copy()
    for name, _ in LEASTS:
        found[name] = np.minimum.reduceat(lives[name], begins)
    for name, _ in MOSTS:
        found[name] = np.maximum.reduceat(lives[name], begins)
    for name, _ in COUNTS:
        found[name] = np.add.reduceat(lives[name], begins)
    return found


def trace_ids(lives: Numbers, message: Numbers) -> Numbers:
    """Of each message the trace id, 0 without one; `message` as `message_numbers` gives it."""
    if not len(lives):
        return np.empty(0, np.int64)
    begins = np.flatnonzero(np.concatenate(([True], message[1:] != message[:-1])))
    found = np.maximum.reduceat(lives["trace_id"], begins)
    return np.where(found == NO_TRACE, 0, found)


# --- steps that do not go together ---


def odd_steps(events: Numbers, starts: Numbers) -> Numbers:
    """Of events as `sorted_events` gives them: deliveries right after a delivery or a finish, and
    finishes right after a finish, within one life. After a start of the daemon (`starts`: places)
    messages come again that nobody gave back, and a finish that was not journalled yet when it was
    killed is one that never was."""
    life = np.cumsum(_changes(events, _KEY)) - 1
    is_step = (events["channel"] > 0) & np.isin(events["kind"], _STEPS)
    steps, life = events[is_step], life[is_step]
    kind, place = steps["kind"], steps["place"]
    same = life[1:] == life[:-1]
    after, now = kind[:-1], kind[1:]
    odd = same & (
        ((now == Kind.SENT) & ((after == Kind.SENT) | (after == Kind.FINISHED)))
        | ((now == Kind.FINISHED) & (after == Kind.FINISHED))
    )
    at = np.flatnonzero(odd)
    began = np.searchsorted(starts, place[at + 1], "left") > np.searchsorted(
        starts, place[at], "right"
    )
    at = at[~began] + 1
    found = np.empty(len(at), STEP)
    found["life"], found["kind"], found["before"] = life[at], kind[at], kind[at - 1]
    found["time_us"], found["place"] = steps["time_us"][at], place[at]
    return found


_STEPS = (Kind.SENT, Kind.FINISHED, *GIVEN_BACK)
