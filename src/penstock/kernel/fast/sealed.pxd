"""Sealed batches of one tail, in order: the queue between its committed and its written end.

An entry is what is known of a batch until it is committed or has failed. The queue is a list, as it
is short and changes once a batch."""

from penstock.kernel.fast.hub cimport membatch_t
from penstock.kernel.fast.types cimport i64, u64

cdef class Sealed:
    cdef membatch_t* batch  # owned; NULL once it is committed or has failed
    cdef u64 serial  # of the open batch that it was; entries of connections name it. 0: of none
    cdef list waiters, publishers

    cdef membatch_t* take(self) noexcept

cdef Sealed sealed_of(membatch_t* batch, u64 serial, list waiters, list publishers)
cdef Py_ssize_t sealed_before(list queue, i64 start, i64 offset) except -1
cdef int sealed_validate(list queue, i64 start, i64 end) except -1
