"""What stands between the id and the body in frames of a client that asked for more.

    extended   extver u8: 4 with headers, and then length u16 BE and the JSON object; else 0
    detailed   offset i64 BE, bytes stored u32 BE (a message's own, as a traced publish tells them)

An extended client of an extended topic gets the first, SUB_ADVANCED and SUB_ORDERED the second;
with both the headers come first.
"""

from penstock.kernel.fast.ring cimport consumer_t
from penstock.kernel.fast.memory cimport view_t
from penstock.kernel.fast.trailer cimport Trailer
from penstock.kernel.fast.types cimport i64, u8, u32

cdef struct between_t:
    const u8* headers  # NULL: none
    u32 headers_bytes
    u32 bytes  # of all that stands between

cdef void find_between(consumer_t* me, Trailer trailer, u32 index, between_t* out) noexcept
# `at` has room for `between.bytes`
cdef void put_between(u8* at, consumer_t* me, Trailer trailer, between_t* between, view_t* view,
                      u32 index, u32 body_bytes) noexcept
