# The numbers of `types.py`: events, and what they say.

cdef enum:  # Verb
    PUB = 1
    MPUB = 2
    PUB_EXT = 4
    MPUB_EXT = 5

cdef enum:  # Event
    LINE = 1
    BODY = 2
    BODY_SIZE = 3
    BAD_PUB = 4
    TOPIC = 5
    REFUSED = 6
    PUB_FAILED = 7
    FIN_FAILED = 8
    NEED = 9
    BAD_MAGIC = 10
    CLOSED = 11
    CUT = 12
    TRACED = 13
    SPREAD_REFUSED = 14
    CROWDED = 15

cdef enum:  # Cut
    CUT_SIZE = 1
    CUT_BODY = 2
    CUT_COUNT = 3
    CUT_MESSAGE_SIZE = 4
    CUT_MESSAGE = 5

cdef enum:  # BadPub
    TOPIC_NAME = 1
    SIZE_INVALID = 2
    SIZE_TOO_BIG = 3
    BODY_INVALID = 4
    BODY_TOO_BIG = 5
    COUNT_INVALID = 6
    MESSAGE_INVALID = 7
    MESSAGE_TOO_BIG = 8
    PARAMS = 9
    PARTITION = 10
    HEADER_SIZE = 11
    HEADER_INVALID = 12
    HEADER_REFUSED = 13


# What every connection has, whatever it says: buffers, an output, a window, an end.
#
# Its states are told in conn.pxi, which adds what is said: commands in, publishes owed. Output goes
# out with the turn, unless the client asked to have deliveries held back (`output_every`); a
# response takes everything that is held with it.

cdef enum:
    STATE_MAGIC = 0
    STATE_COMMAND = 1
    STATE_BODY = 2
    STATE_DRAINING = 3
    STATE_GONE = 4


cdef class Peer(Consumer):
    cdef Hub hub
    cdef readonly int fd  # -1: detached, or closed
    cdef public object owner
    cdef Consumer me
    cdef i64 rdy_asked, rdy_cap  # what it wants, and an operator lets it have (0: all)
    cdef list subscribed  # Window, in the order in which they were
    cdef Window hit  # the one that had the message of the latest FIN; None: none is subscribed
    cdef bint has_left  # some window before
    cdef Sieve sieve  # None: it wants to see all
    # how they share its room (turns.pxi), where there are several
    cdef i64* grants  # what is left of the share of each
    cdef u32 grant_capacity
    cdef u32 turn, turn_next  # the index of the window that comes first, now and in the next round
    cdef u64 share_round, gather_round
    cdef bint share_small  # the room was too little for a refill when it was shared out
    cdef bint share_whole  # the room is not split
    cdef bint crowded  # the output was full since the last round
    cdef int state
    cdef bint halted, held, stalled, failed
    cdef public i64 last_command_ns
    cdef buf_t input, output
    cdef i64 body_size_max
    # output on hold
    cdef i64 hold_bytes, hold_ns, hold_since_ns
    cdef bint closing_after_flush, shut
    cdef i64 drain_until_ns, drained_bytes
    # lists of the hub, and the socket half
    cdef bint output_listed, ready_listed, interest_listed
    cdef u32 interest
    cdef bint want_write, hold_listed, lazy
    cdef bint urgent  # a response is among what is unsent: nothing is held
    cdef u32 slot
    cdef bint detached, detached_listed

    cdef i64 noted_bytes  # of the input, in `Hub.held_bytes`

    def __cinit__(self, Hub hub not None, u32 serial, int fd):
        self.hub, self.serial, self.fd = hub, serial, fd
        self.subscribed = []
        self.timeout_ns = 60 * <i64>1000000000
        self.last_command_ns = 0
        buf_init(&self.input)
        buf_init(&self.output)

    def __dealloc__(self):
        free(self.grants)
        buf_free(&self.input)
        buf_free(&self.output)

    # --- attributes ---

    @property
    def rdy(self):
        return self.rdy_count

    @rdy.setter
    def rdy(self, i64 value):
        self.set_rdy(value)
        if self.hit is not None:
            self.mark_windows()
            self.mark_interest()

    cdef void set_rdy(self, i64 value) noexcept:
        self.rdy_asked = value
        self.rdy_count = min(value, self.rdy_cap) if self.rdy_cap else value

    @property
    def rdy_limit(self):
        return self.rdy_cap

    @rdy_limit.setter
    def rdy_limit(self, i64 value):
        self.rdy_cap = value
        self.rdy = self.rdy_asked

    @property
    def tag(self):
        return self.tag_text[:self.tag_bytes]

    @tag.setter
    def tag(self, bytes value not None):
        if self.subscribed:
            raise RuntimeError("a consumer that is subscribed keeps its tag")
        if len(value) > TAG_BYTES_MAX:
            raise ValueError(f"a tag of {len(value)} bytes is longer than {TAG_BYTES_MAX}")
        memcpy(self.tag_text, <const u8*>value, len(value))
        self.tag_bytes = len(value)

    def set_filter(self, filter):
        self.sieve = None if filter is None else Sieve(filter)

    @property
    def locality(self):
        return self.nearness

    @locality.setter
    def locality(self, int value):
        if not 0 <= value <= 3:
            raise ValueError(f"{value} is no Locality")
        self.nearness = value

    @property
    def unsent(self):
        return self.unsent_c()

    @property
    def ended(self):
        return self.state == STATE_GONE

    @property
    def reading(self):
        if self.ready_listed and self.unheard_c() > self.hub.input_bytes_max:
            return False  # what it has is looked at first
        return self.wants_input() and self.unsent_c() <= <size_t>self.hub.output_bytes_max

    cdef i64 unheard_c(self) noexcept:
        return <i64>(self.input.length - self.input.start)

    cdef size_t unsent_c(self) noexcept:
        return self.output.length - self.output.start

    # --- memory ---

    cdef int note_input(self) except -1:
        """Count what is kept of commands that are not whole. Who grows beyond what all connections
        together may keep is hung up on: an error would be taken for the answer to another publish.
        """
        cdef i64 held = self.unheard_c()
        cdef i64 before = self.noted_bytes
        if held <= self.hub.held_small_bytes or self.state == STATE_GONE:
            held = 0
        if held == before:
            return 0
        self.noted_bytes = held
        self.hub.held_bytes += held - before
        if held > before and self.hub.held_bytes > self.hub.held_bytes_max:
            return self.gone("the unfinished commands of all clients take too much memory")
        return 0

    # --- lists ---

    cdef int mark_output(self) except -1:
        if not self.output_listed:
            self.output_listed = True
            self.hub.outputs.append(self)
        return 0

    cdef int mark_ready(self) except -1:
        if not self.ready_listed:
            self.ready_listed = True
            self.hub.ready.append(self)
        return 0

    cdef int mark_interest(self) except -1:
        if not self.interest_listed:
            self.interest_listed = True
            self.hub.interests.append(self)
        return 0

    cdef int mark_detached(self) except -1:
        if self.detached and not self.detached_listed:
            self.detached_listed = True
            self.hub.detached.append(self)
        return 0

    cdef bint wants_input(self) noexcept:
        if self.state == STATE_GONE or self.eof:
            return False
        if self.state == STATE_DRAINING:
            return True
        return not (self.halted or self.held or self.stalled or self.closing_after_flush)

    cdef int halt(self, tuple event) except -1:
        self.halted = True
        self.hub.events.append(event)
        return self.mark_interest()

    def resume(self):
        self.halted = False
        self.mark_ready()
        self.mark_interest()

    # --- output ---

    cdef int send_frame(self, int frame_type, const u8* data, size_t size) except -1:
        cdef u8 head[8]
        cdef u32 length = <u32>(size + 4)
        put_be32(head, length)
        put_be32(head + 4, frame_type)
        buf_append(&self.output, head, 8)
        buf_append(&self.output, data, size)
        return self.mark_output()

    def reply(self, int frame_type, bytes data not None):
        if self.state == STATE_GONE or self.closing_after_flush:
            return
        self.urgent = True  # a response takes everything held with it
        self.send_frame(frame_type, <const u8*>data, len(data))

    def output_every(self, i64 bytes_max, i64 timeout_ns):
        self.hold_bytes, self.hold_ns = bytes_max, timeout_ns

    cdef bint holding(self, i64 mono_ns) noexcept:
        """Is output held back on purpose right now?"""
        if self.hold_ns == 0 or self.hold_since_ns == 0 or self.urgent or self.closing_after_flush:
            return False
        if <i64>self.unsent_c() >= self.hold_bytes or mono_ns - self.hold_since_ns >= self.hold_ns:
            return False
        return not (self.hit is None or self.rdy_count <= self.in_flight or self.all_paused())

    def take_output(self):
        cdef bytes out
        if self.holding(self.hub.mono_ns):
            return b""
        out = (self.output.data + self.output.start)[:self.unsent_c()] if self.unsent_c() else b""
        self.output.start = self.output.length = 0
        self.hold_since_ns = 0
        self.urgent = False
        self.mark_drained()
        if self.eof or self.closing_after_flush or self.stalled:
            self.mark_output()
        return out

    # --- consuming ---

    def subscribe(self, Window window not None):
        if window in self.subscribed:
            raise RuntimeError("this connection is subscribed already")
        if self.has_left:  # maybe this one, where something is in flight still
            self.in_flight += window.in_flight_of(self.serial)
        if self.hit is None:
            self.hit = window
        self.subscribed.append(window)
        self.window_count += 1
        self.hub.shared_count += self.window_count == 2
        window.add_consumer(self)

    def leave(self, Window window=None):
        cdef Window left
        if window is None:
            for left in list(self.subscribed):
                self.leave_window(left)
        elif window in self.subscribed:
            self.leave_window(window)

    cdef int leave_window(self, Window window) except -1:
        """Its messages stay in flight there until they time out, and take no index here."""
        self.turn -= self.index_of(window) < self.turn
        self.subscribed.remove(window)
        self.window_count -= 1
        self.hub.shared_count -= self.window_count == 1
        window.remove_consumer(self)
        self.has_left = True
        if self.subscribed:
            self.in_flight -= window.in_flight_of(self.serial)
        else:
            self.in_flight = 0
        if window is self.hit:
            self.hit = self.subscribed[0] if self.subscribed else None
        return self.mark_windows()

    @property
    def windows(self):
        return tuple(self.subscribed)

    @property
    def window(self):
        return self.subscribed[0] if self.subscribed else None

    cdef int mark_windows(self) except -1:
        """It may have room: see to the deliveries of them all."""
        cdef Window window
        for window in self.subscribed:
            window.mark_pump()
        return 0

    cdef int mark_drained(self) except -1:
        """All output is gone."""
        if self.blocked:
            self.blocked = False
            self.crowded = True
            self.mark_windows()
        return 0

    cdef u32 index_of(self, Window window) noexcept:
        cdef u32 index = 0
        while index < self.window_count and <void*>self.subscribed[index] != <void*>window:
            index += 1
        return index

    cdef bint all_paused(self):
        cdef Window window
        for window in self.subscribed:
            if not window._paused:
                return False
        return True

    def find(self, u64 id):
        cdef Window window
        if self.hit is not None and self.hit.has(id):
            return self.hit
        for window in self.subscribed:
            if window.has(id):
                return window
        return None

    cdef bint has_beside(self, Window window, u64 id) noexcept:
        """Has a window other than this one a message with this id?"""
        cdef Window other
        for other in self.subscribed:
            if other is not window and other.has(id):
                return True
        return False

    cdef int finish_elsewhere(self, u64 id, int held) except -1:
        """FIN, where `hit` says `held`: no two windows have a message of one id, so another may be
        meant. That one is `hit` then."""
        cdef Window window
        cdef int other
        for window in self.subscribed:
            if window is self.hit:
                continue
            other = window.finish_c(self.serial, id)
            if other == DONE:
                self.hit = window
                return DONE
            held = max(held, other)
        return held

    # --- the end ---

    def close_after_flush(self):
        if self.state == STATE_GONE:
            return
        self.closing_after_flush = True
        self.closing = True
        self.hold_since_ns = 0
        self.mark_output()
        self.mark_interest()

    def close(self):
        self.gone("closed")

    cdef int note_eof(self) except -1:
        self.eof = True
        self.mark_interest()
        return self.mark_output()

    cdef int gone(self, str reason) except -1:
        """Report the end once; the engine closes the socket when it works off its outputs."""
        if self.state == STATE_GONE:
            return 0
        self.state = STATE_GONE
        self.closing = True
        self.hub.events.append((CLOSED, self, reason))
        self.leave()
        buf_free(&self.input)
        self.note_input()
        self.mark_output()
        return self.mark_interest()
