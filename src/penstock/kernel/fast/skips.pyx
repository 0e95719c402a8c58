"""Ranges ahead of a cursor (declared, and explained, in skips.pxd)."""

from libc.stdlib cimport free, realloc
from libc.string cimport memmove

from penstock.kernel.fast.buffer cimport buf_t
from penstock.kernel.fast.entries cimport ENTRY_FINISHED, add_entry
from penstock.kernel.fast.types cimport i64, u32

cdef enum:
    CAPACITY_MIN = 8
    CAPACITY_KEPT = 1024  # room for this many ranges is not given back

cdef i64 NEVER = <i64>0x7FFFFFFFFFFFFFFF


cdef class Skips:
    def __cinit__(self):
        self.start = NEVER

    def __dealloc__(self):
        free(self.ranges)

    cdef u32 at(self, i64 offset) noexcept:
        """The first range that ends at `offset` or behind it; the end of all if there is none."""
        cdef u32 low = self.first, high = self.first + self.count, middle
        while low < high:
            middle = (low + high) >> 1
            if self.ranges[middle].end < offset:
                low = middle + 1
            else:
                high = middle
        return low

    cdef bint has(self, i64 offset) noexcept:
        cdef u32 at = self.at(offset + 1)
        return at < self.first + self.count and self.ranges[at].start <= offset

    cdef i64 below(self, i64 end) noexcept:
        """How many offsets of them are below `end`."""
        cdef u32 at = self.first + self.count
        cdef i64 total = self.total
        while at > self.first and self.ranges[at - 1].end > end:
            at -= 1
            total -= self.ranges[at].end - max(end, self.ranges[at].start)
        return total

    cdef int add(self, i64 start, i64 end) except -1:
        """One more; what touches it or overlaps becomes one with it."""
        cdef u32 first, last, end_of_all = self.first + self.count
        if end <= start:
            return 0
        first = last = self.at(start)
        while last < end_of_all and self.ranges[last].start <= end:
            start, end = min(start, self.ranges[last].start), max(end, self.ranges[last].end)
            self.total -= self.ranges[last].end - self.ranges[last].start
            last += 1
        if first == last:
            self.insert(first, start, end)
        else:
            self.ranges[first].start, self.ranges[first].end = start, end
            memmove(&self.ranges[first + 1], &self.ranges[last],
                    (end_of_all - last) * sizeof(range_t))
            self.count -= last - first - 1
        self.total += end - start
        self.start = self.ranges[self.first].start
        return 0

    cdef int insert(self, u32 at, i64 start, i64 end) except -1:
        cdef u32 before = self.first
        if self.first + self.count == self.capacity:
            self.make_room()
            at -= before - self.first
        memmove(&self.ranges[at + 1], &self.ranges[at],
                (self.first + self.count - at) * sizeof(range_t))
        self.ranges[at].start, self.ranges[at].end = start, end
        self.count += 1
        return 0

    cdef int make_room(self) except -1:
        cdef u32 capacity = max(<u32>CAPACITY_MIN, 2 * self.capacity)
        cdef range_t* grown
        if self.first > self.count:
            memmove(self.ranges, &self.ranges[self.first], self.count * sizeof(range_t))
            self.first = 0
            return 0
        grown = <range_t*>realloc(self.ranges, capacity * sizeof(range_t))
        if grown == NULL:
            raise MemoryError("no memory for skipped ranges")
        self.ranges, self.capacity = grown, capacity
        return 0

    cdef i64 take_first(self) noexcept:
        """Its end; there must be one."""
        cdef range_t taken = self.ranges[self.first]
        self.first += 1
        self.count -= 1
        self.total -= taken.end - taken.start
        if self.count:
            self.start = self.ranges[self.first].start
        else:
            self.clear()
        return taken.end

    cdef void clear(self) noexcept:
        self.first = self.count = 0
        self.start, self.total = NEVER, 0
        if self.capacity > CAPACITY_KEPT:
            free(self.ranges)
            self.ranges, self.capacity = NULL, 0

    cdef int write_all(self, buf_t* out, i64 least) except -1:
        """As finished ranges of the journal, from `least` on."""
        cdef u32 i
        for i in range(self.first, self.first + self.count):
            add_entry(out, ENTRY_FINISHED, 0, 0, max(self.ranges[i].start, least),
                      self.ranges[i].end, 0)
        return 0

    cdef int validate(self) except -1:
        cdef u32 i
        cdef i64 total = 0, before = -1
        for i in range(self.first, self.first + self.count):
            if not before < self.ranges[i].start < self.ranges[i].end:
                raise RuntimeError(f"skip at {self.ranges[i].start} is out of order")
            before = self.ranges[i].end
            total += self.ranges[i].end - self.ranges[i].start
        if total != self.total:
            raise RuntimeError("skipped offsets do not add up")
        if self.start != (self.ranges[self.first].start if self.count else NEVER):
            raise RuntimeError(f"the first skip does not begin at {self.start}")
        return 0
