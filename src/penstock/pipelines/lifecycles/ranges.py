"""Ranges of offsets that met one fate at once: a channel that was emptied, or set further on.

An event about a range has no message ids, so it is in nobody's life; it is kept beside the lives.
"""

from __future__ import annotations

import numpy as np

from penstock.pipelines.lifecycles.events import RANGE, Numbers


def islands(ranges: Numbers) -> Numbers:
    """Ranges that touch or overlap as one; sorted by channel, partition and offset."""
    ranges = ranges[np.lexsort((ranges["first"], ranges["partition"], ranges["channel"]))]
    found: list[tuple[int, int, int, int]] = []
    for channel, partition, first, end in ranges.tolist():
        if found and found[-1][:2] == (channel, partition) and first <= found[-1][3]:
            found[-1] = (*found[-1][:3], max(end, found[-1][3]))
        else:
            found.append((channel, partition, first, end))
    return np.array(found, RANGE)


def within(ranges: Numbers, channel: int, partition: Numbers, offset: Numbers) -> Numbers:
    """Which messages are in one of the `islands` of a channel."""
    found = np.zeros(len(offset), bool)
    mine = ranges[ranges["channel"] == channel]
    for number in np.unique(mine["partition"]):
        spans, rows = mine[mine["partition"] == number], np.flatnonzero(partition == number)
        at = np.searchsorted(spans["first"], offset[rows], "right") - 1
        found[rows] = (at >= 0) & (offset[rows] < spans["end"][np.maximum(at, 0)])
    return found
