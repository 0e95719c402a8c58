"""What a consumer wants to see of a topic with headers (declared in filters.pxd)."""

from libc.stdlib cimport calloc, free

from penstock.kernel.fast.member cimport find_member, is_true, text_is, text_t
from penstock.kernel.fast.sections cimport SECTION_HEADERS
from penstock.kernel.fast.trailer cimport Trailer
from penstock.kernel.fast.types cimport u8, u32

from penstock.kernel.pure.filters import text_of

cdef const u8* TEST = b"zan_test"
cdef enum:
    TEST_BYTES = 8


cdef bint is_test(Trailer trailer, u32 index) except -1:
    cdef u32 size = 0
    cdef const u8* headers = NULL
    if trailer is not None:
        headers = trailer.bytes_of(SECTION_HEADERS, index, &size)
    return headers != NULL and is_true(headers, size, TEST, TEST_BYTES)


cdef class Sieve:
    def __cinit__(self, object filter not None):
        cdef bytes name, value
        self.keeper = filter
        self.every, self.inverse = filter.every, filter.inverse
        self.rules = <rule_t*>calloc(max(len(filter.rules), 1), sizeof(rule_t))
        if self.rules == NULL:
            raise MemoryError("no memory for a filter")
        for name, value, matches in filter.rules:
            self.rules[self.count].name, self.rules[self.count].name_bytes = name, len(name)
            self.rules[self.count].value, self.rules[self.count].value_bytes = value, len(value)
            self.rules[self.count].is_pattern = matches is not None
            self.rules[self.count].matches_empty = matches is not None and matches("")
            self.count += 1

    def __dealloc__(self):
        free(self.rules)

    cdef bint passes(self, Trailer trailer, u32 index) except -1:
        cdef u32 i, size = 0
        cdef const u8* headers = NULL
        if trailer is not None:
            headers = trailer.bytes_of(SECTION_HEADERS, index, &size)
        if headers == NULL or size == 0:
            return self.inverse
        for i in range(self.count):
            if self.matches(i, headers, size) != self.every:
                return self.every == self.inverse
        return self.every != self.inverse

    cdef bint matches(self, u32 place, const u8* headers, u32 size) except -1:
        cdef rule_t* rule = &self.rules[place]
        cdef text_t value
        cdef object text
        if not find_member(headers, size, rule.name, rule.name_bytes, &value):
            return rule.matches_empty
        if not rule.is_pattern:
            return text_is(&value, rule.value, rule.value_bytes)
        text = text_of(<bytes>value.data[:value.size])
        return self.keeper.rules[place].matches(text)
