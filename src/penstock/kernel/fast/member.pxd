"""One member of a message's headers, which are a JSON object: pure/member.py has the rules.

Nothing is copied: a text is what stands between its quotes, and its escapes are resolved while it
is compared.
"""

from penstock.kernel.fast.types cimport i64, u8, u32

cdef struct text_t:
    const u8* data
    size_t size

cdef bint find_member(const u8* headers, size_t size, const u8* name, size_t name_bytes,
                      text_t* out) noexcept nogil
cdef bint is_true(const u8* headers, size_t size, const u8* name, size_t name_bytes) noexcept nogil
cdef bint text_is(const text_t* text, const u8* wanted, size_t size) noexcept nogil
