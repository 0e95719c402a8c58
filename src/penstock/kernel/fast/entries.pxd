"""Entries of the channel journal (docs/formats.md), 32 bytes each."""

from penstock.kernel.fast.buffer cimport buf_t

cdef enum:
    ENTRY_CURSOR = 1
    ENTRY_FINISHED = 2
    ENTRY_STRAY = 3
    ENTRY_GONE = 4
    ENTRY_RESET = 5

cdef int add_entry(buf_t* out, int kind, int state, int attempts, long long a, long long b,
                   unsigned long long id) except -1
