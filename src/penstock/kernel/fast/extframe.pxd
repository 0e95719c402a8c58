"""What stands between the id and the body in frames of a client that asked for more.

    enveloped  partition u16 BE, and then as for an extended one; but a message with a key and
               without headers has extver 1, length u16 BE and the key
    extended   extver u8: 4 with headers, and then length u16 BE and the JSON object; else 0
    detailed   offset i64 BE, bytes stored u32 BE (a message's own, as a traced publish tells them)

An extended client of an extended topic gets the second, SUB_ADVANCED and SUB_ORDERED the third,
behind the headers. The first is for clients that ask for an `envelope`, on any topic.
"""

from penstock.kernel.fast.ring cimport consumer_t
from penstock.kernel.fast.memory cimport view_t
from penstock.kernel.fast.trailer cimport Trailer
from penstock.kernel.fast.types cimport i64, u8, u32

cdef struct between_t:
    int partition
    u8 version  # of `ext`
    const u8* ext  # headers or key; NULL: none
    u32 ext_bytes
    u32 bytes  # of all that stands between

cdef inline bint is_long_for(consumer_t* me) noexcept:
    """Is there anything between id and body?"""
    return me.extended or me.detailed or me.enveloped

# `out.partition` is the caller's
cdef void find_between(consumer_t* me, Trailer trailer, u32 index, between_t* out) noexcept
# `at` has room for `between.bytes`
cdef void put_between(u8* at, consumer_t* me, Trailer trailer, between_t* between, view_t* view,
                      u32 index, u32 body_bytes) noexcept
