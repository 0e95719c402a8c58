"""nsqd without sockets, sleeping or a real clock.

Kernel, broker, sessions and the turn of the loop are put together as `nsqd/daemon.py` does it, on a
loop whose time the test moves.
"""

from __future__ import annotations

import heapq
import itertools
import math
import os
import shutil
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from penstock import limits
from penstock.broker.broker import Broker
from penstock.broker.channel import Channel
from penstock.broker.context import Change
from penstock.broker.options import BrokerOptions
from penstock.broker.topic import Topic
from penstock.log.disk import FILE_MODE, File, OsDisk, OsFile
from penstock.net.fetch import Fetcher
from penstock.net.link import Links
from penstock.net.order import TurnOrder
from penstock.net.turn import Turn
from penstock.nsqd.auth import Auth
from penstock.nsqd.options import Options
from penstock.nsqd.protocol import Protocol
from penstock.nsqd.session import Session, Shell
from penstock.nsqd.topics import TopicMaker
from penstock.nsqd.upgrade import Upgrades
from penstock.sim.clock import FakeClock
from penstock.sim.threads import Threads
from penstock.wire import frames
from penstock.wire.frames import FrameType
from penstock.wire.identify import Offer, Settings

ROUNDS_MAX = 10_000


class FakeHandle:
    def __init__(self, callback: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self._callback = callback
        self._arguments = arguments
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True

    def run(self) -> None:
        if not self._cancelled:
            self._callback(*self._arguments)


class FakeLoop:
    """What Turn and Session use of an event loop. Time stands still while callbacks run."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._ready: deque[FakeHandle] = deque()
        self._timers: list[tuple[int, int, FakeHandle]] = []
        self._numbers = itertools.count()

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> FakeHandle:
        handle = FakeHandle(callback, arguments)
        self._ready.append(handle)
        return handle

    def call_later(
        self, delay_s: float, callback: Callable[..., object], *arguments: Any
    ) -> FakeHandle:
        handle = FakeHandle(callback, arguments)
        due_ns = self._clock.since_ns + math.ceil(delay_s * limits.SECOND)
        heapq.heappush(self._timers, (due_ns, next(self._numbers), handle))
        return handle

    def add_reader(self, fd: int, callback: Callable[[], object]) -> None:
        """Nobody writes to a socket here: `World.say` asks for a turn."""

    def remove_reader(self, fd: int) -> None:
        pass

    def run_ready(self) -> None:
        for _ in range(ROUNDS_MAX):
            if not self._ready:
                return
            self._ready.popleft().run()
        raise AssertionError("the loop never comes to rest")

    def advance_to(self, since_ns: int, after_each: Callable[[], object]) -> None:
        while self._timers and self._timers[0][0] <= since_ns:
            due_ns, _, handle = heapq.heappop(self._timers)
            self._clock.since_ns = max(self._clock.since_ns, due_ns)
            handle.run()
            after_each()
        self._clock.since_ns = since_ns


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
        for frame in frames.take_frames(self._buffer):
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
    """One daemon on `path`; `start` it again after `stop` or `kill`."""

    def __init__(
        self, path: Path, kernel: SimpleNamespace, options: Options, **broker_options: Any
    ) -> None:
        self.path = path
        self.clock = FakeClock()
        self.options = options
        self.disk = QuietDisk()
        self.clients: list[Client] = []  # in the order in which their output is looked at
        self.validates = True  # after every turn; a test of great numbers does without
        self.faults: list[Exception] = []
        self._kernel = kernel
        self._numbers = itertools.count(1)
        self._broker_options = BrokerOptions(
            disk_free_bytes_min=0,
            message_timeout_max_ns=options.max_msg_timeout_ns,
            **broker_options,
        )
        path.mkdir(parents=True)
        self.start()

    def start(self) -> None:
        clock, options = self.clock, self.options
        self.loop: Any = FakeLoop(clock)
        self.threads = Threads()
        self.engine = self._kernel.Engine(
            options.max_msg_size, options.max_body_size, options.max_rdy_count
        )
        self.broker = Broker(
            self.engine, self.disk, self.path, self._broker_options, clock, self.threads
        )
        self.broker.on_topic_changed.append(self._on_topic_changed)
        offer = Offer("1.0", message_timeout_max_ns=options.max_msg_timeout_ns)
        topics = TopicMaker(
            self.broker, Fetcher(), lambda: [], lambda: self.turn.soon(), self.faults.append
        )
        links = Links(self.loop, self.engine, lambda: self.turn.soon())
        upgrades = Upgrades(links)
        auth = Auth((), "get", Fetcher(), lambda: None)
        self.protocol = Protocol(
            self.broker,
            topics,
            auth,
            options,
            offer,
            upgrades,
            clock,
            self.faults.append,
        )
        order = TurnOrder(
            self.engine, self.broker, links, clock, self.threads.done, self.protocol.handle
        )
        self.turn = Turn(self.loop, self.engine.fileno(), order, clock, self.faults.append)
        self.threads.wake = self.turn.soon
        self._shell = Shell(self.loop, clock, self.turn.soon)
        self.broker.open()
        self.turn.start()
        self._keep_house()
        self.settle()

    def _keep_house(self) -> None:
        self.loop.call_later(1.0, self._keep_house)
        self.broker.housekeeping()
        self.turn.tick()

    def _on_topic_changed(self, change: Change, topic: Topic, channel: Channel | None) -> None:
        if change is Change.CHANNEL_DELETED and channel is not None:
            for conn in list(channel.consumers):
                conn.owner.channel = None
                conn.close()
            self.turn.soon()

    # --- clients ---

    def connect(self, kind: type[Client] = Client, magic: bytes = frames.MAGIC_V2) -> Client:
        client = kind(self, next(self._numbers))
        settings = Settings(
            "model",
            "model",
            "",
            limits.HEARTBEAT_NS,
            limits.OUTPUT_BUFFER_BYTES,
            self.options.output_buffer_timeout_ns,
            0,
            self.options.msg_timeout_ns,
        )
        self.protocol.add(Session(client.conn, "model:1", 0, settings, self._shell))
        self.clients.append(client)
        self.say(client, magic)
        return client

    def say(self, client: Client, data: bytes, first_bytes: int = -1) -> None:
        """Bytes from a client, in two pieces when `first_bytes` says so."""
        if 0 <= first_bytes < len(data):
            client.conn.feed(data[:first_bytes])
            self.turn.soon()
            self.loop.run_ready()
            data = data[first_bytes:]
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
        self.loop.advance_to(self.clock.since_ns + ns, self._run)

    def tick(self) -> None:
        """All that is due by now has happened after this."""
        self.turn.tick()
        self.settle()

    # --- ends ---

    def hold_syncs(self, held: bool) -> None:
        self.threads.held = held
        if not held:
            self.threads.run()
        self.settle()

    def stop(self) -> None:
        self.threads.held = False
        self.clients.clear()
        self.turn.stop()
        self.broker.close()
        self.engine.close()

    def kill(self) -> None:
        """What the files hold at this instant is all that is left."""
        image = self.path.with_name(f"image-{next(self._numbers)}")
        shutil.copytree(self.path, image)
        self.stop()
        shutil.rmtree(self.path)
        self.path = image
