from penstock.kernel._codec cimport i64, u32, u64, u8

# What the trailer of a batch says of its messages, for a reader that goes along the batch.
#
# `batch.pxi` walks and checks a trailer, which takes as long as the trailer is. A reader does so
# once for a batch. Then each section is a *spot*: where its table stands, and how far in it the
# reader has come, so that going on to the next message costs a comparison for each section. Going
# back begins at the front.
#
# Positions count from the trailer's beginning, not from an address: a batch is read on from
# wherever it is by then.

cdef struct special_t:
    bint own_id
    u64 id
    u64 trace_id
    i64 timestamp_ns
    i64 due_ns
    i64 attempts

cdef struct spot_t:
    u32 type
    u32 entries
    size_t indexes, values, blob
    u32 at  # the entry that the reader has come to
    size_t position  # of its value in the blob

cdef class Trailer:
    cdef i64 base_offset  # of the batch; -1: of none yet
    cdef const u8* data
    cdef u32 count  # of messages
    cdef spot_t* spots
    cdef u32 spot_count, spot_capacity

    cdef int open(self, view_t* view) except -1
    cdef int add(self, spot_t* spot) except -1
    cdef bint seek(self, spot_t* spot, u32 index) noexcept
    # the first message from `index` on that is not sent just as if there were no trailer
    cdef u32 special_from(self, u32 index) noexcept
    cdef void find(self, view_t* view, u32 index, special_t* out) noexcept
    # a value of bytes; NULL: the message has none
    cdef const u8* bytes_of(self, u32 type, u32 index, u32* size) noexcept
    # what all sections together hold for a message
    cdef u64 stored_bytes(self, u32 index) noexcept

cdef void nothing_special(view_t* view, u32 index, special_t* out) noexcept
cdef void note_special(special_t* out, u32 type, i64 value) noexcept


# A run of whole sound batches read from a file, looked at like a tail's memory.
#
# The caller has checked every crc. The Python buffer is kept, not copied, until the block is
# replaced.

cdef class Block:
    cdef object keeper
    cdef const u8* data
    cdef size_t size
    cdef Py_buffer buffer
    cdef bint held
    cdef list starts  # positions of the batches
    cdef i64 first_offset, end_offset

    cdef int release(self) except -1
    cdef bint view(self, i64 offset, view_t* out) except -1
