"""Messages that bring their headers: what nsqd sends to a consumer that says `extend_support`, or
asks for an `envelope`.

In front of the body stands a byte: 0, or 4 and the length (2 bytes, big-endian) and text of a JSON
object. An envelope begins with the partition (2 bytes, big-endian); the byte comes next, and is 1
where the length and a key follow: the key of a message without headers.
"""

from __future__ import annotations

import json
import struct
from typing import Any, NamedTuple

from penstock.client.framing import FrameBroken
from penstock.client.message import Courier, Message

_NONE, _KEY, _JSON = 0, 1, 4
_HEAD = struct.Struct(">BH")  # version, length
_PARTITION = struct.Struct(">H")


class HeadedMessage(Message):
    __slots__ = ("_headers",)

    def __init__(
        self, courier: Courier, timestamp_ns: int, attempts: int, id: bytes, rest: bytes
    ) -> None:
        """Raises FrameBroken."""
        text, body = split_headers(rest)
        super().__init__(courier, timestamp_ns, attempts, id, body)
        self._headers = text

    @property
    def headers(self) -> dict[str, Any]:
        return json.loads(self._headers) if self._headers else {}


class EnvelopedMessage(Message):
    __slots__ = ("_envelope",)

    def __init__(
        self, courier: Courier, timestamp_ns: int, attempts: int, id: bytes, rest: bytes
    ) -> None:
        """Raises FrameBroken."""
        self._envelope, body = split_envelope(rest)
        super().__init__(courier, timestamp_ns, attempts, id, body)

    @property
    def partition(self) -> int:
        return self._envelope.partition

    @property
    def headers(self) -> dict[str, Any]:
        return json.loads(self._envelope.headers) if self._envelope.headers else {}

    @property
    def key(self) -> str | None:
        if self._envelope.key:
            return self._envelope.key.decode("utf-8", "surrogateescape")
        return super().key


class Envelope(NamedTuple):
    partition: int
    headers: bytes  # their text; empty for none
    key: bytes  # of a message without headers; empty for none


def split_envelope(rest: bytes) -> tuple[Envelope, bytes]:
    """The envelope, and the body. Raises FrameBroken."""
    if len(rest) < _PARTITION.size:
        raise FrameBroken(f"a message of {len(rest)} bytes has no envelope")
    (partition,) = _PARTITION.unpack_from(rest)
    version, value, body = _split(rest, _PARTITION.size, (_KEY, _JSON))
    if version == _KEY:
        return Envelope(partition, b"", value), body
    return Envelope(partition, value, b""), body


def split_headers(rest: bytes) -> tuple[bytes, bytes]:
    """The headers' text, empty for none, and the body. Raises FrameBroken."""
    _, text, body = _split(rest, 0, (_JSON,))
    return text, body


def _split(rest: bytes, begin: int, versions: tuple[int, ...]) -> tuple[int, bytes, bytes]:
    """The version of what begins there, its value, and what follows."""
    version = rest[begin] if len(rest) > begin else -1
    if version == _NONE:
        return version, b"", rest[begin + 1 :]
    start = begin + _HEAD.size
    if version not in versions or len(rest) < start:
        raise FrameBroken(f"a message has headers of version {version}")
    end = start + _HEAD.unpack_from(rest, begin)[1]
    if end > len(rest):
        raise FrameBroken(f"a message of {len(rest)} bytes has headers up to {end}")
    return version, rest[start:end], rest[end:]
