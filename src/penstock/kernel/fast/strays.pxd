"""Messages that left the window's common path, in a table by id.

    state      in the table with        and also in
    WAITING    attempts so far          `waiting`, a queue of ids, first in first out
    DELAYED    due time, wall clock     `delays`, a heap of (due time, id)
    IN_FLIGHT  owner, deadline, mono    -
    EXHAUSTED  attempts so far          `exhausted`, a queue of ids, until it is taken
    BEHIND     attempts so far          the row of its key (keyorder.pxd)

Queue and heap hold ids and are checked against the table when something is taken out of them, so
leaving a state costs nothing there. The table is open addressing; a removed stray keeps its id as a
tombstone until the table is made anew. Every change but that between waiting, behind and exhausted,
which the journal does not tell apart, is noted as a journal entry in `notes`.

Where there is an order, each slot of the table has a link beside it, at the same place.
"""

from penstock.kernel.fast.buffer cimport buf_t
from penstock.kernel.fast.types cimport i64, u8, u16, u32, u64

cdef enum:
    WAITING = 1
    DELAYED = 2
    IN_FLIGHT = 3
    EXHAUSTED = 5  # 4 is taken in the pure form
    BEHIND = 6

cdef enum:  # Cause
    ENDED_TIMED_OUT = 1
    ENDED_REQUEUED = 2
    ENDED_DISCONNECTED = 3

cdef struct stray_t:
    u64 id  # 0: a slot never used
    i64 offset
    i64 deadline_ns  # in flight: mono; delayed: wall
    i64 delivered_ns
    i64 timestamp_ns  # of the message, when it is known
    u32 owner
    u32 turn  # of its latest place in a queue; older places are outlived
    u16 attempts
    u8 state  # 0: removed
    u8 cause  # of the end of its last attempt; 0: unknown

cdef struct link_t:
    u64 key  # hash; 0: it has none, or it is not known
    u64 before, after  # ids of its neighbours in the row of the key
    bint holds  # no other message of the key is sent
    bint unknown  # its key stands in the log, and was not looked up

cdef struct turn_t:
    u64 id
    u64 turn

cdef struct delay_t:
    i64 due_ns
    u64 id

cdef class Strays:
    cdef stray_t* table
    cdef link_t* links  # NULL: there is no order
    cdef bint linked
    cdef u32 capacity, count, used
    cdef i64 waiting_count, delayed_count, flying_count, exhausted_count, behind_count
    cdef i64 deadline_ns  # lower bound over those in flight, 0: none
    cdef buf_t waiting  # turn_t
    cdef buf_t exhausted  # turn_t
    cdef u32 turns
    cdef delay_t* delays
    cdef u32 delay_count, delay_capacity
    cdef buf_t notes

    cdef stray_t* find(self, u64 id) noexcept
    cdef stray_t* put(self, u64 id, i64 offset, int attempts, int state) except NULL
    cdef int remove(self, stray_t* stray) except -1
    cdef int grow(self) except -1
    cdef void set_state(self, stray_t* stray, int state) noexcept
    cdef int note(self, stray_t* stray) except -1
    cdef int link_all(self, bint linked) except -1
    cdef link_t* link(self, stray_t* stray) noexcept
    cdef int queue(self, buf_t* waiting, stray_t* stray) except -1
    cdef stray_t* first_of(self, buf_t* waiting, int state) noexcept
    cdef int wait(self, stray_t* stray) except -1
    cdef int sleep(self, stray_t* stray, i64 due_ns) except -1
    cdef int fly(self, stray_t* stray, u32 owner, i64 mono_ns, i64 deadline_ns) except -1
    cdef void expect(self, i64 deadline_ns) noexcept
    cdef int exhaust(self, stray_t* stray) except -1
    cdef stray_t* take_exhausted(self) noexcept
    cdef stray_t* first_waiting(self) noexcept
    cdef void drop_first(self) noexcept
    cdef void pop_delay(self) noexcept
    cdef stray_t* top_delay(self) noexcept
    cdef i64 first_due(self) noexcept
    cdef stray_t* take_due(self, i64 wall_ns) noexcept
    cdef void clear(self) noexcept
    cdef int write_all(self, buf_t* out) except -1
    cdef i64 lowest_offset(self, i64 below) noexcept
