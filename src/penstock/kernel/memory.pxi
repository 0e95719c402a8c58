# What tails, windows, connections and the engine share: work lists, buffers, the time.
#
# The parts of the kernel never call one another upward. A tail that committed, a window that has
# room and a connection that has output put themselves on a list here, once; the engine works the
# lists off.
#
#     list           holds      put there by                              worked off by
#     dirty_tails    Tail       first append to an open batch             Engine.dirty_tails
#     settled        tuples     commit_to, fail_from, doubt: (tail, serial, outcome, waiters)
#                                                                         Engine.flush
#     handed         Tail       handed_end moved                          Engine.flush
#     pumps          Window     RDY, FIN, commit, requeue, load, drained  Engine.flush
#     unstalled      Conn       Tail.seal: there is room again            Engine.flush
#     ready          Conn       resume, feed, an answered FIFO            Engine.poll
#     outputs        Conn       replies, OKs                              Engine.flush
#     interests      Conn       halted, resumed, full, drained            Engine.flush
#     journals       Window     cursor, finished or stray changes         Engine.dirty_windows
#     active         Window     something in flight or delayed            Engine.tick
#     searches       Window     delayed messages to be found in the log   Engine.take_searches
#     shorts         Window     a small refill is put off                 Engine.poll
#     detached       Conn       output, halted, resumed or gone, no fd    Engine.dirty_detached

cdef enum:  # what has become of a publish
    PENDING = 0
    STORED = 1
    FAILED = 2
    IN_DOUBT = 3  # it may be stored, elsewhere or later

cdef struct membatch_t:
    i64 base_offset
    u64 base_id
    i64 timestamp_ns
    u32 count
    bint fitted  # its buffers have no room to grow
    buf_t lengths
    buf_t bodies
    buf_t trailer


cdef enum:
    POOL_COUNT_MAX = 64
    SPARE_LABELS_MAX = 8  # tables for as many open batches stay warm
    POOL_BATCH_BYTES_MAX = 1 << 20  # a larger buffer is freed: one huge MPUB must not stay
    FIT_SLACK_BYTES = 8 << 10  # a batch that is kept may hold so much that it does not need
    FIT_FACTOR = 4  # and so many times its size
    RECEIVE_BYTES = 512 << 10  # a remainder of up to half, and one recv
    SCRATCH_BYTES = 256 << 10
    KEPT_BATCH_BYTES = 128  # what a batch in memory costs beside its bytes: a membatch_t


cdef size_t membatch_bytes(membatch_t* batch) noexcept:
    return batch.lengths.length + batch.bodies.length + batch.trailer.length + KEPT_BATCH_BYTES


cdef size_t held_bytes(membatch_t* batch) noexcept:
    return batch.lengths.capacity + batch.bodies.capacity + batch.trailer.capacity


cdef bint buf_fit(buf_t* buf, const buf_t* source) noexcept:
    """A copy with no more memory than it needs. False when there is not even that."""
    buf_init(buf)
    if source.length:
        buf.data = <u8*>malloc(source.length)
        if buf.data == NULL:
            return False
        memcpy(buf.data, source.data, source.length)
        buf.length = buf.capacity = source.length
    return True


cdef inline void view_batch(const membatch_t* batch, view_t* out) noexcept:
    out.base_offset = batch.base_offset
    out.base_id = batch.base_id
    out.timestamp_ns = batch.timestamp_ns
    out.count = batch.count
    out.bodies_length = <u32>batch.bodies.length
    out.lengths = batch.lengths.data
    out.bodies = batch.bodies.data
    out.trailer, out.trailer_length = NULL, 0
    if batch.trailer.length >= 8:  # less is padding
        out.trailer, out.trailer_length = batch.trailer.data, batch.trailer.length


cdef void free_batch(membatch_t* batch) noexcept:
    buf_free(&batch.lengths)
    buf_free(&batch.bodies)
    buf_free(&batch.trailer)
    free(batch)


cdef class Hub:
    cdef list dirty_tails, handed, settled, unstalled, pumps, ready
    cdef list outputs, interests, journals, active, shorts, searches, detached
    cdef list events
    cdef Trace trace
    cdef dict routes  # topic -> Route
    cdef i64 mono_ns, wall_ns
    cdef i64 polled_ns  # mono: when the turn began to read
    cdef i64 wall_ahead_ns  # of the wall clock, before mono
    cdef i64 message_bytes_max, body_bytes_max, rdy_count_max
    cdef i64 line_bytes_max, batch_bytes_max, output_bytes_max, input_bytes_max
    cdef buf_t receive  # one recv lands here; a connection's remainder is put in front
    cdef buf_t scratch  # frames on their way to one socket
    cdef buf_t pieces, keys  # of one PUB_EXT or MPUB_EXT (extended.pxi)
    cdef list spare_labels
    cdef membatch_t** pool
    cdef u32 pool_count
    cdef i64 held_bytes_max, held_bytes  # input of all connections, but for what is small
    cdef i64 held_small_bytes
    cdef size_t memory_bytes, memory_bytes_max  # committed batches of all tails together
    cdef size_t recent_bytes_max  # of one tail, kept though no window waits for it
    cdef u64 sent_count, sent_before  # messages: now, and before the last round
    cdef u64 round  # of deliveries to connections with several windows
    cdef u32 shared_count  # such connections
    cdef u32 window_number  # of the newest window
    cdef u64 seed  # of what is drawn for sampled consumers

    def __cinit__(self):
        self.dirty_tails, self.settled, self.pumps, self.ready = [], [], [], []
        self.outputs, self.interests, self.journals, self.active = [], [], [], []
        self.events, self.handed, self.unstalled, self.shorts = [], [], [], []
        self.detached, self.searches, self.spare_labels = [], [], []
        self.routes = {}
        self.trace = Trace()
        self.line_bytes_max = limits.LINE_BYTES_MAX
        self.batch_bytes_max = limits.BATCH_BYTES_MAX
        self.output_bytes_max = limits.UNSENT_BYTES_MAX
        self.input_bytes_max = limits.STUCK_INPUT_BYTES_MAX
        self.held_bytes_max = limits.INPUT_BYTES_MAX
        self.held_small_bytes = limits.INPUT_SMALL_BYTES
        self.memory_bytes_max = limits.SHARED_MEMORY_BYTES_MAX
        self.recent_bytes_max = limits.RECENT_MEMORY_BYTES_MAX
        buf_init(&self.receive)
        buf_init(&self.scratch)
        buf_init(&self.pieces)
        buf_init(&self.keys)
        buf_reserve(&self.receive, RECEIVE_BYTES)
        buf_reserve(&self.scratch, SCRATCH_BYTES)
        self.pool = <membatch_t**>calloc(POOL_COUNT_MAX, sizeof(membatch_t*))
        if self.pool == NULL:
            raise MemoryError("no memory for the pool of batch buffers")

    def __dealloc__(self):
        cdef u32 i
        if self.pool != NULL:
            for i in range(self.pool_count):
                free_batch(self.pool[i])
            free(self.pool)
        buf_free(&self.receive)
        buf_free(&self.scratch)
        buf_free(&self.pieces)
        buf_free(&self.keys)

    cdef i64 now_ns(self) noexcept:
        """The wall clock, as far as this turn knows it."""
        return max(self.wall_ns, self.polled_ns + self.wall_ahead_ns)

    cdef membatch_t* take_batch(self) except NULL:
        """The buffers used last come first: they are still in the cache."""
        cdef membatch_t* batch
        if self.pool_count:
            self.pool_count -= 1
            batch = self.pool[self.pool_count]
        else:
            batch = <membatch_t*>calloc(1, sizeof(membatch_t))
            if batch == NULL:
                raise MemoryError("no memory for a batch")
        return batch

    cdef void give_batch(self, membatch_t* batch) noexcept:
        cdef bint too_large = held_bytes(batch) > POOL_BATCH_BYTES_MAX
        if self.pool_count == POOL_COUNT_MAX or too_large or batch.fitted:
            free_batch(batch)
            return
        batch.count = 0
        batch.lengths.length = batch.bodies.length = batch.trailer.length = 0
        self.pool[self.pool_count] = batch
        self.pool_count += 1

    cdef Labels take_labels(self):
        return self.spare_labels.pop() if self.spare_labels else Labels()

    cdef int give_labels(self, Labels labels) except -1:
        if (len(self.spare_labels) < SPARE_LABELS_MAX
                and labels.held_bytes() <= POOL_BATCH_BYTES_MAX):
            labels.clear()
            self.spare_labels.append(labels)
        return 0

    cdef membatch_t* fit_batch(self, membatch_t* batch) noexcept:
        """The same batch, to be kept. A small one in large buffers gets some of its size, and these
        go back to the pool: else a topic with little traffic would hoard, batch by batch, the warm
        buffers of one with much."""
        cdef membatch_t* small
        cdef bint whole
        if held_bytes(batch) <= FIT_SLACK_BYTES + FIT_FACTOR * membatch_bytes(batch):
            return batch
        small = <membatch_t*>calloc(1, sizeof(membatch_t))
        if small == NULL:
            return batch
        small[0] = batch[0]
        small.fitted = True
        whole = buf_fit(&small.lengths, &batch.lengths)
        whole = buf_fit(&small.bodies, &batch.bodies) and whole
        whole = buf_fit(&small.trailer, &batch.trailer) and whole
        if not whole:
            free_batch(small)
            return batch
        self.give_batch(batch)
        return small


# The newest committed batches of one partition: a ring, oldest first, bounded in bytes.

# The collector does not clear it: a tail and its owner refer to each other, and `hub` would be gone
# before the batches can be given back to it.
@cython.no_gc_clear
cdef class Memory(Named):
    cdef Hub hub
    cdef readonly bytes topic
    cdef readonly i64 committed_end
    cdef bint _handing  # its windows get what is committed
    cdef membatch_t** ring
    cdef u32 ring_head, ring_count, ring_capacity
    cdef size_t memory_bytes, memory_bytes_max
    cdef i64 trailer_end  # of the newest batch in memory that has a trailer

    def __cinit__(self, Hub hub not None, bytes topic not None, i64 start, size_t memory_bytes_max,
                  int partition):
        self.hub = hub
        self.topic = topic
        self.committed_end = start
        self.memory_bytes_max = memory_bytes_max

    def __dealloc__(self):
        cdef u32 i
        if self.hub is not None:
            for i in range(self.ring_count):
                self.hub.give_batch(self.ring[(self.ring_head + i) & (self.ring_capacity - 1)])
            self.hub.memory_bytes -= self.memory_bytes
        free(self.ring)

    @property
    def memory_start(self):
        if self.ring_count:
            return self.ring[self.ring_head & (self.ring_capacity - 1)].base_offset
        return self.committed_end

    cdef int grow_ring(self) except -1:
        """Room for one more batch."""
        if self.ring_count == self.ring_capacity:
            self.ring = <membatch_t**>grown_ring(
                self.ring, sizeof(membatch_t*), &self.ring_head, &self.ring_capacity, 8,
                "the ring of batches")
        return 0

    cdef int keep(self, membatch_t* batch) except -1:
        """Put a committed batch into the ring, which has room, and drop the oldest beyond the
        bounds."""
        cdef size_t size
        batch = self.hub.fit_batch(batch)
        size = membatch_bytes(batch)
        self.ring[(self.ring_head + self.ring_count) & (self.ring_capacity - 1)] = batch
        self.ring_count += 1
        self.memory_bytes += size
        self.hub.memory_bytes += size
        if batch.trailer.length >= 8:
            self.trailer_end = batch.base_offset + batch.count
        while self.ring_count > 1 and (
            self.memory_bytes > self.memory_bytes_max
            or (not self._handing and self.memory_bytes > self.hub.recent_bytes_max)
            or self.hub.memory_bytes > self.hub.memory_bytes_max
        ):
            self.drop_oldest()
        return 0

    cdef int drop_oldest(self) except -1:
        cdef membatch_t* batch = self.ring[self.ring_head & (self.ring_capacity - 1)]
        cdef size_t size = membatch_bytes(batch)
        self.ring_head = (self.ring_head + 1) & (self.ring_capacity - 1)
        self.ring_count -= 1
        self.memory_bytes -= size
        self.hub.memory_bytes -= size
        self.hub.give_batch(batch)
        return 0

    def rest(self):
        """While idle: drop batches as long as all tails together hold more than their bound."""
        while self.ring_count and self.hub.memory_bytes > self.hub.memory_bytes_max:
            self.drop_oldest()

    cdef int trim(self, i64 below_offset) except -1:
        """Drop batches wholly below an offset, which all who read at this end have read; the most
        recent stay for those who want them again. So a buffer is used anew while in the cache."""
        cdef membatch_t* batch
        while self.ring_count > 1 and self.memory_bytes > self.hub.recent_bytes_max:
            batch = self.ring[self.ring_head & (self.ring_capacity - 1)]
            if batch.base_offset + batch.count > below_offset:
                break
            self.drop_oldest()
        return 0

    cdef bint view(self, i64 offset, view_t* out) noexcept:
        """The batch in memory that holds `offset`, by binary search over the ring."""
        cdef u32 low = 0, high = self.ring_count, middle
        cdef u32 mask = self.ring_capacity - 1
        if high == 0 or offset >= self.committed_end:
            return False
        if offset < self.ring[self.ring_head & mask].base_offset:
            return False
        while high - low > 1:
            middle = (low + high) >> 1
            if self.ring[(self.ring_head + middle) & mask].base_offset <= offset:
                low = middle
            else:
                high = middle
        view_batch(self.ring[(self.ring_head + low) & mask], out)
        return True

    cdef int validate_memory(self) except -1:
        cdef u32 i
        cdef membatch_t* batch
        cdef i64 expected = self.memory_start
        cdef size_t memory = 0
        for i in range(self.ring_count):
            batch = self.ring[(self.ring_head + i) & (self.ring_capacity - 1)]
            if batch.base_offset != expected or batch.lengths.length != 4 * batch.count:
                raise RuntimeError(f"{self.topic!r}: batch at {batch.base_offset} is out of place")
            expected += batch.count
            memory += membatch_bytes(batch)
        if expected != self.committed_end or memory != self.memory_bytes:
            raise RuntimeError(f"{self.topic!r}: memory ring does not add up")
        return 0


# Sealed batches of one tail, in order: the queue between its committed and its written end.
#
# An entry is what is known of a batch until it is committed or has failed. The queue is a list, as
# it is short and changes once a batch.

cdef class Sealed:
    cdef membatch_t* batch  # owned; NULL once it is committed or has failed
    cdef u64 serial  # of the open batch that it was; entries of connections name it. 0: of none
    cdef list waiters, publishers

    def __dealloc__(self):
        if self.batch != NULL:
            free_batch(self.batch)

    cdef membatch_t* take(self) noexcept:
        """The batch, which is now the caller's."""
        cdef membatch_t* batch = self.batch
        self.batch = NULL
        return batch


cdef Sealed sealed_of(membatch_t* batch, u64 serial, list waiters, list publishers):
    cdef Sealed sealed = Sealed.__new__(Sealed)
    sealed.batch, sealed.serial = batch, serial
    sealed.waiters, sealed.publishers = waiters, publishers
    return sealed


cdef Py_ssize_t sealed_before(list queue, i64 start, i64 offset) except -1:
    """How many batches of a queue that begins at `start` end at or below `offset`, where a batch
    has to begin or the queue to end."""
    cdef Py_ssize_t count = 0
    cdef i64 end = start
    while end < offset and count < len(queue):
        end += (<Sealed>queue[count]).batch.count
        count += 1
    if end != offset:
        raise ValueError(f"no sealed batch ends or begins at {offset}")
    return count


cdef int sealed_validate(list queue, i64 start, i64 end) except -1:
    cdef Sealed sealed
    for sealed in queue:
        if sealed.batch.base_offset != start:
            raise RuntimeError(f"a sealed batch at {sealed.batch.base_offset}, not at {start}")
        start += sealed.batch.count
    if start != end:
        raise RuntimeError(f"the sealed batches end at {start}, not at {end}")
    return 0
