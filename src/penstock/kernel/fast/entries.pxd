"""Entries of the channel journal (docs/formats.md), 32 bytes each."""

from penstock.kernel.fast.buffer cimport buf_t
from penstock.kernel.fast.types cimport i64, u64

cdef enum:
    ENTRY_CURSOR = 1
    ENTRY_FINISHED = 2
    ENTRY_STRAY = 3
    ENTRY_GONE = 4
    ENTRY_RESET = 5

cdef int add_entry(buf_t* out, int kind, int state, int attempts, i64 a, i64 b,
                   u64 id) except -1
