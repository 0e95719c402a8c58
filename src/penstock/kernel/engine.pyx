# The engine of one daemon: its connections and topics, and the order in which a turn works.
#
# What the files that it is made of import is imported here, once.

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdlib cimport calloc, free, malloc, qsort, realloc
from libc.string cimport memchr, memcmp, memcpy, memmove, memset
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, itimerspec, timespec
from posix.uio cimport iovec, pwritev

import os
import socket
import sys
from heapq import heappop, heappush
from json import loads

from penstock.kernel._codec cimport (
    BACKSLASH, BATCH_CRC_FROM, BATCH_FLAG_TRAILER, BATCH_MAGIC, HEADER_BYTES, QUOTE,
    SECTION_ATTEMPTS, SECTION_BYTES_TYPE_MIN, SECTION_DUE, SECTION_HEADERS, SECTION_ID,
    SECTION_KEY, SECTION_TIMESTAMP, SECTION_TRACE, SHORT_HEADER_BYTES, SHORT_MAGIC, Lent,
    batch_fits_c, batch_header_t, batch_parts_c, buf_append, buf_compact, buf_free, buf_init,
    buf_reserve, buf_t, buf_take, crc32c_update, event_t, header_bytes_c, headers_parse, headers_t,
    i64, id_above, id_at, id_decode, id_encode, id_index, lent_by, load_u32, load_u64,
    murmur3_32_c, parts_t, section_next, section_t, section_value, short_header_t, span_of,
    text_is, text_t, u16, u32, u64, u8,
)

from penstock import limits
from penstock.kernel._codec import check_batch
from penstock.kernel.types import StrayRecord

# Tails, and the windows of channels on them.
include "growing.pxi"
include "views.pxi"
include "bigendian.pxi"
include "labels.pxi"
include "trace.pxi"
include "memory.pxi"
include "pack.pxi"
include "heads.pxi"
include "tail.pxi"
include "ranges.pxi"
include "strays.pxi"
include "stored.pxi"
include "filters.pxi"
include "latency.pxi"
include "ring.pxi"
include "busykeys.pxi"
include "keyorder.pxi"
include "cursor.pxi"
include "window.pxi"

# Connections, and what goes between them and those.
include "route.pxi"
include "peer.pxi"
include "publisher.pxi"
include "extended.pxi"
include "conn.pxi"
include "framing.pxi"
include "parking.pxi"
include "turns.pxi"
include "delivery.pxi"
include "poller.pxi"
include "routes.pxi"

# The turn, and the work lists that it works off (engine.pyi tells of it).

if sys.byteorder != "little":
    raise ImportError("the kernel needs a little-endian machine")

cdef i64 DRAIN_NS = limits.CLOSE_DRAIN_NS

cdef enum:
    DRAIN_BYTES_MAX = 16 << 20

# A publisher that waits for each answer brings one message a turn, and then the turn costs more
# than the message: the outer loop's wake-up, its call, the questions to every part of a node. So
# while publishes to one topic are all that comes, the engine stays: it waits by itself, stores and
# answers. It goes back when anything else is ready, or after ALONE_NS, which is how late a timer of
# the outer loop may be. What the outer loop has begun by itself takes several of its rounds, so for
# OUTSIDE_NS after it had something to do the engine does not stay.

cdef enum:
    BRISK_NS = 1000000  # turns that follow one another so soon
    ALONE_NS = 4000000
    OUTSIDE_NS = 20000000

cdef class Engine(Routes):
    cdef u32 last_serial
    cdef list holds  # connections whose output is held back
    cdef list drains  # connections whose last bytes are read and dropped
    cdef readonly i64 deadline_ns
    cdef int outside_fd  # readable when the outer loop has something to do; -1: not known
    cdef i64 outside_until_ns
    cdef bint brisk  # one turn follows the other

    def __cinit__(self, i64 message_bytes_max, i64 body_bytes_max, i64 rdy_count_max, *,
                  u64 seed=0):
        self.hub = Hub()
        self.hub.seed = seed
        self.hub.message_bytes_max = message_bytes_max
        self.hub.body_bytes_max = body_bytes_max
        self.hub.held_bytes_max = max(self.hub.held_bytes_max, 2 * body_bytes_max)
        self.hub.rdy_count_max = rdy_count_max
        self.slots, self.free_slots = [], []
        self.holds, self.drains = [], []
        self.outside_fd = -1
        self.epoll_fd = epoll_create1(EPOLL_CLOEXEC)
        self.lazy_fd = epoll_create1(EPOLL_CLOEXEC)
        self.timer_fd = timer_open()
        if self.epoll_fd < 0 or self.lazy_fd < 0 or self.timer_fd < 0:
            raise OSError(errno, "no descriptors for the engine")
        self.wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.watch(self.wake_fd, WAKE_TAG)
        self.watch(self.timer_fd, TIMER_TAG)
        self.watch(self.lazy_fd, LAZY_TAG)
        self.lazy_watched = True

    def close(self):
        cdef Conn conn
        for conn in self.slots:
            if conn is not None:
                conn.gone("engine closed")
                self.release_socket(conn)
        if self.epoll_fd >= 0:
            for fd in (self.epoll_fd, self.lazy_fd, self.timer_fd, self.wake_fd):
                os.close(fd)
            self.epoll_fd = -1

    cdef Conn new_conn(self, int fd):
        self.last_serial += 1
        if self.last_serial == 0:
            self.last_serial = 1
        return Conn(self.hub, self.last_serial, fd)

    def open(self, int fd):
        cdef Conn conn = self.new_conn(fd)
        if self.free_slots:
            conn.slot = self.free_slots.pop()
            self.slots[conn.slot] = conn
        else:
            conn.slot = len(self.slots)
            self.slots.append(conn)
        self.set_interest(conn)
        return conn

    def open_detached(self):
        cdef Conn conn = self.new_conn(-1)
        conn.detached = True
        return conn

    def detach(self, Conn conn not None):
        cdef int fd = conn.fd
        cdef bytes unread
        if fd < 0 or conn.state == STATE_GONE:
            raise ValueError("this connection has no socket")
        self.forget_socket(conn)
        unread = (conn.input.data + conn.input.start)[:conn.input.length - conn.input.start]
        buf_free(&conn.input)
        conn.note_input()
        conn.detached = True
        conn.want_write = conn.lazy = False
        conn.mark_detached()
        return fd, unread

    def window(self, Tail tail not None, i64 start_offset):
        window = Window(self.hub, tail, start_offset)
        tail.windows.append(window)
        return window

    def forget_window(self, Window window not None):
        cdef Conn conn
        for conn in list(window.conns):
            conn.leave(window)
        window.forgotten = True
        window.tail.windows.remove(window)

    # --- reading ---

    def poll(self, i64 mono_ns):
        self.brisk = mono_ns - self.hub.polled_ns < BRISK_NS
        self.hub.mono_ns = self.hub.polled_ns = mono_ns
        if self.hub.ready:
            self.work_ready()
        self.read_ready()
        if self.holds or self.drains or self.hub.shorts:
            self.check_deadlines()
        return self.take_events()

    cdef list take_events(self):
        cdef list events = self.hub.events
        self.hub.events = []
        return events

    cdef int work_ready(self) except -1:
        cdef list ready = self.hub.ready
        cdef Conn conn
        self.hub.ready = []
        for conn in ready:
            conn.ready_listed = False
            if conn.state == STATE_GONE:
                continue
            conn.reparse()
            conn.note_input()
            conn.mark_detached()
            if conn.eof:
                conn.mark_output()
        return 0

    cdef int check_deadlines(self) except -1:
        cdef Conn conn
        cdef list drains = self.drains, holds = self.holds
        self.drains, self.holds = [], []
        for conn in drains:
            if conn.state == STATE_GONE:
                continue
            if self.hub.mono_ns >= conn.drain_until_ns or conn.drained_bytes > DRAIN_BYTES_MAX:
                conn.gone("closed")
            else:
                self.drains.append(conn)
        for conn in holds:
            conn.hold_listed = False
            conn.mark_output()
        if self.hub.shorts:
            self.refill()
        return 0

    cdef int refill(self) except -1:
        """Small refills that have been put off for long enough."""
        cdef list shorts = self.hub.shorts
        cdef Window window
        self.hub.shorts = []
        for window in shorts:
            if self.hub.mono_ns < window.refill_ns and not window.forgotten:
                self.hub.shorts.append(window)
            else:
                window.short_listed = False
                window.mark_pump()
        return 0

    # --- the second half of a turn ---

    def dirty_tails(self):
        """A tail stays listed until its open batch is sealed, or waits for those before it."""
        cdef list dirty = self.hub.dirty_tails
        cdef list kept = []
        cdef Tail tail
        if not dirty:
            return kept
        for tail in dirty:
            if tail.open_batch != NULL and tail.can_seal():
                kept.append(tail)
            else:
                tail.listed = False
        self.hub.dirty_tails = kept
        return list(kept)

    # --- publishers that wait for each answer ---

    def watch_outside(self, int fd):
        self.outside_fd = fd

    @property
    def staying(self):
        return (self.brisk and self.outside_fd >= 0
                and self.hub.mono_ns >= self.outside_until_ns)

    def stay(self, Tail tail not None, LogEnd end not None):
        cdef Hub hub = self.hub
        cdef i64 now_ns = monotonic_ns()
        cdef i64 until_ns = now_ns + ALONE_NS, wall_ahead_ns = hub.wall_ns - now_ns
        while wait_for(self.outside_fd, until_ns - monotonic_ns()):
            hub.mono_ns = hub.polled_ns = monotonic_ns()
            if not self.read_ready(True):
                self.outside_until_ns = hub.mono_ns + OUTSIDE_NS
                break
            if hub.events or (hub.dirty_tails and hub.dirty_tails != [tail]):
                break
            hub.wall_ns = hub.mono_ns + wall_ahead_ns
            if tail.open_batch != NULL and not tail.store_c(end, hub.wall_ns):
                break
            self.flush_c()
            if hub.events or not self.is_quiet():
                break
        return self.take_events()

    def flush(self, i64 mono_ns, i64 wall_ns):
        self.hub.mono_ns, self.hub.wall_ns = mono_ns, wall_ns
        self.hub.wall_ahead_ns = wall_ns - mono_ns
        self.flush_c()
        return self.take_events()

    cdef int flush_c(self) except -1:
        if self.hub.settled:
            self.work_settled()
        self.work_pumps()
        if self.hub.outputs:
            self.work_outputs()
            if self.hub.pumps:
                self.work_pumps()
        if self.hub.interests:
            self.work_interests()
        self.deadline_ns = first_deadline(self.drains, self.holds, self.hub.shorts)
        return 0

    @property
    def trace_pending(self):
        return self.has_trace()

    cdef bint has_trace(self) noexcept:
        return self.hub.trace.count > 0 or len(self.hub.trace.chunks) > 0

    @property
    def trace_full(self):
        return len(self.hub.trace.chunks) > 0

    def take_trace(self):
        return self.hub.trace.take()

    def set_time(self, i64 wall_ns):
        self.hub.wall_ns = max(self.hub.wall_ns, wall_ns)

    @property
    def busy(self):
        return bool(self.hub.ready or self.hub.pumps or self.hub.outputs)

    @property
    def has_work(self):
        cdef Hub hub = self.hub
        return bool(hub.ready or hub.pumps or hub.outputs or hub.settled or hub.handed
                    or hub.unstalled or hub.dirty_tails or hub.journals or hub.detached
                    or hub.interests or hub.events)

    @property
    def quiet(self):
        return self.is_quiet()

    cdef bint is_quiet(self) noexcept:
        cdef Hub hub = self.hub
        return not (hub.ready or hub.pumps or hub.outputs or hub.journals or hub.detached
                    or self.deadline_ns or self.has_trace())

    cdef int work_settled(self) except -1:
        cdef list settled = self.hub.settled
        cdef Conn conn
        cdef Tail tail
        self.hub.settled = []
        for tail, serial, outcome, waiters in settled:
            for conn in waiters:
                conn.settle(tail, serial, outcome)
        return 0

    cdef int work_pumps(self) except -1:
        cdef Hub hub = self.hub
        cdef Tail tail
        cdef Window window
        cdef Conn conn
        cdef list some
        if hub.unstalled:
            some, hub.unstalled = hub.unstalled, []
            for conn in some:
                conn.stalled = False
                conn.mark_ready()
                conn.mark_interest()
        cdef list handed = hub.handed
        if handed:
            hub.handed = []
            for tail in handed:
                tail.handed_listed = False
                for window in tail.windows:
                    window.mark_pump()
        if hub.pumps:
            pump_all(hub)
        for tail in handed:
            self.trim(tail)
        return 0

    cdef int trim(self, Tail tail) except -1:
        """Keep in memory what the channels that read at this end have still to read."""
        cdef Window window
        cdef i64 wanted = tail.committed_end
        cdef i64 start = tail.memory_start
        for window in tail.windows:
            if start <= window.next < wanted:
                wanted = window.next
        return tail.trim(wanted)

    cdef int work_outputs(self) except -1:
        cdef list outputs = self.hub.outputs
        cdef Conn conn
        self.hub.outputs = []
        for conn in outputs:
            conn.output_listed = False
            self.work_output(conn)
        return 0

    cdef int work_output(self, Conn conn) except -1:
        if conn.state == STATE_GONE:
            return self.release_socket(conn)
        if conn.closing_after_flush and conn.drain_until_ns == 0:
            conn.drain_until_ns = self.hub.mono_ns + DRAIN_NS
            self.drains.append(conn)
        if conn.holding(self.hub.mono_ns):
            if not conn.hold_listed:
                conn.hold_listed = True
                self.holds.append(conn)
            return 0
        if conn.fd >= 0:
            send_waiting(conn, self.hub)
            if conn.state == STATE_GONE:
                return self.release_socket(conn)
        else:
            conn.mark_detached()
        if conn.unsent_c() == 0:
            self.finish_closing(conn)
        elif conn.unsent_c() > <size_t>self.hub.output_bytes_max:
            conn.mark_interest()
        return 0

    cdef int finish_closing(self, Conn conn) except -1:
        """Everything is sent: is this connection at its end?"""
        if conn.closing_after_flush and not conn.shut:
            conn.shut = True
            conn.state = STATE_DRAINING
            if conn.fd < 0 or conn.eof:
                conn.gone("closed")
                return self.release_socket(conn)
            sock = socket.socket(fileno=conn.fd)
            try:
                sock.shutdown(socket.SHUT_WR)
            except OSError:
                conn.gone("connection lost")
            finally:
                sock.detach()
            if conn.state == STATE_GONE:
                return self.release_socket(conn)
            conn.leave()
            return conn.mark_interest()
        if conn.eof and not (conn.owed_count or conn.halted or conn.held or conn.stalled
                             or conn.ready_listed or conn.cut()):
            conn.gone("eof")
            return self.release_socket(conn)
        return 0

    def dirty_windows(self):
        cdef list dirty = self.hub.journals
        cdef Window window
        if dirty:
            self.hub.journals = []
            for window in dirty:
                window.journal_listed = False
            return [window for window in dirty if not (<Window>window).forgotten]
        return dirty

    def dirty_detached(self):
        cdef list dirty = self.hub.detached
        cdef Conn conn
        if dirty:
            self.hub.detached = []
            for conn in dirty:
                conn.detached_listed = False
        return dirty

    def take_searches(self):
        cdef list taken = self.hub.searches
        cdef Window window
        self.hub.searches = []
        for window in taken:
            window.search_listed = False
        return [window for window in taken if not (<Window>window).forgotten]

    def search(self, Window window not None, blocks, i64 end, u64 ids_from):
        end = min(end, window.tail.handed_end)
        for block in blocks:
            search_block(window, block, end, ids_from)
        window.searched_to(end)

    def tick(self, i64 mono_ns, i64 wall_ns):
        cdef list active = self.hub.active
        cdef Window window
        cdef i64 wait = 0, left
        self.hub.mono_ns, self.hub.wall_ns = mono_ns, wall_ns
        self.hub.active = []
        for window in active:
            window.active_listed = False
            if window.forgotten:
                continue
            window.expire(mono_ns)
            if window.strays.delay_count:
                window.release(wall_ns)
            if not window.has_timers():
                continue
            window.mark_active()
            left = window.deadline_ns
            if left:
                left = max(left - mono_ns, 1)
                wait = left if wait == 0 else min(wait, left)
            if window.strays.delay_count:
                left = window.due_ns
                if left:
                    left = max(left - wall_ns, 1)
                    wait = left if wait == 0 else min(wait, left)
        return wait
