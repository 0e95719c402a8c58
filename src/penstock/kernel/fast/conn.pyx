"""One V2 client connection (declared, and explained, in conn.pxd)."""

from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memcmp, memcpy

from penstock.kernel.fast.buffer cimport (
    buf_append, buf_compact, buf_free, buf_reserve, buf_take,
)
from penstock.kernel.fast.hexid cimport id_decode
from penstock.kernel.fast.hub cimport Hub
from penstock.kernel.fast.peer cimport (
    STATE_BODY, STATE_COMMAND, STATE_DRAINING, STATE_GONE, STATE_MAGIC, Peer,
)
from penstock.kernel.fast.route cimport (
    ANY_PARTITION, NO_PARTITION, Route, accepts, partition_of,
)
from penstock.kernel.fast.tail cimport Tail
from penstock.kernel.fast.types cimport i64, u8, u32, u64

cdef enum:
    PUB = 1
    MPUB = 2
    # Event
    LINE = 1
    BODY = 2
    BODY_SIZE = 3
    BAD_PUB = 4
    TOPIC = 5
    REFUSED = 6
    PUB_FAILED = 7
    FIN_FAILED = 8
    BAD_MAGIC = 10
    CUT = 12
    # Cut
    CUT_SIZE = 1
    CUT_BODY = 2
    CUT_COUNT = 3
    CUT_MESSAGE_SIZE = 4
    CUT_MESSAGE = 5
    # BadPub
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
    # outcomes of an owed entry
    PENDING = 0
    STORED = 1
    FAILED = 2

cdef enum:
    MORE = -1  # not enough bytes yet
    FIN_LINE_BYTES = 21  # "FIN " + 16 + "\n"
    NAME_BYTES_MAX = 64

cdef u8* OK_FRAME = b"\x00\x00\x00\x06\x00\x00\x00\x00OK"


cdef inline u32 be32(const u8* p) noexcept:
    return (<u32>p[0] << 24) | (<u32>p[1] << 16) | (<u32>p[2] << 8) | p[3]


cdef bint name_is_valid(const u8* name, size_t size) noexcept:
    """^[.a-zA-Z0-9_-]+(#ephemeral)?$, 1 to 64 bytes with the suffix."""
    cdef size_t i
    cdef u8 c
    if size == 0 or size > NAME_BYTES_MAX:
        return False
    if size > 10 and memcmp(name + size - 10, b"#ephemeral", 10) == 0:
        size -= 10
    for i in range(size):
        c = name[i]
        if not (c == 46 or c == 45 or c == 95 or 48 <= c <= 57 or 65 <= c <= 90 or 97 <= c <= 122):
            return False
    return True


cdef class Conn(Peer):
    def __cinit__(self, Hub hub not None, u32 serial, int fd):
        self.published_counts = {}

    def __dealloc__(self):
        cdef u32 i
        if self.owed != NULL:
            for i in range(self.owed_count):
                Py_DECREF(<object>self.owed[(self.owed_head + i) & (OWED_MAX - 1)].tail)
            free(self.owed)

    # --- input ---

    def feed(self, const unsigned char[::1] data):
        if data.shape[0] and self.state != STATE_GONE and not self.eof:
            buf_append(&self.input, &data[0], data.shape[0])
            self.mark_ready()

    def feed_eof(self):
        self.eof = self.me.eof = True
        self.mark_ready()

    cdef int receive(self, const u8* data, size_t size) except -1:
        """Bytes just received, with nothing left over before them; what is not used is kept."""
        cdef size_t used
        if self.state == STATE_DRAINING or self.closing_after_flush:
            self.drained_bytes += size
            return 0
        used = self.parse(data, size)
        if used < size and self.state != STATE_GONE:
            buf_append(&self.input, data + used, size - used)
        return 0

    cdef int reparse(self) except -1:
        """Look at the input buffer again."""
        cdef size_t used
        if self.state == STATE_DRAINING or self.closing_after_flush:
            self.input.start = self.input.length = 0
            return 0
        if self.input.length > self.input.start:
            used = self.parse(
                self.input.data + self.input.start, self.input.length - self.input.start
            )
            buf_take(&self.input, used)
            if self.input.start > 65536 or self.input.start * 2 > self.input.length:
                buf_compact(&self.input)
            if self.input.length == 0 and self.input.capacity > 65536:
                buf_free(&self.input)
        return 0

    cdef int parse(self, const u8* data, size_t size) except -1:
        """Take whole commands off the front; returns the bytes used."""
        cdef size_t position = 0
        cdef Py_ssize_t used
        while position < size and not (self.halted or self.held or self.stalled):
            if self.state == STATE_COMMAND:
                used = self.parse_command(data + position, size - position)
            elif self.state == STATE_BODY:
                used = self.parse_body(data + position, size - position)
            elif self.state == STATE_MAGIC:
                if size - position < 4:
                    break
                used = 4
                self.last_command_ns = self.hub.mono_ns
                self.state = STATE_COMMAND
                if memcmp(data + position, b"  V2", 4) != 0:
                    self.halt((BAD_MAGIC, self, (data + position)[:4]))
            else:
                return <int>size
            if used == MORE:
                break
            position += used
        return <int>position

    cdef Py_ssize_t parse_command(self, const u8* data, size_t size) except -2:
        cdef const u8* newline
        cdef size_t line, end
        if (size >= FIN_LINE_BYTES and data[20] == 10 and self.hit is not None
                and not self.locked and memcmp(data, b"FIN ", 4) == 0
                and memchr(data + 4, 10, 16) == NULL):
            return self.parse_fin(data, size, 20)
        newline = <const u8*>memchr(data, 10, min(size, <size_t>self.hub.line_bytes_max))
        if newline == NULL:
            if size >= <size_t>self.hub.line_bytes_max:
                self.gone("line too long")
                return size
            return MORE
        line = newline - data
        if self.locked:
            return self.line_event(data, line, line + 1)
        if line >= 4 and data[3] == 32:
            if memcmp(data, b"PUB", 3) == 0:
                return self.parse_pub(data, size, line, 4)
            if memcmp(data, b"FIN", 3) == 0 and self.hit is not None:
                return self.parse_fin(data, size, line)
        if line >= 5 and memcmp(data, b"MPUB ", 5) == 0:
            return self.parse_mpub(data, size, line, 5)
        if line >= 3 and memcmp(data, b"RDY", 3) == 0 and self.hit is not None:
            return self.parse_rdy(data, size, line)
        if line >= 3 and memcmp(data, b"NOP", 3) == 0:
            if line == 3 or data[3] == 32 or (data[3] == 13 and line == 4):
                self.last_command_ns = self.hub.mono_ns
                return line + 1
        end = line - 1 if line and data[line - 1] == 13 else line
        if end == 3 and memcmp(data, b"PUB", 3) == 0:
            self.bad_pub(PUB, PARAMS, 0, 0)
            return MORE if self.held else <Py_ssize_t>line + 1
        if end == 4 and memcmp(data, b"MPUB", 4) == 0:
            self.bad_pub(MPUB, PARAMS, 0, 0)
            return MORE if self.held else <Py_ssize_t>line + 1
        return self.line_event(data, line, line + 1)

    cdef Py_ssize_t line_event(self, const u8* data, size_t line, size_t consumed) except -2:
        """A command for Python; it waits while publishes are unanswered."""
        cdef size_t end = line
        if self.owed_count:
            self.held = True
            self.mark_interest()
            return MORE
        if end and data[end - 1] == 13:
            end -= 1
        self.last_command_ns = self.hub.mono_ns
        self.halt((LINE, self, data[:end].split(b" ")))
        return consumed

    cdef Py_ssize_t parse_fin(self, const u8* data, size_t size, size_t line) except -2:
        cdef u64 id
        cdef size_t end = line
        cdef int held
        if end and data[end - 1] == 13:
            end -= 1
        if end < 20 or (end > 20 and data[20] != 32) or memchr(data + 4, 32, 16) != NULL:
            return self.line_event(data, line, line + 1)
        self.last_command_ns = self.hub.mono_ns
        if id_decode(data + 4, &id):
            held = self.finish_c(id)
        else:
            held = 1
        if held:
            self.hub.events.append((FIN_FAILED, self, data[4:20], held))
        return line + 1

    cdef Py_ssize_t parse_rdy(self, const u8* data, size_t size, size_t line) except -2:
        cdef i64 value = 0
        cdef size_t i = 4, end = line
        if end and data[end - 1] == 13:
            end -= 1
        if end > 3 and data[3] != 32:
            return self.line_event(data, line, line + 1)
        if end == 3:
            value = 1
        while i < end and data[i] != 32:
            if not 48 <= data[i] <= 57 or value > self.hub.rdy_count_max:
                return self.line_event(data, line, line + 1)
            value = value * 10 + data[i] - 48
            i += 1
        if value > self.hub.rdy_count_max:
            return self.line_event(data, line, line + 1)
        self.last_command_ns = self.hub.mono_ns
        if not self.me.closing:
            self.me.rdy = value
            self.mark_windows()
            self.mark_interest()
        return line + 1

    def cut(self):
        """At the end of the stream: report the command that is not whole. False between commands
        and within a line."""
        cdef const u8* data = self.input.data + self.input.start
        cdef size_t size = self.input.length - self.input.start
        cdef const u8* newline
        cdef size_t body
        if self.state == STATE_BODY:
            self.halt((CUT, self, 0, CUT_SIZE if size < 4 else CUT_BODY, 0))
            return True
        if self.state != STATE_COMMAND or size == 0:
            return False
        newline = <const u8*>memchr(data, 10, size)
        if newline == NULL:
            return False
        body = newline - data + 1  # no other commands than PUB and MPUB wait for more than a line
        if data[0] == 80:
            self.halt((CUT, self, PUB, CUT_SIZE if size < body + 4 else CUT_BODY, 0))
        elif size < body + 8:
            self.halt((CUT, self, MPUB, CUT_SIZE if size < body + 4 else CUT_COUNT, 0))
        else:
            body = max(self.walk_position, body + 8)
            self.halt((CUT, self, MPUB, CUT_MESSAGE_SIZE if size < body + 4 else CUT_MESSAGE,
                       self.walk_index))
        return True

    # --- bodies that Python asked for ---

    def read_body(self, i64 size_max):
        self.state = STATE_BODY
        self.body_size_max = size_max
        self.resume()

    cdef Py_ssize_t parse_body(self, const u8* data, size_t size) except -2:
        cdef int body_size
        if size < 4:
            return MORE
        body_size = <int>be32(data)
        if body_size < 1 or body_size > self.body_size_max:
            self.state = STATE_COMMAND
            self.halt((BODY_SIZE, self, body_size))
            return 4
        if size < 4 + <size_t>body_size:
            return MORE
        self.state = STATE_COMMAND
        self.halt((BODY, self, data[4:4 + body_size]))
        return 4 + body_size

    # --- publishing ---

    cdef int bad_pub(self, int verb, int reason, i64 a, i64 b) except -1:
        if self.owed_count:
            self.held = True
            return self.mark_interest()
        topic = b"" if reason == PARAMS else self.topic
        return self.halt((BAD_PUB, self, verb, reason, topic, a, b))

    cdef int find_topic(self, const u8* name, size_t size) except -1:
        """Make `topic` and `route` those of this command. Returns 0 for an invalid name."""
        cdef bytes topic
        if (self.topic is not None and <size_t>len(self.topic) == size
                and memcmp(<const u8*>self.topic, name, size) == 0):
            if self.route is None or self.route.forgotten:
                self.route, self.topic_tail = self.hub.routes.get(self.topic), None
            if self.route is not None:
                return 1
            return name_is_valid(name, size)
        topic = name[:size]
        self.count_published()
        self.topic = topic
        self.route, self.topic_tail = self.hub.routes.get(topic), None
        return self.route is not None or name_is_valid(name, size)

    cdef int bad_partition(self, int verb, const u8* rest, size_t size) except -1:
        """`rest` follows the topic. Is it a partition that there is none of? Then the publish
        fails. Of a topic that is not known yet, any may exist."""
        cdef size_t length = 0
        if rest[0] == 32:
            self.partition = partition_of(rest + 1, size - 1, &length)
        if self.partition == ANY_PARTITION:
            return 0
        if self.partition != NO_PARTITION and (
            self.route is None or self.is_chosen() or self.route.find(self.partition) is not None
        ):
            return 0
        if self.owed_count:
            self.held = True
            self.mark_interest()
        else:
            self.halt((BAD_PUB, self, verb, PARTITION, rest[1:1 + length], 0, 0))
        return 1

    cdef bint is_chosen(self) noexcept:
        """Is `topic_tail` the partition that this publish names?"""
        return (self.topic_tail is not None and self.topic_tail.partition == self.partition
                and not self.topic_tail.forgotten)

    cdef int choose_tail(self, u32 count) except -1:
        cdef Tail tail
        if self.partition == ANY_PARTITION:
            if self.topic_tail is not None and self.topic_tail is self.route.only:
                return 0
            tail = self.route.pick(count)
            if tail is not self.topic_tail:
                self.topic_tail = tail
        elif not self.is_chosen():
            self.topic_tail = self.route.find(self.partition)
        return 0

    cdef bint needs_topic(self) except -1:
        """Does Python have a say before this publish: no tail yet, or no leave yet?"""
        if self.route is None:
            return True
        return self.allowed is not None and self.topic not in self.allowed

    cdef int publish_blocked(self, int verb, u32 count) except -1:
        """1 when this publish can't be appended now (an event or a flag says why)."""
        if self.needs_topic():
            if self.owed_count:
                self.held = True
                self.mark_interest()
            else:
                self.halt((TOPIC, self, verb, self.topic))
            return 1
        self.choose_tail(count)
        if not accepts(self.topic_tail, count):
            if self.owed_count:
                self.held = True
                self.mark_interest()
            else:
                self.halt((REFUSED, self, verb, self.topic_tail, count))
            return 1
        if self.owed_count == OWED_MAX and not self.owes_here(verb):
            self.held = True
            self.mark_interest()
            return 1
        if (self.topic_tail.open_batch != NULL
                and self.topic_tail.open_batch.bodies.length > <size_t>self.hub.batch_bytes_max):
            self.stalled = True
            self.topic_tail.open_stalled.append(self)
            self.mark_interest()
            return 1
        return 0

    cdef bint owes_here(self, int verb) noexcept:
        cdef owed_t* last = &self.owed[(self.owed_head + self.owed_count - 1) & (OWED_MAX - 1)]
        return (last.tail == <void*>self.topic_tail and last.serial == self.topic_tail.open_serial
                and last.verb == verb)

    cdef Py_ssize_t parse_pub(self, const u8* data, size_t size, size_t line,
                              size_t args) except -2:
        cdef size_t end = args
        cdef int body_size
        while end < line and data[end] != 32:
            end += 1
        if end == line and end > args and data[end - 1] == 13:
            end -= 1
        if not self.find_topic(data + args, end - args):
            self.bad_pub(PUB, TOPIC_NAME, 0, 0)
            return MORE if self.held else <Py_ssize_t>line + 1
        self.partition = ANY_PARTITION
        if end < line and self.bad_partition(PUB, data + end, line - end):
            return MORE if self.held else <Py_ssize_t>line + 1
        if self.partition > 0 and self.route is None:
            self.publish_blocked(PUB, 0)  # before the body: a client may wait for the answer
            return MORE
        if size < line + 5:
            return MORE
        body_size = <int>be32(data + line + 1)
        if body_size <= 0:
            self.bad_pub(PUB, SIZE_INVALID, body_size, 0)
            return MORE if self.held else <Py_ssize_t>line + 5
        if body_size > self.hub.message_bytes_max:
            self.bad_pub(PUB, SIZE_TOO_BIG, body_size, self.hub.message_bytes_max)
            return MORE if self.held else <Py_ssize_t>line + 5
        if size < line + 5 + body_size:
            return MORE
        if self.publish_blocked(PUB, 1):
            return MORE
        self.last_command_ns = self.hub.mono_ns
        if self.topic_tail.trace_below:
            self.topic_tail.note_publisher(self)
        self.topic_tail.append_c(data + line + 5, body_size)
        self.topic_count += 1
        self.owe(self.topic_tail, PUB, 1)
        return line + 5 + body_size

    cdef Py_ssize_t parse_mpub(self, const u8* data, size_t size, size_t line,
                               size_t args) except -2:
        cdef size_t end = args, position
        cdef int total, count, body_size
        cdef u32 i
        while end < line and data[end] != 32:
            end += 1
        if end == line and end > args and data[end - 1] == 13:
            end -= 1
        if not self.find_topic(data + args, end - args):
            self.bad_pub(MPUB, TOPIC_NAME, 0, 0)
            return MORE if self.held else <Py_ssize_t>line + 1
        self.partition = ANY_PARTITION
        if end < line and self.bad_partition(MPUB, data + end, line - end):
            return MORE if self.held else <Py_ssize_t>line + 1
        if self.needs_topic():
            self.publish_blocked(MPUB, 0)
            return MORE
        if size < line + 5:
            return MORE
        total = <int>be32(data + line + 1)
        if total <= 0:
            self.bad_pub(MPUB, BODY_INVALID, total, 0)
            return MORE if self.held else <Py_ssize_t>line + 5
        if total > self.hub.body_bytes_max:
            self.bad_pub(MPUB, BODY_TOO_BIG, total, self.hub.body_bytes_max)
            return MORE if self.held else <Py_ssize_t>line + 5
        if size < line + 9:
            return MORE
        count = <int>be32(data + line + 5)
        if count <= 0 or count > (self.hub.body_bytes_max - 4) // 5:
            self.bad_pub(MPUB, COUNT_INVALID, count, 0)
            return MORE if self.held else <Py_ssize_t>line + 9
        position = self.walk_position if self.walk_position else line + 9
        while self.walk_index < <u32>count:
            if size < position + 4:
                self.walk_position = position
                return MORE
            body_size = <int>be32(data + position)
            if body_size <= 0:
                self.bad_pub(MPUB, MESSAGE_INVALID, self.walk_index, body_size)
            elif body_size > self.hub.message_bytes_max:
                self.bad_pub(MPUB, MESSAGE_TOO_BIG, body_size, self.hub.message_bytes_max)
            else:
                total = <int>(position + 4 + body_size - line - 5)
                if total > self.hub.body_bytes_max:
                    self.bad_pub(MPUB, BODY_TOO_BIG, total, self.hub.body_bytes_max)
            if self.halted or self.held:
                self.walk_position = self.walk_index = 0
                return MORE if self.held else <Py_ssize_t>position + 4
            if size < position + 4 + body_size:
                self.walk_position = position
                return MORE
            position += 4 + body_size
            self.walk_index += 1
        self.walk_position = position
        if self.publish_blocked(MPUB, <u32>count):
            return MORE
        self.last_command_ns = self.hub.mono_ns
        position = line + 9
        if self.topic_tail.trace_below:
            self.topic_tail.note_publisher(self)
        for i in range(<u32>count):
            body_size = <int>be32(data + position)
            self.topic_tail.append_c(data + position + 4, body_size)
            position += 4 + body_size
        self.walk_position = self.walk_index = 0
        self.topic_count += count
        self.owe(self.topic_tail, MPUB, 1)
        return position

    cdef int owe(self, Tail tail, int verb, u32 count) except -1:
        cdef owed_t* last
        if self.owed == NULL:
            self.owed = <owed_t*>calloc(OWED_MAX, sizeof(owed_t))
            if self.owed == NULL:
                raise MemoryError("no memory for unanswered publishes")
        if self.owed_count:
            last = &self.owed[(self.owed_head + self.owed_count - 1) & (OWED_MAX - 1)]
            if last.tail == <void*>tail and last.serial == tail.open_serial and last.verb == verb:
                last.count += count
                return 0
        if self.owed_count == OWED_MAX:
            raise RuntimeError("too many unanswered publishes on one connection")
        last = &self.owed[(self.owed_head + self.owed_count) & (OWED_MAX - 1)]
        Py_INCREF(tail)
        last.tail, last.serial, last.count, last.verb = <void*>tail, tail.open_serial, count, verb
        last.outcome = PENDING
        self.owed_count += 1
        tail.open_waiters.append(self)
        return 0

    def appended(self, Tail tail not None, int verb):
        """Python appended one publish of ours (DPUB). A full FIFO can't happen: DPUB is a LINE,
        and a LINE waits until nothing is owed."""
        self.published_counts[tail.topic] = self.published_counts.get(tail.topic, 0) + 1
        self.owe(tail, verb, 1)

    cdef int settle(self, Tail tail, u64 serial, bint stored) except -1:
        """A batch is through; answer what stands at the head of the FIFO."""
        cdef u32 i
        cdef owed_t* entry
        for i in range(self.owed_count):
            entry = &self.owed[(self.owed_head + i) & (OWED_MAX - 1)]
            if entry.tail == <void*>tail and entry.serial == serial:
                entry.outcome = STORED if stored else FAILED
        return self.answer()

    cdef int answer(self) except -1:
        cdef owed_t* entry
        cdef u32 i
        cdef Tail tail
        while self.owed_count:
            entry = &self.owed[self.owed_head]
            if entry.outcome == PENDING:
                return 0
            tail = <Tail>entry.tail
            self.owed_head = (self.owed_head + 1) & (OWED_MAX - 1)
            self.owed_count -= 1
            if entry.outcome == STORED and not self.failed and self.state != STATE_GONE:
                buf_reserve(&self.output, 10 * entry.count)
                for i in range(entry.count):
                    memcpy(self.output.data + self.output.length, OK_FRAME, 10)
                    self.output.length += 10
                self.urgent = True
                self.mark_output()
            elif entry.outcome == FAILED and not self.failed and self.state != STATE_GONE:
                self.failed = True
                self.halt((PUB_FAILED, self, entry.verb, tail))
            Py_DECREF(tail)
        if self.held:
            self.held = False
            self.mark_ready()
            self.mark_interest()
        if self.eof:
            self.mark_output()
        return 0

    @property
    def published(self):
        self.count_published()
        return self.published_counts

    @property
    def pending(self):
        cdef u32 i, total = 0
        for i in range(self.owed_count):
            total += self.owed[(self.owed_head + i) & (OWED_MAX - 1)].count
        return total

    cdef int count_published(self) except -1:
        if self.topic_count:
            before = self.published_counts.get(self.topic, 0)
            self.published_counts[self.topic] = before + self.topic_count
            self.topic_count = 0
        return 0
