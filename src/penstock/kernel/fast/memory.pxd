"""The newest committed batches of one partition: a ring, oldest first, bounded in bytes.

`view_t` is how delivery looks at a batch, wherever it is: in this ring or in a block read from a
file."""

from penstock.kernel.fast.hub cimport Hub, membatch_t
from penstock.kernel.fast.trace cimport Named
from penstock.kernel.fast.types cimport i64, u8, u32, u64

cdef struct view_t:
    i64 base_offset
    u64 base_id
    i64 timestamp_ns
    u32 count
    u32 bodies_length
    const u8* lengths
    const u8* bodies
    const u8* trailer
    size_t trailer_length

cdef class Memory(Named):
    cdef Hub hub
    cdef readonly bytes topic
    cdef readonly i64 committed_end
    cdef bint _handing  # its windows get what is committed
    cdef membatch_t** ring
    cdef u32 ring_head, ring_count, ring_capacity
    cdef size_t memory_bytes, memory_bytes_max
    cdef i64 trailer_end  # of the newest batch in memory that has a trailer

    cdef int grow_ring(self) except -1
    cdef int keep(self, membatch_t* batch) except -1
    cdef int drop_oldest(self) except -1
    cdef int trim(self, i64 below_offset) except -1
    cdef bint view(self, i64 offset, view_t* out) noexcept
    cdef int validate_memory(self) except -1
