from penstock.kernel._codec cimport i64, u32, u64, u8

# The keys of one window that are busy: a table by their hash, with a row of messages for each.
#
# A key is busy while a message holds it. What is behind it is a row of strays in the order of the
# log, linked by their ids; here stand the first and the last. The table has the keys that are busy
# now, so its size follows what is in flight and aside, however many keys there are.

cdef struct busy_t:
    u64 key
    u64 first, last  # ids; 0: nothing is behind
    u64 exhausted  # the id of the last one that held it in this state
    u32 holders  # 0: a slot that is free
    bint is_crowded  # it is held since before there was this order, or by several

cdef class BusyKeys:
    cdef busy_t* table
    cdef u32 capacity, count

    cdef busy_t* find(self, u64 key) noexcept
    cdef busy_t* hold(self, u64 key) except NULL
    cdef bint take(self, u64 key) except -1
    cdef int grow(self) except -1
    cdef void remove(self, busy_t* busy) noexcept
    cdef void clear(self) noexcept

# never 0. Keys of one hash share an order.
cdef u64 hash_of_key(const u8* data, u32 size) noexcept


# Order among the messages of one channel in one partition: of each key, or of all.
#
# A message **holds** its key from the moment it is sent until it is done: while it is in flight,
# waits to be sent again, is delayed by a REQ, or is exhausted and not settled. Meanwhile its key is
# busy, and other messages of it are put aside **behind** it, in the order of the log. When no
# message holds the key any more, the first of them does, and is the next to be sent.
#
# An order may begin while several messages of a key are in flight: all of them hold it. One that is
# to be sent again while others hold the key gives up its hold and goes behind, so the last of them
# that ends lets the first in the order of the log go.
#
# With Order.KEY the key is the one that the batch's trailer has, and messages without one have no
# order. With Order.STRICT all messages have one key, and the cursor waits where it would put one
# aside. So it does with Order.KEY when too many are aside.
#
# What a window has when it is restored, or told to keep an order, has keys that are **unknown**
# here: they stand in the log. They are read before anything else is sent: first those of messages
# that were sent, which hold them; then the others, in the order of the log, as far as the cursor
# has come. What is delayed and was never sent has no order until it is due.
#
# What is exhausted waits for its turn, too: it goes behind what stands before it, and the cursor
# does not wait for it there.
#
# The key of a message in flight for the first time stands in the ring; that of a stray in its link.

cdef enum:  # Order
    ORDER_NONE = 0
    ORDER_KEY = 1
    ORDER_STRICT = 2

cdef class Ordered(Ring):
    cdef int _order
    cdef public i64 aside_max
    cdef BusyKeys busy
    cdef list unknown  # a heap: which first, offset, id
    cdef i64 stopped_at  # where the cursor waits, and for which key
    cdef u64 stopped_key
    cdef Trailer key_trailer

    # 0: there is no order for this message
    cdef u64 key_of(self, view_t* view, Trailer trailer, u32 index) noexcept
    cdef bint is_busy(self, u64 key) noexcept
    cdef bint has_room_aside(self) noexcept
    cdef bint stops(self, u64 key) noexcept
    cdef bint stopped(self) noexcept
    cdef bint cursor_passes(self, u64 key) noexcept
    cdef bint may_go_on(self) except -1
    cdef bint runs_on(self, view_t* view, Trailer trailer, u32 index, bint sifts) noexcept
    cdef int hold_ring(self, u32 slot, u64 key) except -1
    cdef int hold(self, stray_t* stray, u64 key) except -1
    cdef int put_behind(self, stray_t* stray, u64 key) except -1
    cdef stray_t* resting(self, busy_t* busy) noexcept
    cdef int rest(self, stray_t* stray) except -1
    cdef int pass_exhausted(self, u64 key) except -1
    cdef int go_behind(self, stray_t* stray, u64 key) except -1
    cdef int put_stray_aside(self, stray_t* stray) except -1
    cdef bint must_wait_behind(self, stray_t* stray) except -1
    cdef int look_up_later(self, stray_t* stray) except -1
    cdef bint has_to_give_way(self, stray_t* stray) except -1
    cdef int let_go_ring(self, u32 slot) except -1
    cdef int let_go(self, stray_t* stray) except -1
    cdef int leave_row(self, stray_t* stray) noexcept
    cdef int one_holder_less(self, u64 key) except -1
    cdef int wait_in_turn(self, stray_t* stray) except -1
    cdef int delay(self, stray_t* stray) except -1
    cdef int forget_keys(self) except -1
    cdef int begin_order(self, int order) except -1
    cdef int await_known(self, stray_t* stray, int rank) except -1
    cdef bint is_unknown(self, stray_t* stray) noexcept
    cdef int exhaust_unknown(self, stray_t* stray) except -1
    cdef bint knows_all(self) except -1
    cdef bint is_awaited(self, stray_t* stray, int rank, i64 offset) noexcept
    cdef bint learn(self, stray_t* stray) except -1
    cdef int take_place(self, stray_t* stray, u64 key) except -1
    cdef int validate_order(self) except -1
    cdef u32 validate_row(self, u64 key, u64 first, u64 last) except? 0xFFFFFFFF
