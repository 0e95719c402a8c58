"""What a fetched range must be to be believed."""

from __future__ import annotations

import pytest

from cases import each
from penstock.errors import RangeCorrupt
from penstock.kernel import encode_batch
from penstock.log.fetched import end_of_range
from penstock.trace.search import bodies_of


def batch(first: int, count: int) -> bytes:
    return encode_batch([b"%d" % n for n in range(first, first + count)], first, 1 << 22, 0)


RANGE = batch(10, 5) + batch(15, 1) + batch(16, 4)


def test_whole_batches_one_after_the_other() -> None:
    for position in (10, 12, 14):
        assert end_of_range(RANGE, position) == end_of_range(RANGE, position, "20") == 20
    assert end_of_range(b"", 7, "7") == 7
    bodies = [b"%d" % n for n in range(10, 20)]
    assert [body for _, some in bodies_of(RANGE, 11) for body in some] == bodies


@each(
    ("data", "position", "following", "reason"),
    [
        (RANGE[:200] + b"!" + RANGE[201:], 10, "20", "the batch at byte .* is corrupt"),
        (RANGE[:-1], 10, "20", "SHORT"),
        (RANGE, 9, "20", "byte 0 holds offsets 10 to 14, not offset 9"),
        (RANGE, 15, "20", "byte 0 holds offsets 10 to 14, not offset 15"),
        (batch(10, 5) + batch(16, 4), 10, "20", "holds offsets 16 to 19, not offset 15"),
        (batch(10, 5) + batch(10, 5), 10, "20", "holds offsets 10 to 14, not offset 15"),
        (batch(10, 5), 10, "20", "end at offset 15, not at 20"),
        (b"", 10, "20", "end at offset 10, not at 20"),
    ],
)
def test_all_else_is_corrupt(data: bytes, position: int, following: str, reason: str) -> None:
    with pytest.raises(RangeCorrupt, match=reason):
        end_of_range(data, position, following)


def test_trace_events_are_not_taken_from_a_corrupt_range() -> None:
    damaged = RANGE[:-40] + b"!" + RANGE[-39:]
    with pytest.raises(RangeCorrupt):
        list(bodies_of(damaged, 10))
