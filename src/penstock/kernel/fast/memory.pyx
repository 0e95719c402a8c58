"""The newest committed batches of one partition (declared, and explained, in memory.pxd)."""

cimport cython
from libc.stdlib cimport calloc, free

from penstock.kernel.fast.hub cimport Hub, membatch_bytes, membatch_t
from penstock.kernel.fast.types cimport i64, u32


# The collector does not clear it: a tail and its owner refer to each other, and `hub` would be gone
# before the batches can be given back to it.
@cython.no_gc_clear
cdef class Memory(Named):
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
        cdef u32 i, capacity
        cdef membatch_t** ring
        if self.ring_count < self.ring_capacity:
            return 0
        capacity = self.ring_capacity * 2 if self.ring_capacity else 8
        ring = <membatch_t**>calloc(capacity, sizeof(membatch_t*))
        if ring == NULL:
            raise MemoryError("no memory for the ring of batches")
        for i in range(self.ring_count):
            ring[i] = self.ring[(self.ring_head + i) & (self.ring_capacity - 1)]
        free(self.ring)
        self.ring, self.ring_head, self.ring_capacity = ring, 0, capacity
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
        cdef membatch_t* batch
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
        batch = self.ring[(self.ring_head + low) & mask]
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
