"""nsqd without sockets, sleeping or a real clock.

It is the daemon's own node (`nsqd/assembly.py`), on a loop whose time the test moves.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from penstock.log.disk import FILE_MODE, File, OsDisk, OsFile
from penstock.net.fetch import Fetcher
from penstock.nsqd.assembly import Node, Ports, broker_options
from penstock.nsqd.options import Options
from penstock.wire import frames
from penstock.wire.frames import FrameType
from sim.clock import FakeClock
from sim.loop import FakeLoop
from sim.threads import Threads

from .v2client import take_frames

ROUNDS_MAX = 10_000


class QuietFile(OsFile):
    def fdatasync(self) -> None:
        """The machine never loses power here, so nothing is gained by waiting for the disk."""


class QuietDisk(OsDisk):
    def open(self, path: str, write: bool = False) -> File:
        flags = os.O_RDWR if write else os.O_RDONLY
        return QuietFile(path, os.open(path, flags | os.O_CLOEXEC))

    def create(self, path: str) -> File:
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        return QuietFile(path, os.open(path, flags, FILE_MODE))

    def sync_directory(self, path: str) -> None:
        pass


class Client:
    """One V2 connection. It answers heartbeats, as every client library does."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.conn = world.engine.open_detached()
        self.responses: list[bytes] = []
        self.errors: list[bytes] = []
        self.on_message: Callable[[frames.Message], object] = lambda message: None
        self._buffer = bytearray()

    @property
    def is_open(self) -> bool:
        return self.conn.serial in self.world.protocol.sessions

    def read(self) -> bool:
        """Take what was sent. False when there was nothing."""
        data = self.conn.take_output()
        self._buffer += data
        for frame in take_frames(self._buffer):
            if frame.type == FrameType.MESSAGE:
                self.on_message(frames.decode_message(frame.data))
            elif frame.type == FrameType.ERROR:
                self.errors.append(frame.data)
            elif frame.data == frames.HEARTBEAT:
                self.conn.feed(b"NOP\n")
            else:
                self.responses.append(frame.data)
        return bool(data)


class World:
    """One daemon on `path`, until `stop`."""

    def __init__(
        self,
        path: Path,
        kernel: ModuleType,
        options: Options,
        *,
        seed: int = 0,
        fetcher: Any = None,
    ) -> None:
        self.clock = FakeClock()
        self.clients: list[Client] = []  # in the order in which their output is looked at
        self.validates = True  # after every turn; a test of great numbers does without
        self.faults: list[Exception] = []
        self._numbers = itertools.count(1)
        path.mkdir(parents=True)
        self.loop: Any = FakeLoop(self.clock)
        threads = Threads()
        ports = Ports(
            loop=self.loop,
            clock=self.clock,
            disk=QuietDisk(),
            new_engine=kernel.Engine,
            seed=seed,
            new_pool=lambda wake: threads,  # the loop watches no descriptor
            fetcher=fetcher or Fetcher(),
            each_second=lambda: None,
            on_fault=self.faults.append,
        )
        options = replace(options, data_path=str(path))
        for_broker = replace(broker_options(options), node_id=0, disk_free_bytes_min=0)
        self.node = Node(ports, options, for_broker)
        self.broker, self.protocol, self.turn = self.node.broker, self.node.protocol, self.node.turn
        self.engine = self.node.engine
        threads.wake = self.turn.soon
        self.broker.open()
        self.turn.start()
        self.node.housekeeping.start()
        self.settle()

    # --- clients ---

    def connect(self, kind: type[Client] = Client, magic: bytes = frames.MAGIC_V2) -> Client:
        client = kind(self, next(self._numbers))
        self.node.connect(client.conn, "model:1")
        self.clients.append(client)
        self.say(client, magic)
        return client

    def say(self, client: Client, data: bytes) -> None:
        client.conn.feed(data)
        self.settle()

    def hang_up(self, client: Client) -> None:
        client.conn.feed_eof()
        self.settle()

    # --- time ---

    def settle(self) -> None:
        """Run until there is nothing left to do at this instant."""
        self.turn.soon()
        self._run()

    def _run(self) -> None:
        """Whoever wants a turn has to ask for it: the loop by its timers, clients by speaking."""
        for _ in range(ROUNDS_MAX):
            self.loop.run_ready()
            if not self._read_all():
                break
            self.turn.soon()
        else:
            raise AssertionError("clients and daemon never come to rest")
        if self.faults:
            raise self.faults[0]
        if self.validates:
            self.broker.validate()

    def _read_all(self) -> bool:
        some = [client.read() for client in self.clients]
        self.clients = [client for client in self.clients if client.is_open]
        return any(some)

    def pass_ns(self, ns: int) -> None:
        """Time goes by; timers run when they are due, and only then."""
        self.loop.pass_ns(ns, self._run)

    def stop(self) -> None:
        self.clients.clear()
        self.turn.stop()
        self.node.housekeeping.stop()
        self.broker.close()
        self.node.close()
