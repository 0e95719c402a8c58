# Message ids as 16 hex digits, see hexid.pyx.

# Writes 16 lower-case digits.
cdef void id_encode(unsigned long long id, unsigned char* out16) noexcept nogil

# Reads 16 digits of either case. False, and `id` untouched, when one of them is no hex digit.
cdef bint id_decode(const unsigned char* in16, unsigned long long* id) noexcept nogil
