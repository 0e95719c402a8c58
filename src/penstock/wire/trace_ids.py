"""PUB_TRACE and MPUB_TRACE: publishing with trace ids, as Youzan's NSQ has it.

    PUB_TRACE <topic> [partition]\\n   [size] [trace id] [body]
    MPUB_TRACE <topic> [partition]\\n  [size] [count] ([size] [trace id] [body]) x count

All big-endian; a trace id has 8 bytes and counts into its message's size, and 0 is none. The answer
comes when the messages are stored and says where the first one lies: a response of 30 bytes,

    OK | message id, 8 | trace id, 8 | offset in the queue, 8 | bytes stored, 4

The offset is the message's offset in the log: a count of messages, where Youzan's is one of bytes.
"""

import struct

from penstock.wire.errors import Fault, WireFault

TRACE_BYTES = 8
REPLY_BYTES = 30
_REPLY = struct.Struct(">2sQQQI")
_COUNT = struct.Struct(">i")
_TRACE = struct.Struct(">Q")

Message = tuple[int, bytes]  # trace id, body


def encode_reply(message_id: int, trace_id: int, offset: int, stored_bytes: int) -> bytes:
    return _REPLY.pack(b"OK", message_id, trace_id, offset, stored_bytes)


def decode_reply(data: bytes) -> tuple[int, int, int, int]:
    """Message id, trace id, offset, bytes stored."""
    _, message_id, trace_id, offset, stored_bytes = _REPLY.unpack(data)
    return message_id, trace_id, offset, stored_bytes


def split_one(body: bytes) -> Message:
    """The body of a PUB_TRACE. Raises WireFault."""
    if len(body) <= TRACE_BYTES:
        raise WireFault(Fault.MESSAGE_SIZE_INVALID, b"PUB_TRACE", len(body))
    return _TRACE.unpack_from(body)[0], body[TRACE_BYTES:]


def split_many(body: bytes, message_bytes_max: int) -> list[Message]:
    """The body of an MPUB_TRACE. Raises WireFault."""
    if len(body) < _COUNT.size:
        raise WireFault(Fault.MPUB_COUNT_UNREAD, b"MPUB")
    count = _COUNT.unpack_from(body)[0]
    if not 0 < count <= (len(body) - _COUNT.size) // (_COUNT.size + TRACE_BYTES + 1):
        raise WireFault(Fault.MPUB_COUNT, b"MPUB", count)
    messages = []
    position = _COUNT.size
    for index in range(count):
        if len(body) - position < _COUNT.size:
            raise WireFault(Fault.MPUB_MESSAGE_SIZE_UNREAD, b"MPUB", index)
        size = _COUNT.unpack_from(body, position)[0]
        position += _COUNT.size
        if size <= TRACE_BYTES:
            raise WireFault(Fault.MPUB_MESSAGE_SIZE, b"MPUB", index, size)
        if size - TRACE_BYTES > message_bytes_max:
            raise WireFault(Fault.MESSAGE_TOO_BIG, b"MPUB_TRACE", size, message_bytes_max)
        if size > len(body) - position:
            raise WireFault(Fault.MESSAGE_UNREAD, b"MPUB_TRACE")
        trace_id = _TRACE.unpack_from(body, position)[0]
        messages.append((trace_id, body[position + TRACE_BYTES : position + size]))
        position += size
    return messages
