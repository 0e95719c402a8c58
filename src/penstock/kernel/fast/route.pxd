"""A topic's tails, and which of them takes the next publish that names no partition.

All publishes of a turn go to one tail, so that they share one batch and one write. When its open
batch is sealed the route moves on to the next number, so that rows are spread over the partitions.
Large rows stay with a tail for some more of them: a log costs most where one begins with it again,
with buffers, pages and syncs that others have pushed out meanwhile. How much that is, and how long,
is bounded, so that bytes are spread as well.

A tail that refuses is passed by, and one that has as many sealed batches as it may is taken only
where all are like that: its open batch would wait for them. When another tail can write before
that, the route goes on to it.

Nothing tells the route of a seal: it compares the number of the open batch with the one it chose.

A key decides on the partition of its messages, for good: by its hash, modulo a number that is fixed
when the topic is made, however many partitions it gets later.
"""

from penstock.kernel.fast.tail cimport Tail
from penstock.kernel.fast.types cimport i64, u8, u32, u64

cdef enum:
    ANY_PARTITION = -1  # none is named, or -1
    NO_PARTITION = -2  # a number that none can have

cdef class Route:
    cdef list tails  # by number
    cdef Tail current  # None: there is none, and `forgotten` says so
    cdef u64 serial  # of the open batch that `current` gathers, as far as the route knows
    cdef i64 rows  # that `current` has got since it was chosen
    cdef i64 bytes_before  # of bodies, that had come to it before
    cdef i64 until_ns  # mono: then it has had its time
    cdef Tail only  # when there is one tail; else None
    cdef u32 hash_partitions  # by which keys are spread; 0: as many as there are tails
    cdef bint extended  # its messages may have any headers
    cdef bint placed  # publishes must name a partition or a key
    cdef bint forgotten  # no tail is left: connections must look the topic up again

    cdef int add(self, Tail tail) except -1
    cdef int remove(self, Tail tail) except -1
    cdef Tail find(self, i64 partition)
    cdef i64 place_of_key(self, const u8* key, size_t size) noexcept
    cdef Tail pick(self, u32 count)
    cdef Tail take(self, Tail tail)
    cdef Tail begin_row(self, Tail tail)
    cdef bint goes_on(self, Tail tail) noexcept
    cdef Tail choose(self, u32 count, bint stays)

cdef inline bint accepts(Tail tail, u32 count) noexcept:
    """May so many messages be published to it now? For each publish, so it is inlined."""
    return not tail.refusing and (tail.append_end_max == 0 or tail.has_room(count))

cdef i64 partition_of(const u8* text, size_t size, size_t* length) noexcept
