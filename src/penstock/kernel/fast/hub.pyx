"""Shared work lists, buffers and the pool of batch buffers (declared in hub.pxd)."""

from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from penstock.kernel.fast.buffer cimport buf_free, buf_init, buf_reserve, buf_t
from penstock.kernel.fast.labels cimport Labels
from penstock.kernel.fast.trace cimport Trace
from penstock.kernel.fast.types cimport i64, u8, u32, u64

from penstock import limits

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


cdef void free_batch(membatch_t* batch) noexcept:
    buf_free(&batch.lengths)
    buf_free(&batch.bodies)
    buf_free(&batch.trailer)
    free(batch)


cdef class Hub:
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
