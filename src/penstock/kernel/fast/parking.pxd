"""Delayed messages become strays when they are handed to a channel, wherever its cursor stands:
they are deferred, and no part of the depth.

Those in memory are parked by the pump. What was handed over and is in the log alone has to be
searched: the window says from where to where, the broker reads it, and `search` parks what it
finds. So are those in memory that have an id of their own, for what they are a copy of may come
before them, and those for which there is no room (beyond.pxd).
"""

from penstock.kernel.fast.hub cimport Hub
from penstock.kernel.fast.memory cimport view_t
from penstock.kernel.fast.types cimport i64, u32, u64
from penstock.kernel.fast.window cimport Window

cdef struct special_t:
    bint own_id
    u64 id
    u64 trace_id
    i64 timestamp_ns
    i64 due_ns
    i64 attempts

cdef void find_special(view_t* view, u32 index, special_t* out) noexcept
cdef int delay_next(Window window, special_t* special) except -1
cdef int register_delayed(Window window, Hub hub) except -1
cdef int search_block(Window window, object buffer, i64 end, u64 ids_from) except -1
