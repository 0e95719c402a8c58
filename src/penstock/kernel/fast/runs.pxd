"""Which ids the offsets of a window's ring have.

One run for each piece of a batch delivered in order: (first id, first offset, count). Ids and
offsets both rise along a log, so the runs are sorted by both; a FIN finds its offset by
arithmetic in the run that the last one fell into, or by binary search. Runs are dropped from the
front as `low` passes them."""

from penstock.kernel.fast.types cimport i64, u32, u64

cdef struct run_t:
    u64 first_id
    i64 first_offset
    u32 count

cdef class Runs:
    cdef run_t* runs
    cdef u32 head, count, capacity, hint

    cdef int add(self, u64 first_id, i64 first_offset, u32 count) except -1
    cdef void trim(self, i64 low) noexcept
    cdef void clear(self) noexcept
    cdef i64 offset_of(self, u64 id) noexcept
    cdef u64 id_of(self, i64 offset) noexcept
