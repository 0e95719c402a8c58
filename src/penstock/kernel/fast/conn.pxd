"""One V2 client connection: bytes in, commands out; frames in, bytes out.

States of the input side, and what moves between them:

    MAGIC --4 bytes--> COMMAND --LINE event--> halted --resume--> COMMAND
                       COMMAND --malformed, unknown topic, refused--> halted
                       halted --read_body--> BODY --complete--> halted --resume--> COMMAND
    any --close_after_flush--> DRAINING (bytes are dropped) --EOF or time--> gone

While publishes are unanswered (`owed` is not empty) a command for Python is *held*: it stays in
the input buffer and is read again when the last OK is out, so that replies keep the order of
commands.

`owed` is a small FIFO: one entry for each run of publishes with one verb into one batch of one
tail."""

from penstock.kernel.fast.peer cimport Peer
from penstock.kernel.fast.route cimport Route
from penstock.kernel.fast.tail cimport Tail
from penstock.kernel.fast.types cimport i64, u8, u32, u64

cdef enum:
    OWED_MAX = 64

cdef struct owed_t:
    void* tail  # a reference is held
    u64 serial
    u32 count
    u8 verb
    u8 outcome  # 0 pending, 1 stored, 2 failed

cdef class Conn(Peer):
    cdef public bint locked
    cdef public set allowed
    # publishing
    cdef bytes topic  # of the latest PUB or MPUB
    cdef Route route  # of that topic; None: not known
    cdef i64 partition  # that it names
    cdef Tail topic_tail  # the one that took it, or is to take it
    cdef i64 topic_count
    cdef dict published_counts
    cdef owed_t* owed
    cdef u32 owed_head, owed_count
    # MPUB walked so far, so that a long one is not walked again with each chunk
    cdef size_t walk_position
    cdef u32 walk_index

    cdef int parse(self, const u8* data, size_t size) except -1
    cdef int receive(self, const u8* data, size_t size) except -1
    cdef int reparse(self) except -1
    cdef int settle(self, Tail tail, u64 serial, bint stored) except -1
    cdef int answer(self) except -1
    cdef int owe(self, Tail tail, int verb, u32 count) except -1
    cdef Py_ssize_t parse_command(self, const u8* data, size_t size) except -2
    cdef Py_ssize_t parse_pub(self, const u8* data, size_t size, size_t line, size_t args) except -2
    cdef Py_ssize_t parse_mpub(self, const u8* data, size_t size, size_t line,
                               size_t args) except -2
    cdef Py_ssize_t parse_body(self, const u8* data, size_t size) except -2
    cdef Py_ssize_t parse_rdy(self, const u8* data, size_t size, size_t line) except -2
    cdef Py_ssize_t parse_fin(self, const u8* data, size_t size, size_t line) except -2
    cdef Py_ssize_t line_event(self, const u8* data, size_t line, size_t consumed) except -2
    cdef int find_topic(self, const u8* name, size_t size) except -1
    cdef int bad_partition(self, int verb, const u8* rest, size_t size) except -1
    cdef bint is_chosen(self) noexcept
    cdef int choose_tail(self, u32 count) except -1
    cdef bint needs_topic(self) except -1
    cdef int count_published(self) except -1
    cdef int bad_pub(self, int verb, int reason, i64 a, i64 b) except -1
    cdef int publish_blocked(self, int verb, u32 count) except -1
    cdef bint owes_here(self, int verb) noexcept

cdef bint name_is_valid(const u8* name, size_t size) noexcept
