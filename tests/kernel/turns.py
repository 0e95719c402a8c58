"""An engine on a bench: a clock to move, a log that is a list of batches, clients made of bytes."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

from penstock import kernel
from penstock.clock import NEVER_NS
from penstock.kernel import Event, Source, TraceKind
from penstock.net.turn import TurnOrder

MS = 1_000_000
SECOND = 1_000 * MS
START_NS = 1_000 * SECOND
WALL_NS = 1_700_000_000 * SECOND
FIRST_ID = 5 << 22
MAGIC = b"  V2"
OK = (0, b"OK")


def size(count: int) -> bytes:
    return struct.pack(">i", count)


def pub(topic: bytes, body: bytes) -> bytes:
    return b"PUB " + topic + b"\n" + size(len(body)) + body


def mpub(topic: bytes, bodies: list[bytes], total: int | None = None) -> bytes:
    inner = size(len(bodies)) + b"".join(size(len(body)) + body for body in bodies)
    return b"MPUB " + topic + b"\n" + size(len(inner) if total is None else total) + inner


def headed(headers: bytes, body: bytes) -> bytes:
    """A message of PUB_EXT and MPUB_EXT behind its size."""
    return struct.pack(">H", len(headers)) + headers + body


def pub_ext(target: bytes, headers: bytes, body: bytes) -> bytes:
    message = headed(headers, body)
    return b"PUB_EXT " + target + b"\n" + size(len(message)) + message


def mpub_ext(target: bytes, messages: list[tuple[bytes, bytes]]) -> bytes:
    packed = [headed(*message) for message in messages]
    return mpub(target, packed).replace(b"MPUB", b"MPUB_EXT", 1)


def fin(*ids: int) -> bytes:
    return b"".join(b"FIN %016x\n" % id for id in ids)


Sections = dict[int, int | bytes]  # of one message


class Message(NamedTuple):
    timestamp_ns: int
    attempts: int
    id: int
    body: bytes


def frames(data: bytes) -> list[tuple[int, bytes]]:
    """(type, data) of each frame; the bytes must end with a frame."""
    found = []
    at = 0
    while at < len(data):
        length, frame_type = struct.unpack_from(">II", data, at)
        assert at + 4 + length <= len(data), "the output ends inside a frame"
        found.append((frame_type, data[at + 8 : at + 4 + length]))
        at += 4 + length
    return found


def messages(data: bytes) -> list[Message]:
    """The messages among the frames."""
    found = []
    for frame_type, content in frames(data):
        if frame_type == 2:
            timestamp_ns, attempts, id = struct.unpack_from(">qH16s", content)
            found.append(Message(timestamp_ns, attempts, int(id, 16), content[26:]))
    return found


def bodies(data: bytes) -> list[bytes]:
    return [message.body for message in messages(data)]


class Entry(NamedTuple):
    """One entry of the channel journal, as docs/formats.md has it."""

    kind: int
    state: int
    attempts: int
    reserved: int
    a: int
    b: int
    id: int


CURSOR, FINISHED, STRAY, GONE, RESET = 1, 2, 3, 4, 5


class TraceEvent(NamedTuple):
    """One event, as docs/formats.md has it, with names for numbers."""

    kind: TraceKind
    time_ns: int
    id: int
    offset: int
    attempts: int
    topic: str
    channel: str
    client: str
    trace_id: int
    count: int  # type: ignore[assignment]  # hides tuple.count


def entries(journal: bytes) -> list[Entry]:
    return [Entry(*fields) for fields in struct.iter_unpack("<BBHIqqQ", journal)]


def cursor(low: int, next: int) -> Entry:
    return Entry(CURSOR, 0, 0, 0, low, next, 0)


def finished(start: int, end: int) -> Entry:
    return Entry(FINISHED, 0, 0, 0, start, end, 0)


def stray(offset: int, id: int, attempts: int, state: int, due_ns: int = 0) -> Entry:
    return Entry(STRAY, state, attempts, 0, offset, due_ns, id)


def gone(offset: int, id: int) -> Entry:
    return Entry(GONE, 0, 0, 0, offset, 0, id)


def log_name(tail: Any) -> bytes:
    """Where `Side.written` keeps what this tail sealed."""
    return bytes(tail.topic) + (b" %d" % tail.partition if tail.partition else b"")


class Store:
    """What a turn asks of the broker: batches are on the disk at once, and events of the flush are
    left to the test, as those of the poll are."""

    records = gathering = SimpleNamespace(due_ns=NEVER_NS)

    def __init__(self, side: Side) -> None:
        self._side = side

    def write(self, tails: Sequence[Any], wall_ns: int) -> None:
        for tail in sorted(tails, key=lambda tail: (tail.topic, tail.partition)):
            self._side.store(tail)

    def load(self, window: Any, which: int, offset: int) -> None:
        self._side.hear((Event.NEED, window, which, offset))

    def journal(self, windows: Sequence[Any]) -> None:
        self._side.note(windows)

    def synced(self) -> None:
        """Nothing waits for the disk."""

    def write_trace(self) -> None:
        """The test takes it."""


class Side:
    """The kernel with all that a shell does for it."""

    def __init__(self, **limits: int) -> None:
        self.engine = kernel.Engine(
            limits.get("message_bytes_max", 1 << 20),
            limits.get("body_bytes_max", 5 << 20),
            limits.get("rdy_count_max", 2500),
            seed=limits.get("seed", 0),
        )
        self.mono_ns = START_NS
        self.wall_ns = WALL_NS
        self.next_id = FIRST_ID
        self.written: dict[bytes, list[bytes]] = {}
        self.windows: list[Any] = []
        self._events: list[tuple[Any, ...]] = []  # of the turn at hand
        clock: Any = SimpleNamespace(mono_ns=lambda: self.mono_ns, wall_ns=lambda: self.wall_ns)
        self._named: list[Any] = []  # connections and windows that turns have named
        links: Any = SimpleNamespace(again={}, serve=self.note)
        done: deque[Any] = deque()
        self._order = TurnOrder(self.engine, Store(self), links, clock, done, self.hear)

    def close(self) -> None:
        self.engine.close()

    def pass_time(self, duration_ns: int) -> None:
        self.mono_ns += duration_ns
        self.wall_ns += duration_ns

    # --- tails and windows ---

    def tail(
        self,
        topic: bytes = b"t",
        start: int = 0,
        memory: int = 1 << 20,
        handing: bool = True,
        partition: int = 0,
    ) -> Any:
        tail = self.engine.tail(topic, start, memory, partition)
        tail.handing = handing
        self.written[log_name(tail)] = []
        return tail

    def window(self, tail: Any, start: int | None = None) -> Any:
        window = self.engine.window(tail, tail.handed_end if start is None else start)
        self.windows.append(window)
        return window

    def seal(self, tail: Any) -> bytes:
        """Close the open batch and take down what would be written."""
        count = tail.open_count
        data = b"".join(bytes(part) for part in tail.seal(self.next_id, self.wall_ns, 0))
        self.next_id += count << 22  # a new tick for each message: far from any other id
        self.written[log_name(tail)].append(data)
        return data

    def commit(self) -> None:
        Store(self).write(self.engine.dirty_tails(), self.wall_ns)

    def publish(self, tail: Any, *bodies: bytes, due_ns: int = 0) -> int:
        """One committed batch, as if it came by HTTP. Returns the id of its first message."""
        for body in bodies:
            tail.append(body, due_ns)
        return self.store(tail)

    def publish_with(self, tail: Any, *messages: tuple[bytes, Sections | None]) -> int:
        """The same of bodies with sections."""
        for body, sections in messages:
            tail.append(body, 0, sections)
        return self.store(tail)

    def store(self, tail: Any) -> int:
        """Close the open batch, which is safe at once. Returns the id of its first message."""
        first_id = self.next_id
        self.seal(tail)
        tail.commit_to(tail.written_end)
        return first_id

    # --- connections ---

    def connect(self) -> Any:
        conn = self.engine.open_detached()
        conn.feed(MAGIC)
        return conn

    def consumer(self, windows: Any, rdy: int = 0, **settings: Any) -> Any:
        """Of one window, or of several."""
        conn = self.connect()
        assert self.poll() == []
        for name, value in settings.items():
            setattr(conn, name, value)
        for window in windows if isinstance(windows, list) else [windows]:
            conn.subscribe(window)
        conn.rdy = rdy
        return conn

    # --- turns ---

    def poll(self) -> list[tuple[Any, ...]]:
        return list(self.engine.poll(self.mono_ns))

    def flush(self) -> list[tuple[Any, ...]]:
        return list(self.engine.flush(self.mono_ns, self.wall_ns))

    def turn(self) -> list[tuple[Any, ...]]:
        """A whole turn of the daemon's, in which what was gathered is committed."""
        self._events = events = []
        self._order.run(self.mono_ns)
        return events

    def note(self, named: Sequence[Any]) -> None:
        self._named += named

    def dirty_detached(self) -> list[Any]:
        """Those that turns have named since the last call, and would name now."""
        self.note(self.engine.dirty_detached())
        return self._take_named("take_output")

    def dirty_windows(self) -> list[Any]:
        self.note(self.engine.dirty_windows())
        return self._take_named("take_journal")

    def _take_named(self, able: str) -> list[Any]:
        found = [one for one in self._named if hasattr(one, able)]
        self._named = [one for one in self._named if not hasattr(one, able)]
        return list(dict.fromkeys(found))

    def hear(self, event: tuple[Any, ...]) -> None:
        self._events.append(event)

    def settle(self) -> list[tuple[Any, ...]]:
        """Turns until the engine has nothing left to do by itself."""
        events = self.turn()
        for _ in range(100):
            if not self.engine.busy:
                return events
            events += self.turn()
        raise AssertionError("the engine is busy for ever")

    def fed(self, conn: Any, data: bytes) -> list[tuple[Any, ...]]:
        """Feed, take a turn, return the events."""
        conn.feed(data)
        return self.settle()

    def received(self, conn: Any) -> list[Message]:
        """Take turns while messages come for a consumer; return them."""
        data = b""
        while True:
            self.settle()
            more = conn.take_output()
            if not more:
                return messages(data)
            data += more

    def tick(self) -> int:
        return int(self.engine.tick(self.mono_ns, self.wall_ns))

    def journal(self, window: Any) -> list[Entry]:
        return entries(window.take_journal())

    def trace(self) -> list[TraceEvent]:
        """The events since the last call, runs taken apart. Windows are named by their number."""

        def name(thing: Any) -> str:
            if thing in self.windows:
                return f"channel {self.windows.index(thing)}"
            if hasattr(thing, "serial"):
                return f"client {thing.serial}"
            return log_name(thing).decode("ascii") if hasattr(thing, "topic") else "gone"

        found = []
        for things, events in self.engine.take_trace():
            names = ["", *map(name, things)]
            partitions = [0, *(getattr(thing, "partition", 0) for thing in things)]
            for row in struct.iter_unpack("<qQqQIHHHHHBB", kernel.expand_events(events, 1 << 20)):
                time_ns, id, offset, trace_id, count, topic, channel, client = row[:8]
                attempts, partition, kind, zero = row[8:]
                assert (partition, zero) == (partitions[topic], 0)
                reply = (names[topic], names[channel], names[client], trace_id, count)
                found.append(TraceEvent(TraceKind(kind), time_ns, id, offset, attempts, *reply))
        return found

    def validate(self) -> None:
        for window in self.windows:
            window.validate()
            window.tail.validate()

    # --- the search for delayed messages ---

    def search(self, window: Any, steps: int = 1_000_000) -> None:
        """So many batches of what the window wants searched, as a broker does it."""
        while window.search_start < window.search_end and steps:
            block = self.block(log_name(window.tail), window.search_start, 1)
            header = kernel.decode_header(block, 0)
            found = [block] if header.flags & 1 else []
            end = header.base_offset + header.count
            self.engine.search(window, found, end, self.lowest_id(window))
            steps -= 1
        self.flush()

    def lowest_id(self, window: Any) -> int:
        """By the log's own count, of what the cursor has not passed."""
        block = self.block(log_name(window.tail), window.next, 1)
        if not block:
            return 0
        header = kernel.decode_header(block, 0)
        return int(kernel.id_at(header.base_id, window.next - header.base_offset))

    # --- reading what was written ---

    def block(self, topic: bytes, from_offset: int, count_max: int = 1_000_000) -> bytes:
        """Batches from the one that holds `from_offset` on."""
        found: list[bytes] = []
        for data in self.written[topic]:
            header = kernel.decode_header(data, 0)
            if header.base_offset + header.count > from_offset and len(found) < count_max:
                found.append(data)
        return b"".join(found)

    def serve_needs(self, events: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Load what NEED events ask for and flush again, until nothing is needed."""
        needs = []
        while events:
            event = events.pop(0)
            if event[0] == Event.NEED:
                _, window, which, offset = event
                needs.append((Source(which), offset))
                window.load(which, self.block(log_name(window.tail), offset, 1))
                events += self.flush()
        return needs
