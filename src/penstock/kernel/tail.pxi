# The writing end of one partition in memory.
#
# A batch in memory is a `membatch_t`: its lengths, its bodies and (rarely) its trailer in three
# buffers, just as they go to disk behind the header. The tail holds the open batch, a short row of
# sealed batches (`Sealed`) and the newest committed ones (`Memory`).
#
#     committed ring [memory_start, committed_end) | sealed [.., written_end) | open (no offsets)

cdef enum:
    SMALL_BATCH_BYTES = 4096  # up to here one contiguous copy is cheaper than a gathered write
    U16_MAX = 0xFFFF
    ANY_SIZE = 0x7fffffff


# Where a log ends: what the next batch of it gets, and how far it may be written at once.
cdef class LogEnd:
    cdef object _file  # a `log.disk.File`
    cdef int fd  # its descriptor
    cdef public i64 position, prepared  # in that file: its end, and that of its prepared part
    cdef public i64 last_position  # of the newest batch
    cdef public i64 index_position  # a batch from here on is one for the index
    cdef public i64 age_end_ns  # a batch of a later time is one for the next segment
    cdef public i64 synced_end
    cdef public i64 last_timestamp_ns
    cdef public u64 last_id
    cdef public u32 node_id, epoch

    @property
    def file(self):
        return self._file

    @file.setter
    def file(self, file):
        self._file, self.fd = file, file.fd


cdef class Tail(Memory):
    cdef readonly int partition
    cdef public object owner
    cdef public bint refusing
    cdef public i64 append_end_max  # no publish may end above it; 0: no bound
    cdef public bint traceable  # messages with trace ids are traced
    cdef public u64 trace_below  # and so is this sample of the others (`Trace`)
    cdef object open_publisher  # who sent the newest message
    cdef list open_publishers  # (index, connection or None); None: not noted
    cdef membatch_t* open_batch
    cdef Labels labels  # of the open batch; None while no message has any
    cdef list open_waiters
    cdef list open_stalled  # connections that wait for room in the open batch
    cdef public i64 waiting_bytes  # of publishes that wait for room in it
    cdef public i64 waiting_bytes_max  # 0: no bound
    cdef i64 stalled_bytes  # of the waiting ones, of those connections
    cdef list sealed  # of Sealed, from committed_end to written_end
    cdef Py_ssize_t sealed_room  # `sealed_max`
    cdef readonly u64 open_serial  # number of the open batch; entries of connections name it
    cdef readonly i64 written_end
    cdef public i64 handed_end  # set by the broker once, before the first window (a restart)
    cdef readonly i64 message_count, message_bytes
    cdef list windows
    cdef bint listed  # in the engine's list of dirty tails
    cdef bint handed_listed
    cdef bint forgotten  # its topic is gone: connections must look it up anew


    def __cinit__(self, Hub hub not None, bytes topic not None, i64 start, size_t memory_bytes_max,
                  int partition):
        self.partition = self.trace_partition = partition
        self.written_end = self.handed_end = start
        self.open_waiters, self.open_stalled = [], []
        self.windows, self.sealed = [], []
        self.sealed_room = limits.SEALED_BATCHES_MAX
        self.open_serial = 1

    def __dealloc__(self):
        if self.hub is not None and self.open_batch != NULL:
            self.hub.give_batch(self.open_batch)

    @property
    def open_count(self):
        return self.open_batch.count if self.open_batch != NULL else 0

    @property
    def open_bytes(self):
        return self.open_batch.bodies.length if self.open_batch != NULL else 0

    @property
    def sealed_count(self):
        return self.written_end - self.committed_end

    @property
    def sealed_batches(self):
        return len(self.sealed)

    @property
    def sealed_max(self):
        return self.sealed_room

    @sealed_max.setter
    def sealed_max(self, Py_ssize_t count):
        self.sealed_room = count
        if self.open_batch != NULL:
            self.mark_dirty()

    @property
    def handing(self):
        return self._handing

    @handing.setter
    def handing(self, bint value):
        self._handing = value

    cdef bint has_room(self, u32 count) noexcept:
        """May so many messages be appended? Asked only where there is a bound."""
        cdef i64 end = self.written_end + count
        if self.open_batch != NULL:
            end += self.open_batch.count
        return end <= self.append_end_max

    cdef bint can_seal(self) noexcept:
        return len(self.sealed) < self.sealed_room

    cdef int check_room(self) except -1:
        if not self.can_seal():
            raise RuntimeError(f"{len(self.sealed)} sealed batches wait already")
        return 0

    cdef int mark_dirty(self) except -1:
        if not self.listed and self.can_seal():
            self.listed = True
            self.hub.dirty_tails.append(self)
        return 0

    cdef int append_c(self, const u8* body, u32 size) except -1:
        cdef membatch_t* batch = self.open_batch
        if batch == NULL:
            batch = self.open_batch = self.hub.take_batch()
            self.mark_dirty()
        buf_append(&batch.lengths, &size, 4)  # little-endian hosts only; checked in engine.pyx
        buf_append(&batch.bodies, body, size)
        batch.count += 1
        self.message_count += 1
        self.message_bytes += size
        return 0

    cdef int note_publisher(self, object conn) except -1:
        """The next message comes from `conn` (None: nobody that the kernel knows)."""
        if self.open_publishers is None:
            self.open_publishers = []
        elif conn is self.open_publisher:
            return 0
        self.open_publisher = conn
        self.open_publishers.append((self.open_batch.count if self.open_batch != NULL else 0, conn))
        return 0

    def append(self, body, i64 due_ns=0, sections=None, by=None):
        cdef Lent lent = lent_by(body)
        if lent.size == 0:
            raise ValueError("an empty message cannot be stored")
        if sections:
            for section, value in sections.items():
                check_label(section, value)
        if self.trace_below or sections:
            self.note_publisher(by)
        self.append_c(lent.data, <u32>lent.size)
        if due_ns:
            self.add_due(due_ns)
        if sections:
            for section, value in sections.items():
                self.label().put(section, self.open_batch.count - 1, value)

    def append_parts(self, list parts not None):
        cdef Lent part
        cdef u32 size = 0
        cdef list lent = [lent_by(owner) for owner in parts]
        for part in lent:
            size += <u32>part.size
        if size == 0:
            raise ValueError("an empty message cannot be stored")
        if self.trace_below:
            self.note_publisher(None)
        self.append_c(<const u8*>&size, 0)
        buf_reserve(&self.open_batch.bodies, size)
        for part in lent:
            buf_append(&self.open_batch.bodies, part.data, part.size)
        memcpy(self.open_batch.lengths.data + self.open_batch.lengths.length - 4, &size, 4)
        self.message_bytes += size

    cdef Labels label(self):
        """The tables of the open batch."""
        if self.labels is None:
            self.labels = self.hub.take_labels()
        return self.labels

    cdef int drop_labels(self) except -1:
        if self.labels is not None:
            self.hub.give_labels(self.labels)
            self.labels = None
        return 0

    cdef size_t open_size(self) noexcept:
        """Of the open batch, trailer included, near enough for a bound."""
        if self.open_batch == NULL:
            return 0
        return self.open_batch.bodies.length + (self.labels.size if self.labels is not None else 0)

    cdef int add_due(self, i64 due_ns) except -1:
        """The newest message is not for now."""
        return self.label().put_integer(SECTION_DUE, self.open_batch.count - 1, due_ns)

    def count_pack(self, int pack, body, i64 count_max, i64 message_bytes_max):
        cdef Lent lent = lent_by(body)
        return self.count_pack_c(pack, lent.data, lent.size, count_max, message_bytes_max)

    cdef i64 count_pack_c(self, int pack, const u8* body, size_t size, i64 count_max,
                          i64 message_bytes_max) except -3:
        if pack != PACK_FRAMED and pack != PACK_LINES:
            raise ValueError(f"{pack} is no kind of pack")
        if size == 0:
            return BAD_COUNT if pack == PACK_FRAMED else 0
        if pack == PACK_FRAMED:
            return framed_count(body, size, count_max, message_bytes_max)
        return line_count(body, size, message_bytes_max)

    def append_pack(self, int pack, body, i64 due_ns=0):
        cdef Lent lent = lent_by(body)
        cdef const u8* data = lent.data
        cdef size_t size = lent.size, position = 4, end
        cdef i64 count = self.count_pack_c(pack, data, size, ANY_SIZE, ANY_SIZE)
        cdef i64 i
        if count < 0:
            raise ValueError("a malformed pack of messages")
        if count == 0:
            return 0
        if pack == PACK_FRAMED:
            for i in range(count):
                end = position + 4 + <size_t><int>be32(data + position)
                self.append_one(data + position + 4, <u32>(end - position - 4), due_ns)
                position = end
            return count
        position = 0
        while position < size:
            end = line_end(data, size, position)
            if end > position:
                self.append_one(data + position, <u32>(end - position), due_ns)
            position = end + 1
        return count

    cdef int append_one(self, const u8* body, u32 size, i64 due_ns) except -1:
        if self.trace_below:
            self.note_publisher(None)
        self.append_c(body, size)
        if due_ns:
            self.add_due(due_ns)
        return 0

    cdef int head_open(self, head_t* head, u64 base_id, i64 timestamp_ns, i64 synced_end,
                       u32 leader_epoch, bint may_be_short) except -1:
        """The header of the open batch, which gets its padding."""
        cdef membatch_t* batch = self.open_batch
        cdef i64 unsynced = self.written_end - synced_end
        cdef size_t used
        cdef u8 zeros[8]
        batch.base_offset, batch.base_id = self.written_end, base_id
        batch.timestamp_ns = timestamp_ns
        head.size, head.lengths_bytes = HEADER_BYTES, batch.lengths.length
        if (batch.count == 1 and may_be_short and self.labels is None
                and 0 <= unsynced <= U16_MAX and leader_epoch <= U16_MAX):
            head.size, head.lengths_bytes = SHORT_HEADER_BYTES, 0
        if self.labels is not None:
            self.labels.write(&batch.trailer)
        used = head.size + head.lengths_bytes + batch.bodies.length + batch.trailer.length
        head.total = (used + 7) & ~<size_t>7
        if head.total > used:
            memset(zeros, 0, 8)
            buf_append(&batch.trailer, zeros, head.total - used)
        if head.size == SHORT_HEADER_BYTES:
            short_head(&head.header.brief, batch, <u16>unsynced, <u16>leader_epoch)
        else:
            long_head(head, batch, synced_end, leader_epoch, self.labels is not None)
        self.drop_labels()
        return 0

    cdef int next_open(self) except -1:
        """The open batch is another's now; messages gather for the next."""
        self.written_end += self.open_batch.count
        self.open_publishers = self.open_publisher = None
        self.open_batch = NULL
        self.open_waiters = []
        self.open_serial += 1
        return self.unstall()

    def seal(self, u64 base_id, i64 timestamp_ns, i64 synced_end,
             u32 leader_epoch=0, bint may_be_short=True):
        cdef membatch_t* batch = self.open_batch
        cdef head_t head
        if batch == NULL:
            raise RuntimeError("there is no open batch to seal")
        self.check_room()
        self.head_open(&head, base_id, timestamp_ns, synced_end, leader_epoch, may_be_short)
        self.sealed.append(
            sealed_of(batch, self.open_serial, self.open_waiters, self.open_publishers))
        self.next_open()
        return self.buffers(batch, &head)

    def store(self, LogEnd end not None, i64 wall_ns):
        return self.store_c(end, wall_ns)

    cdef bint store_c(self, LogEnd end, i64 wall_ns) except -1:
        cdef membatch_t* batch = self.open_batch
        cdef head_t head
        cdef u64 base_id
        cdef i64 timestamp_ns = max(wall_ns, end.last_timestamp_ns)
        if (batch == NULL or self.sealed or self.labels is not None or self.trace_below
                or end.position >= end.index_position or timestamp_ns > end.age_end_ns
                or end.position + <i64>(HEADER_BYTES + 8 + batch.lengths.length
                                        + batch.bodies.length) > end.prepared):
            return False
        self.grow_ring()  # before anything changes: there may be no memory
        base_id = id_above(end.last_id, end.node_id, timestamp_ns)
        self.head_open(&head, base_id, timestamp_ns, end.synced_end, end.epoch, True)
        try:
            self.write_open(end, &head)
        except BaseException:
            batch.trailer.length = 0  # its padding
            raise
        end.last_id = id_at(base_id, batch.count - 1)
        end.last_position, end.last_timestamp_ns = end.position, timestamp_ns
        end.position += head.total
        self.hub.settled.append((self, self.open_serial, STORED, self.open_waiters))
        self.next_open()
        self.committed_end = self.written_end
        self.keep(batch)
        if self._handing:
            self.advance_handed()
        return True

    cdef int write_open(self, LogEnd end, head_t* head) except -1:
        """One gathered write. What the system does not take at once goes the long way, which also
        says why not."""
        cdef membatch_t* batch = self.open_batch
        cdef iovec parts[4]
        cdef int fd = end.fd
        cdef i64 position = end.position
        cdef ssize_t n = 0
        cdef bytes rest
        if fd >= 0:
            parts[0].iov_base, parts[0].iov_len = head, head.size
            parts[1].iov_base, parts[1].iov_len = batch.lengths.data, head.lengths_bytes
            parts[2].iov_base, parts[2].iov_len = batch.bodies.data, batch.bodies.length
            parts[3].iov_base, parts[3].iov_len = batch.trailer.data, batch.trailer.length
            with nogil:
                n = max(pwritev(fd, parts, 4, position), <ssize_t>0)
        if <size_t>n < head.total:
            rest = b"".join(self.buffers(batch, head))[n:]
            end._file.pwritev((rest,), position + n, len(rest))
        return 0

    def seal_batch(self, bytes data not None):
        cdef const u8* start = <const u8*>PyBytes_AS_STRING(data)
        cdef membatch_t* batch
        cdef parts_t parts
        cdef batch_header_t* header = &parts.header
        cdef const u8* trailer
        if check_batch(data, 0) != (0, len(data)):
            raise ValueError("this is no whole batch")
        batch_parts_c(start, &parts)
        if <i64>header.base_offset != self.written_end:
            raise ValueError(
                f"a batch at {header.base_offset}, the tail is at {self.written_end}")
        trailer = parts.bodies + header.bodies_length
        batch = self.hub.take_batch()
        try:
            buf_append(&batch.lengths, parts.lengths, 4 * <size_t>header.count)
            buf_append(&batch.bodies, parts.bodies, header.bodies_length)
            buf_append(&batch.trailer, trailer, start + header.length - trailer)
        except MemoryError:
            self.hub.give_batch(batch)
            raise
        batch.count = header.count
        batch.base_offset = <i64>header.base_offset
        batch.base_id = header.base_id
        batch.timestamp_ns = <i64>header.timestamp_ns
        self.sealed.append(sealed_of(batch, 0, [], None))
        self.written_end += header.count
        self.message_count += header.count
        self.message_bytes += header.bodies_length
        return [data]

    def note_stored(self, data):
        cdef Lent lent = lent_by(data)
        cdef parts_t parts
        cdef view_t published
        if not self.traceable:
            return
        if lent.size == 0 or not batch_fits_c(lent.data, lent.size):
            raise ValueError("this is no whole batch")
        batch_parts_c(lent.data, &parts)
        view_parts(&parts, &published)
        self.hub.trace.note_published(&published, self.trace_below, self, None)

    cdef list buffers(self, membatch_t* batch, head_t* head):
        cdef bytes small
        cdef u8* out
        if head.total > SMALL_BATCH_BYTES:
            return [
                (<u8*>head)[:head.size],
                span_of(batch.lengths.data, head.lengths_bytes, self),
                span_of(batch.bodies.data, batch.bodies.length, self),
                (<u8*>batch.trailer.data)[:batch.trailer.length],
            ]
        small = PyBytes_FromStringAndSize(NULL, head.total)
        out = <u8*>PyBytes_AS_STRING(small)
        memcpy(out, head, head.size)
        out += head.size
        memcpy(out, batch.lengths.data, head.lengths_bytes)
        out += head.lengths_bytes
        memcpy(out, batch.bodies.data, batch.bodies.length)
        out += batch.bodies.length
        if batch.trailer.length:
            memcpy(out, batch.trailer.data, batch.trailer.length)
        return [small]

    def adopt(self, i64 count, i64 size):
        if self.sealed:
            raise RuntimeError("a batch is sealed")
        if count < 1 or size < 1:
            raise ValueError(f"{count} messages of {size} bytes cannot be adopted")
        while self.ring_count:
            self.drop_oldest()
        self.written_end += count
        self.committed_end = self.written_end
        self.message_count += count
        self.message_bytes += size
        if self._handing:
            self.advance_handed()
        if self.open_batch != NULL:
            self.mark_dirty()

    def commit_to(self, i64 offset):
        cdef Py_ssize_t i, count
        if offset <= self.committed_end:
            return
        count = sealed_before(self.sealed, self.committed_end, offset)
        for i in range(count):
            self.commit_oldest()
        if self._handing:
            self.advance_handed()
        if self.open_batch != NULL:
            self.mark_dirty()

    cdef int commit_oldest(self) except -1:
        cdef Sealed sealed = self.sealed[0]
        cdef membatch_t* batch
        cdef view_t published
        self.grow_ring()  # before anything changes: there may be no memory
        batch = sealed.take()
        del self.sealed[0]
        self.committed_end += batch.count
        if self.traceable and (self.trace_below or batch.trailer.length >= 8):
            view_batch(batch, &published)
            self.hub.trace.note_published(&published, self.trace_below, self, sealed.publishers)
        self.keep(batch)
        self.hub.settled.append((self, sealed.serial, STORED, sealed.waiters))
        return 0

    def fail_from(self, i64 offset, bint unknown=False):
        cdef Sealed sealed
        cdef Py_ssize_t first = sealed_before(self.sealed, self.committed_end, offset)
        cdef list failed = self.sealed[first:]
        del self.sealed[first:]
        self.written_end = offset
        for sealed in failed:
            self.hub.give_batch(sealed.take())
            self.hub.settled.append(
                (self, sealed.serial, IN_DOUBT if unknown else FAILED, sealed.waiters))
        if self.open_batch != NULL:
            self.mark_dirty()

    def doubt(self):
        cdef Sealed sealed
        for sealed in self.sealed:
            self.hub.settled.append((self, sealed.serial, IN_DOUBT, sealed.waiters))
            sealed.waiters = []

    def drop_open(self):
        """The topic goes away: what was gathering is refused, not lost silently."""
        if self.open_batch != NULL:
            self.hub.give_batch(self.open_batch)
            self.open_batch = NULL
            self.drop_labels()
            self.open_publishers = self.open_publisher = None
            self.hub.settled.append((self, self.open_serial, FAILED, self.open_waiters))
            self.open_waiters = []
            self.open_serial += 1
            self.unstall()

    cdef bint stall(self, object conn, i64 length) except -1:
        """The connection waits for room, with a publish of this length. False: too many do."""
        cdef i64 waiting = self.waiting_bytes
        if waiting and 0 < self.waiting_bytes_max < waiting + length:
            return False
        self.waiting_bytes += length
        self.stalled_bytes += length
        self.open_stalled.append(conn)
        return True

    cdef int unstall(self) except -1:
        """There is an empty open batch again."""
        if self.open_stalled:
            self.hub.unstalled.extend(self.open_stalled)
            self.open_stalled = []
            self.waiting_bytes -= self.stalled_bytes
            self.stalled_bytes = 0
        return 0

    cdef int advance_handed(self) except -1:
        if self.committed_end > self.handed_end:
            self.handed_end = self.committed_end
            if not self.handed_listed:
                self.handed_listed = True
                self.hub.handed.append(self)
        return 0

    def hand(self):
        self.advance_handed()

    def begin_at(self, i64 offset):
        cdef i64 count = offset - self.handed_end
        if count <= 0:
            return
        if offset > self.committed_end:
            raise ValueError(f"{offset} is beyond the committed end {self.committed_end}")
        for window in self.windows:
            window.count_base += count
        self.handed_end = offset
        if not self.handed_listed:
            self.handed_listed = True
            self.hub.handed.append(self)

    def validate(self):
        if not self.handed_end <= self.committed_end <= self.written_end:
            raise RuntimeError(f"{self.topic!r}: ends out of order: handed {self.handed_end}, "
                               f"committed {self.committed_end}, written {self.written_end}")
        sealed_validate(self.sealed, self.committed_end, self.written_end)
        self.validate_memory()
