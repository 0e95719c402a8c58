"""V2 frames: the output of a server.

    [size u32 = 4 + len(data)] [type u32] [data]        all big-endian

Type 0 is a response, 1 an error, 2 a message. Message data is
`[timestamp i64 ns] [attempts u16] [id, 16 hex digits] [body]`.

The kernel writes frames by address on the hot path; these helpers serve everyone else: the tests,
the demo, and whoever reads from an nsqd.
"""

import struct
from enum import IntEnum
from typing import NamedTuple

from penstock.kernel.layout import FRAME_HEAD

MAGIC_V2 = b"  V2"
HEARTBEAT = b"_heartbeat_"
OK = b"OK"
CLOSE_WAIT = b"CLOSE_WAIT"
ID_BYTES = 16

_MESSAGE = struct.Struct(">qH16s")
_SIZE = struct.Struct(">I")
HEADER_BYTES = FRAME_HEAD.size
MESSAGE_OVERHEAD_BYTES = _MESSAGE.size


class FrameType(IntEnum):
    RESPONSE = 0
    ERROR = 1
    MESSAGE = 2


class Frame(NamedTuple):
    type: int
    data: bytes


class Message(NamedTuple):
    timestamp_ns: int
    attempts: int
    id: bytes
    body: bytes


def encode_frame(frame_type: int, data: bytes) -> bytes:
    return FRAME_HEAD.pack(4 + len(data), frame_type) + data


def decode_message(data: bytes) -> Message:
    timestamp_ns, attempts, message_id = _MESSAGE.unpack_from(data)
    return Message(timestamp_ns, attempts, message_id, data[MESSAGE_OVERHEAD_BYTES:])


def with_size(body: bytes) -> bytes:
    """`body` behind its length, as PUB, IDENTIFY and AUTH carry it."""
    return _SIZE.pack(len(body)) + body


def encode_bodies(bodies: list[bytes]) -> bytes:
    """Count and sized bodies, as MPUB carries them behind its own length."""
    return _SIZE.pack(len(bodies)) + b"".join(map(with_size, bodies))
