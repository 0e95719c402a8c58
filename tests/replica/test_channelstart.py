"""Where a channel begins that a partition's journal does not know."""

from __future__ import annotations

from cases import each
from penstock.replica.channelstart import PartitionEnds, start_of_unknown

ENDS = PartitionEnds(start_offset=100, handed_end=250, committed_end=300)


@each(
    ("is_younger", "gathers", "handed_end", "start"),
    [
        (True, False, 250, 100),
        (True, True, 250, 100),
        (False, True, 250, 250),
        (False, True, 40, 100),  # retention has removed what was kept: that is reported elsewhere
        (False, True, 400, 300),  # not committed: nothing of it was handed over for certain
        (False, False, 250, 300),
    ],
)
def test_where_it_begins(is_younger: bool, gathers: bool, handed_end: int, start: int) -> None:
    ends = ENDS._replace(handed_end=handed_end)
    assert start_of_unknown(ends, is_younger, gathers) == start


def test_the_first_partition_of_a_topic_is_no_younger_than_its_channels() -> None:
    """So a channel that SUB has just made does not get what came before it was asked for."""
    assert start_of_unknown(ENDS, partition_is_younger=False, gathers=False) == 300
