"""The partitions of a topic, and of a channel, as the nodes tell of them: the rows below the sums.

A topic with one partition has none here: the sums are its figures. The same number on two nodes
that know nothing of each other is two partitions, so each is named with its node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

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


Read = Callable[[Row, Row, Rates], Any]  # of a partition's row, and of what it was before
Part = TypeVar("Part", TopicPart, ChannelPart)


def _count(key: str) -> Read:
    return lambda part, before, rates: part.get(key, 0)


def _in_rate(part: Row, before: Row, rates: Rates) -> float:
    return rates.of(part, before, "message_count")


# How the fields behind `node` and `partition` are read.
_OF_TOPIC: Mapping[str, Read] = {
    "depth": _count("depth"),
    "messages": _count("message_count"),
    "message_bytes": _count("message_bytes"),
    "start_offset": _count("start_offset"),
    "end_offset": _count("committed_end"),
    "stored_bytes": _count("stored_bytes"),
    "refusal": lambda part, before, rates: str(part.get("refusal", "")),
    "damaged": lambda part, before, rates: len(part.get("damaged") or ()),
    "in_rate": _in_rate,
}
_OF_CHANNEL: Mapping[str, Read] = {
    "depth": _count("depth"),
    "in_flight": _count("in_flight_count"),
    "deferred": _count("deferred_count"),
    "requeues": _count("requeue_count"),
    "timeouts": _count("timeout_count"),
    "clients": _count("client_count"),
    "oldest_s": lambda part, before, rates: float(part.get("oldest_age_seconds") or 0.0),
    "in_rate": _in_rate,
    "finish_rate": lambda part, before, rates: rates.left(part, before),
}


def of_topic(node: str, row: Row, last: Row, rates: Rates) -> Iterator[TopicPart]:
    return _parts(TopicPart, _OF_TOPIC, node, row, last, rates)


def of_channel(node: str, row: Row, last: Row, rates: Rates) -> Iterator[ChannelPart]:
    return _parts(ChannelPart, _OF_CHANNEL, node, row, last, rates)


def _parts(
    kind: type[Part], reads: Mapping[str, Read], node: str, row: Row, last: Row, rates: Rates
) -> Iterator[Part]:
    for part, before in _pairs(row, last):
        fields = {name: read(part, before, rates) for name, read in reads.items()}
        yield kind(node=node, partition=part["partition"], **fields)


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
