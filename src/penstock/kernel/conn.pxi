# One V2 client connection: bytes in, commands out; frames in, bytes out.
#
# States of the input side, and what moves between them:
#
#     MAGIC --4 bytes--> COMMAND --LINE event--> halted --resume--> COMMAND
#                        COMMAND --malformed, unknown topic, refused--> halted
#                        halted --read_body--> BODY --complete--> halted --resume--> COMMAND
#     any --close_after_flush--> DRAINING (bytes are dropped) --EOF or time--> gone
#
# While publishes are unanswered (`owed` is not empty) a command for Python is *held*: it stays in
# the input buffer and is read again when the last OK is out, so that replies keep the order of
# commands.
#
# A connection is what every one has (peer.pxi), what it is owed (publisher.pxi), its publishes
# (publisher.pxi, extended.pxi), and here: its input, cut into commands.


cdef int lonely_verb(const u8* data, size_t size) noexcept:
    """A publish that names nothing at all; 0: it is another command."""
    if size == 3 and memcmp(data, b"PUB", 3) == 0:
        return PUB
    if size == 4 and memcmp(data, b"MPUB", 4) == 0:
        return MPUB
    if size == 7 and memcmp(data, b"PUB_EXT", 7) == 0:
        return PUB_EXT
    return MPUB_EXT if size == 8 and memcmp(data, b"MPUB_EXT", 8) == 0 else 0


cdef enum:
    QUIET_COUNT_MAX = 256  # beyond it they go to Python, which takes one in a turn


cdef class Conn(Extended):
    cdef public bint locked
    cdef u32 quiet_count  # commands since the last FIN, publishes not counted

    # --- input ---

    def feed(self, data):
        cdef Lent lent = lent_by(data)
        if lent.size and self.state != STATE_GONE and not self.eof:
            buf_append(&self.input, lent.data, lent.size)
            self.mark_ready()

    def feed_eof(self):
        self.eof = True
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
        cdef size_t line
        cdef int verb
        cdef u32 finished
        if self.hit is not None and not self.locked:
            finished = self.hit.finish_row(self.serial, data, size)
            if finished:
                return self.finished(finished, finished * FIN_LINE_BYTES)
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
        if line >= 8 and memcmp(data, b"PUB_EXT ", 8) == 0:
            return self.parse_pub_ext(data, size, line, 8)
        if line >= 9 and memcmp(data, b"MPUB_EXT ", 9) == 0:
            return self.parse_mpub_ext(data, size, line, 9)
        if line >= 3 and self.quiet_count < QUIET_COUNT_MAX:
            self.quiet_count += 1
            if memcmp(data, b"RDY", 3) == 0 and self.hit is not None:
                return self.parse_rdy(data, size, line)
            if memcmp(data, b"NOP", 3) == 0:
                if line == 3 or data[3] == 32 or (data[3] == 13 and line == 4):
                    self.last_command_ns = self.hub.mono_ns
                    return line + 1
        verb = lonely_verb(data, line - 1 if line and data[line - 1] == 13 else line)
        if verb:
            self.bad_pub(verb, PARAMS, 0, 0)
            return self.after(line + 1)
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
        if not id_decode(data + 4, &id):
            held = NOT_IN_FLIGHT
        else:
            held = self.hit.finish_c(self.serial, id)
            if held != DONE and self.window_count > 1:
                held = self.finish_elsewhere(id, held)
        if held != DONE:
            self.last_command_ns = self.hub.mono_ns
            self.halt((FIN_FAILED, self, data[4:20], held))
            return line + 1
        return self.finished(1, line + 1)

    cdef Py_ssize_t finished(self, u32 count, size_t consumed) except -2:
        self.last_command_ns = self.hub.mono_ns
        self.quiet_count = 0
        self.in_flight -= count
        self.finish_count += count
        self.hit.mark_pump()
        return consumed

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
        if not self.closing:
            self.set_rdy(value)
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
        cdef int verb
        if self.state == STATE_BODY:
            self.halt((CUT, self, 0, CUT_SIZE if size < 4 else CUT_BODY, 0))
            return True
        if self.state != STATE_COMMAND or size == 0:
            return False
        newline = <const u8*>memchr(data, 10, size)
        if newline == NULL:
            return False
        body = newline - data + 1  # only publishes wait for more than a line
        if data[0] == c'P':
            verb = PUB if data[3] == 32 else PUB_EXT
            self.halt((CUT, self, verb, CUT_SIZE if size < body + 4 else CUT_BODY, 0))
            return True
        verb = MPUB if data[4] == 32 else MPUB_EXT
        if size < body + 8:
            self.halt((CUT, self, verb, CUT_SIZE if size < body + 4 else CUT_COUNT, 0))
        else:
            body = max(self.walk_position, body + 8)
            self.halt((CUT, self, verb, CUT_MESSAGE_SIZE if size < body + 4 else CUT_MESSAGE,
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
