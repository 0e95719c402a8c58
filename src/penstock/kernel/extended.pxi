# PUB_EXT and MPUB_EXT: publishes with headers, whose keys choose the partition of each message.
#
#     PUB_EXT <topic> [partition]\n  [size] [headers size, 2 bytes] [headers] [body]
#     MPUB_EXT <topic> [partition]\n [total] [count] ([size] [headers size] [headers] [body]) ...
#
# A command is looked at twice. First each message's position, partition and key are noted in a
# buffer that all connections share (`piece_t`), and whatever is wrong is found. Then all are
# appended. So a command is appended whole or not at all, though to several tails, and then it
# waits for all their batches: it is answered once, and with an error when one of them was not
# stored.

cdef enum:
    NUMBERS = 256  # numbers of partitions

cdef struct piece_t:
    size_t headers_at, body_at  # in the input
    size_t key_at  # in the buffer of keys
    u64 trace_id
    u32 headers_size, body_size, key_size
    u8 number  # the number of its partition
    bint has_key, has_trace

cdef struct spread_t:  # over which tails a command goes; the route holds them
    u32 counts[NUMBERS]  # of messages, by number
    void* tails[NUMBERS]  # where the count is not 0
    u8 numbers[NUMBERS]  # those numbers, in the order of their first messages
    u32 number_count
    u32 keyless  # messages
    bint has_others


cdef enum:
    COUNT_BYTES = 4  # so long is a size, too
    SIZES_BYTES = 6  # the size of a message, and that of its headers
    HEADERS_SIZE_BYTES = 2  # which counts into the size
    MESSAGE_BYTES_MIN = 3
    KEPT_BYTES_MAX = 1 << 20  # of the shared buffers: one huge command must not stay


cdef class Extended(Publisher):
    cdef Py_ssize_t parse_pub_ext(self, const u8* data, size_t size, size_t line,
                                  size_t args) except -2:
        cdef Py_ssize_t used = self.find_target(PUB_EXT, data, line, args)
        cdef size_t at = line + 1, end
        cdef int message_size
        cdef spread_t spread
        if used:
            return used
        if self.partition > 0 and self.route is None:
            self.topic_blocked(PUB_EXT)  # before the body: a client may wait for the answer
            return MORE
        if size < at + 4:
            return MORE
        message_size = <int>be32(data + at)
        if message_size < MESSAGE_BYTES_MIN:
            self.bad_pub(PUB_EXT, SIZE_INVALID, message_size, 0)
            return self.after(at + 4)
        if size < at + SIZES_BYTES:
            return MORE
        if self.misfits(PUB_EXT, 0, message_size, be16(data + at + 4)):
            return self.after(at + SIZES_BYTES)
        end = at + 4 + <size_t>message_size
        if size < end:
            return MORE
        if self.passing:
            return self.passed(end)
        self.start_pieces(1, &spread)
        if self.note_piece(PUB_EXT, data, at, 0, &spread):
            return self.after(end)
        if self.topic_blocked(PUB_EXT):
            return MORE
        return self.take_ext(PUB_EXT, data, 1, end, &spread)

    cdef Py_ssize_t parse_mpub_ext(self, const u8* data, size_t size, size_t line,
                                   size_t args) except -2:
        cdef Py_ssize_t used = self.find_target(MPUB_EXT, data, line, args)
        cdef size_t at = line + 9
        cdef u32 count, i
        cdef spread_t spread
        if used == 0:
            used = self.read_count(MPUB_EXT, data, size, line, &count)
        if used == 0:
            used = self.walk_ext(data, size, line, count)
        if used:
            return used
        if self.passing:
            return self.passed(self.walk_position)
        self.start_pieces(count, &spread)
        for i in range(count):
            if self.note_piece(MPUB_EXT, data, at, i, &spread):
                at = self.walk_position
                if not self.held:
                    self.walk_position = self.walk_index = 0
                return self.after(at)
            at += 4 + be32(data + at)
        return self.take_ext(MPUB_EXT, data, count, at, &spread)

    cdef bint misfits(self, int verb, u32 index, int size, u32 headers_size) except -1:
        """Is one of the sizes wrong that a message begins with?"""
        cdef i64 body_size = <i64>size - HEADERS_SIZE_BYTES - headers_size
        if body_size < 0:
            self.bad_pub(verb, HEADER_SIZE, index, headers_size)
        elif body_size == 0 and verb == PUB_EXT:
            self.bad_pub(verb, SIZE_INVALID, 0, 0)
        elif body_size == 0:
            self.bad_pub(verb, MESSAGE_INVALID, index, 0)
        elif body_size > self.hub.message_bytes_max:
            self.bad_pub(verb, SIZE_TOO_BIG if verb == PUB_EXT else MESSAGE_TOO_BIG, body_size,
                         self.hub.message_bytes_max)
        else:
            return False
        return True

    cdef Py_ssize_t walk_ext(self, const u8* data, size_t size, size_t line, u32 count) except -2:
        """Look at the sizes of messages as they come. 0: all are there, and `walk_position` is
        their end."""
        cdef size_t position = self.walk_position if self.walk_position else line + 9, looked
        cdef int message_size
        cdef i64 total
        while self.walk_index < count:
            self.walk_position = position
            if size < position + 4:
                return MORE
            message_size = <int>be32(data + position)
            looked = position + 4
            if message_size < MESSAGE_BYTES_MIN:
                self.bad_pub(MPUB_EXT, MESSAGE_INVALID, self.walk_index, message_size)
            elif size < position + SIZES_BYTES:
                return MORE
            else:
                looked = position + SIZES_BYTES
                total = <i64>(position - line - 1) + message_size
                if (not self.misfits(MPUB_EXT, self.walk_index, message_size,
                                     be16(data + position + 4))
                        and total > self.hub.body_bytes_max):
                    self.bad_pub(MPUB_EXT, BODY_TOO_BIG, total, self.hub.body_bytes_max)
            if self.halted or self.held:
                self.walk_position = self.walk_index = 0
                return self.after(looked)
            if size < position + 4 + <size_t>message_size:
                return MORE
            position += 4 + <size_t>message_size
            self.walk_index += 1
        self.walk_position = position
        return 0

    # --- first look ---

    cdef int start_pieces(self, u32 count, spread_t* spread) except -1:
        memset(spread.counts, 0, sizeof(spread.counts))
        spread.number_count = spread.keyless = 0
        spread.has_others = False
        self.hub.keys.length = self.hub.pieces.length = 0
        return buf_reserve(&self.hub.pieces, count * sizeof(piece_t))

    cdef bint note_piece(self, int verb, const u8* data, size_t at, u32 index,
                         spread_t* spread) except -1:
        """Note the message at `at`. True where its headers are wrong, which is given to Python."""
        cdef piece_t* piece = &(<piece_t*>self.hub.pieces.data)[index]
        cdef headers_t parsed
        cdef i64 wrong_at = -1
        piece.headers_size = be16(data + at + 4)
        piece.headers_at = at + SIZES_BYTES
        piece.body_at = piece.headers_at + piece.headers_size
        piece.body_size = be32(data + at) - HEADERS_SIZE_BYTES - piece.headers_size
        if piece.headers_size:
            wrong_at = headers_parse(
                data + piece.headers_at, piece.headers_size, &parsed, &self.hub.keys)
        else:
            memset(&parsed, 0, sizeof(headers_t))
        if wrong_at >= 0:
            self.bad_pub(verb, HEADER_INVALID, index, wrong_at)
            return True
        piece.key_at, piece.key_size = parsed.key_at, <u32>parsed.key_size
        piece.has_key, piece.has_trace = parsed.has_key, parsed.has_trace
        piece.trace_id = parsed.trace_id if parsed.has_trace else parsed.context_id
        spread.has_others |= parsed.has_others
        spread.keyless += not parsed.has_key
        return False

    cdef Py_ssize_t spread_out(self, int verb, u32 count, size_t end, spread_t* spread) except -2:
        """Find the tail of each message. 0: each has one."""
        cdef piece_t* pieces = <piece_t*>self.hub.pieces.data
        cdef Tail tail, chosen = None
        cdef i64 number
        cdef u32 i
        if self.partition != ANY_PARTITION:
            chosen = self.route.find(self.partition)
        elif spread.keyless:
            if self.route.needs_partition:
                return self.no_partition(verb, b"", end)
            chosen = self.route.pick(spread.keyless)
        for i in range(count):
            if pieces[i].has_key and self.partition == ANY_PARTITION:
                number = self.route.number_of_key(
                    self.hub.keys.data + pieces[i].key_at, pieces[i].key_size)
            else:
                number = chosen.partition
            pieces[i].number = <u8>number
            if spread.counts[number] == 0:
                tail = self.route.find(number)
                if tail is None:
                    return self.no_partition(verb, b"%d" % number, end)
                spread.tails[number] = <void*>tail
                spread.numbers[spread.number_count] = <u8>number
                spread.number_count += 1
            spread.counts[number] += 1
        return 0

    cdef Py_ssize_t no_partition(self, int verb, bytes word, size_t end) except -2:
        """A key belongs to a partition that is not here; or a message has none that needs one."""
        if self.owed_count:
            self.hold()
            return MORE
        self.walk_position = self.walk_index = 0
        self.last_command_ns = self.hub.mono_ns
        self.halt((BAD_PUB, self, verb, PARTITION, word, 0, 0))
        return end

    cdef bint ext_blocked(self, int verb, size_t end, spread_t* spread) except -1:
        """Can this command, which ends there, not be appended now (an event or a flag says why)?"""
        cdef i64 length = end - (<piece_t*>self.hub.pieces.data).headers_at + SIZES_BYTES
        cdef u32 i
        cdef u8 number
        length += COUNT_BYTES if verb == MPUB_EXT else -COUNT_BYTES  # PUB_EXT: without its size
        for i in range(spread.number_count):
            number = spread.numbers[i]
            if not accepts(<Tail>spread.tails[number], spread.counts[number]):
                self.refuse_ext(verb, spread)
                return True
        if not self.owes_room(verb, spread):
            self.hold()
            return True
        for i in range(spread.number_count):
            if self.tail_stalls(<Tail>spread.tails[spread.numbers[i]], verb, length):
                return True
        return False

    cdef int refuse_ext(self, int verb, spread_t* spread) except -1:
        cdef u32 i
        cdef u8 number = spread.numbers[0]
        cdef list asked = []
        if spread.number_count == 1:
            return self.tail_refuses(<Tail>spread.tails[number], verb, spread.counts[number])
        for i in range(spread.number_count):
            number = spread.numbers[i]
            asked.append((<Tail>spread.tails[number], spread.counts[number]))
        return self.halt_in_turn((SPREAD_REFUSED, self, verb, asked))

    cdef bint owes_room(self, int verb, spread_t* spread) noexcept:
        cdef u32 wanted = 0, i
        if self.owed_count == 0:
            return True
        for i in range(spread.number_count):
            wanted += not self.owes_to(<Tail>spread.tails[spread.numbers[i]])
        if wanted == 0:
            wanted = self.owed_at(self.owed_count - 1).verb != verb
        return self.owed_count + wanted <= OWED_MAX

    # --- second look ---

    cdef Py_ssize_t take_ext(self, int verb, const u8* data, u32 count, size_t end,
                             spread_t* spread) except -2:
        cdef piece_t* pieces = <piece_t*>self.hub.pieces.data
        cdef Py_ssize_t used
        cdef u32 i
        if spread.has_others and not self.route.extended:
            self.bad_pub(verb, HEADER_REFUSED, 0, 0)
            if not self.held:
                self.last_command_ns = self.hub.mono_ns
                self.walk_position = self.walk_index = 0
            return self.after(end)
        used = self.spread_out(verb, count, end, spread)
        if used:
            return used
        if self.ext_blocked(verb, end, spread):
            return MORE
        if verb == PUB_EXT and pieces[0].has_trace:
            if self.owed_count:
                self.hold()
                return MORE
            self.give_traced(verb, data, &pieces[0], <Tail>spread.tails[pieces[0].number])
            return end
        self.last_command_ns = self.hub.mono_ns
        for i in range(count):
            self.append_piece(data, &pieces[i], <Tail>spread.tails[pieces[i].number])
        self.walk_position = self.walk_index = 0
        self.topic_count += count
        self.owe_all(verb, spread)
        if self.hub.pieces.capacity + self.hub.keys.capacity > KEPT_BYTES_MAX:
            buf_free(&self.hub.pieces)
            buf_free(&self.hub.keys)
        return end

    cdef int append_piece(self, const u8* data, const piece_t* piece, Tail tail) except -1:
        cdef u32 index
        cdef bint keeps_headers = piece.headers_size and self.route.extended
        if tail.trace_below or piece.trace_id or piece.has_key or keeps_headers:
            tail.note_publisher(self)
        tail.append_c(data + piece.body_at, piece.body_size)
        index = tail.open_batch.count - 1
        if piece.trace_id:
            tail.label().put_integer(SECTION_TRACE, index, <i64>piece.trace_id)
        if piece.has_key:
            tail.label().put_bytes(
                SECTION_KEY, index, self.hub.keys.data + piece.key_at, piece.key_size)
        if keeps_headers:
            tail.label().put_bytes(
                SECTION_HEADERS, index, data + piece.headers_at, piece.headers_size)
        return 0

    cdef int owe_all(self, int verb, spread_t* spread) except -1:
        """One answer, which waits for the batches of all these tails."""
        cdef Tail tail = None
        cdef u32 i
        for i in range(spread.number_count):
            tail = <Tail>spread.tails[spread.numbers[i]]
            if not self.owes_to(tail):
                self.push_owed(tail, verb, 0)
        if self.owed_at(self.owed_count - 1).verb != verb:
            return self.push_owed(tail, verb, 1)
        self.owed_at(self.owed_count - 1).count += 1
        return 0

    cdef int give_traced(self, int verb, const u8* data, const piece_t* piece, Tail tail) except -1:
        """Its answer says where the message lies, which Python knows."""
        cdef bytes headers = b"", body = (data + piece.body_at)[:piece.body_size]
        cdef object key = None
        if piece.has_key:
            key = (self.hub.keys.data + piece.key_at)[:piece.key_size] if piece.key_size else b""
        if self.route.extended:
            headers = (data + piece.headers_at)[:piece.headers_size]
        self.last_command_ns = self.hub.mono_ns
        return self.halt((TRACED, self, verb, tail, headers, key, piece.trace_id, body))
