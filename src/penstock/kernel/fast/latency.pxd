"""How long messages took from their timestamp to their FIN: counts in buckets, one set a channel.

A bucket is a 32nd of a power of two, from 1 us (all below is bucket 0) to some 50 days, so its
middle is off by 1.6 % at most. `pure/latency.py` has the same in plain words.

FINs of the ring are not looked at one by one: at the end of a turn the finished ranges, which the
journal is made of, are laid over `runs`: what was delivered, from which batch, so with which
timestamp. Strays carry their timestamp themselves."""

from penstock.kernel.fast.types cimport i64, u32, u64

cdef enum:
    BUCKETS = 42 * 32 + 1

cdef struct delivered_t:
    i64 start
    i64 end
    i64 timestamp_ns

cdef class Latencies:
    cdef u64 counts[BUCKETS]
    cdef delivered_t* runs  # offsets rise; those below `head` are done with
    cdef u32 head, count, capacity

    cdef int delivered(self, i64 offset, i64 count, i64 timestamp_ns) except -1
    cdef u32 find(self, i64 offset) noexcept
    cdef i64 timestamp_of(self, i64 offset) noexcept
    cdef void finished(self, i64 start, i64 end, i64 wall_ns) noexcept
    cdef void note(self, i64 latency_ns, u64 count) noexcept
    cdef void trim(self, i64 low) noexcept
    cdef void clear(self) noexcept
    cdef dict take(self)
