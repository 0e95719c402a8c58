from penstock.kernel._codec cimport buf_t, i64, u32, u8

# One member of a message's headers, which are a JSON object.
#
# Headers are looked at, not checked: what publishes let in is checked by then, and dead letters and
# other writers may have members that are no strings. Such a one has no value here. When a name
# comes twice the last one counts. Where the text is no JSON object, as far as it has to be read to
# say so, there are no members.
#
# Nothing is copied: a text is what stands between its quotes, and its escapes are resolved while it
# is compared.

cdef struct text_t:
    const u8* data
    size_t size

cdef bint find_member(const u8* headers, size_t size, const u8* name, size_t name_bytes,
                      text_t* out) noexcept nogil
cdef bint is_true(const u8* headers, size_t size, const u8* name, size_t name_bytes) noexcept nogil
cdef bint text_is(const text_t* text, const u8* wanted, size_t size) noexcept nogil


# Which consumers a message is for, where some have a tag.
#
# A message names its tag in the header `##client_dispatch_tag`. While a consumer of the channel has
# that tag, only such consumers get the message; else it is for those without a tag, as are messages
# that name none. So the consumers fall into *classes*, one for each tag and the first for those
# without, and a message belongs to one of them.
#
# What a consumer's turn comes upon and belongs to another class is put aside: it is a waiting stray
# (not finished: it counts, it is journalled, retention keeps it) in the queue of its class. What is
# in the queue of all (`Strays.waiting`) has not been looked at; the first consumer that comes upon
# one of those moves it to its class, unless it is its own. When a class comes or goes, a message
# may belong to another: then all queues are one again, in the order in which they began to wait.

cdef enum:
    NO_TAG = 0  # the first class
    TAG_BYTES_MAX = 100

cdef struct class_t:
    u8 tag[TAG_BYTES_MAX]
    u32 tag_bytes
    u32 consumers  # of one with a tag
    buf_t waiting  # turn_t

cdef class Tags:
    cdef class_t* classes
    cdef u32 count, capacity

    cdef int add(self, const u8* tag, u32 size) except -1
    cdef u32 find(self, const u8* tag, u32 size) noexcept  # NO_TAG when no consumer has it
    cdef u32 class_of(self, Trailer trailer, u32 index) noexcept
    cdef int join(self, Strays strays, const u8* tag, u32 size) except -1
    # is a tag left?
    cdef bint leave(self, Strays strays, const u8* tag, u32 size) except -1
    cdef int gather(self, Strays strays) except -1
    cdef int sort_out(self, Strays strays, u32 place) except -1
    cdef void clear(self) noexcept


# What a consumer wants to see of a topic with headers (`Filter` in types.py has the rules).

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
