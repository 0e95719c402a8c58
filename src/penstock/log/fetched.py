"""Is an answer to `/log/fetch` what it should be? For everyone who reads a log over the network.

An answer has whole raw batches. Each is checked by its crc; the first holds the offset that was
asked for, and each other one follows the one before it. So bytes of another place of the log, of
another log, or changed on the way, are an error, and never rows that are too many or missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import RangeCorrupt
from penstock.kernel import BatchCheck, check_batch
from penstock.kernel.layout import place_at

if TYPE_CHECKING:
    from typing_extensions import Buffer


def end_of_range(data: Buffer, position: int, following: str | None = None) -> int:
    """The offset after the batches of `data`, which begin with the one that holds `position`.
    `following` is X-Penstock-Next-Offset. Raises RangeCorrupt."""
    view = memoryview(data).cast("B")
    at, end_offset = 0, position
    while at < len(view):
        status, length = check_batch(view, at)
        if status != BatchCheck.SOUND:
            raise RangeCorrupt(f"the batch at byte {at} is corrupt ({BatchCheck(status).name})")
        _, _, base_offset, count = place_at(view, at)
        is_next = base_offset == end_offset if at else base_offset <= position < base_offset + count
        if not is_next:
            held = f"holds offsets {base_offset} to {base_offset + count - 1}"
            raise RangeCorrupt(f"the batch at byte {at} {held}, not offset {end_offset}")
        end_offset = base_offset + count
        at += length
    if following is not None and following != str(end_offset):
        raise RangeCorrupt(
            f"the batches end at offset {end_offset}, not at {following} as was said"
        )
    return end_offset
