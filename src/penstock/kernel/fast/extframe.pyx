"""Between the id and the body of a frame (declared, and explained, in extframe.pxd)."""

from libc.string cimport memcpy

from penstock.kernel.fast.ring cimport consumer_t
from penstock.kernel.fast.frames cimport put_be16, put_be32, put_be64
from penstock.kernel.fast.sections cimport SECTION_HEADERS, SECTION_KEY
from penstock.kernel.fast.memory cimport view_t
from penstock.kernel.fast.trailer cimport Trailer
from penstock.kernel.fast.types cimport i64, u8, u32

cdef enum:
    EXT_NONE = 0
    EXT_KEY = 1
    EXT_JSON = 4
    VALUE_BYTES_MAX = 65535  # what the length field of the frame can say
    EXT_HEAD_BYTES = 3  # version and length
    PARTITION_BYTES = 2
    DETAIL_BYTES = 12
    LENGTH_BYTES = 4  # of a message in its batch


cdef void find_between(consumer_t* me, Trailer trailer, u32 index, between_t* out) noexcept:
    out.ext = NULL
    out.bytes = 0
    if me.enveloped or me.extended:
        find_ext(trailer, SECTION_HEADERS, EXT_JSON, index, out)
        if out.ext == NULL and me.enveloped:
            find_ext(trailer, SECTION_KEY, EXT_KEY, index, out)
        out.bytes = 1 if out.ext == NULL else EXT_HEAD_BYTES + out.ext_bytes
    if me.enveloped:
        out.bytes += PARTITION_BYTES
    if me.detailed:
        out.bytes += DETAIL_BYTES


cdef void find_ext(Trailer trailer, u32 section, u8 version, u32 index, between_t* out) noexcept:
    out.version, out.ext_bytes = version, 0
    if trailer is not None:
        out.ext = trailer.bytes_of(section, index, &out.ext_bytes)
    if out.ext_bytes == 0 or out.ext_bytes > VALUE_BYTES_MAX:
        out.ext = NULL


cdef void put_between(u8* at, consumer_t* me, Trailer trailer, between_t* between, view_t* view,
                      u32 index, u32 body_bytes) noexcept:
    cdef u32 stored_bytes = LENGTH_BYTES + body_bytes
    if me.enveloped:
        put_be16(at, between.partition)
        at += PARTITION_BYTES
    if me.enveloped or me.extended:
        if between.ext == NULL:
            at[0] = EXT_NONE
            at += 1
        else:
            at[0] = between.version
            put_be16(at + 1, between.ext_bytes)
            memcpy(at + EXT_HEAD_BYTES, between.ext, between.ext_bytes)
            at += EXT_HEAD_BYTES + between.ext_bytes
    if me.detailed:
        if trailer is not None:
            stored_bytes += <u32>trailer.stored_bytes(index)
        put_be64(at, view.base_offset + index)
        put_be32(at + 8, stored_bytes)
