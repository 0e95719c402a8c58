# What a connection published, and which answers it is owed.
#
# `owed` is a small FIFO. An entry counts publishes with one verb, and names a batch that they wait
# for. Answers keep the order of commands, so a publish also waits for all batches named before it:
# an entry is needed only for a batch that no unanswered publish waits for yet. A publish into
# several batches has entries with a count of 0 for all but the last.

cdef enum:
    OWED_MAX = 64  # a power of 2

cdef struct owed_t:
    void* tail  # a reference is held
    u64 serial
    u32 count
    u8 verb
    u8 outcome  # PENDING, STORED, FAILED or IN_DOUBT


cdef u8* OK_FRAME = b"\x00\x00\x00\x06\x00\x00\x00\x00OK"


cdef class Owing(Peer):
    cdef bytes topic  # of the latest publish
    cdef i64 topic_count  # of messages to it that `published_counts` lacks
    cdef dict published_counts
    cdef owed_t* owed
    cdef u32 owed_head, owed_count, owed_capacity

    def __cinit__(self, Hub hub not None, u32 serial, int fd):
        self.published_counts = {}

    def __dealloc__(self):
        cdef u32 i
        if self.owed != NULL:
            for i in range(self.owed_count):
                Py_DECREF(<object>self.owed_at(i).tail)
            free(self.owed)

    cdef owed_t* owed_at(self, u32 index) noexcept:
        return &self.owed[(self.owed_head + index) & (self.owed_capacity - 1)]

    cdef bint owes_to(self, Tail tail) noexcept:
        """Does an unanswered publish wait for the open batch of this tail?"""
        cdef owed_t* entry
        cdef u32 index = self.owed_count
        while index:
            index -= 1
            entry = self.owed_at(index)
            if entry.tail == <void*>tail and entry.serial == tail.open_serial:
                return True
        return False

    cdef bint may_owe(self, Tail tail, int verb) noexcept:
        """Is there room for one more publish into this tail?"""
        if self.owed_count < OWED_MAX:
            return True
        return self.owed_at(self.owed_count - 1).verb == verb and self.owes_to(tail)

    cdef int owe(self, Tail tail, int verb) except -1:
        """One publish into the open batch of one tail."""
        cdef owed_t* last
        if self.owed_count:
            last = self.owed_at(self.owed_count - 1)
            if last.verb == verb and (
                (last.tail == <void*>tail and last.serial == tail.open_serial)
                or self.owes_to(tail)
            ):
                last.count += 1
                return 0
        return self.push_owed(tail, verb, 1)

    cdef int push_owed(self, Tail tail, int verb, u32 count) except -1:
        cdef owed_t* entry
        if self.owed_count == self.owed_capacity:
            self.owed = <owed_t*>grown_ring(
                self.owed, sizeof(owed_t), &self.owed_head, &self.owed_capacity, OWED_MAX,
                "unanswered publishes")
        tail.open_waiters.append(self)
        entry = self.owed_at(self.owed_count)
        Py_INCREF(tail)
        entry.tail, entry.serial, entry.count = <void*>tail, tail.open_serial, count
        entry.verb, entry.outcome = verb, PENDING
        self.owed_count += 1
        return 0

    def appended(self, Tail tail not None, int verb):
        """Python appended one publish of ours (DPUB). A full FIFO can't happen: DPUB is a LINE,
        and a LINE waits until nothing is owed."""
        self.published_counts[tail.topic] = self.published_counts.get(tail.topic, 0) + 1
        self.owe(tail, verb)

    cdef int settle(self, Tail tail, u64 serial, int outcome) except -1:
        """A batch is through; answer what stands at the head of the FIFO."""
        cdef u32 i
        cdef owed_t* entry
        for i in range(self.owed_count):
            entry = self.owed_at(i)
            if entry.tail == <void*>tail and entry.serial == serial:
                entry.outcome = outcome
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
            self.owed_head = (self.owed_head + 1) & (self.owed_capacity - 1)
            self.owed_count -= 1
            if (entry.outcome == STORED and entry.count and not self.failed
                    and self.state != STATE_GONE):
                buf_reserve(&self.output, 10 * entry.count)
                for i in range(entry.count):
                    memcpy(self.output.data + self.output.length, OK_FRAME, 10)
                    self.output.length += 10
                self.urgent = True
                self.mark_output()
            elif entry.outcome != STORED and not self.failed and self.state != STATE_GONE:
                self.failed = True
                self.halt((PUB_FAILED, self, entry.verb, tail, entry.outcome == IN_DOUBT))
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
            total += self.owed_at(i).count
        return total

    cdef int count_published(self) except -1:
        if self.topic_count:
            before = self.published_counts.get(self.topic, 0)
            self.published_counts[self.topic] = before + self.topic_count
            self.topic_count = 0
        return 0


# The publishing half of a connection's commands: PUB and MPUB, from bytes to the open batch.

cdef enum:
    MORE = -1  # not enough bytes yet


cdef enum:
    NAME_BYTES_MAX = 64


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


cdef class Publisher(Owing):
    cdef public set allowed
    cdef Route route  # of the topic; None: not known
    cdef i64 partition  # that the command names
    cdef Tail topic_tail  # the one that took it, or is to take it
    # how far an MPUB was walked, so that a long one is not walked again with each chunk
    cdef size_t walk_position
    cdef u32 walk_index
    cdef bint passing  # the publish at hand is refused: it is read, and not appended

    cdef int halt_in_turn(self, tuple event) except -1:
        """What comes now may not overtake the answer to an earlier publish."""
        return self.hold() if self.owed_count else self.halt(event)

    cdef int bad_pub(self, int verb, int reason, i64 a, i64 b) except -1:
        topic = b"" if reason == PARAMS else self.topic
        return self.halt_in_turn((BAD_PUB, self, verb, reason, topic, a, b))

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

    def pass_over(self):
        if not self.halted:
            raise RuntimeError("no publish waits for an answer")
        self.passing = True

    cdef Py_ssize_t passed(self, size_t end) noexcept:
        """All of the refused publish has come, up to there."""
        self.passing = False
        self.walk_position = self.walk_index = 0
        self.last_command_ns = self.hub.mono_ns
        return <Py_ssize_t>end

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
        self.halt_in_turn((BAD_PUB, self, verb, PARTITION, rest[1:1 + length], 0, 0))
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

    cdef int hold(self) except -1:
        """Look at this again when nothing is owed."""
        self.held = True
        return self.mark_interest()

    cdef int topic_blocked(self, int verb) except -1:
        """1 when Python has a say before this publish (an event or a flag says why)."""
        if self.passing or not self.needs_topic():
            return 0
        self.halt_in_turn((TOPIC, self, verb, self.topic))
        return 1

    cdef int tail_refuses(self, Tail tail, int verb, u32 count) except -1:
        if accepts(tail, count):
            return 0
        self.halt_in_turn((REFUSED, self, verb, tail, count))
        return 1

    cdef int tail_stalls(self, Tail tail, int verb, i64 length) except -1:
        if tail.open_size() <= <size_t>self.hub.batch_bytes_max:
            return 0
        if tail.stall(self, length):
            self.stalled = True
            self.mark_interest()
        else:
            self.halt_in_turn((CROWDED, self, verb, tail, length))
        return 1

    cdef int publish_blocked(self, int verb, u32 count, i64 length) except -1:
        """1 when this publish can't be appended now."""
        if self.topic_blocked(verb):
            return 1
        self.choose_tail(count)
        if self.tail_refuses(self.topic_tail, verb, count):
            return 1
        if not self.may_owe(self.topic_tail, verb):
            self.hold()
            return 1
        return self.tail_stalls(self.topic_tail, verb, length)

    cdef Py_ssize_t after(self, size_t consumed) noexcept:
        """What a step returns that gave an error to Python, or was held."""
        return MORE if self.held else <Py_ssize_t>consumed

    cdef Py_ssize_t find_target(self, int verb, const u8* data, size_t line,
                                size_t args) except -2:
        """Topic and partition, which a command line names behind `args`. 0: there they are."""
        cdef size_t end = args
        while end < line and data[end] != 32:
            end += 1
        if end == line and end > args and data[end - 1] == 13:
            end -= 1
        if not self.find_topic(data + args, end - args):
            self.bad_pub(verb, TOPIC_NAME, 0, 0)
            return self.after(line + 1)
        self.partition = ANY_PARTITION
        if self.passing:
            return 0
        if end < line and self.bad_partition(verb, data + end, line - end):
            return self.after(line + 1)
        if (self.partition == ANY_PARTITION and self.route is not None
                and self.route.needs_partition
                and (verb == PUB or verb == MPUB)):  # the others may have keys
            self.halt_in_turn((BAD_PUB, self, verb, PARTITION, b"", 0, 0))
            return self.after(line + 1)
        return 0

    # --- PUB ---

    cdef Py_ssize_t parse_pub(self, const u8* data, size_t size, size_t line,
                              size_t args) except -2:
        cdef Py_ssize_t used = self.find_target(PUB, data, line, args)
        cdef int body_size
        if used:
            return used
        if self.partition > 0 and self.route is None:
            self.topic_blocked(PUB)  # before the body: a client may wait for the answer
            return MORE
        if size < line + 5:
            return MORE
        body_size = <int>be32(data + line + 1)
        if body_size <= 0:
            self.bad_pub(PUB, SIZE_INVALID, body_size, 0)
            return self.after(line + 5)
        if body_size > self.hub.message_bytes_max:
            self.bad_pub(PUB, SIZE_TOO_BIG, body_size, self.hub.message_bytes_max)
            return self.after(line + 5)
        if size < line + 5 + body_size:
            return MORE
        if self.passing:
            return self.passed(line + 5 + body_size)
        if self.publish_blocked(PUB, 1, body_size):
            return MORE
        self.last_command_ns = self.hub.mono_ns
        if self.topic_tail.trace_below:
            self.topic_tail.note_publisher(self)
        self.topic_tail.append_c(data + line + 5, body_size)
        self.topic_count += 1
        self.owe(self.topic_tail, PUB)
        return line + 5 + body_size

    # --- MPUB ---

    cdef Py_ssize_t parse_mpub(self, const u8* data, size_t size, size_t line,
                               size_t args) except -2:
        cdef Py_ssize_t used = self.find_target(MPUB, data, line, args)
        cdef size_t position
        cdef int body_size
        cdef u32 count, i
        if used == 0:
            used = self.read_count(MPUB, data, size, line, &count)
        if used == 0:
            used = self.walk(data, size, line, count)
        if used:
            return used
        if self.passing:
            return self.passed(self.walk_position)
        if self.publish_blocked(MPUB, count, <i64>(self.walk_position - line - 5)):
            return MORE
        self.last_command_ns = self.hub.mono_ns
        position = line + 9
        if self.topic_tail.trace_below:
            self.topic_tail.note_publisher(self)
        for i in range(count):
            body_size = <int>be32(data + position)
            self.topic_tail.append_c(data + position + 4, body_size)
            position += 4 + body_size
        self.walk_position = self.walk_index = 0
        self.topic_count += count
        self.owe(self.topic_tail, MPUB)
        return position

    cdef Py_ssize_t read_count(self, int verb, const u8* data, size_t size, size_t line,
                               u32* out) except -2:
        """Total and count of several messages. 0: they are right."""
        cdef int total, count
        cdef i64 least = 5 if verb == MPUB else 7  # bytes of one message
        if self.topic_blocked(verb):
            return MORE
        if size < line + 5:
            return MORE
        total = <int>be32(data + line + 1)
        if total <= 0:
            self.bad_pub(verb, BODY_INVALID, total, 0)
            return self.after(line + 5)
        if total > self.hub.body_bytes_max:
            self.bad_pub(verb, BODY_TOO_BIG, total, self.hub.body_bytes_max)
            return self.after(line + 5)
        if size < line + 9:
            return MORE
        count = <int>be32(data + line + 5)
        if count <= 0 or count > (self.hub.body_bytes_max - 4) // least:
            self.bad_pub(verb, COUNT_INVALID, count, 0)
            return self.after(line + 9)
        out[0] = <u32>count
        return 0

    cdef Py_ssize_t walk(self, const u8* data, size_t size, size_t line, u32 count) except -2:
        """Look at the sizes of messages as they come. 0: all are there, and
        `walk_position` is their end."""
        cdef size_t position = self.walk_position if self.walk_position else line + 9
        cdef int body_size, total
        while self.walk_index < count:
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
                return self.after(position + 4)
            if size < position + 4 + body_size:
                self.walk_position = position
                return MORE
            position += 4 + body_size
            self.walk_index += 1
        self.walk_position = position
        return 0
