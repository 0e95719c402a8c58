"""Where a channel begins in a partition whose journal does not know it.

A leader that makes a channel's window writes where it begins into the journal, and confirms the
channel when that record is held (`replica.journalline`). So what a new leader's journal does not
know was never confirmed by this partition: the channel's promises here begin now, and not before.

| the channel is | it begins at | else it would |
|---|---|---|
| older than the partition | the start of the log | miss what came before it was noticed |
| the topic's first, or the topic is paused | the topic's own queue | miss what was kept for it |
| none of these | the committed end | get the whole history, though it is new |
"""

from __future__ import annotations

from typing import NamedTuple


class PartitionEnds(NamedTuple):
    """`handed_end`: the topic's own queue begins there, as far as the journal knows."""

    start_offset: int
    handed_end: int
    committed_end: int


def start_of_unknown(ends: PartitionEnds, partition_is_younger: bool, gathers: bool) -> int:
    """`partition_is_younger` than the channel, by the revisions at which the two were made.
    `gathers`: the topic keeps what comes to itself, being paused or without another channel."""
    if partition_is_younger:
        return ends.start_offset
    if gathers:
        return min(max(ends.handed_end, ends.start_offset), ends.committed_end)
    return ends.committed_end
