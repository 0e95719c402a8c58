"""One V2 client connection: answers to publishes, output, its part as a consumer, its end."""

from __future__ import annotations

import socket
from collections import deque
from typing import TYPE_CHECKING, Any

from penstock import limits
from penstock.kernel.interface import Event, Locality
from penstock.kernel.layout import FRAME_HEAD
from penstock.kernel.pure.extended import Extended
from penstock.kernel.pure.narrow import narrow
from penstock.kernel.pure.sealed import FAILED, PENDING, Promise
from penstock.kernel.pure.shares import Shares
from penstock.kernel.pure.tail import Tail
from penstock.kernel.pure.window import Window
from penstock.limits import (
    CHUNK_BYTES,
    CLOSE_DRAIN_NS,
    DRAIN_BYTES_MAX,
    MESSAGE_TIMEOUT_NS,
    OWED_MAX,
    STUCK_INPUT_BYTES_MAX,
    UNSENT_BYTES_MAX,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

    from penstock.kernel import interface
    from penstock.kernel.filter_interface import Filter
    from penstock.kernel.pure.engine import Engine
    from penstock.kernel.tail_interface import Tail as TailInterface

_FRAME_TYPE_BYTES = 4
_OK_FRAME = FRAME_HEAD.pack(6, 0) + b"OK"


class Owed:
    """Publishes with one verb, and a batch that they wait for. A publish into several batches has
    entries with a count of 0 for all but the last."""

    __slots__ = ("count", "promise", "verb")

    def __init__(self, promise: Promise, verb: int) -> None:
        self.promise = promise
        self.verb = verb
        self.count = 0


class Conn(Extended):
    def __init__(self, engine: Engine, serial: int, sock: socket.socket | None) -> None:
        super().__init__(engine, serial)
        self.owner: Any = None
        self.sock = sock  # None: detached, or gone
        self.interest = 0  # what epoll was told
        self.output = bytearray()
        self.blocked = False  # no deliveries before the output is sent
        self.eof = False
        self.gone = False
        self.ending = False  # close_after_flush was called
        self.ends_at_ns = 0  # mono; then it is closed, come what may
        self.shut = False
        self._tag = b""
        self.filter: Filter | None = None
        self.enveloped = False
        self.extended = False
        self.detailed = False
        self.sample_rate = 0
        self.timeout_ns = MESSAGE_TIMEOUT_NS
        self.locality = int(Locality.UNKNOWN)
        self.in_flight = 0
        self.message_count = 0
        self.finish_count = 0
        self.requeue_count = 0
        self.detached = sock is None
        self.shares = Shares()
        self._owed: deque[Owed] = deque()
        self._failed = False
        self._drained_bytes = 0
        self._noted_bytes = 0  # of the input, in `Engine.held_bytes`
        self._hold_bytes = 0
        self._hold_ns = 0
        self._hold_since_ns = 0  # 0: nothing is held
        self._urgent = False  # a response is queued: it takes along what is held

    @property
    def rdy(self) -> int:
        return self.rdy_now

    @rdy.setter
    def rdy(self, count: int) -> None:
        self.ask_rdy(count)
        self.mark_windows()

    @property
    def rdy_limit(self) -> int:
        return self.rdy_cap

    @rdy_limit.setter
    def rdy_limit(self, count: int) -> None:
        self.rdy_cap = count
        self.rdy = self.rdy_asked

    @property
    def tag(self) -> bytes:
        return self._tag

    @tag.setter
    def tag(self, value: bytes) -> None:
        if self.windows:
            raise RuntimeError("a consumer that is subscribed keeps its tag")
        if len(value) > limits.TAG_BYTES_MAX:
            raise ValueError(f"a tag of {len(value)} bytes is longer than {limits.TAG_BYTES_MAX}")
        self._tag = value

    def set_filter(self, filter: Filter | None) -> None:
        self.filter = filter

    @property
    def unsent(self) -> int:
        return len(self.output)

    @property
    def pending(self) -> int:
        return sum(owed.count for owed in self._owed)

    @property
    def ended(self) -> bool:
        return self.gone

    @property
    def reading(self) -> bool:
        return self.wants_input()

    def detach(self) -> tuple[int, bytes]:
        """The engine has let go of the socket: its descriptor, and the input not looked at."""
        if self.sock is None:
            raise ValueError("this connection has no socket")
        fd, self.sock = self.sock.detach(), None
        self.detached = True
        unread = bytes(self._input[self._at :])
        self.forget_input()
        self.note_input()
        return fd, unread

    # --- input ---

    def feed(self, data: Buffer) -> None:
        if not (self.gone or self.eof):
            self._receive(memoryview(data))
            self.engine.ready[self] = None

    def feed_eof(self) -> None:
        self.note_eof()
        self.engine.ready[self] = None

    def _receive(self, data: memoryview) -> None:
        if self.ending:
            self._drained_bytes += len(data)
        else:
            self.take_in(data)

    def note_eof(self) -> None:
        self.eof = True
        self.engine.outputs[self] = None
        self.engine.interests[self] = None

    def receive_socket(self, buffer: memoryview) -> None:
        """One recv, and what can be made of it."""
        if self.sock is None:
            return
        try:
            size = self.sock.recv_into(buffer)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.drop(f"connection lost: {error.strerror}")
            return
        if size == 0:
            self.note_eof()
            return
        self._receive(buffer[:size])
        self.read_commands()
        self.note_input()
        if self.stuck or self.ending:
            self.engine.interests[self] = None

    def note_input(self) -> None:
        """Count what is kept of commands that are not whole. Who grows beyond what all connections
        together may keep is hung up on: an error would be taken for the answer to another publish.
        """
        held = self.unread + self.bodies_kept
        if held <= limits.INPUT_SMALL_BYTES:
            held = 0
        before, self._noted_bytes = self._noted_bytes, held
        self.engine.held_bytes += held - before
        if held > before and self.engine.held_bytes > self.engine.held_bytes_max:
            self.drop("the unfinished commands of all clients take too much memory")

    def wants_input(self) -> bool:
        if self.gone or self.eof:
            return False
        if self.ending:
            return self._drained_bytes <= DRAIN_BYTES_MAX
        if len(self.output) > UNSENT_BYTES_MAX:
            return False
        return not (self.stuck and self.unread > STUCK_INPUT_BYTES_MAX)

    def resume(self) -> None:
        self.halted = False
        self.engine.ready[self] = None
        self.engine.interests[self] = None

    def read_body(self, size_max: int) -> None:
        self.expect_body(size_max)
        self.resume()

    def unstall(self) -> None:
        self.stalled = False
        self.engine.ready[self] = None
        self.engine.interests[self] = None

    # --- publishes and their answers ---

    def owes(self) -> bool:
        return bool(self._owed)

    def may_owe(self, tails: Sequence[Tail], verb: int) -> bool:
        if not self._owed:
            return True
        wanted = sum(not self._owes_to(tail) for tail in tails) or self._owed[-1].verb != verb
        return len(self._owed) + wanted <= OWED_MAX

    def owe(self, tails: Sequence[Tail], verb: int) -> None:
        """Answers keep the order of commands, so a publish also waits for what those before it
        wait for: only a batch that none of them waits for needs an entry."""
        for tail in tails:
            if not self._owes_to(tail):
                self._push_owed(tail, verb)
        if self._owed[-1].verb != verb:
            self._push_owed(tails[-1], verb)
        self._owed[-1].count += 1

    def _owes_to(self, tail: Tail) -> bool:
        """Does an unanswered publish wait for the open batch of this tail?"""
        return any(owed.promise is tail.promise for owed in reversed(self._owed))

    def _push_owed(self, tail: Tail, verb: int) -> None:
        self._owed.append(Owed(tail.promise, verb))
        tail.promise.conns[self] = None

    def appended(self, tail: TailInterface, verb: int) -> None:
        self._appended([narrow(tail, Tail)], verb, 1)

    def settle(self) -> None:
        """Answer what stands at the head of the FIFO, as far as it is decided."""
        while self._owed and self._owed[0].promise.outcome != PENDING:
            owed = self._owed.popleft()
            if self._failed or self.gone or self.shut:
                continue
            if owed.promise.outcome == FAILED:
                self._failed = self.halted = True
                self.engine.events.append((Event.PUB_FAILED, self, owed.verb, owed.promise.tail))
            elif owed.count:
                self._respond(_OK_FRAME * owed.count)
        if self.held and not self._owed:
            self.held = False
            self.engine.ready[self] = None
            self.engine.interests[self] = None
        if self.eof:
            self.engine.outputs[self] = None

    # --- output ---

    def reply(self, frame_type: int, data: bytes) -> None:
        if not (self.gone or self.ending):
            self._respond(FRAME_HEAD.pack(_FRAME_TYPE_BYTES + len(data), frame_type) + data)

    def _respond(self, frames: bytes) -> None:
        self.output += frames
        self._urgent = True
        self.engine.outputs[self] = None

    def deliver(self, frames: bytes, count: int) -> None:
        """Message frames, built for this consumer."""
        self.in_flight += count
        self.message_count += count
        self.output += frames
        self.blocked = len(self.output) >= CHUNK_BYTES
        if self._hold_ns and not self._hold_since_ns:
            self._hold_since_ns = self.engine.mono_ns
        self.engine.outputs[self] = None

    @property
    def holds_output(self) -> bool:
        return self._hold_ns > 0

    def output_every(self, bytes_max: int, timeout_ns: int) -> None:
        self._hold_bytes = bytes_max
        self._hold_ns = timeout_ns
        self.engine.outputs[self] = None

    @property
    def held_until_ns(self) -> int:
        return self._hold_since_ns + self._hold_ns

    def holding(self, mono_ns: int) -> bool:
        """Is output held back on purpose right now?"""
        return (
            self._hold_ns > 0
            and self._hold_since_ns > 0
            and not (self._urgent or self.ending or self.eof)
            and len(self.output) < self._hold_bytes
            and mono_ns < self.held_until_ns
            and not all(window.paused for window in self.windows)
            and self.rdy_now > self.in_flight
        )

    def take_output(self) -> bytes:
        if self.holding(self.engine.mono_ns):
            return b""
        data = bytes(self.output)
        self.output.clear()
        self.sent_all()
        if self.eof or self.ending:
            self.engine.outputs[self] = None
        return data

    def send(self) -> None:
        """Send what the socket takes."""
        if self.sock is None or not self.output:
            return
        try:
            size = self.sock.send(self.output)
        except (BlockingIOError, InterruptedError):
            size = 0
        except OSError as error:
            self.drop(f"send failed: {error.strerror}")
            return
        if size < len(self.output):
            del self.output[:size]
            self.blocked = True
        else:
            self.output = bytearray()
            self.sent_all()
        self.engine.interests[self] = None

    def sent_all(self) -> None:
        self._hold_since_ns = 0
        self._urgent = False
        if self.blocked:
            self.blocked = False
            self.shares.crowded = True
            self.mark_windows()

    # --- consuming ---

    def subscribe(self, window: interface.Window) -> None:
        own = narrow(window, Window)
        if own in self.windows:
            raise RuntimeError("this connection is subscribed already")
        self.in_flight += own.in_flight_of(self.serial)  # when it was here before
        self.windows = (*self.windows, own)
        self.hit = self.hit or own
        own.add_consumer(self)

    def leave(self, window: interface.Window | None = None) -> None:
        for left in self.windows:
            if window in (None, left):
                self._leave_window(left)

    def _leave_window(self, window: Window) -> None:
        """Its messages stay in flight there until they time out, and take no place here."""
        window.remove_consumer(self)
        self.shares.left(self.windows.index(window))
        self.windows = tuple(other for other in self.windows if other is not window)
        self.in_flight -= window.in_flight_of(self.serial)
        if self.hit is window:
            self.hit = self.window
        self.mark_windows()

    @property
    def window(self) -> Window | None:
        return self.windows[0] if self.windows else None

    def find(self, id: int) -> Window | None:
        if self.hit is not None and self.hit.has(id):
            return self.hit
        return next((window for window in self.windows if window.has(id)), None)

    def has_beside(self, window: Window, id: int) -> bool:
        """Has a window other than this one a message with this id?"""
        return any(other.has(id) for other in self.windows if other is not window)

    def room(self) -> int:
        """Free places."""
        room = self.rdy_now - self.in_flight
        return 0 if room <= 0 or self.closing or self.blocked or self.eof else room

    def is_small_refill(self) -> bool:
        """Hysteresis: a large RDY is refilled in pieces worth a send. A smaller one is put off, but
        never for good: some clients answer nothing before they hold all that they asked for."""
        return (
            self.rdy_now >= limits.HYSTERESIS_RDY_MIN
            and 2 * self.in_flight > self.rdy_now
            and 0 < 4 * self.room() < self.rdy_now
        )

    # --- the end ---

    def close_after_flush(self) -> None:
        if self.gone or self.ending:
            return
        self.ending = self.closing = True
        self.halted = self.held = self.stalled = False
        self.ends_at_ns = self.engine.mono_ns + CLOSE_DRAIN_NS
        self.drain()
        self.engine.endings[self] = None
        self.engine.outputs[self] = None
        self.engine.interests[self] = None

    def close(self) -> None:
        self.drop("closed")

    def finish(self) -> None:
        """Everything is sent: is this connection at its end?"""
        if self.ending:
            if self.eof or self.detached:
                self.drop("closed")
            elif not self.shut:
                self._shut_down()
        elif self.eof and not (self.stuck or self._owed or self in self.engine.ready):
            missing = self.missing()
            if missing is None:
                self.drop("eof")
            else:
                self.halted = True
                self.engine.events.append((Event.CUT, self, *missing))

    def _shut_down(self) -> None:
        self.shut = True
        self.leave()
        if self.sock is None:
            return
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError as error:
            self.drop(f"connection lost: {error.strerror}")

    def is_overdue(self, mono_ns: int) -> bool:
        return mono_ns >= self.ends_at_ns or self._drained_bytes > DRAIN_BYTES_MAX

    def drop(self, reason: str) -> None:
        """Report the end once, and let go of everything."""
        if self.gone:
            return
        self.gone = self.closing = True
        self.engine.events.append((Event.CLOSED, self, reason))
        self.leave()
        self.drain()
        self.note_input()
        self.engine.release(self)
