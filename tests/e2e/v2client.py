"""A small blocking V2 client on a raw socket: what a test says is what goes over the wire.

`command` and `send` write bytes, `frame` reads one frame, and the rest is shorthand. Heartbeats are
answered and never shown.
"""

import json
import socket
import struct
import time
from collections.abc import Iterable
from typing import Any, Self

from penstock.wire.frames import HEARTBEAT, Frame, Message, decode_message, encode_bodies, with_size

RESPONSE, ERROR, MESSAGE = 0, 1, 2

_HEAD = struct.Struct(">II")


class Refused(Exception):
    """An error frame came where an answer was expected."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data.decode("utf-8", "replace"))
        self.data = data


class Closed(EOFError):
    """The daemon has hung up."""


def pub(topic: str, body: bytes) -> bytes:
    return b"PUB %s\n" % topic.encode() + with_size(body)


def dpub(topic: str, delay_ms: int, body: bytes) -> bytes:
    return b"DPUB %s %d\n" % (topic.encode(), delay_ms) + with_size(body)


def mpub(topic: str, bodies: Iterable[bytes]) -> bytes:
    return b"MPUB %s\n" % topic.encode() + with_size(encode_bodies(list(bodies)))


def take_frame(buffer: bytearray) -> Frame | None:
    """Remove the first whole frame from `buffer`; None while it is not whole."""
    if len(buffer) < _HEAD.size:
        return None
    size, kind = _HEAD.unpack_from(buffer)
    assert size >= 4, f"a frame announces {size} bytes"
    end = 4 + size
    if len(buffer) < end:
        return None
    data = bytes(buffer[_HEAD.size : end])
    del buffer[:end]
    return Frame(kind, data)


def take_frames(buffer: bytearray) -> list[Frame]:
    return list(iter(lambda: take_frame(buffer), None))


class Connection:
    """Bytes and frames, heartbeats among them."""

    def __init__(
        self, port: int, timeout_s: float = 40.0, magic: bytes = b"  V2", host: str = "127.0.0.1"
    ) -> None:
        self.timeout_s = timeout_s
        self.socket = socket.create_connection((host, port), timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray()
        self.send(magic)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        self.socket.settimeout(self.timeout_s)
        self.socket.sendall(data)

    def next_frame(self, timeout_s: float) -> Frame | None:
        """None when none came in time. Raises Closed."""
        deadline_s = time.monotonic() + timeout_s
        while (frame := take_frame(self._buffer)) is None:
            if not self._receive(deadline_s - time.monotonic()):
                return None
        return frame

    def _receive(self, timeout_s: float) -> bool:
        if timeout_s < 0:
            return False
        self.socket.settimeout(max(timeout_s, 0.001))
        try:
            data = self.socket.recv(1 << 18)
        except TimeoutError:
            return False
        except ConnectionError as error:
            raise Closed(str(error)) from error
        if not data:
            raise Closed("end of stream")
        self._buffer += data
        return True


class V2Client(Connection):
    def command(self, line: str, body: bytes | None = None) -> None:
        self.send(line.encode() + b"\n" + (b"" if body is None else with_size(body)))

    def frame(self, timeout_s: float | None = None) -> Frame | None:
        """The next frame that is no heartbeat; None when none came in time. Raises Closed."""
        deadline_s = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        while (frame := self.next_frame(deadline_s - time.monotonic())) == (RESPONSE, HEARTBEAT):
            self.send(b"NOP\n")
        return frame

    def response(self) -> bytes:
        """The data of the next frame, which has to be a response. Raises Refused."""
        frame = self.frame()
        if frame is None:
            raise AssertionError(f"no answer within {self.timeout_s} s")
        if frame.type == ERROR:
            raise Refused(frame.data)
        if frame.type != RESPONSE:
            raise AssertionError(
                f"a message came where an answer was expected: {frame.data[:60]!r}"
            )
        return frame.data

    def ok(self) -> None:
        answer = self.response()
        if answer != b"OK":
            raise AssertionError(f"{answer!r} instead of OK")

    def error(self) -> bytes:
        """The data of the next frame, which has to be an error."""
        frame = self.frame()
        if frame is None or frame.type != ERROR:
            raise AssertionError(f"no error, but {frame}")
        return frame.data

    # --- commands ---

    def identify(self, **values: Any) -> dict[str, Any]:
        values.setdefault("feature_negotiation", True)
        self.command("IDENTIFY", json.dumps(values).encode())
        found: dict[str, Any] = json.loads(self.response())
        return found

    def pub(self, topic: str, body: bytes) -> None:
        self.send(pub(topic, body))
        self.ok()

    def dpub(self, topic: str, delay_ms: int, body: bytes) -> None:
        self.send(dpub(topic, delay_ms, body))
        self.ok()

    def mpub(self, topic: str, bodies: Iterable[bytes]) -> None:
        self.send(mpub(topic, bodies))
        self.ok()

    def sub(self, topic: str, channel: str) -> None:
        self.command(f"SUB {topic} {channel}")
        self.ok()

    def rdy(self, count: int) -> None:
        self.command(f"RDY {count}")

    def fin(self, *ids: bytes) -> None:
        self.send(b"".join(b"FIN %s\n" % message_id for message_id in ids))

    def req(self, message_id: bytes, delay_ms: int = 0) -> None:
        self.send(b"REQ %s %d\n" % (message_id, delay_ms))

    def touch(self, message_id: bytes) -> None:
        self.send(b"TOUCH %s\n" % message_id)

    # --- messages ---

    def message(self, timeout_s: float | None = None) -> Message | None:
        """The next message; None when none came in time."""
        frame = self.frame(timeout_s)
        if frame is None:
            return None
        if frame.type == ERROR:
            raise Refused(frame.data)
        if frame.type != MESSAGE:
            raise AssertionError(f"{frame.data!r} where a message was expected")
        return decode_message(frame.data)

    def messages(self, count: int, timeout_s: float | None = None) -> list[Message]:
        """`count` messages, each within `timeout_s`. Fewer is an error. They are not finished."""
        found: list[Message] = []
        while len(found) < count:
            message = self.message(timeout_s)
            if message is None:
                raise AssertionError(f"{len(found)} of {count} messages came")
            found.append(message)
        return found

    def drain(self, quiet_s: float) -> list[Message]:
        """Finish everything that comes, until nothing has come for `quiet_s`, and not because the
        daemon had no processor in that time: it has answered since, and sent nothing before."""
        found: list[Message] = []
        come = -1
        while come < len(found):
            come = len(found)
            while (message := self.message(quiet_s)) is not None:
                self.fin(message.id)
                found.append(message)
            self._ask_twice(found)
        return found

    def _ask_twice(self, found: list[Message]) -> None:
        """Finish what comes before the answers."""
        for number in (1, 2):
            nobody = b"%016x" % number
            self.fin(nobody)
            while (frame := self.frame()) is not None and frame.type == MESSAGE:
                message = decode_message(frame.data)
                self.fin(message.id)
                found.append(message)
            if frame is None or not frame.data.startswith(b"E_FIN_FAILED FIN " + nobody):
                raise AssertionError(f"a barrier was answered {frame!r}")

    def settle(self) -> None:
        """Return when all that was sent before has been processed, and its effects journalled.

        A FIN of an id that nobody has is answered, and costs nothing. The answer may leave in the
        same turn of the daemon's loop, before the turn ends with the journal: so it is done twice.
        The consumer must expect no message meanwhile.
        """
        for number in (1, 2):
            nobody = b"%016x" % number
            self.fin(nobody)
            answer = self.error()
            if not answer.startswith(b"E_FIN_FAILED FIN " + nobody):
                raise AssertionError(f"a barrier was answered {answer!r}")
