"""NATS lines as the generator sees them, for JetStream.

A publisher's answers come as `MSG <inbox> 1 <bytes>` with a small JSON body:
`{"stream":…,"seq":…}`, or one that begins with `"error"`. A consumer's messages come as
`MSG <subject> 1 <reply> <bytes>`, and are acknowledged by an empty message to `<reply>`, reading
`$JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>`.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memchr, memcmp, memcpy

from bench.conn cimport (
    ATTEMPTS,
    BAD_FRAME,
    ERROR_FRAME,
    Conn,
    Run,
    acknowledge_unit,
    count_message,
    fail,
    send_out,
)


cdef enum:
    SPACE = 32
    DOT = 46
    NEWLINE = 10


cdef inline const uint8_t* nats_word_back(const uint8_t* start, const uint8_t* end) noexcept nogil:
    """The start of the last word of [start, end)."""
    cdef const uint8_t* p = end
    while p > start and (p - 1)[0] != SPACE:
        p -= 1
    return p


cdef inline bint nats_delivered_once(const uint8_t* reply, size_t length) noexcept nogil:
    """Is the fifth part of `$JS.ACK.<stream>.<consumer>.<delivered>.…` a plain 1?"""
    cdef size_t i = 0
    cdef int dots = 0
    while i < length and dots < 4:
        dots += reply[i] == DOT
        i += 1
    return i + 1 < length and reply[i] == 49 and reply[i + 1] == DOT


cdef inline void nats_message(
    Run* run, Conn* c, const uint8_t* reply, size_t length, const uint8_t* body, int64_t size,
    int64_t now,
) noexcept nogil:
    if size != c.frame_bytes:
        fail(run, BAD_FRAME, body, min(size, 200))
        return
    if not nats_delivered_once(reply, length):
        fail(run, ATTEMPTS, reply, length)
        return
    count_message(run, c, body, now)
    memcpy(c.out + c.out_end, b"PUB ", 4)
    memcpy(c.out + c.out_end + 4, reply, length)
    memcpy(c.out + c.out_end + 4 + length, b" 0\r\n\r\n", 6)
    c.out_end += 10 + length
    if c.ack_each:
        send_out(run, c)


cdef inline void nats_answer(
    Run* run, Conn* c, const uint8_t* body, int64_t size, int64_t now
) noexcept nogil:
    if size >= 9 and memcmp(body, b'{"error":', 9) == 0:
        fail(run, ERROR_FRAME, body, size)
    else:
        acknowledge_unit(run, c, now)


cdef inline const uint8_t* nats_msg(
    Run* run, Conn* c, const uint8_t* p, const uint8_t* line, const uint8_t* end, int64_t now
) noexcept nogil:
    """One MSG whose line ends at `line`; returns what follows it, NULL when it is not whole yet."""
    cdef const uint8_t* count = nats_word_back(p, line)
    cdef const uint8_t* reply
    cdef const uint8_t* digit = count
    cdef int64_t size = 0
    while digit < line:
        size = size * 10 + (digit[0] - 48)
        digit += 1
    if end - line < 2 + size + 2:
        return NULL
    if c.publishes:
        nats_answer(run, c, line + 2, size, now)
    else:
        reply = nats_word_back(p, count - 1)
        nats_message(run, c, reply, count - 1 - reply, line + 2, size, now)
    return line + 2 + size + 2


cdef inline size_t nats_take(Run* run, Conn* c, int64_t now) noexcept nogil:
    """Walk the whole lines in the inbox; returns the bytes used."""
    cdef const uint8_t* p = c.inbox
    cdef const uint8_t* end = c.inbox + c.in_bytes
    cdef const uint8_t* line
    cdef const uint8_t* after
    while end - p >= 5 and not run.fault:
        line = <const uint8_t*>memchr(p, NEWLINE, end - p)
        if line == NULL:
            break
        line -= 1  # the carriage return
        after = line + 2
        if memcmp(p, b"MSG ", 4) == 0:
            after = nats_msg(run, c, p, line, end, now)
            if after == NULL:
                break
        elif memcmp(p, b"PING", 4) == 0:
            c.owes_pong = True
        elif memcmp(p, b"PONG", 4) == 0:
            c.closed = True
        elif memcmp(p, b"INFO", 4) != 0 and memcmp(p, b"+OK", 3) != 0:
            fail(run, ERROR_FRAME, p, line - p)
        p = after
    return p - c.inbox
