"""Reading a log over HTTP while it is written, rolled and let go, and what that costs."""

from __future__ import annotations

import http.client
import json
import struct
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from penstock.kernel import decode_columns

from .daemon import Daemon

RUN_S = 3.0
LINES = 50


class Api:
    """One kept connection."""

    def __init__(self, daemon: Daemon) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", daemon.http_port, timeout=40)

    def ask(
        self, method: str, target: str, body: bytes | None = None
    ) -> tuple[int, bytes, http.client.HTTPMessage]:
        self._connection.request(method, target, body)
        response = self._connection.getresponse()
        return response.status, response.read(), response.headers

    def post(self, target: str, body: bytes | None = None) -> None:
        status, answer, _ = self.ask("POST", target, body)
        assert status == 200, answer

    def partition(self) -> Any:
        status, answer, _ = self.ask("GET", "/log/positions?topic=t")
        assert status == 200
        return json.loads(answer)["topics"]["t"]["partitions"]["0"]

    def fetch(self, offset: int, bytes_max: int) -> tuple[int, bytes, int]:
        """Status, body, and where to go on."""
        target = f"/log/fetch?topic=t&from={offset}&bytes_max={bytes_max}"
        status, answer, headers = self.ask("GET", target)
        if status == 410:
            return status, b"", json.loads(answer)["earliest"]
        assert status == 200, answer
        return status, answer, int(headers["X-Penstock-Next-Offset"])

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Callable[..., Api]]:
    made: list[Any] = []

    def start(*flags: str) -> Callable[[], Api]:
        daemon = Daemon(tmp_path / "data", "--durability=os", *flags).start()
        made.append(daemon)

        def connect() -> Api:
            connection = Api(daemon)
            made.append(connection)
            return connection

        return connect

    yield start
    for each in reversed(made):
        each.kill() if isinstance(each, Daemon) else each.close()


def check(block: bytes, next_offset: int) -> int:
    """The body of each message is its offset. Returns how many there were."""
    columns = decode_columns(block)
    if not columns.count:
        return 0
    offsets = struct.unpack(f"<{columns.count}q", columns.offsets)
    ends = struct.unpack(f"<{columns.count + 1}q", columns.body_offsets)
    data = bytes(columns.bodies)
    bodies = [data[a:b] for a, b in pairwise(ends)]
    assert bodies == [b"%032d" % offset for offset in offsets]
    assert offsets[-1] + 1 == next_offset
    return columns.count


def test_what_is_fetched_is_what_was_published(api: Callable[..., Callable[[], Api]]) -> None:
    """One writer, segments that roll, retention that follows; a reader that lags now and then."""
    connect = api("--segment-bytes=65536", "--retain-age=0", "--retain-bytes=0")
    writer, reader, cleaner = connect(), connect(), connect()
    writer.post("/topic/create?topic=t")
    writer.post("/channel/create?topic=t&channel=c")
    ended = threading.Event()
    failed: list[BaseException] = []

    def write() -> None:
        try:
            offset = 0
            while not ended.is_set():
                lines = b"\n".join(b"%032d" % (offset + n) for n in range(LINES))
                writer.post("/mpub?topic=t", lines)
                offset += LINES
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        read = gone = offset = 0
        deadline_s = time.monotonic() + RUN_S
        while time.monotonic() < deadline_s or not gone:
            assert time.monotonic() < deadline_s + 60, "retention took nothing"
            status, block, next_offset = reader.fetch(offset, 300_000)
            if status == 410:
                gone += 1
                assert next_offset > offset
            else:
                read += check(block, next_offset)
            cleaner.post("/channel/empty?topic=t&channel=c")
            offset = 0 if read and not gone else next_offset  # from 0 until that is gone
    finally:
        ended.set()
        thread.join()
    assert not failed
    assert read > 1000
    partition = reader.partition()
    assert 0 < partition["earliest"] <= partition["end"] <= partition["committed"]
