"""What becomes of a message at a consumer's turn: it is sent, or is for others, or is left out.

Messages in a row that meet the same fate are taken together, so that a consumer with a filter or a
tag is served in runs as others are.
"""

from penstock.kernel.fast.conn cimport Conn
from penstock.kernel.fast.hub cimport Hub
from penstock.kernel.fast.memory cimport view_t
from penstock.kernel.fast.trailer cimport Trailer, special_t
from penstock.kernel.fast.types cimport i64, u32, u64
from penstock.kernel.fast.window cimport Window

cdef enum:  # fates
    SENT_NOW = 0
    LEFT_OUT = 1  # of the channel: the consumer does not want it
    ASIDE = 2  # for consumers with another tag

cdef struct turn_of_t:  # a consumer's turn
    u32 mine  # its class (tags.pxd)
    u32 place  # that of the message looked at last
    bint sifts  # may anything but SENT_NOW come up, with messages that have nothing special?

cdef void begin_turn(Window window, Conn conn, turn_of_t* turn) noexcept
cdef int fate_of(Window window, Conn conn, Hub hub, Trailer trailer, u32 index, u64 id,
                 i64 attempts, turn_of_t* turn) except -1
cdef bint is_left_out(Window window, Conn conn, Hub hub, Trailer trailer, u32 index, u64 id,
                      i64 attempts) except -1
# the fate of the next messages, which have nothing special; `count` becomes how many share it
cdef int sift(Window window, Conn conn, Hub hub, Trailer trailer, u32 index, i64* count,
              turn_of_t* turn) except -1
# how many messages are out of the cursor's way; 0: there is no room to put them aside
cdef i64 sift_out(Window window, Conn conn, view_t* view, int fate, i64 count,
                  turn_of_t* turn) except -1
cdef bint has_room_aside(Window window) noexcept
cdef int wait_aside(Window window, special_t* special, int attempts, u32 place, u64 key) except -1
cdef int leave_one_out(Window window, Conn conn, special_t* special) except -1
