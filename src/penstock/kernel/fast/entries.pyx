"""Entries of the channel journal (declared in entries.pxd)."""

from penstock.kernel.fast.buffer cimport buf_append, buf_t
from penstock.kernel.fast.types cimport i64, u8, u16, u32, u64


cdef packed struct entry_t:
    u8 kind
    u8 state
    u16 attempts
    u32 reserved
    i64 a
    i64 b
    u64 id


cdef int add_entry(buf_t* out, int kind, int state, int attempts, i64 a, i64 b,
                   u64 id) except -1:
    cdef entry_t entry
    entry.kind, entry.state, entry.attempts = kind, state, attempts
    entry.reserved = 0
    entry.a, entry.b, entry.id = a, b, id
    return buf_append(out, &entry, sizeof(entry_t))
