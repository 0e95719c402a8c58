"""What was built for a consumer goes out on its socket; what does not go out is kept with it."""

from penstock.kernel.fast.buffer cimport buf_t
from penstock.kernel.fast.conn cimport Conn
from penstock.kernel.fast.hub cimport Hub

cdef enum:
    CHUNK_BYTES = 256 << 10  # frames built before they are sent; 64 KiB costs consume 30 %

cdef int send_now(Conn conn, Hub hub, buf_t* out) except -1
cdef int send_waiting(Conn conn, Hub hub) except -1
