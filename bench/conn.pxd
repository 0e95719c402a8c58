"""What the load generator keeps about a connection and about a run; shared by the two dialects.

A `Conn` publishes, or consumes, never both. A publisher owns a prebuilt buffer of units of one size
(one unit: a PUB, or an MPUB of 200) and sends as many of them at once as its window allows. Where
they differ (each message has a key of its own) it goes through them in turn, else it begins with
the first each time. A consumer
reads large chunks, walks the frames in them and lays its acknowledgements end to end in `out`.
Nothing here makes a Python object, so a second core is enough to load a daemon on the first.
"""

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memmove
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec


cdef extern from "<sys/socket.h>" nogil:
    ssize_t send(int fd, const void* data, size_t length, int flags)
    ssize_t recv(int fd, void* data, size_t length, int flags)
    int MSG_NOSIGNAL
    int MSG_DONTWAIT


cdef enum:
    IN_BYTES = 1 << 20  # one recv; a frame must fit
    ERROR_BYTES = 256

cdef enum Fault:
    NONE = 0
    ERROR_FRAME = 1
    LOST = 2  # the daemon closed the connection, or the socket failed
    ATTEMPTS = 3  # delivered more than once
    BAD_FRAME = 4
    TOO_MANY = 5  # more answers or messages than were asked for

cdef struct Run:
    int64_t sent  # messages handed to the socket, all publishers
    int64_t acked
    int64_t received  # all consumers
    int64_t consumers
    int64_t lag_max  # 0: publish without looking at the consumers
    int64_t interval_ns  # 0: as fast as the window allows
    int64_t start_ns
    int64_t paced_units
    bint stopping
    int fault
    uint8_t error[ERROR_BYTES]
    size_t error_bytes
    int64_t* samples  # latencies in nanoseconds
    int64_t sample_count
    int64_t sample_max
    int64_t sample_every
    int64_t sample_turn

cdef struct Conn:
    int fd
    bint nats
    bint publishes
    bint wants_out  # EPOLLOUT is set
    bint owes_pong  # a heartbeat to answer
    bint closing_sent
    bint closed  # the daemon answered the closing command
    uint8_t* inbox
    size_t in_bytes
    # publisher
    uint8_t* units
    int64_t unit_bytes
    int64_t units_in_buffer
    bint in_turn  # the units of the buffer differ
    int64_t unit_next  # of the buffer: the next to be sent
    int64_t messages_per_unit
    int64_t stamp_first  # where the first body of a unit begins
    int64_t stamp_stride
    int64_t unit_count  # to be sent in all
    int64_t units_sent
    int64_t units_acked
    int64_t window
    int64_t pending_start  # bytes of the latest send that the socket did not take
    int64_t pending_end
    int64_t* sent_ns  # ring by unit number, `window` long
    # consumer
    uint8_t* out
    size_t out_start
    size_t out_end
    int64_t frame_bytes  # V2: the size field of every message frame; NATS: body size
    int64_t ext_bytes  # V2: between the head of a message and its body
    int64_t received
    bint ack_each  # every acknowledgement in a send of its own


cdef inline int64_t now_ns() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return <int64_t>t.tv_sec * 1000000000 + t.tv_nsec


cdef inline void sample(Run* run, int64_t latency_ns) noexcept nogil:
    run.sample_turn += 1
    if run.sample_turn < run.sample_every:
        return
    run.sample_turn = 0
    if run.sample_count < run.sample_max:
        run.samples[run.sample_count] = latency_ns
        run.sample_count += 1


cdef inline void fail(Run* run, int fault, const uint8_t* text, size_t length) noexcept nogil:
    if run.fault:
        return  # the first fault is the one to report
    run.fault = fault
    run.error_bytes = min(length, <size_t>ERROR_BYTES)
    memcpy(run.error, text, run.error_bytes)


cdef inline void acknowledge_unit(Run* run, Conn* c, int64_t now) noexcept nogil:
    """The oldest unit of this publisher was answered."""
    if c.units_acked >= c.units_sent:
        fail(run, TOO_MANY, NULL, 0)
        return
    if not run.consumers:  # with consumers, what counts is the way to them
        sample(run, now - c.sent_ns[c.units_acked % c.window])
    c.units_acked += 1
    run.acked += c.messages_per_unit


cdef inline void count_message(Run* run, Conn* c, const uint8_t* body, int64_t now) noexcept nogil:
    cdef int64_t stamp
    c.received += 1
    run.received += 1
    memcpy(&stamp, body, 8)
    if stamp > 0:
        sample(run, now - stamp)


cdef inline void send_out(Run* run, Conn* c) noexcept nogil:
    """Send what lies in `out`: one system call, the rest waits for EPOLLOUT."""
    cdef ssize_t done
    if c.out_start == c.out_end:
        return
    done = send(c.fd, c.out + c.out_start, c.out_end - c.out_start, MSG_NOSIGNAL | MSG_DONTWAIT)
    if done < 0:
        if errno != EAGAIN and errno != EINTR:
            fail(run, LOST, NULL, 0)
        return
    c.out_start += done
    if c.out_start == c.out_end:
        c.out_start = c.out_end = 0
