"""What a connection published, and which answers it is owed.

`owed` is a small FIFO. An entry counts publishes with one verb, and names a batch that they wait
for. Answers keep the order of commands, so a publish also waits for all batches named before it: an
entry is needed only for a batch that no unanswered publish waits for yet. A publish into several
batches has entries with a count of 0 for all but the last."""

from penstock.kernel.fast.peer cimport Peer
from penstock.kernel.fast.tail cimport Tail
from penstock.kernel.fast.types cimport i64, u8, u32, u64

cdef enum:
    OWED_MAX = 64  # a power of 2

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
    cdef u32 owed_head, owed_count, owed_capacity

    cdef int settle(self, Tail tail, u64 serial, bint stored) except -1
    cdef int answer(self) except -1
    cdef owed_t* owed_at(self, u32 place) noexcept
    cdef bint owes_to(self, Tail tail) noexcept
    cdef bint may_owe(self, Tail tail, int verb) noexcept
    cdef int owe(self, Tail tail, int verb) except -1
    cdef int push_owed(self, Tail tail, int verb, u32 count) except -1
    cdef int grow_owed(self) except -1
    cdef int count_published(self) except -1
