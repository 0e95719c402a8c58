"""What a consumer wants to see of a topic with headers (filter_interface.py has the rules)."""

from penstock.kernel.fast.trailer cimport Trailer
from penstock.kernel.fast.types cimport u8, u32

cdef struct rule_t:
    const u8* name
    size_t name_bytes
    const u8* value
    size_t value_bytes
    bint is_pattern
    bint matches_empty  # a pattern: the value of a header that is not there

cdef bint is_test(Trailer trailer, u32 index) except -1  # of a load test, as its publisher says

cdef class Sieve:
    cdef rule_t* rules
    cdef u32 count
    cdef bint every, inverse
    cdef object keeper  # the Filter: the bytes that the rules point into, and the patterns

    cdef bint passes(self, Trailer trailer, u32 index) except -1
    cdef bint matches(self, u32 place, const u8* headers, u32 size) except -1
