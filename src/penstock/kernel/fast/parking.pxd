"""Delayed messages become strays when they are handed to a channel, wherever its cursor stands:
they are deferred, and no part of the depth.

Those in memory are parked by the pump. What was handed over and is in the log alone has to be
searched: the window says from where to where, the broker reads it, and `search` parks what it
finds. So are those in memory that have an id of their own, for what they are a copy of may come
before them, and those for which there is no room (beyond.pxd).
"""

from penstock.kernel.fast.hub cimport Hub
from penstock.kernel.fast.memory cimport view_t
from penstock.kernel.fast.trailer cimport Trailer, special_t
from penstock.kernel.fast.types cimport i64, u32, u64
from penstock.kernel.fast.window cimport Window

# of the batch that the cursor is in; None: it has none
cdef Trailer trailer_ahead(Window window, view_t* view)
cdef Trailer trailer_of_stray(Window window, view_t* view)
cdef int delay_next(Window window, special_t* special, u64 key) except -1
cdef int register_delayed(Window window, Hub hub) except -1
cdef int search_block(Window window, object buffer, i64 end, u64 ids_from) except -1
