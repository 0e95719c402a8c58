"""Which ids the offsets of a window's ring have (declared in runs.pxd)."""

from libc.stdlib cimport calloc, free

from penstock.kernel.fast.batch cimport id_at_c, id_index_c
from penstock.kernel.fast.types cimport i64, u32, u64


cdef class Runs:
    def __dealloc__(self):
        free(self.runs)

    cdef void trim(self, i64 low) noexcept:
        """Drop the runs wholly below `low`."""
        cdef run_t* run
        while self.count:
            run = &self.runs[self.head]
            if run.first_offset + run.count > low:
                break
            self.head = (self.head + 1) & (self.capacity - 1)
            self.count -= 1
            if self.hint:
                self.hint -= 1

    cdef void clear(self) noexcept:
        self.head = self.count = self.hint = 0

    cdef int add(self, u64 first_id, i64 first_offset, u32 count) except -1:
        cdef run_t* run
        cdef run_t* grown
        cdef u32 i, capacity
        if self.count:
            run = &self.runs[(self.head + self.count - 1) & (self.capacity - 1)]
            if (run.first_offset + run.count == first_offset
                    and id_at_c(run.first_id, run.count) == first_id):
                run.count += count
                return 0
        if self.count == self.capacity:
            capacity = self.capacity * 2 if self.capacity else 8
            grown = <run_t*>calloc(capacity, sizeof(run_t))
            if grown == NULL:
                raise MemoryError("no memory for runs")
            for i in range(self.count):
                grown[i] = self.runs[(self.head + i) & (self.capacity - 1)]
            free(self.runs)
            self.runs, self.head, self.capacity = grown, 0, capacity
        run = &self.runs[(self.head + self.count) & (self.capacity - 1)]
        run.first_id, run.first_offset, run.count = first_id, first_offset, count
        self.count += 1
        return 0

    cdef i64 offset_of(self, u64 id) noexcept:
        """Offset of an id that was delivered from the log's own ids, or -1."""
        cdef u32 mask = self.capacity - 1
        cdef u32 low = 0, high = self.count, middle
        cdef run_t* run
        cdef i64 index
        if high == 0:
            return -1
        if self.hint < high:
            run = &self.runs[(self.head + self.hint) & mask]
            index = id_index_c(run.first_id, run.count, id)
            if index >= 0:
                return run.first_offset + index
        while high - low > 1:
            middle = (low + high) >> 1
            if self.runs[(self.head + middle) & mask].first_id <= id:
                low = middle
            else:
                high = middle
        run = &self.runs[(self.head + low) & mask]
        index = id_index_c(run.first_id, run.count, id)
        if index < 0:
            return -1
        self.hint = low
        return run.first_offset + index

    cdef u64 id_of(self, i64 offset) noexcept:
        cdef u32 mask = self.capacity - 1
        cdef u32 low = 0, high = self.count, middle
        cdef run_t* run
        while high - low > 1:
            middle = (low + high) >> 1
            if self.runs[(self.head + middle) & mask].first_offset <= offset:
                low = middle
            else:
                high = middle
        run = &self.runs[(self.head + low) & mask]
        return id_at_c(run.first_id, offset - run.first_offset)
