"""A broker for tests: an nsqd in this process, on free ports of the loopback interface.

    with TestBroker() as broker:
        with BlockingProducer(broker.address) as producer:
            producer.pub("orders", b"one")
        assert broker.messages("orders") == [b"one"]

It is the daemon itself, with an event loop in a thread of its own, and ends with the block; so do
its files, in a temporary directory. It answers once a message is written, and waits for no disk.
Flags of nsqd may be given: `TestBroker("--msg-timeout=1s")`.

pytest has it as the fixture `penstock_broker`, a broker for each test.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self, TypeVar

if TYPE_CHECKING:
    from penstock.nsqd.daemon import Daemon

T = TypeVar("T")
_FLAGS = ("--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0", "--durability=os")


class TestBroker:
    __test__ = False  # nothing that pytest should collect

    def __init__(self, *flags: str) -> None:
        self._flags = flags
        self._undo = ExitStack()
        self._loop: asyncio.AbstractEventLoop
        self._daemon: Daemon

    def __enter__(self) -> Self:
        path = self._undo.enter_context(tempfile.TemporaryDirectory(prefix="penstock-"))
        started: Future[None] = Future()
        thread = threading.Thread(target=self._run, args=(path, started), name="penstock-broker")
        thread.start()
        try:
            started.result()
        except BaseException:
            thread.join()
            self._undo.close()
            raise
        self._undo.callback(thread.join)
        self._undo.callback(self._call, lambda: self._daemon.ended.set_result(0))
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    @property
    def address(self) -> str:
        """For clients: host and TCP port."""
        return str(self._daemon.tcp_address)

    @property
    def data_path(self) -> str:
        return self._daemon.broker.path

    @property
    def http_address(self) -> str:
        return str(self._daemon.http_address)

    def messages(self, topic: str) -> list[bytes]:
        """The bodies of all that was published, whoever consumed it: by partition, in their order.
        Empty where there is no such topic."""
        return self._call(lambda: list(self._stored(topic)))

    def _stored(self, topic: str) -> Iterator[bytes]:
        from penstock.kernel import decode_bodies

        found = self._daemon.broker.topics.get(topic)
        for replica in found.replicas.values() if found is not None else ():
            for _, batch in replica.log.batches(replica.log.start_offset):
                yield from decode_bodies(batch, 0)

    # --- its thread ---

    def _run(self, path: str, started: Future[None]) -> None:
        try:
            asyncio.run(self._serve(path, started))
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    async def _serve(self, path: str, started: Future[None]) -> None:
        from penstock.nsqd.daemon import Daemon
        from penstock.nsqd.options import read_options

        options = read_options([f"--data-path={path}", *_FLAGS, *self._flags], {})
        self._loop = asyncio.get_running_loop()
        self._daemon = Daemon(options)
        await self._daemon.start()
        started.set_result(None)
        await self._daemon.ended
        await self._daemon.stop()

    def _call(self, act: Callable[[], T]) -> T:
        """In the thread of the broker. Raises RuntimeError where that has ended."""

        async def run() -> T:
            return act()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result()
