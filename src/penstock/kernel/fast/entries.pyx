"""Entries of the channel journal (declared in entries.pxd)."""

from penstock.kernel.fast.buffer cimport buf_append, buf_t


cdef packed struct entry_t:
    unsigned char kind
    unsigned char state
    unsigned short attempts
    unsigned int reserved
    long long a
    long long b
    unsigned long long id


cdef int add_entry(buf_t* out, int kind, int state, int attempts, long long a, long long b,
                   unsigned long long id) except -1:
    cdef entry_t entry
    entry.kind, entry.state, entry.attempts = kind, state, attempts
    entry.reserved = 0
    entry.a, entry.b, entry.id = a, b, id
    return buf_append(out, &entry, sizeof(entry_t))
