"""One V2 client connection: bytes in, commands out; frames in, bytes out.

States of the input side, and what moves between them:

    MAGIC --4 bytes--> COMMAND --LINE event--> halted --resume--> COMMAND
                       COMMAND --malformed, unknown topic, refused--> halted
                       halted --read_body--> BODY --complete--> halted --resume--> COMMAND
    any --close_after_flush--> DRAINING (bytes are dropped) --EOF or time--> gone

While publishes are unanswered (`owed` is not empty) a command for Python is *held*: it stays in the
input buffer and is read again when the last OK is out, so that replies keep the order of commands.

`owed` is a small FIFO: one entry for each run of publishes with one verb into one batch of one tail.
"""

from penstock.kernel.fast.buffer cimport buf_t
from penstock.kernel.fast.hub cimport Hub
from penstock.kernel.fast.tail cimport Tail
from penstock.kernel.fast.window cimport Window, consumer_t

cdef enum:
    STATE_MAGIC = 0
    STATE_COMMAND = 1
    STATE_BODY = 2
    STATE_DRAINING = 3
    STATE_GONE = 4

cdef enum:
    OWED_MAX = 64

cdef struct owed_t:
    void* tail  # a reference is held
    unsigned long long serial
    unsigned int count
    unsigned char verb
    unsigned char outcome  # 0 pending, 1 stored, 2 failed

cdef class Conn:
    cdef Hub hub
    cdef readonly unsigned int serial
    cdef readonly int fd  # -1: detached, or closed
    cdef public object owner
    cdef consumer_t* me
    cdef readonly Window window
    cdef int state
    cdef bint halted, held, stalled, eof, failed, hung_up
    cdef public long long last_command_ns
    cdef buf_t input, output
    cdef long long body_size_max
    # publishing
    cdef bytes topic  # of the latest PUB or MPUB
    cdef Tail topic_tail
    cdef long long topic_count
    cdef dict published_counts
    cdef owed_t* owed
    cdef unsigned int owed_head, owed_count
    # MPUB walked so far, so that a long one is not walked again with each chunk
    cdef size_t walk_position
    cdef unsigned int walk_index
    # output on hold
    cdef long long hold_bytes, hold_ns, hold_since_ns
    cdef bint closing_after_flush, shut
    cdef long long drain_until_ns, drained_bytes
    # lists of the hub, and the socket half
    cdef bint output_listed, ready_listed, interest_listed
    cdef unsigned int interest
    cdef bint want_write, hold_listed, lazy
    cdef unsigned int slot

    cdef int parse(self, const unsigned char* data, size_t size) except -1
    cdef int receive(self, const unsigned char* data, size_t size) except -1
    cdef int reparse(self) except -1
    cdef int send_frame(self, int frame_type, const unsigned char* data, size_t size) except -1
    cdef int settle(self, Tail tail, unsigned long long serial, bint stored) except -1
    cdef int answer(self) except -1
    cdef int owe(self, Tail tail, int verb, unsigned int count) except -1
    cdef int mark_output(self) except -1
    cdef int mark_ready(self) except -1
    cdef int mark_interest(self) except -1
    cdef int halt(self, tuple event) except -1
    cdef int note_eof(self) except -1
    cdef int gone(self, str reason) except -1
    cdef bint holding(self, long long mono_ns) noexcept
    cdef bint wants_input(self) noexcept
    cdef size_t unsent_c(self) noexcept
    cdef Py_ssize_t parse_command(self, const unsigned char* data, size_t size) except -2
    cdef Py_ssize_t parse_pub(self, const unsigned char* data, size_t size, size_t line, size_t args) except -2
    cdef Py_ssize_t parse_mpub(self, const unsigned char* data, size_t size, size_t line, size_t args) except -2
    cdef Py_ssize_t parse_body(self, const unsigned char* data, size_t size) except -2
    cdef Py_ssize_t parse_rdy(self, const unsigned char* data, size_t size, size_t line) except -2
    cdef Py_ssize_t parse_fin(self, const unsigned char* data, size_t size, size_t line) except -2
    cdef Py_ssize_t line_event(self, const unsigned char* data, size_t line, size_t consumed) except -2
    cdef int find_topic(self, const unsigned char* name, size_t size) except -1
    cdef int count_published(self) except -1
    cdef int bad_pub(self, int verb, int reason, long long a, long long b) except -1
    cdef int publish_blocked(self, int verb) except -1
    cdef bint owes_here(self, int verb) noexcept

cdef bint name_is_valid(const unsigned char* name, size_t size) noexcept
