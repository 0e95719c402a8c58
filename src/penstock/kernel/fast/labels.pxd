"""What the trailer of an open batch is to say of its messages: a table for each section.

A table's columns stand in C buffers as they go to disk. So a message with a key and headers makes
no Python object, and sealing copies each column once.
"""

from penstock.kernel.fast.buffer cimport buf_t
from penstock.kernel.fast.types cimport i64, u8, u32

cdef enum:
    TABLES = 7

cdef struct table_t:
    buf_t indexes  # u32 each, rising
    buf_t values  # integers: 8 bytes each; bytes: lengths, u32 each
    buf_t blob  # bytes: the values end to end

cdef class Labels:
    cdef table_t tables[TABLES]
    cdef size_t size  # of the entries

    cdef int put_integer(self, int section, u32 index, i64 value) except -1
    cdef int put_bytes(self, int section, u32 index, const u8* data, size_t size) except -1
    cdef int put(self, int section, u32 index, object value) except -1
    cdef int write(self, buf_t* out) except -1
    cdef void clear(self) noexcept
    cdef size_t held_bytes(self) noexcept

cdef int check_label(int section, object value) except -1
