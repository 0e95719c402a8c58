"""Which consumers a message is for, where some have a tag.

A message names its tag in the header `##client_dispatch_tag`. While a consumer of the channel has
that tag, only such consumers get the message; else it is for those without a tag, as are messages
that name none. So the consumers fall into *classes*, one for each tag and the first for those
without, and a message belongs to one of them.

What a consumer's turn comes upon and belongs to another class is put aside: it is a waiting stray
(not finished: it counts, it is journalled, retention keeps it) in the queue of its class. What is
in the queue of all (`Strays.waiting`) has not been looked at; the first consumer that comes upon
one of those moves it to its class, unless it is its own. When a class comes or goes, a message may
belong to another: then all queues are one again, in the order in which they began to wait.
"""

from penstock.kernel.fast.buffer cimport buf_t
from penstock.kernel.fast.strays cimport Strays
from penstock.kernel.fast.trailer cimport Trailer
from penstock.kernel.fast.types cimport u8, u32

cdef enum:
    NO_TAG = 0  # the first class
    TAG_BYTES_MAX = 100

cdef struct class_t:
    u8 tag[TAG_BYTES_MAX]
    u32 tag_bytes
    u32 consumers  # of one with a tag
    buf_t waiting  # turn_t

cdef class Tags:
    cdef class_t* classes
    cdef u32 count, capacity

    cdef int add(self, const u8* tag, u32 size) except -1
    cdef u32 find(self, const u8* tag, u32 size) noexcept  # NO_TAG when no consumer has it
    cdef u32 class_of(self, Trailer trailer, u32 index) noexcept
    cdef int join(self, Strays strays, const u8* tag, u32 size) except -1
    # is a tag left?
    cdef bint leave(self, Strays strays, const u8* tag, u32 size) except -1
    cdef int gather(self, Strays strays) except -1
    cdef int sort_out(self, Strays strays, u32 place) except -1
    cdef void clear(self) noexcept
