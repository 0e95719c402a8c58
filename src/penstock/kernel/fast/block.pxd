"""A run of whole sound batches read from a file, looked at like a tail's memory.

The caller has checked every crc. The Python buffer is kept, not copied, until the block is
replaced."""

from penstock.kernel.fast.memory cimport view_t
from penstock.kernel.fast.types cimport i64, u8

cdef class Block:
    cdef object keeper
    cdef const u8* data
    cdef size_t size
    cdef Py_buffer buffer
    cdef bint held
    cdef list starts  # positions of the batches
    cdef i64 first_offset, end_offset

    cdef int release(self) except -1
    cdef bint view(self, i64 offset, view_t* out) except -1
