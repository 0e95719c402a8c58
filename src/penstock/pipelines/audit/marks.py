"""What has to be known of a channel as a whole before one of its messages can be judged.

`floor` and `position` are the lowest and the highest offset that the channel's trace shows a first
delivery of. What lies below the floor may have been delivered before anybody traced; what lies
above the position was not come to yet. Messages with a trace id are traced in every channel, so
they count for themselves only (`switched` is of all others). Deliveries that are not the first, and
delayed messages, say nothing about where a channel is.

Around each start of the daemon there may be deliveries whose events were lost: between the last
first delivery before it and the first one after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from penstock.pipelines.lifecycles.events import Names, Numbers, joined
from penstock.pipelines.lifecycles.lives import NEVER

NONE = -1  # no offset
MARKS = np.dtype(
    [
        ("channel", "<i4"),
        ("partition", "<i4"),
        ("floor", "<i8"),  # NEVER: there is none
        ("position", "<i8"),
        ("floor_of_switched", "<i8"),
        ("position_of_switched", "<i8"),
    ]
)


def around_dtype(starts: int) -> np.dtype[Any]:
    """With offsets before and after each start."""
    return np.dtype([*MARKS.descr, ("before", "<i8", (starts,)), ("after", "<i8", (starts,))])


def first_deliveries(lives: Numbers) -> Numbers:
    """Which lives were delivered for the first time while the trace looked."""
    found: Numbers = (
        (lives["channel"] > 0)
        & (lives["sends"] > 0)
        & (lives["first_attempt"] <= 1)
        & (lives["delays"] == 0)
        & (lives["releases"] == 0)
    )
    return found


_PARTITION_BITS = 32
_PARTITION_MASK = (1 << _PARTITION_BITS) - 1


def _keys(rows: Numbers) -> Numbers:
    """Channel and partition as one number: to find the different ones of these is quick."""
    found: Numbers = (rows["channel"].astype(np.int64) << _PARTITION_BITS) | rows["partition"]
    return found


def marks_of(lives: Numbers, has_trace_id: Numbers, starts: Numbers) -> Numbers:
    """A row for each channel and partition of these lives."""
    chosen = first_deliveries(lives)
    lives, has_trace_id = lives[chosen], has_trace_id[chosen]
    key = _keys(lives)
    keys = np.unique(key)
    found = np.empty(len(keys), around_dtype(len(starts)))
    for row, one in zip(found, keys, strict=True):
        mine = key == one
        offset, sent_at = lives["offset"][mine], lives["sent_at"][mine]
        switched = offset[~has_trace_id[mine]]
        row["channel"], row["partition"] = one >> _PARTITION_BITS, one & _PARTITION_MASK
        row["floor"], row["position"] = offset.min(), offset.max()
        row["floor_of_switched"] = switched.min(initial=NEVER)
        row["position_of_switched"] = switched.max(initial=NONE)
        for number, start in enumerate(starts):
            row["before"][number] = offset[sent_at < start].max(initial=NONE)
            row["after"][number] = offset[sent_at > start].min(initial=NEVER)
    return found


_LEAST = ("floor", "floor_of_switched", "after")
_MOST = ("position", "position_of_switched", "before")


def merged_marks(
    parts: Iterable[tuple[Sequence[str], Numbers]], names: Names, starts: int
) -> Numbers:
    rows = joined(around_dtype(starts), list(parts), names)
    keys, place = np.unique(_keys(rows), return_inverse=True)
    found = np.empty(len(keys), around_dtype(starts))
    found["channel"], found["partition"] = keys >> _PARTITION_BITS, keys & _PARTITION_MASK
    for fields, start, act in ((_LEAST, NEVER, np.minimum), (_MOST, NONE, np.maximum)):
        for field in fields:
            found[field] = start
            column = found[field]
            act.at(column, place, rows[field])
            found[field] = column
    return found


def marked(marks: Numbers, channel: int, partition: Numbers) -> dict[str, Numbers]:
    """The marks of a channel for messages of these partitions. One that has none passes nothing."""
    mine = marks[marks["channel"] == channel]
    at = np.searchsorted(mine["partition"], partition)
    there = np.zeros(len(partition), bool)
    if len(mine):
        at = np.minimum(at, len(mine) - 1)
        there = mine["partition"][at] == partition
    found = {}
    for name in (*_LEAST, *_MOST):
        none = NEVER if name in _LEAST else NONE
        shape = (len(partition), *mine[name].shape[1:])
        column = np.full(shape, none, np.int64)
        if len(mine):
            column[there] = mine[name][at[there]]
        found[name] = column
    return found
