"""Messages of a batch as frames at the end of an output: one, or a run of them.

A run ends where the chunk is full, so at least its first message is always put, however large. A
client that asked for nothing special gets a plain run: what differs from one message to the next is
its id, its size and its body, and all else is looked up once for all of them.
"""

from penstock.kernel.fast.buffer cimport buf_t
from penstock.kernel.fast.conn cimport Conn
from penstock.kernel.fast.memory cimport view_t
from penstock.kernel.fast.ring cimport consumer_t, place_t
from penstock.kernel.fast.trailer cimport Trailer
from penstock.kernel.fast.types cimport i64, u32, u64
from penstock.kernel.fast.window cimport Window

cdef u32 body_position(view_t* view, u32 index, place_t* place) noexcept
cdef int put_one(buf_t* out, consumer_t* me, Window window, Trailer trailer, view_t* view,
                 u32 index, u32 position, u32 size, i64 timestamp_ns, int attempts,
                 u64 id) except -1
cdef u32 put_plain_run(Window window, u32 serial, buf_t* out, view_t* view, u32 index,
                       u32* position, u32 count, int attempts, i64 deadline_ns) except? 0
cdef u32 put_long_run(Window window, Conn conn, buf_t* out, view_t* view, Trailer trailer,
                      u32 index, u32* position, u32 count, int attempts,
                      i64 deadline_ns) except? 0
