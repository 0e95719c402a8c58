"""The publishing half of a connection's commands: PUB and MPUB, from bytes to the open batch."""

from penstock.kernel.fast.owing cimport Owing
from penstock.kernel.fast.route cimport Route
from penstock.kernel.fast.tail cimport Tail
from penstock.kernel.fast.types cimport i64, u8, u32

cdef enum:
    MORE = -1  # not enough bytes yet

cdef inline u32 be32(const u8* p) noexcept:
    return (<u32>p[0] << 24) | (<u32>p[1] << 16) | (<u32>p[2] << 8) | p[3]

cdef class Publisher(Owing):
    cdef public set allowed
    cdef Route route  # of the topic; None: not known
    cdef i64 partition  # that the command names
    cdef Tail topic_tail  # the one that took it, or is to take it
    # how far an MPUB was walked, so that a long one is not walked again with each chunk
    cdef size_t walk_position
    cdef u32 walk_index
    cdef bint passing  # the publish at hand is refused: it is read, and not appended

    cdef Py_ssize_t parse_pub(self, const u8* data, size_t size, size_t line, size_t args) except -2
    cdef Py_ssize_t parse_mpub(self, const u8* data, size_t size, size_t line,
                               size_t args) except -2
    cdef int find_topic(self, const u8* name, size_t size) except -1
    cdef Py_ssize_t passed(self, size_t end) noexcept
    cdef int bad_partition(self, int verb, const u8* rest, size_t size) except -1
    cdef bint is_chosen(self) noexcept
    cdef int choose_tail(self, u32 count) except -1
    cdef bint needs_topic(self) except -1
    cdef int bad_pub(self, int verb, int reason, i64 a, i64 b) except -1
    cdef int hold(self) except -1
    cdef int topic_blocked(self, int verb) except -1
    cdef int tail_refuses(self, Tail tail, int verb, u32 count) except -1
    cdef int tail_stalls(self, Tail tail, int verb, i64 length) except -1
    cdef int publish_blocked(self, int verb, u32 count, i64 length) except -1
    cdef Py_ssize_t after(self, size_t consumed) noexcept
    cdef Py_ssize_t find_target(self, int verb, const u8* data, size_t line, size_t args) except -2
    cdef Py_ssize_t read_count(self, int verb, const u8* data, size_t size, size_t line,
                               u32* out) except -2
    cdef Py_ssize_t walk(self, const u8* data, size_t size, size_t line, u32 count) except -2

cdef bint name_is_valid(const u8* name, size_t size) noexcept
