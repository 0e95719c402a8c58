r"""PUB_EXT and MPUB_EXT: publishes with headers, whose keys choose the partition of each message.

    PUB_EXT <topic> [partition]\n   [size] [headers size, 2 bytes] [headers] [body]
    MPUB_EXT <topic> [partition]\n  [total] [count] ([size] [headers size] [headers] [body]) x count

A command is looked at twice. First each message's place, partition and key are noted in a buffer
that all connections share (`piece_t`), and whatever is wrong is found. Then all are appended. So a
command is appended whole or not at all, though to several tails, and then it waits for all their
batches: it is answered once, and with an error when one of them was not stored.
"""

from penstock.kernel.fast.publisher cimport Publisher
from penstock.kernel.fast.tail cimport Tail
from penstock.kernel.fast.types cimport i64, u8, u32, u64

cdef enum:
    PLACES = 256  # numbers of partitions

cdef struct piece_t:
    size_t headers_at, body_at  # in the input
    size_t key_at  # in the buffer of keys
    u64 trace_id
    u32 headers_size, body_size, key_size
    u8 place  # the number of its partition
    bint has_key, has_trace

cdef struct spread_t:  # over which tails a command goes; the route holds them
    u32 counts[PLACES]  # of messages, by number
    void* tails[PLACES]  # where the count is not 0
    u8 places[PLACES]  # those numbers, in the order of their first messages
    u32 place_count
    u32 keyless  # messages
    bint has_others

cdef class Extended(Publisher):
    cdef Py_ssize_t parse_pub_ext(self, const u8* data, size_t size, size_t line,
                                  size_t args) except -2
    cdef Py_ssize_t parse_mpub_ext(self, const u8* data, size_t size, size_t line,
                                   size_t args) except -2
    cdef bint misfits(self, int verb, u32 index, int size, u32 headers_size) except -1
    cdef Py_ssize_t walk_ext(self, const u8* data, size_t size, size_t line, u32 count) except -2
    cdef int start_pieces(self, u32 count, spread_t* spread) except -1
    cdef bint note_piece(self, int verb, const u8* data, size_t at, u32 index,
                         spread_t* spread) except -1
    cdef Py_ssize_t spread_out(self, int verb, u32 count, size_t end, spread_t* spread) except -2
    cdef Py_ssize_t no_partition(self, int verb, bytes word, size_t end) except -2
    cdef bint ext_blocked(self, int verb, size_t end, spread_t* spread) except -1
    cdef int refuse_ext(self, int verb, spread_t* spread) except -1
    cdef bint owes_room(self, int verb, spread_t* spread) noexcept
    cdef Py_ssize_t take_ext(self, int verb, const u8* data, u32 count, size_t end,
                             spread_t* spread) except -2
    cdef int append_piece(self, const u8* data, const piece_t* piece, Tail tail) except -1
    cdef int owe_all(self, int verb, spread_t* spread) except -1
    cdef int give_traced(self, int verb, const u8* data, const piece_t* piece, Tail tail) except -1
