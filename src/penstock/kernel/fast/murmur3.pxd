# MurmurHash3, the x86 variant with 32 bits. See murmur3.pyx.

from penstock.kernel.fast.types cimport u8, u32

cdef u32 murmur3_32_c(const u8* data, size_t size, u32 seed) noexcept nogil
