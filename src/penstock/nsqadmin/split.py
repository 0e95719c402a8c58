"""The partitions of a topic, and of a channel, as the nodes tell of them: the rows below the sums.

A topic with one partition has none here: the sums are its figures. The same number on two nodes
that know nothing of each other is two partitions, so each is named with its node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

Row = Mapping[str, Any]


class Rates(Protocol):
    """From two answers of one node."""

    def of(self, row: Row, last: Row, key: str) -> float: ...

    def left(self, row: Row, last: Row) -> float: ...


class TopicPart(NamedTuple):
    node: str
    partition: int
    depth: int  # without a channel to hold it
    messages: int
    message_bytes: int
    start_offset: int
    end_offset: int
    stored_bytes: int
    refusal: str
    damaged: int  # ranges of the log that can't be read
    in_rate: float


class ChannelPart(NamedTuple):
    node: str
    partition: int
    depth: int
    in_flight: int
    deferred: int
    requeues: int
    timeouts: int
    clients: int
    oldest_s: float  # 0: nothing is unfinished, or it is not known
    in_rate: float
    finish_rate: float


def of_topic(node: str, row: Row, last: Row, rates: Rates) -> Iterator[TopicPart]:
    for part, before in _pairs(row, last):
        yield TopicPart(
            node,
            part["partition"],
            part.get("depth", 0),
            part.get("message_count", 0),
            part.get("message_bytes", 0),
            part.get("start_offset", 0),
            part.get("committed_end", 0),
            part.get("stored_bytes", 0),
            str(part.get("refusal", "")),
            len(part.get("damaged") or ()),
            rates.of(part, before, "message_count"),
        )


def of_channel(node: str, row: Row, last: Row, rates: Rates) -> Iterator[ChannelPart]:
    for part, before in _pairs(row, last):
        yield ChannelPart(
            node,
            part["partition"],
            part.get("depth", 0),
            part.get("in_flight_count", 0),
            part.get("deferred_count", 0),
            part.get("requeue_count", 0),
            part.get("timeout_count", 0),
            part.get("client_count", 0),
            float(part.get("oldest_age_seconds") or 0.0),
            rates.of(part, before, "message_count"),
            rates.left(part, before),
        )


def _pairs(row: Row, last: Row) -> Iterator[tuple[Row, Row]]:
    """Each partition's row, and what it was before."""
    earlier = {part.get("partition"): part for part in last.get("partitions") or ()}
    for part in row.get("partitions") or ():
        yield part, earlier.get(part["partition"], {})


def behind(parts: Iterable[ChannelPart]) -> ChannelPart | None:
    """The one in which most waits; None when nothing does."""
    return max((one for one in parts if one.depth), key=lambda one: one.depth, default=None)


def lagging(parts: Sequence[ChannelPart]) -> ChannelPart | None:
    """The one that has at least twice its share of what waits."""
    worst, waits = behind(parts), sum(one.depth for one in parts)
    is_alone = worst is not None and len(parts) > 1 and worst.depth * len(parts) >= 2 * waits
    return worst if is_alone else None
