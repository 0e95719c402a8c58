"""NSQ's V2 frames as the generator sees them: size, type, data, all big-endian.

A message frame's data is timestamp (8), attempts (2), id as 16 hex characters, body. The size field
counts the type field too, so it is 30 plus the body. For an extended consumer a message's headers
stand before the body; in one run they all have one size. Everything is read by address: `p` is
where a frame starts.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy, memmove

from bench.conn cimport (
    ATTEMPTS,
    BAD_FRAME,
    ERROR_FRAME,
    IN_BYTES,
    Conn,
    Run,
    acknowledge_unit,
    count_message,
    fail,
    send_out,
)


cdef enum:
    RESPONSE = 0
    MESSAGE = 2
    BODY_AT = 34
    FIN_BYTES = 21


cdef inline uint32_t be32(const uint8_t* p) noexcept nogil:
    return (<uint32_t>p[0] << 24) | (<uint32_t>p[1] << 16) | (<uint32_t>p[2] << 8) | p[3]


cdef inline void v2_message(
    Run* run, Conn* c, const uint8_t* p, uint32_t size, int64_t now
) noexcept nogil:
    if size != c.frame_bytes:
        fail(run, BAD_FRAME, NULL, 0)
        return
    if p[16] != 0 or p[17] != 1:
        fail(run, ATTEMPTS, NULL, 0)
        return
    count_message(run, c, p + BODY_AT + c.ext_bytes, now)
    memcpy(c.out + c.out_end, b"FIN ", 4)
    memcpy(c.out + c.out_end + 4, p + 18, 16)
    c.out[c.out_end + 20] = 10
    c.out_end += FIN_BYTES
    if c.ack_each:
        send_out(run, c)


cdef inline void v2_response(
    Run* run, Conn* c, const uint8_t* p, uint32_t size, int64_t now
) noexcept nogil:
    if size == 6 and p[8] == 79 and p[9] == 75:  # OK
        acknowledge_unit(run, c, now)
    elif size == 15 and memcmp(p + 8, b"_heartbeat_", 11) == 0:
        c.owes_pong = True
    elif size == 14 and memcmp(p + 8, b"CLOSE_WAIT", 10) == 0:
        c.closed = True
    else:
        fail(run, BAD_FRAME, p + 8, size - 4)


cdef inline size_t v2_take(Run* run, Conn* c, int64_t now) noexcept nogil:
    """Walk the whole frames in the inbox; returns the bytes used."""
    cdef const uint8_t* p = c.inbox
    cdef const uint8_t* end = c.inbox + c.in_bytes
    cdef uint32_t size, kind
    while end - p >= 8 and not run.fault:
        size = be32(p)
        if size < 4 or size > IN_BYTES - 4:
            fail(run, BAD_FRAME, NULL, 0)
            break
        if end - p < <ssize_t>size + 4:
            break
        kind = be32(p + 4)
        if kind == MESSAGE:
            v2_message(run, c, p, size, now)
        elif kind == RESPONSE:
            v2_response(run, c, p, size, now)
        else:
            fail(run, ERROR_FRAME, p + 8, size - 4)
        p += size + 4
    return p - c.inbox
