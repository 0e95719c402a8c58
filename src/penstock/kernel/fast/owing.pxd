"""What a connection published, and which answers it is owed.

`owed` is a small FIFO: one entry for each run of publishes with one verb into one batch of one
tail."""

from penstock.kernel.fast.peer cimport Peer
from penstock.kernel.fast.tail cimport Tail
from penstock.kernel.fast.types cimport i64, u8, u32, u64

cdef enum:
    OWED_MAX = 64

cdef struct owed_t:
    void* tail  # a reference is held
    u64 serial
    u32 count
    u8 verb
    u8 outcome  # 0 pending, 1 stored, 2 failed

cdef class Owing(Peer):
    cdef bytes topic  # of the latest publish
    cdef i64 topic_count  # of messages to it that `published_counts` lacks
    cdef dict published_counts
    cdef owed_t* owed
    cdef u32 owed_head, owed_count

    cdef int settle(self, Tail tail, u64 serial, bint stored) except -1
    cdef int answer(self) except -1
    cdef int owe(self, Tail tail, int verb, u32 count) except -1
    cdef bint owes_here(self, Tail tail, int verb) noexcept
    cdef int count_published(self) except -1
