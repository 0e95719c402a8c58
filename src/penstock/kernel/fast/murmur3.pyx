"""MurmurHash3, the x86 variant with 32 bits: which partition a key belongs to.

Clients that choose a partition for themselves compute the same hash, so its value is part of the
protocol and not only of this process: words are little-endian whatever the machine is.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

from penstock.kernel.fast.types cimport u8, u32


cdef inline u32 _turned(u32 word, int bits) noexcept nogil:
    return (word << bits) | (word >> (32 - bits))


cdef inline u32 _mixed(u32 word) noexcept nogil:
    return _turned(word * <u32>0xcc9e2d51, 15) * <u32>0x1b873593


cdef u32 murmur3_32_c(const u8* data, size_t size, u32 seed) noexcept nogil:
    cdef u32 value = seed, word
    cdef size_t at = 0, i
    while size - at >= 4:
        word = (data[at] | (<u32>data[at + 1] << 8) | (<u32>data[at + 2] << 16)
                | (<u32>data[at + 3] << 24))
        value = _turned(value ^ _mixed(word), 13) * 5 + <u32>0xe6546b64
        at += 4
    if at < size:
        word = 0
        for i in range(size - at):
            word |= <u32>data[at + i] << (8 * <u32>i)
        value ^= _mixed(word)
    value ^= <u32>size
    value = (value ^ (value >> 16)) * <u32>0x85ebca6b
    value = (value ^ (value >> 13)) * <u32>0xc2b2ae35
    return value ^ (value >> 16)


def murmur3_32(data, u32 seed=0):
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return murmur3_32_c(<const u8*>view.buf, view.len, seed)
    finally:
        PyBuffer_Release(&view)
