"""The frames that bring dead letters to a partition that another node leads, and their bytes.

| kind | | fields | then |
|---|---|---|---|
| 21 | SendLetters | number u64; before u32, crc u32 | payload: a MessagePack array of letters |
| 22 | LettersAnswered | number u64, ending u8 | why they are not stored, UTF-8 |

The session is the life of the node that sends the letters, and `number` counts what it has sent in
that life: so an answer to an earlier life is not taken for one to this life. A letter is an array
of its body and of a map from the numbers of trailer sections to their values.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from penstock.replica.stageframes import cut_text

LETTERS_KIND, LETTERS_ANSWERED_KIND = 21, 22
_LETTERS = struct.Struct(">Q")
_ANSWERED = struct.Struct(">QB")
LETTERS_FIELDS_BYTES = _LETTERS.size  # those of its payload are not among them
_REASON_BYTES_MAX = 1024  # longer ones are cut


class Ending(IntEnum):
    STORED = 1  # as safe as the topic's durability says
    REFUSED = 2  # none of them is stored
    UNKNOWN = 3  # the office ended before


class SendLetters(NamedTuple):
    session: int
    number: int
    letters: bytes | bytearray


class LettersAnswered(NamedTuple):
    session: int  # that of the letters
    number: int
    ending: Ending
    reason: str


LetterFrame = SendLetters | LettersAnswered


def letter_body(frame: LetterFrame) -> tuple[int, bytes]:
    """Kind and fields."""
    if isinstance(frame, SendLetters):
        return LETTERS_KIND, _LETTERS.pack(frame.number)
    reason = cut_text(frame.reason, _REASON_BYTES_MAX)
    return LETTERS_ANSWERED_KIND, _ANSWERED.pack(frame.number, frame.ending) + reason


def sent_letters(session: int, fields: bytes, letters: bytes | bytearray) -> SendLetters:
    (number,) = _LETTERS.unpack_from(fields)
    return SendLetters(session, number, letters)


def letters_answered(session: int, body: bytes) -> LettersAnswered:
    """Raises ValueError."""
    if not _ANSWERED.size <= len(body) <= _ANSWERED.size + _REASON_BYTES_MAX:
        raise ValueError(
            f"an answer to letters of {len(body)} bytes, it has {_ANSWERED.size} "
            f"to {_ANSWERED.size + _REASON_BYTES_MAX}"
        )
    number, ending = _ANSWERED.unpack_from(body)
    reason = body[_ANSWERED.size :].decode("utf-8", "replace")
    return LettersAnswered(session, number, Ending(ending), reason)
