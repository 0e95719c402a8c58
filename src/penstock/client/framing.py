"""V2 from the client's side, without I/O: bytes in, messages and answers out, whole buffers at a
time; and what commands have in common.

`FrameReader.feed` takes what a socket gave and returns what became whole: messages, made by the
function that the reader was given, and all other frames. The order between the two kinds is not
kept, because no rule needs it. A frame that is not whole yet waits in the reader, which holds no
more than has arrived. Most reads end with a part of a frame; it is copied once, in front of the
next read.

A producer under load reads nothing but OKs, so `count_oks` knows a buffer of them by one
comparison.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from penstock import limits
from penstock.errors import ConfigError, NameInvalid, PenstockError
from penstock.kernel.layout import FRAME_HEAD, MESSAGE_HEAD
from penstock.wire.frames import HEADER_BYTES, Frame, FrameType, encode_frame
from penstock.wire.names import is_valid_name

OK_FRAME = encode_frame(FrameType.RESPONSE, b"OK")
NOP = b"NOP\n"

DELAY_S_MAX = 366 * 86400  # nsqd has a bound of its own, which is far lower

_SIZE = struct.Struct(">I")
_HTTP = int.from_bytes(b"HTTP")  # as a web server's answer begins, read as a size
_MESSAGE_DATA = 30  # type, timestamp, attempts and id: the least size of a message frame

Made = TypeVar("Made")
MakeMessage = Callable[[int, int, bytes, bytes], Made]


class FrameBroken(PenstockError):
    """A frame of an impossible size: this is no nsqd, or the stream is damaged."""


class FrameReader(Generic[Made]):
    __slots__ = ("_frame_bytes_max", "_make", "_need_bytes", "_rest")

    def __init__(
        self, make: MakeMessage[Made], frame_bytes_max: int = limits.CLIENT_FRAME_BYTES_MAX
    ) -> None:
        """`make(timestamp_ns, attempts, id, body)` returns the representation of a message."""
        self._make = make
        self._frame_bytes_max = frame_bytes_max
        self._rest = bytearray()
        self._need_bytes = 0  # until `_rest` is that long, nothing in it is whole

    def feed(self, data: bytes) -> tuple[list[Made], list[Frame]]:
        """The frames completed by `data`. Raises FrameBroken."""
        if self._rest:
            self._rest += data
            if len(self._rest) < self._need_bytes:
                return [], []
            data = bytes(self._rest)
            self._rest = bytearray()
        messages: list[Made] = []
        frames: list[Frame] = []
        used = self._split(data, messages, frames)
        if used < len(data):
            self._keep(data, used)
        return messages, frames

    def count_oks(self, data: bytes) -> int:
        """The number of OKs in `data`; 0 when it holds anything else, which `feed` has to see."""
        count, odd = divmod(len(data), len(OK_FRAME))
        if odd or self._rest or data != OK_FRAME * count:
            return 0
        return count

    def _split(self, data: bytes, messages: list[Made], frames: list[Frame]) -> int:
        """Take the whole frames of `data`; how many bytes they are."""
        position, end = 0, len(data)
        unpack, add, make = MESSAGE_HEAD.unpack_from, messages.append, self._make
        message_last = end - MESSAGE_HEAD.size
        while position <= message_last:
            size, kind, timestamp_ns, attempts, message_id = unpack(data, position)
            if kind != 2 or size < _MESSAGE_DATA:
                stop = self._take_other(data, position, frames)
                if not stop:
                    return position
                position = stop
                continue
            stop = position + 4 + size
            if stop > end:
                return position
            add(make(timestamp_ns, attempts, message_id, data[position + 34 : stop]))
            position = stop
        while position + HEADER_BYTES <= end:
            stop = self._take_other(data, position, frames)
            if not stop:
                break
            position = stop
        return position

    def _take_other(self, data: bytes, position: int, frames: list[Frame]) -> int:
        """Take a frame that is no message. Returns its end, 0 while it is incomplete."""
        size, kind = FRAME_HEAD.unpack_from(data, position)
        self._check(size, kind)
        stop = position + 4 + size
        if stop > len(data):
            return 0
        frames.append(Frame(kind, data[position + HEADER_BYTES : stop]))
        return int(stop)

    def _keep(self, data: bytes, used: int) -> None:
        self._rest = bytearray(memoryview(data)[used:])
        self._need_bytes = HEADER_BYTES
        if len(self._rest) >= HEADER_BYTES:
            size, kind = FRAME_HEAD.unpack_from(self._rest)
            self._check(size, kind)
            self._need_bytes = 4 + size

    def _check(self, size: int, kind: int) -> None:
        least = _MESSAGE_DATA if kind == FrameType.MESSAGE else 4
        _check_head(size, kind, least, self._frame_bytes_max)


def take_frame(buffer: bytearray, frame_bytes_max: int) -> Frame | None:
    """Remove the first frame from `buffer`; None while it is not whole. Raises FrameBroken."""
    if len(buffer) < HEADER_BYTES:
        return None
    size, kind = FRAME_HEAD.unpack_from(buffer)
    _check_head(size, kind, 4, frame_bytes_max)
    if len(buffer) < 4 + size:
        return None
    frame = Frame(kind, bytes(buffer[HEADER_BYTES : 4 + size]))
    del buffer[: 4 + size]
    return frame


def _check_head(size: int, kind: int, least: int, most: int) -> None:
    if size == _HTTP:
        raise FrameBroken("that is an HTTP port: name nsqd's TCP port, as a rule 4150")
    if not least <= size <= most or kind > FrameType.MESSAGE:
        raise FrameBroken(f"a frame of type {kind} announces {size} bytes")


# --- commands ---


def check_name(kind: str, name: str) -> bytes:
    """`name` in the form of the wire. Raises NameInvalid."""
    if not isinstance(name, str) or not is_valid_name(name):
        raise NameInvalid(kind, name)
    return name.encode("ascii")


def is_within(value: object, least: float, most: float) -> bool:
    """A text, say of an environment variable, is within nothing."""
    return isinstance(value, int | float) and least <= value <= most


def check_delay(delay_s: float) -> int:
    """A delay in the form of commands, in milliseconds. Raises ConfigError."""
    if not is_within(delay_s, 0, DELAY_S_MAX):
        raise ConfigError("delay_s", delay_s, f"must be from 0 to {DELAY_S_MAX}")
    return round(delay_s * 1000)


def sized(head: bytes, body: bytes) -> bytes:
    """A command whose line is `head`, with its body."""
    return b"%b%b%b" % (head, _SIZE.pack(len(body)), body)


def mpub(topic: bytes, bodies: Sequence[bytes], command: bytes = b"MPUB") -> bytes:
    parts = [b"%b %b\n" % (command, topic), b"", _SIZE.pack(len(bodies))]
    for body in bodies:
        parts.append(_SIZE.pack(len(body)))
        parts.append(body)
    parts[1] = _SIZE.pack(sum(map(len, parts)) - len(parts[0]))
    return b"".join(parts)
