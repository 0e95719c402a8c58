# crc32c (Castagnoli, reflected), see crc32c.pyx.
#
# `value` and the result are finished checksums: crc32c_update(crc(a), b) == crc(a + b), and the
# checksum of nothing is 0.

cdef unsigned int crc32c_update(
    unsigned int value, const unsigned char* data, size_t length
) noexcept nogil
