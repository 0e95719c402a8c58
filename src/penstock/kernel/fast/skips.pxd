"""Ranges ahead of a cursor that it steps over, sorted and apart from each other.

They are added at any place, mostly at the end, and taken from the front: both cost no more with
many of them, because delayed messages behind a backlog are a range each."""

from penstock.kernel.fast.buffer cimport buf_t
from penstock.kernel.fast.types cimport i64, u32

cdef struct range_t:
    i64 start
    i64 end

cdef class Skips:
    cdef range_t* ranges
    cdef u32 first, count, capacity  # what lies before `first` is taken
    cdef readonly i64 start  # of the first range, or a number that no offset reaches
    cdef readonly i64 total  # offsets

    cdef u32 at(self, i64 offset) noexcept
    cdef bint has(self, i64 offset) noexcept
    cdef i64 below(self, i64 end) noexcept
    cdef int add(self, i64 start, i64 end) except -1
    cdef int insert(self, u32 at, i64 start, i64 end) except -1
    cdef int make_room(self) except -1
    cdef i64 take_first(self) noexcept
    cdef void clear(self) noexcept
    cdef int write_all(self, buf_t* out, i64 least) except -1
    cdef int validate(self) except -1
