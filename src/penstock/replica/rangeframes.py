"""The frames by which a corrupt range is fetched from another replica, and their bytes.

| kind | | fields | then |
|---|---|---|---|
| 19 | AskRange | start u64, end u64 | |
| 20 | SendRange | start u64; chain; before u32, crc u32 | payload: batches, or none |

The session is the number of the question, which the answer repeats. A chain is the batch before
`start`; what the last two fields of 20 are says the table of `frames`. An answer without batches
has in its chain (0, `lacks_until`, 0): none of [start, lacks_until) can be had from this replica,
ever: it is corrupt there as well, or removed. 0 in that place is no such word: it is not known to
be committed so far, or cannot be read just now.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from penstock.replica.matching import Chain

ASK_RANGE_KIND, RANGE_KIND = 19, 20
_ASK = struct.Struct(">QQ")
OFFSET_AND_CHAIN = struct.Struct(">QIQI")
RANGE_FIELDS_BYTES = OFFSET_AND_CHAIN.size  # those of its payload are not among them


def lacking(until: int) -> Chain:
    """Of an answer without batches."""
    return Chain(0, until, 0)


class AskRange(NamedTuple):
    session: int
    start: int
    end: int


class SendRange(NamedTuple):
    session: int
    start: int
    previous: Chain
    batches: bytes | bytearray

    @property
    def lacks_until(self) -> int:
        """0: it does not say that it lacks any of it."""
        return 0 if self.batches else self.previous.offset


RangeFrame = AskRange | SendRange


def range_body(frame: RangeFrame) -> tuple[int, bytes]:
    """Kind and fields."""
    if isinstance(frame, AskRange):
        return ASK_RANGE_KIND, _ASK.pack(frame.start, frame.end)
    return RANGE_KIND, OFFSET_AND_CHAIN.pack(frame.start, *frame.previous)


def sent_range(session: int, fields: bytes, batches: bytes | bytearray) -> SendRange:
    start, *chain = OFFSET_AND_CHAIN.unpack_from(fields)
    return SendRange(session, start, Chain(*chain), batches)


def ask_range(session: int, body: bytes) -> AskRange:
    """Raises ValueError."""
    if len(body) != _ASK.size:
        raise ValueError(f"a question for a range of {len(body)} bytes, it has {_ASK.size}")
    return AskRange(session, *_ASK.unpack(body))
