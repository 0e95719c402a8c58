"""What nsqd and an nsqlookupd say to each other, without I/O: one connection, nsqd's side.

nsqd sends the magic, says who it is, and from the answer on registers what it has. It does not wait
for one answer before it sends the next command; answers come in order, so a queue of what was sent
is enough to know what each is about. Whatever is not the answer that is due ends the connection: a
peer that is broken, or is no nsqlookupd at all, cannot make us keep anything.
"""

from __future__ import annotations

import json
import re
import struct
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock import limits
from penstock.errors import PeerFault

MAGIC = b"  V1"
IDENTIFY = "IDENTIFY"
PING = "PING"

_SIZE = struct.Struct(">i")
_HOST = re.compile(r"[A-Za-z0-9._:-]+", re.ASCII)
_SHOWN_BYTES = 300  # of an answer, in a log line


class Answer(NamedTuple):
    command: str
    data: bytes


class PeerInfo(NamedTuple):
    """What the peer says about itself. `http_address` is "" when it is of no use."""

    text: str
    http_address: str
    partitions: bool = False  # it knows partitions of topics, as Penstock's and Youzan's do


class Dialogue:
    def __init__(self, identity: Mapping[str, Any]) -> None:
        self.info: PeerInfo | None = None  # known once the peer knows us
        self.owed: deque[str] = deque()  # commands whose answers have not come
        self._identity = identity
        self._buffer = bytearray()

    def begin(self) -> bytes:
        body = json.dumps(self._identity, separators=(",", ":")).encode()
        self.owed.append(IDENTIFY)
        return MAGIC + b"IDENTIFY\n" + _SIZE.pack(len(body)) + body

    def command(self, text: str) -> bytes:
        self.owed.append(text)
        return text.encode("ascii") + b"\n"

    def feed(self, data: bytes) -> list[Answer]:
        """The answers that are complete. Raises PeerFault."""
        self._buffer += data
        answers = []
        while len(self._buffer) >= _SIZE.size:
            size = _SIZE.unpack_from(self._buffer)[0]
            if not 0 <= size <= limits.LOOKUP_ANSWER_BYTES_MAX:
                raise PeerFault(f"an answer of {size} bytes: this is no nsqlookupd")
            end = _SIZE.size + size
            if len(self._buffer) < end:
                break
            answer = bytes(self._buffer[_SIZE.size : end])
            del self._buffer[:end]
            if not self.owed:
                raise PeerFault(f"an answer to nothing: {_shown(answer)}")
            answers.append(self._take(self.owed.popleft(), answer))
        return answers

    def _take(self, command: str, answer: bytes) -> Answer:
        if command == IDENTIFY:
            self.info = read_info(answer)
        elif answer != b"OK":
            raise PeerFault(f"{command} - {_shown(answer)}")
        return Answer(command, answer)


def read_info(answer: bytes) -> PeerInfo:
    """The answer to IDENTIFY. Raises PeerFault."""
    if answer.startswith(b"E_"):  # just this is what versions say that know no IDENTIFY
        raise PeerFault(f"lookupd returned {_shown(answer)}")
    try:
        document = json.loads(answer)
    except (ValueError, RecursionError) as error:
        raise PeerFault(f"parsing response - {_shown(answer)}") from error
    if not isinstance(document, dict):
        raise PeerFault(f"parsing response - {_shown(answer)}")
    host, port = document.get("broadcast_address"), document.get("http_port")
    address = ""
    if isinstance(host, str) and _HOST.fullmatch(host) and type(port) is int and 0 < port < 65536:
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return PeerInfo(_shown(answer), address, document.get("partitions") is True)


def _shown(answer: bytes) -> str:
    """For a log line."""
    text = ascii(answer[:_SHOWN_BYTES].decode("utf-8", "replace"))[1:-1]
    return text + ("..." if len(answer) > _SHOWN_BYTES else "")
