"""The keys of one window that are busy: a table by their hash, with a row of messages for each.

A key is busy while a message holds it. What is behind it is a row of strays in the order of the
log, linked by their ids; here stand the first and the last. The table has the keys that are busy
now, so its size follows what is in flight and aside, however many keys there are.
"""

from penstock.kernel.fast.types cimport i64, u8, u32, u64

cdef struct busy_t:
    u64 key
    u64 first, last  # ids; 0: nothing is behind
    u64 exhausted  # the id of the last one that held it in this state
    u32 holders  # 0: a slot that is free
    bint is_crowded  # it is held since before there was this order, or by several

cdef class BusyKeys:
    cdef busy_t* table
    cdef u32 capacity, count

    cdef busy_t* find(self, u64 key) noexcept
    cdef busy_t* hold(self, u64 key) except NULL
    cdef bint take(self, u64 key) except -1
    cdef int grow(self) except -1
    cdef void remove(self, busy_t* busy) noexcept
    cdef void clear(self) noexcept

# never 0. Keys of one hash share an order.
cdef u64 hash_of_key(const u8* data, u32 size) noexcept
