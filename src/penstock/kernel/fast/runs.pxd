"""Which ids the offsets of a window's ring have.

One run for each piece of a batch delivered in order: (first id, first offset, count). Ids and offsets
both rise along a log, so the runs are sorted by both; a FIN finds its offset by arithmetic in the run
that the last one fell into, or by binary search. Runs are dropped from the front as `low` passes them.
"""

cdef struct run_t:
    unsigned long long first_id
    long long first_offset
    unsigned int count

cdef class Runs:
    cdef run_t* runs
    cdef unsigned int head, count, capacity, hint

    cdef int add(self, unsigned long long first_id, long long first_offset, unsigned int count) except -1
    cdef void trim(self, long long low) noexcept
    cdef void clear(self) noexcept
    cdef long long offset_of(self, unsigned long long id) noexcept
    cdef unsigned long long id_of(self, long long offset) noexcept
