"""Whether rows that have places are in order: offsets, ids, times beside those of the row before.

The whole is never sorted. Rows are cut into stripes by their place; each stripe is sorted by
itself, and says which of its rows are broken and which are its first and last. These few are put
in order together at the end (`across`), so that the first row of a stripe meets the last of the one
before.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from penstock.pipelines.lifecycles.events import Numbers

ROW = np.dtype(
    [
        ("channel", "<i4"),
        ("partition", "<i4"),
        ("place", "<i8"),
        ("offset", "<i8"),
        ("message_id", "<u8"),
        ("time_us", "<i8"),
    ]
)
# A row and the one before it.
PAIR = np.dtype(
    [
        *ROW.descr,
        ("offset_before", "<i8"),
        ("message_id_before", "<u8"),
        ("time_before_us", "<i8"),
    ]
)
_SHOWN = ("offset", "message_id", "time_us")
_BEFORE = ("offset_before", "message_id_before", "time_before_us")


class Order(NamedTuple):
    """What has to hold between neighbours. A log: offsets and ids rise, without holes where they
    are `dense`, times do not fall where they are known (`times`). Deliveries (`deliveries`):
    offsets rise, save where the ids do all the same: there the topic was made anew."""

    bits: int  # places of a stripe
    dense: bool = False
    times: bool = False
    deliveries: bool = False

    def breaks(self, pairs: Numbers) -> dict[str, Numbers]:
        """Kind of finding to how much of it each pair is."""
        offset, before = pairs["offset"], pairs["offset_before"]
        falls = pairs["message_id"] < pairs["message_id_before"]
        if self.deliveries:
            return {"out_of_order": ((offset < before) & falls).astype(np.int64)}
        moved = offset != before
        found = {
            "repeated_offset": (~moved).astype(np.int64),
            "id_falls": (moved & falls).astype(np.int64),
            "same_id": (moved & (pairs["message_id"] == pairs["message_id_before"])).astype(
                np.int64
            ),
        }
        if self.dense:
            found["gap"] = np.where(moved, np.maximum(offset - before - 1, 0), 0)
        if self.times:
            earlier = pairs["time_us"] < pairs["time_before_us"]
            found["time_falls"] = (moved & earlier).astype(np.int64)
        return found


Counts = dict[tuple[int, int, str], int]


class Broken(NamedTuple):
    """`counts` by (channel, partition, kind); `pairs`, the first of each; `edges` of stripes."""

    counts: Counts
    pairs: Numbers
    edges: Numbers


def check(rows: Numbers, order: Order, shown: int) -> Broken:
    """Of all rows of some stripes. At most `shown` pairs of each kind and channel are given."""
    rows = rows[np.lexsort((rows["place"], rows["partition"], rows["channel"]))]
    stripe = rows["place"] >> order.bits
    opens = np.ones(len(rows), bool)
    if len(rows):
        opens[1:] = stripe[1:] != stripe[:-1]
        for name in ("channel", "partition"):
            opens[1:] |= rows[name][1:] != rows[name][:-1]
    is_edge = opens.copy()
    is_edge[:-1] |= opens[1:]
    is_edge[-1:] = True
    inner = np.flatnonzero(~opens)
    counts, pairs = _counted(_pairs(rows, inner), order, shown)
    return Broken(counts, pairs, rows[is_edge])


def across(parts: Iterable[Broken], order: Order, shown: int) -> Broken:
    """All parts together, with the edges between stripes. Channels have the same numbers in all."""
    found = list(parts)
    edges = np.concatenate([np.empty(0, ROW), *(part.edges for part in found)])
    edges = edges[np.lexsort((edges["place"], edges["partition"], edges["channel"]))]
    stripe = edges["place"] >> order.bits
    same = (edges["channel"][1:] == edges["channel"][:-1]) & (
        edges["partition"][1:] == edges["partition"][:-1]
    )
    between = np.flatnonzero(same & (stripe[1:] != stripe[:-1])) + 1
    counts, pairs = _counted(_pairs(edges, between), order, shown)
    for part in found:
        for key, count in part.counts.items():
            counts[key] = counts.get(key, 0) + count
    every = np.concatenate([pairs, *(part.pairs for part in found)])
    return Broken(counts, _first(every, order, shown), edges[:0])


def _pairs(rows: Numbers, at: Numbers) -> Numbers:
    """Each of these rows with the one before it."""
    found = np.empty(len(at), PAIR)
    for name in ROW.names or ():
        found[name] = rows[name][at]
    for name, before in zip(_SHOWN, _BEFORE, strict=True):
        found[before] = rows[name][at - 1]
    return found


def _counted(pairs: Numbers, order: Order, shown: int) -> tuple[Counts, Numbers]:
    breaks = order.breaks(pairs)
    counts: Counts = {}
    broken = np.zeros(len(pairs), bool)
    for kind, much in breaks.items():
        broken |= much > 0
        logs = pairs[["channel", "partition"]]
        for log in np.unique(logs[much > 0]):
            key = (int(log["channel"]), int(log["partition"]), kind)
            counts[key] = int(much[logs == log].sum())
    return counts, _first(pairs[broken], order, shown)


def _first(pairs: Numbers, order: Order, shown: int) -> Numbers:
    """The first of each kind and channel: by partition and offset."""
    pairs = pairs[np.lexsort((pairs["offset"], pairs["partition"], pairs["channel"]))]
    keep = np.zeros(len(pairs), bool)
    for much in order.breaks(pairs).values():
        for channel in np.unique(pairs["channel"]):
            keep[np.flatnonzero((much > 0) & (pairs["channel"] == channel))[:shown]] = True
    return pairs[keep]


def kinds_of(pair: Any, order: Order) -> dict[str, int]:
    """Of one pair: what is wrong, and how much of it."""
    one = np.array([pair], PAIR)
    return {kind: int(much[0]) for kind, much in order.breaks(one).items() if much[0]}
