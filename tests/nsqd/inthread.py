"""A real daemon in a thread of this process, from `with` to its end."""

import asyncio
import contextlib
import http.client
import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, Self

TIMEOUT_SECONDS = 40.0  # for a loaded machine: nothing here takes a second on a quiet one


class Answer(NamedTuple):
    status: int
    body: bytes
    headers: dict[str, str]


class Daemon(Protocol):
    ended: asyncio.Future[int]

    async def start(self) -> None: ...
    async def stop(self) -> None: ...


class InThread(ABC):
    """A subclass makes `daemon`, in the thread's loop; what it raises at its start is raised by
    `with`."""

    daemon: Any

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    @abstractmethod
    def make(self) -> Daemon: ...

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # it has ended by itself in this moment
                self.loop.call_soon_threadsafe(self._end)
        self._thread.join()

    def _end(self) -> None:
        if not self.daemon.ended.done():
            self.daemon.ended.set_result(0)

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.daemon = self.make()
        try:
            await self.daemon.start()
        except BaseException as failure:
            self._failure = failure
            return
        finally:
            self._ready.set()
        await self.daemon.ended
        await self.daemon.stop()

    def call(self, function: Callable[[], Any]) -> Any:
        """Run something in the daemon's thread."""

        async def run() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(TIMEOUT_SECONDS)

    def request(
        self, method: str, target: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> Answer:
        address = self.daemon.http_address
        connection = http.client.HTTPConnection(address.host, address.port, TIMEOUT_SECONDS)
        try:
            connection.request(method, target, body or None, headers or {})
            response = connection.getresponse()
            return Answer(response.status, response.read(), dict(response.getheaders()))
        finally:
            connection.close()

    def ask(
        self, method: str, target: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """The status, and the document if there is one: `OK` is none."""
        status, text, _ = self.request(method, target, body, headers)
        if text == b"OK":
            return status, text
        return status, json.loads(text) if text else None
