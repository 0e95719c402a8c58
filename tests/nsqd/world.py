"""A real daemon in a thread of this process, and clients on blocking sockets."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from e2e.lookupd import eventually as eventually
from e2e.v2client import Closed, Connection
from e2e.v2client import dpub as dpub
from e2e.v2client import mpub as mpub
from e2e.v2client import pub as pub
from penstock.log.messages import Message
from penstock.nsqd.daemon import Daemon
from penstock.nsqd.options import read_options
from penstock.wire import frames
from penstock.wire.frames import Frame, FrameType

from .inthread import TIMEOUT_SECONDS, InThread
from .inthread import Answer as Answer


def ok(data: bytes = b"OK") -> Frame:
    return Frame(FrameType.RESPONSE, data)


def error(data: bytes) -> Frame:
    return Frame(FrameType.ERROR, data)


HEARTBEAT = ok(frames.HEARTBEAT)


class Running(InThread):
    """`with Running(path, "--max-rdy-count=5") as nsqd:`"""

    def __init__(self, data_path: Path, *flags: str) -> None:
        data_path.mkdir(exist_ok=True)
        arguments = [
            f"--data-path={data_path}",
            "--tcp-address=127.0.0.1:0",
            "--http-address=127.0.0.1:0",
            *flags,
        ]
        self.options = read_options(arguments, {})
        super().__init__()

    def make(self) -> Daemon:
        return Daemon(self.options)

    def client(self, **identify: Any) -> V2:
        return V2(self.daemon.tcp_address, **identify)

    def answer_to(self, command: bytes) -> Frame:
        """On a connection of its own."""
        with self.client() as client:
            return client.ask(command)

    def post(self, *targets: str) -> None:
        for target in targets:
            assert self.request("POST", target).status == 200

    def publish(self, topic: str, *bodies: bytes) -> None:
        for body in bodies:
            assert self.request("POST", f"/pub?topic={topic}", body).status == 200

    def stats(self, query: str = "") -> dict[str, Any]:
        document: dict[str, Any] = self.ask("GET", f"/stats?format=json{query}")[1]
        return document

    def channel(self, topic: str, channel: str) -> dict[str, Any]:
        rows = self.stats(f"&topic={topic}&channel={channel}")["topics"]
        found: dict[str, Any] = rows[0]["channels"][0]
        return found


def running_with(*made: str, flags: Sequence[str] = ()) -> Any:
    """A fixture: a daemon with these flags, of which this was asked by POST."""

    @pytest.fixture
    def nsqd(tmp_path: Path) -> Iterator[Running]:
        with Running(tmp_path / "data", *flags) as running:
            running.post(*made)
            yield running

    return nsqd


def stored(nsqd: Running, topic: str) -> list[list[Message]]:
    """The messages of each partition, as they are in its log."""
    return [
        [leader.log.message(offset) for offset in range(leader.tail.committed_end)]
        for leader in nsqd.daemon.broker.topics[topic].leaders
    ]


class V2(Connection):
    """A client that sends what it is told and hands out frames."""

    def __init__(self, address: Any, magic: bytes = b"  V2", **identify: Any) -> None:
        super().__init__(address.port, TIMEOUT_SECONDS, magic, address.host)
        if identify:
            self.identify(**identify)

    def identify(self, **values: Any) -> Frame:
        self.send(b"IDENTIFY\n" + frames.with_size(json.dumps(values).encode()))
        return self.read()

    def read(self, timeout: float = TIMEOUT_SECONDS) -> Frame:
        """The next frame. Closed at the end, TimeoutError when nothing comes."""
        frame = self.next_frame(timeout)
        if frame is None:
            raise TimeoutError
        return frame

    def ask(self, data: bytes) -> Frame:
        self.send(data)
        return self.read()

    def consume(self, topic: str, channel: str, rdy: int) -> None:
        assert self.ask(f"SUB {topic} {channel}\n".encode()) == ok()
        self.send(b"RDY %d\n" % rdy)

    def message(self, timeout: float = TIMEOUT_SECONDS) -> frames.Message:
        frame = self.read(timeout)
        assert frame.type == FrameType.MESSAGE, frame
        return frames.decode_message(frame.data)

    def is_closed(self) -> bool:
        try:
            frame = self.read()
        except Closed:
            return True
        raise AssertionError(f"a frame came instead of the end: {frame}")

    def is_silent(self, seconds: float = 0.1) -> bool:
        try:
            frame = self.read(seconds)
        except TimeoutError:
            return True
        raise AssertionError(f"a frame came: {frame}")


def u32(value: int) -> bytes:
    return struct.pack(">i", value)
