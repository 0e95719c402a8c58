"""Messages that bring their headers: what nsqd sends to a consumer that says `extend_support`.

In front of the body stands a byte: 0, or 4 and the length (2 bytes, big-endian) and text of a JSON
object.
"""

from __future__ import annotations

import json
import struct
from typing import Any

from penstock.client.framing import FrameBroken
from penstock.client.message import Courier, Message

_NONE, _JSON = 0, 4
_HEAD = struct.Struct(">BH")  # version, length


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


def split_headers(rest: bytes) -> tuple[bytes, bytes]:
    """The headers' text, empty for none, and the body. Raises FrameBroken."""
    version = rest[0] if rest else -1
    if version == _NONE:
        return b"", rest[1:]
    if version != _JSON or len(rest) < _HEAD.size:
        raise FrameBroken(f"a message has headers of version {version}")
    end = _HEAD.size + _HEAD.unpack_from(rest)[1]
    if end > len(rest):
        raise FrameBroken(f"a message of {len(rest)} bytes has headers up to {end}")
    return rest[_HEAD.size : end], rest[end:]
