"""The engine: sockets, work lists, and the order in which a turn works them off.

Tails, windows and connections put themselves on a list here when there is something to do for them;
the engine works the lists off. Each list is a dict without values: in order, and each entry once.
"""

from __future__ import annotations

import os
import select
import socket
from typing import TYPE_CHECKING, Any

from penstock import limits
from penstock.kernel.interface import Event
from penstock.kernel.pure.conn import Conn
from penstock.kernel.pure.delivery import pump_all
from penstock.kernel.pure.memory import SharedMemory
from penstock.kernel.pure.narrow import narrow
from penstock.kernel.pure.parking import search
from penstock.kernel.pure.route import Route
from penstock.kernel.pure.sealed import Promise
from penstock.kernel.pure.tail import Tail
from penstock.kernel.pure.trace import Trace
from penstock.kernel.pure.window import Window
from penstock.limits import PARTITIONS_MAX, RECEIVE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from typing_extensions import Buffer

    from penstock.kernel import interface
    from penstock.kernel.tail_interface import Tail as TailInterface

_SEED_MAX = (1 << 64) - 1


class Engine:
    def __init__(
        self, message_bytes_max: int, body_bytes_max: int, rdy_count_max: int, *, seed: int = 0
    ) -> None:
        if seed != seed & _SEED_MAX:
            raise OverflowError(f"{seed} is no seed of 64 bits")
        self.seed = seed
        self.message_bytes_max = message_bytes_max
        self.body_bytes_max = body_bytes_max
        self.held_bytes_max = max(limits.INPUT_BYTES_MAX, 2 * body_bytes_max)
        self.held_bytes = 0  # input of all connections, but for what is small
        self.rdy_count_max = rdy_count_max
        self.sent_count = 0  # messages
        self.window_number = 0  # of the newest window
        self.mono_ns = 0
        self.wall_ns = 0
        self.polled_ns = 0  # mono: when the turn began to read
        self.wall_ahead_ns = 0  # of the wall clock, before mono
        self.trace = Trace()
        self.memory = SharedMemory()
        self.events: list[tuple[Any, ...]] = []
        self.routes: dict[bytes, Route] = {}  # by topic
        self.ready: dict[Conn, None] = {}  # input to look at
        self.pumps: dict[Window, None] = {}  # deliveries to see to
        self.outputs: dict[Conn, None] = {}  # output to send, or an end to see to
        self.interests: dict[Conn, None] = {}  # what epoll is to watch may have changed
        self.endings: dict[Conn, None] = {}  # closing after their last bytes
        self.journals: dict[Window, None] = {}  # changes for the channel journal
        self.active: dict[Window, None] = {}  # something in flight or delayed
        self.searches: dict[Window, None] = {}  # delayed messages are to be looked for in the log
        self.refills: dict[Window, int] = {}  # small ones that are put off, until this mono time
        self._holds: dict[Conn, None] = {}  # output held back
        self._detached: dict[Conn, None] = {}  # without a socket, and with something to do
        self._opened: dict[Tail, None] = {}  # the open batch is not empty
        self._handed: dict[Tail, None] = {}  # there is more to deliver
        self._settled: list[tuple[Promise, int]] = []
        self._conns: dict[int, Conn] = {}  # by descriptor
        self._last_serial = 0
        self._receive_buffer = memoryview(bytearray(RECEIVE_BYTES))
        self._epoll = select.epoll()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wake_fd, select.EPOLLIN)

    def fileno(self) -> int:
        return self._epoll.fileno()

    def wake(self) -> None:
        os.eventfd_write(self._wake_fd, 1)

    def close(self) -> None:
        for conn in list(self._conns.values()):
            conn.drop("engine closed")
        if not self._epoll.closed:
            self._epoll.close()
            os.close(self._wake_fd)

    # --- making connections, tails and windows ---

    def _new_serial(self) -> int:
        self._last_serial += 1
        return self._last_serial

    def open(self, fd: int) -> Conn:
        sock = socket.socket(fileno=fd)
        sock.setblocking(False)
        conn = Conn(self, self._new_serial(), sock)
        self._conns[fd] = conn
        self._watch(conn)
        return conn

    def open_detached(self) -> Conn:
        return Conn(self, self._new_serial(), None)

    def detach(self, conn: interface.Conn) -> tuple[int, bytes]:
        own = narrow(conn, Conn)
        if own.sock is not None:
            self._unwatch(own, own.sock)
        fd, unread = own.detach()
        self._detached[own] = None
        return fd, unread

    def tail(
        self, topic: bytes, start_offset: int, memory_bytes_max: int, partition: int = 0
    ) -> Tail:
        if not 0 <= partition < PARTITIONS_MAX:
            raise ValueError(f"{partition} is no number of a partition")
        route = self.routes.get(topic)
        if route is not None and route.find(partition) is not None:
            raise ValueError(f"there is a tail for {topic!r} {partition} already")
        tail = Tail(self, topic, start_offset, memory_bytes_max, partition)
        if route is None:
            self.routes[topic] = Route(tail)
        else:
            route.add(tail)
        return tail

    def route(self, topic: bytes, count: int = 1) -> Tail:
        return self.routes[topic].pick(count)

    def route_key(self, topic: bytes, key: bytes) -> Tail:
        route = self.routes[topic]
        partition = route.place_of_key(key)
        tail = route.find(partition)
        if tail is None:
            raise KeyError(f"{topic!r} has no tail {partition}")
        return tail

    def set_hash_partitions(self, topic: bytes, count: int) -> None:
        route = self.routes[topic]
        if not 0 < count <= PARTITIONS_MAX:
            raise ValueError(f"keys cannot be spread over {count} partitions")
        route.hash_partitions = count

    def set_extended(self, topic: bytes, extended: bool) -> None:
        self.routes[topic].extended = extended

    def set_placed(self, topic: bytes, placed: bool) -> None:
        self.routes[topic].placed = placed

    def forget_tail(self, topic: bytes, partition: int = 0) -> None:
        route = self.routes.get(topic)
        tail = route.find(partition) if route is not None else None
        if route is None or tail is None:
            return
        route.remove(tail)
        if not route.tails:
            del self.routes[topic]
        tail.forgotten = True
        tail.fail_from(tail.committed_end)
        tail.drop_open()

    def window(self, tail: TailInterface, start_offset: int) -> Window:
        own = narrow(tail, Tail)
        window = Window(self, own, start_offset)
        own.windows.append(window)
        return window

    def forget_window(self, window: interface.Window) -> None:
        own = narrow(window, Window)
        for conn in list(own.conns):
            conn.leave(own)
        own.forgotten = True
        own.tail.windows.remove(own)
        for windows in (self.pumps, self.journals, self.active, self.refills, self.searches):
            windows.pop(own, None)

    # --- what the parts report ---

    def note_open(self, tail: Tail) -> None:
        self._opened[tail] = None

    def note_handed(self, tail: Tail) -> None:
        self._handed[tail] = None

    def note_settled(self, promise: Promise, outcome: int) -> None:
        self._settled.append((promise, outcome))

    def unstall(self, conns: Iterable[Conn]) -> None:
        for conn in conns:
            conn.unstall()

    def need(self, window: Window, which: int, offset: int) -> None:
        self.events.append((Event.NEED, window, which, offset))

    # --- the first half of a turn ---

    @property
    def busy(self) -> bool:
        return any((self.ready, self.pumps, self.outputs, self._handed, self._settled, self.events))

    def poll(self, mono_ns: int) -> list[tuple[Any, ...]]:
        self.mono_ns = self.polled_ns = mono_ns
        ready, self.ready = self.ready, {}
        for conn in ready:
            conn.read_commands()
            conn.note_input()
            if conn.eof:
                self.outputs[conn] = None
        for fd, mask in self._epoll.poll(0):
            conn_at = self._conns.get(fd)
            if conn_at is not None:
                self._serve(conn_at, mask)
            elif fd == self._wake_fd:
                self._clear_wake()
        if self.endings or self._holds or self.refills:
            self._check_deadlines()
        return self._take_events()

    def _serve(self, conn: Conn, mask: int) -> None:
        if mask & select.EPOLLOUT:
            self.outputs[conn] = None
        if mask & ~select.EPOLLOUT:
            if conn.wants_input():
                conn.receive_socket(self._receive_buffer)
            else:
                self.interests[conn] = None
                self.outputs[conn] = None  # hung up: sending tells how

    def _clear_wake(self) -> None:
        try:
            os.eventfd_read(self._wake_fd)
        except BlockingIOError:
            return  # another reader was first: nothing is lost, we are awake

    def _check_deadlines(self) -> None:
        for conn in [conn for conn in self.endings if conn.is_overdue(self.mono_ns)]:
            conn.drop("closed")
        self.outputs.update(self._holds)
        self._holds.clear()
        for window, due_ns in self.refills.items():
            if self.mono_ns >= due_ns:
                self.pumps[window] = None

    def _take_events(self) -> list[tuple[Any, ...]]:
        events, self.events = self.events, []
        return events

    # --- the second half ---

    def dirty_tails(self) -> list[TailInterface]:
        self._opened = {tail: None for tail in self._opened if tail.open_count}
        return [tail for tail in self._opened if tail.can_seal]

    def flush(self, mono_ns: int, wall_ns: int) -> list[tuple[Any, ...]]:
        self.mono_ns, self.wall_ns = mono_ns, wall_ns
        self.wall_ahead_ns = wall_ns - mono_ns
        settled, self._settled = self._settled, []
        for promise, outcome in settled:
            # One after the other: who waits for several goes on when the last of them is through.
            promise.outcome = outcome
            for conn in promise.conns:
                conn.settle()
        self._work_pumps()
        if self.outputs:
            self._work_outputs()
            if self.pumps:
                self._work_pumps()
        interests, self.interests = self.interests, {}
        for conn in interests:
            self._watch(conn)
        return self._take_events()

    def _work_pumps(self) -> None:
        handed, self._handed = self._handed, {}
        for tail in handed:
            for window in tail.windows:
                window.mark()
        pump_all(self)
        for tail in handed:
            tail.trim()

    def _work_outputs(self) -> None:
        outputs, self.outputs = self.outputs, {}
        for conn in outputs:
            if conn.holding(self.mono_ns):
                self._holds[conn] = None
                continue
            conn.send()
            self._note_detached(conn)
            if not (conn.gone or conn.output):
                conn.finish()

    def _watch(self, conn: Conn) -> None:
        """Tell epoll what we wait for; nothing at all when that is nothing, as a hung-up peer would
        otherwise be reported for ever."""
        if conn.sock is None:
            self._note_detached(conn)
            return
        wanted = select.EPOLLIN if conn.wants_input() else 0
        if conn.blocked and conn.output:
            wanted |= select.EPOLLOUT
        if wanted == conn.interest:
            return
        if conn.interest == 0:
            self._epoll.register(conn.sock, wanted)
        elif wanted == 0:
            self._epoll.unregister(conn.sock)
        else:
            self._epoll.modify(conn.sock, wanted)
        conn.interest = wanted

    def release(self, conn: Conn) -> None:
        """A connection is gone: close its socket, take it off the lists."""
        for conns in (self.ready, self.outputs, self.interests, self.endings, self._holds):
            conns.pop(conn, None)
        self._note_detached(conn)
        sock = conn.sock
        if sock is None:
            return
        self._unwatch(conn, sock)
        conn.sock = None
        sock.close()

    def _unwatch(self, conn: Conn, sock: socket.socket) -> None:
        if conn.interest:
            self._epoll.unregister(sock)
            conn.interest = 0
        del self._conns[sock.fileno()]

    def _note_detached(self, conn: Conn) -> None:
        if conn.detached:
            self._detached[conn] = None

    def dirty_detached(self) -> list[interface.Conn]:
        detached, self._detached = self._detached, {}
        return list(detached)

    @property
    def deadline_ns(self) -> int:
        deadlines = [conn.ends_at_ns for conn in self.endings]
        deadlines += [conn.held_until_ns for conn in self._holds]
        deadlines += self.refills.values()
        return min(deadlines, default=0)

    def dirty_windows(self) -> list[interface.Window]:
        dirty, self.journals = self.journals, {}
        for window in dirty:
            window.unlist()
        return list(dirty)

    # --- delayed messages in the log ---

    def take_searches(self) -> list[interface.Window]:
        taken, self.searches = self.searches, {}
        return list(taken)

    def search(
        self, window: interface.Window, blocks: Sequence[Buffer], end: int, ids_from: int
    ) -> None:
        search(narrow(window, Window), blocks, end, ids_from)

    # --- trace ---

    @property
    def now_ns(self) -> int:
        """The wall clock, as far as this turn knows it."""
        return max(self.wall_ns, self.polled_ns + self.wall_ahead_ns)

    @property
    def trace_pending(self) -> bool:
        return self.trace.pending

    @property
    def trace_full(self) -> bool:
        return self.trace.full

    def take_trace(self) -> list[tuple[list[Any], bytes]]:
        return self.trace.take()

    def tell_time(self, wall_ns: int) -> None:
        self.wall_ns = max(self.wall_ns, wall_ns)

    # --- timers ---

    def tick(self, mono_ns: int, wall_ns: int) -> int:
        self.mono_ns, self.wall_ns = mono_ns, wall_ns
        waits = []
        for window in list(self.active):
            window.expire(mono_ns)
            window.release(wall_ns)
            if window.in_flight:
                waits.append(max(window.deadline_ns - mono_ns, 1))
            if window.strays.delayed:
                waits.append(max(window.due_ns - wall_ns, 1))
            if not (window.in_flight or window.strays.delayed):
                del self.active[window]
        return min(waits, default=0)
