"""Growable byte buffers, Python's bytes for C, and a piece of C memory for Python.

`buf_t` is the only container of bytes in the kernel. Live bytes are `data[start:length]`; `start`
moves forward as bytes are taken from the front, and `buf_compact` brings the rest to the front
again."""

from penstock.kernel.fast.types cimport u8

cdef struct buf_t:
    u8* data
    size_t start
    size_t length
    size_t capacity

cdef void buf_init(buf_t* buf) noexcept
cdef void buf_free(buf_t* buf) noexcept
cdef int buf_reserve(buf_t* buf, size_t extra) except -1
cdef int buf_append(buf_t* buf, const void* data, size_t size) except -1
cdef void buf_compact(buf_t* buf) noexcept
cdef void buf_take(buf_t* buf, size_t size) noexcept

# Bytes that Python lent: they stay where they are while this lives.
cdef class Lent:
    cdef Py_buffer buffer
    cdef const u8* data  # an address even where there are no bytes
    cdef size_t size

cdef Lent lent_by(object owner)

cdef class Span:
    cdef u8* data
    cdef Py_ssize_t size
    cdef object keeper

cdef Span span_of(u8* data, Py_ssize_t size, object keeper)
