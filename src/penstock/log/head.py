"""The head of a segment: the log that it belongs to (docs/formats.md).

Offsets begin at 0 in every log, so a segment file that got into another topic's directory (a
restore, a hand-made copy) holds intact batches with just the offsets that must come there. The head
tells: it names topic, partition and the identity of the log. It is written with the first batch, in
one write. A segment of an older version has none and begins with its first batch; nothing can be
said of it.

A recycled file still has the head of its former life until the first batch is written. That is a
head of the same log, and all offsets behind it are below any that can come, so nothing of it is
ever taken for new.
"""

import struct
from typing import NamedTuple

from penstock.kernel import BatchCheck, check_batch, crc32c
from penstock.kernel.layout import HEADER_BYTES, SHORT_HEADER_BYTES, base_offset_at
from penstock.log.disk import File

MAGIC = b"PSH1"
HEAD_BYTES = 128
_LAYOUT = struct.Struct("<4sIIIQ24s64s16s")
_CRC_FROM = 8


class LogOwner(NamedTuple):
    topic: str
    partition: int
    identity: str

    def __str__(self) -> str:
        return f"topic {self.topic}, partition {self.partition}, log {self.identity}"


class LogHead(NamedTuple):
    owner: LogOwner
    base_offset: int


class Beginning(NamedTuple):
    start: int  # where its first batch stands
    owner: LogOwner | None  # None: it has no head, or a corrupt one
    corrupt: bool = False


def encode_head(head: LogHead) -> bytes:
    owner = head.owner
    names = (owner.identity.encode(), owner.topic.encode(), b"")
    for name, length in zip(names, (24, 64), strict=False):
        if len(name) > length:
            raise ValueError(f"{name!r} is longer than the {length} bytes that a head has for it")
    blank = _LAYOUT.pack(MAGIC, 0, HEAD_BYTES, owner.partition, head.base_offset, *names)
    return blank[:4] + crc32c(blank[_CRC_FROM:]).to_bytes(4, "little") + blank[_CRC_FROM:]


def decode_head(data: bytes) -> LogHead | None:
    """None when it is not intact."""
    if len(data) < HEAD_BYTES:
        return None
    fields = _LAYOUT.unpack_from(data)
    magic, crc, length, partition, base_offset, identity, topic, reserved = fields
    intact = magic == MAGIC and crc == crc32c(data[_CRC_FROM:HEAD_BYTES]) and length == HEAD_BYTES
    if not intact or any(reserved):
        return None
    names = (identity.rstrip(b"\0"), topic.rstrip(b"\0"))
    try:
        owner = LogOwner(names[1].decode(), partition, names[0].decode())
    except UnicodeDecodeError:
        return None
    return LogHead(owner, base_offset)


def read_beginning(file: File, base_offset: int) -> Beginning:
    """May raise OSError."""
    data = bytearray(HEAD_BYTES + HEADER_BYTES)
    data = data[: file.pread_into(data, 0)]
    head = decode_head(bytes(data[:HEAD_BYTES]))
    if head is not None:
        return Beginning(HEAD_BYTES, head.owner)
    if data[:4] == MAGIC or _follows(file, data, base_offset):
        return Beginning(HEAD_BYTES, None, corrupt=True)
    return Beginning(0, None)


def _follows(file: File, data: bytearray, base_offset: int) -> bool:
    """Is the first batch where it belongs behind a head?"""
    status, length = check_batch(data, HEAD_BYTES)
    if status == BatchCheck.NO_MAGIC or length < SHORT_HEADER_BYTES:
        return False
    if base_offset_at(data, HEAD_BYTES) != base_offset:
        return False
    batch = bytearray(min(length, max(file.size() - HEAD_BYTES, 0)))
    file.pread_into(batch, HEAD_BYTES)
    return check_batch(batch, 0)[0] == BatchCheck.INTACT
