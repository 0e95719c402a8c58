"""The load generator: publishers and consumers in one epoll loop, without the GIL.

Everything that needs words (greeting, subscribing, making topics) is done beforehand in Python on
plain sockets; a `Load` takes the descriptors and moves messages only. It runs until every publisher
has its answers and every consumer has its messages, or until the time is up: then publishers stop,
what was published is awaited, and the run ends as usual.

An error frame, a lost connection, a second delivery or a missing message raises `LoadFailed`.
"""

from array import array

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memmove

from bench.conn cimport (
    ATTEMPTS,
    BAD_FRAME,
    EAGAIN,
    EINTR,
    ERROR_FRAME,
    IN_BYTES,
    LOST,
    MSG_DONTWAIT,
    MSG_NOSIGNAL,
    TOO_MANY,
    Conn,
    Run,
    errno,
    fail,
    now_ns,
    recv,
    send,
    send_out,
)
from bench.nats_frames cimport nats_take
from bench.v2_frames cimport v2_take


cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        void* ptr
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    int EPOLL_CTL_ADD
    int EPOLL_CTL_MOD
    uint32_t EPOLLIN
    uint32_t EPOLLOUT
    int epoll_create1(int flags)
    int epoll_ctl(int epoll, int what, int fd, epoll_event* event)
    int epoll_wait(int epoll, epoll_event* events, int count, int timeout_ms)

cdef extern from "<unistd.h>" nogil:
    int close(int fd)


cdef enum:
    CONNS_MAX = 256
    EVENTS_MAX = 64
    SLICE_MS = 100  # between two looks at signals and at progress

FAULTS = {
    ERROR_FRAME: "the daemon answered with an error",
    LOST: "the daemon closed a connection",
    ATTEMPTS: "a message was delivered more than once",
    BAD_FRAME: "the daemon sent a frame that nobody asked for",
    TOO_MANY: "the daemon sent more answers than publishes",
}


class LoadFailed(Exception):
    """The daemon did not do what it was asked for; the figures of this run mean nothing."""


cdef class Load:
    cdef Run run
    cdef Conn conns[CONNS_MAX]
    cdef int conn_count
    cdef int epoll
    cdef int64_t consumer_share  # messages that each consumer is to get

    def __cinit__(self, int64_t samples_max=200_000, int64_t sample_every=1):
        self.run.sample_max = samples_max
        self.run.sample_every = sample_every
        self.run.samples = <int64_t*>malloc(samples_max * sizeof(int64_t))
        self.epoll = epoll_create1(0)
        if self.run.samples == NULL or self.epoll < 0:
            raise MemoryError

    def __dealloc__(self):
        cdef int i
        for i in range(self.conn_count):
            free(self.conns[i].inbox)
            free(self.conns[i].units)
            free(self.conns[i].sent_ns)
            free(self.conns[i].out)
        free(self.run.samples)
        if self.epoll >= 0:
            close(self.epoll)

    cdef Conn* add(self, int fd, bint nats) except NULL:
        cdef Conn* c
        cdef epoll_event event
        if self.conn_count == CONNS_MAX:
            raise LoadFailed(f"no more than {CONNS_MAX} connections")
        c = &self.conns[self.conn_count]
        c.fd = fd
        c.nats = nats
        c.inbox = <uint8_t*>malloc(IN_BYTES)
        if c.inbox == NULL:
            raise MemoryError
        self.conn_count += 1
        event.events = EPOLLIN
        event.data.ptr = c
        if epoll_ctl(self.epoll, EPOLL_CTL_ADD, fd, &event) < 0:
            raise OSError(errno, "epoll_ctl")
        return c

    def publisher(
        self, int fd, bytes unit, int64_t messages, int64_t units, int64_t window,
        int64_t stamp_first=0, int64_t stamp_stride=0, bint nats=False, int64_t count=1,
    ) -> None:
        """Send `unit` (holding `messages` messages) `units` times, `window` of them unanswered.
        `unit` may be `count` units of one size, which are sent in turn."""
        cdef Conn* c = self.add(fd, nats)
        cdef int64_t i
        c.publishes = True
        if len(unit) % count:
            raise LoadFailed(f"{len(unit)} bytes are not {count} units of one size")
        c.unit_bytes = len(unit) // count
        c.in_turn = count > 1
        c.units_in_buffer = count if c.in_turn else max(1, min(window, IN_BYTES // c.unit_bytes))
        c.units = <uint8_t*>malloc(c.unit_bytes * c.units_in_buffer)
        c.sent_ns = <int64_t*>calloc(window, sizeof(int64_t))
        if c.units == NULL or c.sent_ns == NULL:
            raise MemoryError
        for i in range(c.units_in_buffer // count):
            memcpy(c.units + i * len(unit), <const uint8_t*>unit, len(unit))
        c.messages_per_unit, c.unit_count, c.window = messages, units, window
        c.stamp_first, c.stamp_stride = stamp_first, stamp_stride

    def consumer(
        self, int fd, int64_t frame_bytes, bytes opening=b"", bint ack_each=False, bint nats=False,
        int64_t ext_bytes=0,
    ) -> None:
        """Send `opening` at the start, then take messages and acknowledge them, in bulk or each in
        a send of its own."""
        cdef Conn* c = self.add(fd, nats)
        c.out = <uint8_t*>malloc(2 * IN_BYTES)
        if c.out == NULL:
            raise MemoryError
        memcpy(c.out, <const uint8_t*>opening, len(opening))
        c.out_end = len(opening)
        c.frame_bytes, c.ack_each, c.ext_bytes = frame_bytes, ack_each, ext_bytes
        self.run.consumers += 1

    def go(
        self, double seconds_max, int64_t expected=0, int64_t lag_max=0, int64_t rate=0,
        bint spin=False, double stall_seconds_max=20.0,
    ) -> float:
        """Run it; returns the seconds from the first send to the last answer.

        `expected`: messages for each consumer when nothing is published in this run.
        `lag_max`: how many messages publishers may be ahead of consumers.
        `rate`: messages a second, 0 for no limit.
        `spin`: poll without sleeping between paced sends (for a core of its own).
        With nothing sent, answered or received for `stall_seconds_max`, the run has failed.
        """
        cdef int64_t stop_ns, moved_ns, slice_ns, now, before = -1
        cdef bint done = False
        cdef int i
        if lag_max and not self.run.consumers:
            raise LoadFailed("a bound on the lag needs a consumer")
        self.run.lag_max = lag_max
        self.run.interval_ns = 1_000_000_000 // rate if rate else 0
        self.consumer_share = expected
        self.run.start_ns = now_ns()
        stop_ns = self.run.start_ns + <int64_t>(seconds_max * 1e9)
        moved_ns = self.run.start_ns
        for i in range(self.conn_count):
            self.flush(&self.conns[i])
        while not done and not self.run.fault:
            PyErr_CheckSignals()
            now = now_ns()
            with nogil:
                slice_ns = now + SLICE_MS * 1000000
                while not done and not self.run.fault and now < slice_ns:
                    done = self.turn(spin, stop_ns)
                    now = now_ns()
            if before != self.run.sent + self.run.acked + self.run.received:
                before = self.run.sent + self.run.acked + self.run.received
                moved_ns = now
            elif not done and now - moved_ns > <int64_t>(stall_seconds_max * 1e9):
                raise LoadFailed(f"nothing moves any more: {self.progress()}")
        if self.run.fault:
            text = self.run.error[: self.run.error_bytes].decode("utf-8", "replace")
            reason = f"{FAULTS[self.run.fault]}: {text}" if text else FAULTS[self.run.fault]
            raise LoadFailed(f"{reason} ({self.progress()})")
        return (now_ns() - self.run.start_ns) / 1e9

    def progress(self) -> str:
        return f"sent {self.run.sent}, acknowledged {self.run.acked}, received {self.run.received}"

    @property
    def acked(self) -> int:
        return self.run.acked

    @property
    def received(self) -> int:
        return self.run.received

    def latencies(self) -> array:
        """Nanoseconds: send to answer for publishers, send to receive for stamped messages."""
        found = array("q")
        found.frombytes((<char*>self.run.samples)[: self.run.sample_count * sizeof(int64_t)])
        return found

    cdef bint turn(self, bint spin, int64_t stop_ns) noexcept nogil:
        """One round: feed publishers, wait, read, acknowledge. True when all is done."""
        cdef epoll_event events[EVENTS_MAX]
        cdef int i, count
        cdef int64_t now = now_ns()
        cdef Conn* c
        if now > stop_ns:
            self.run.stopping = True
        for i in range(self.conn_count):
            c = &self.conns[i]
            if c.publishes:
                self.pump(c, now)
        count = epoll_wait(self.epoll, events, EVENTS_MAX, self.patience_ms(spin, now))
        now = now_ns()
        for i in range(count):
            c = <Conn*>events[i].data.ptr
            if events[i].events & EPOLLOUT:
                self.flush(c)
            if events[i].events & ~EPOLLOUT and c.out_end == 0:
                self.take(c, now)
        return self.finished()

    cdef int patience_ms(self, bint spin, int64_t now) noexcept nogil:
        """How long epoll may sleep: never while paced sends need a finer clock than its own."""
        cdef int64_t due
        if not self.run.interval_ns:
            return 50
        if spin:
            return 0
        due = self.run.start_ns + self.run.paced_units * self.run.interval_ns
        return <int>max(0, min(50, (due - now) // 1_000_000))

    cdef void watch(self, Conn* c, bint out) noexcept nogil:
        cdef epoll_event event
        if c.wants_out == out:
            return
        c.wants_out = out
        event.events = EPOLLIN | EPOLLOUT if out and c.publishes else EPOLLOUT if out else EPOLLIN
        event.data.ptr = c
        epoll_ctl(self.epoll, EPOLL_CTL_MOD, c.fd, &event)

    cdef void flush(self, Conn* c) noexcept nogil:
        if c.publishes:
            self.send_pending(c)
            self.watch(c, c.pending_start < c.pending_end)
        else:
            send_out(&self.run, c)
            self.watch(c, c.out_end > 0)

    cdef void send_pending(self, Conn* c) noexcept nogil:
        cdef ssize_t done
        if c.pending_start == c.pending_end:
            return
        done = send(
            c.fd, c.units + c.pending_start, c.pending_end - c.pending_start,
            MSG_NOSIGNAL | MSG_DONTWAIT,
        )
        if done > 0:
            c.pending_start += done
        elif errno != EAGAIN and errno != EINTR:
            fail(&self.run, LOST, NULL, 0)

    cdef int64_t allowance(self, Conn* c, int64_t now) noexcept nogil:
        """How many units may go out now: window, buffer, what is left, lag and pace."""
        cdef Run* run = &self.run
        cdef int64_t ahead
        cdef int64_t n = min(c.window - (c.units_sent - c.units_acked),
                             c.units_in_buffer - c.unit_next)
        n = min(n, c.unit_count - c.units_sent)
        if run.stopping:
            return 0
        if run.lag_max:
            ahead = run.sent - run.received // run.consumers
            n = min(n, (run.lag_max - ahead) // c.messages_per_unit)
        if run.interval_ns:
            n = min(n, (now - run.start_ns) // run.interval_ns + 1 - run.paced_units)
        return n

    cdef void pump(self, Conn* c, int64_t now) noexcept nogil:
        cdef int64_t n
        if c.pending_start < c.pending_end:
            return  # EPOLLOUT will say
        if c.owes_pong:
            self.answer_heartbeat(c)
        n = self.allowance(c, now)
        if n <= 0:
            return
        self.stamp(c, n, now)
        c.pending_start = c.unit_next * c.unit_bytes
        c.pending_end = c.pending_start + n * c.unit_bytes
        if c.in_turn:
            c.unit_next = (c.unit_next + n) % c.units_in_buffer
        c.units_sent += n
        self.run.sent += n * c.messages_per_unit
        self.run.paced_units += n
        self.send_pending(c)
        self.watch(c, c.pending_start < c.pending_end)

    cdef void stamp(self, Conn* c, int64_t n, int64_t now) noexcept nogil:
        """Note when these units go out; in bodies too, where a consumer is to measure."""
        cdef int64_t i, k
        cdef uint8_t* unit
        for i in range(n):
            c.sent_ns[(c.units_sent + i) % c.window] = now
            if not c.stamp_stride:
                continue
            unit = c.units + (c.unit_next + i) * c.unit_bytes + c.stamp_first
            for k in range(c.messages_per_unit):
                memcpy(unit + k * c.stamp_stride, &now, 8)

    cdef void answer_heartbeat(self, Conn* c) noexcept nogil:
        """Between two commands only: the caller has made sure that nothing is half sent."""
        if c.nats:
            send(c.fd, b"PONG\r\n", 6, MSG_NOSIGNAL | MSG_DONTWAIT)
        else:
            send(c.fd, b"NOP\n", 4, MSG_NOSIGNAL | MSG_DONTWAIT)
        c.owes_pong = False

    cdef void take(self, Conn* c, int64_t now) noexcept nogil:
        cdef ssize_t got
        cdef size_t used
        got = recv(c.fd, c.inbox + c.in_bytes, IN_BYTES - c.in_bytes, MSG_DONTWAIT)
        if got <= 0:
            if got == 0 or (errno != EAGAIN and errno != EINTR):
                fail(&self.run, LOST, NULL, 0)
            return
        c.in_bytes += got
        used = nats_take(&self.run, c, now) if c.nats else v2_take(&self.run, c, now)
        c.in_bytes -= used
        memmove(c.inbox, c.inbox + used, c.in_bytes)
        if not c.publishes:
            self.acknowledge(c)

    cdef void acknowledge(self, Conn* c) noexcept nogil:
        send_out(&self.run, c)
        if c.out_end == 0 and c.owes_pong:
            self.answer_heartbeat(c)
        self.watch(c, c.out_end > 0)

    cdef bint finished(self) noexcept nogil:
        """All published and answered, all received, and every consumer's closing answered: that
        answer comes after the daemon has taken all the acknowledgements before it."""
        cdef int i
        cdef bint done = True
        cdef int64_t share = self.consumer_share
        cdef Conn* c
        for i in range(self.conn_count):
            c = &self.conns[i]
            if c.publishes and (c.units_acked < c.units_sent or not (
                self.run.stopping or c.units_sent == c.unit_count
            )):
                return False
        if self.run.sent:
            share = self.run.sent
        for i in range(self.conn_count):
            c = &self.conns[i]
            if not c.publishes and not c.closed:
                self.close_when_level(c, share)
                done = False
        return done

    cdef void close_when_level(self, Conn* c, int64_t share) noexcept nogil:
        # A backlog too long for the time is measured on what was consumed of it.
        cdef bint early = self.run.stopping and self.run.sent == 0
        if c.closing_sent or c.out_end or (c.received < share and not early):
            return
        if c.received > share:
            fail(&self.run, TOO_MANY, NULL, 0)
            return
        if c.nats:
            memcpy(c.out, b"PING\r\n", 6)
            c.out_end = 6
        else:
            memcpy(c.out, b"CLS\n", 4)
            c.out_end = 4
        c.closing_sent = True
        send_out(&self.run, c)
        self.watch(c, c.out_end > 0)
