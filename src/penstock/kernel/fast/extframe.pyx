"""Between the id and the body of a frame (declared, and explained, in extframe.pxd)."""

from libc.string cimport memcpy

from penstock.kernel.fast.ring cimport consumer_t
from penstock.kernel.fast.frames cimport put_be16, put_be32, put_be64
from penstock.kernel.fast.sections cimport SECTION_HEADERS
from penstock.kernel.fast.memory cimport view_t
from penstock.kernel.fast.trailer cimport Trailer
from penstock.kernel.fast.types cimport i64, u8, u32

cdef enum:
    EXT_NONE = 0
    EXT_JSON = 4
    HEADERS_BYTES_MAX = 65535  # what the length field of the frame can say
    EXT_HEAD_BYTES = 3  # version and length
    DETAIL_BYTES = 12
    LENGTH_BYTES = 4  # of a message in its batch


cdef void find_between(consumer_t* me, Trailer trailer, u32 index, between_t* out) noexcept:
    out.headers = NULL
    out.headers_bytes = out.bytes = 0
    if me.extended:
        if trailer is not None:
            out.headers = trailer.bytes_of(SECTION_HEADERS, index, &out.headers_bytes)
        if out.headers_bytes == 0 or out.headers_bytes > HEADERS_BYTES_MAX:
            out.headers = NULL
        out.bytes = 1 if out.headers == NULL else EXT_HEAD_BYTES + out.headers_bytes
    if me.detailed:
        out.bytes += DETAIL_BYTES


cdef void put_between(u8* at, consumer_t* me, Trailer trailer, between_t* between, view_t* view,
                      u32 index, u32 body_bytes) noexcept:
    cdef u32 stored_bytes = LENGTH_BYTES + body_bytes
    if me.extended:
        if between.headers == NULL:
            at[0] = EXT_NONE
            at += 1
        else:
            at[0] = EXT_JSON
            put_be16(at + 1, between.headers_bytes)
            memcpy(at + EXT_HEAD_BYTES, between.headers, between.headers_bytes)
            at += EXT_HEAD_BYTES + between.headers_bytes
    if me.detailed:
        if trailer is not None:
            stored_bytes += <u32>trailer.stored_bytes(index)
        put_be64(at, view.base_offset + index)
        put_be32(at + 8, stored_bytes)
