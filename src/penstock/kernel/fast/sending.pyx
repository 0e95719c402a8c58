"""What was built for a consumer goes out on its socket (declared in sending.pxd)."""

from libc.errno cimport EAGAIN, EINTR, errno

from penstock.kernel.fast.buffer cimport buf_append, buf_free, buf_t, buf_take
from penstock.kernel.fast.conn cimport Conn
from penstock.kernel.fast.hub cimport Hub

cdef extern from "sys/socket.h" nogil:
    ssize_t c_send "send"(int fd, const void* data, size_t size, int flags)
    enum: MSG_DONTWAIT
    enum: MSG_NOSIGNAL


cdef int send_now(Conn conn, Hub hub, buf_t* out) except -1:
    """Frames just built; what does not go out is kept with the connection."""
    cdef ssize_t n = c_send(conn.fd, out.data, out.length, MSG_DONTWAIT | MSG_NOSIGNAL)
    if n < 0:
        if errno != EAGAIN and errno != EINTR:
            return conn.gone("send failed")
        n = 0
    if <size_t>n < out.length:
        buf_append(&conn.output, out.data + n, out.length - n)
        conn.me.blocked = True
        conn.want_write = True
        conn.mark_interest()
    return 0


cdef int send_waiting(Conn conn, Hub hub) except -1:
    """Send a socket connection's own output buffer."""
    cdef ssize_t n
    cdef size_t size = conn.unsent_c()
    if size:
        n = c_send(conn.fd, conn.output.data + conn.output.start, size, MSG_DONTWAIT | MSG_NOSIGNAL)
        if n < 0:
            if errno != EAGAIN and errno != EINTR:
                return conn.gone("send failed")
            n = 0
        buf_take(&conn.output, n)
    if conn.unsent_c():
        conn.me.blocked = True
        if not conn.want_write:
            conn.want_write = True
        return conn.mark_interest()
    conn.hold_since_ns = 0
    conn.urgent = False
    if conn.output.capacity > CHUNK_BYTES:
        buf_free(&conn.output)
    if conn.want_write:
        conn.want_write = False
        conn.mark_interest()
    return conn.mark_drained()
