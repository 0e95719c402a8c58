"""One channel on one partition: what was delivered, finished, requeued, delayed.

                      low                next            handed_end
    finished ........ | in flight / done | not delivered  |
                      +---- the ring ----+

**The ring** is indexed by `offset & mask` and covers [low, next): an owner (connection serial, 0 = nothing
left to do here) and a deadline, 12 bytes a message. First deliveries live here and nowhere else.

**Runs** (runs.pxd) say which ids those offsets have. **Strays** (strays.pxd) are the messages that left
that path: timed out, requeued, delayed, touched, with an id of their own, or so old that the ring would
outgrow its bound.

**Skips** are ranges at or above `next` that the cursor steps over (finished before a restart, strays
restored from the journal, damaged, dropped by an ephemeral channel).

**Redo**: after a restart the cursor starts at `low` again; offsets below `redo_end` were delivered once.
"""

from penstock.kernel.fast.block cimport Block
from penstock.kernel.fast.hub cimport Hub
from penstock.kernel.fast.runs cimport Runs
from penstock.kernel.fast.strays cimport Strays, stray_t
from penstock.kernel.fast.tail cimport Tail, view_t

cdef struct consumer_t:
    unsigned int serial
    bint closing
    bint blocked  # socket full, or output on hold beyond its bound
    int sample_rate
    long long rdy
    long long in_flight
    long long timeout_ns
    long long message_count
    long long finish_count
    long long requeue_count

cdef struct range_t:
    long long start
    long long end

cdef struct place_t:  # where the cursor stands inside a batch, so that sequential delivery does not sum anew
    long long base_offset
    unsigned int index
    unsigned int position

cdef class Window:
    cdef Hub hub
    cdef readonly Tail tail
    cdef public object owner
    cdef bint _paused
    cdef readonly long long low, next
    cdef long long count_base
    cdef public long long touch_max_ns
    cdef readonly long long timeout_count, requeue_count, finish_count
    # ring
    cdef unsigned int* owners
    cdef long long* deadlines
    cdef unsigned int ring_capacity
    cdef long long ring_in_flight
    cdef long long ring_deadline_ns  # lower bound, 0: none
    cdef Runs runs
    cdef Strays strays
    # skips, redo
    cdef list skips  # (start, end), sorted, disjoint; rare
    cdef long long skip_start  # start of skips[0], or a number no offset reaches
    cdef long long skipped_ahead
    cdef long long redo_end
    # reading
    cdef Block forward, stray_block
    cdef bint forward_needed, stray_needed
    cdef place_t forward_place, stray_place
    # consumers
    cdef list conns  # Conn; delivery.pyx knows the type
    cdef consumer_t** consumer_table
    cdef unsigned int consumer_count, consumer_capacity
    cdef unsigned int turn  # rotates the first consumer
    cdef bint stray_turn
    # journal
    cdef range_t* fins
    cdef unsigned int fin_count, fin_capacity
    cdef bint cursor_changed, reset_pending
    # lists of the hub
    cdef bint pump_listed, journal_listed, active_listed, forgotten

    cdef int mark_pump(self) except -1
    cdef int mark_journal(self) except -1
    cdef int mark_active(self) except -1
    cdef consumer_t* consumer(self, unsigned int serial) noexcept
    cdef int add_consumer(self, object conn, consumer_t* consumer) except -1
    cdef int remove_consumer(self, object conn, consumer_t* consumer) except -1
    cdef int ring_room(self, long long count) except -1
    cdef int evict_low(self) except -1
    cdef int evict_all(self) except -1
    cdef void advance_low(self) noexcept
    cdef int note_finished(self, long long start, long long end) except -1
    cdef int stray_waits(self, stray_t* stray) except -1
    cdef int stray_sleeps(self, stray_t* stray, long long due_ns) except -1
    cdef int stray_flies(self, stray_t* stray, consumer_t* consumer, long long mono_ns) except -1
    cdef int remove_stray(self, stray_t* stray) except -1
    cdef int finish_c(self, unsigned int serial, unsigned long long id) except -1
    cdef stray_t* take_flying(self, unsigned int serial, unsigned long long id, int* held) except? NULL
    cdef int time_out(self, stray_t* stray) except -1
    cdef bint offset_in_ring(self, stray_t* stray) noexcept
    cdef stray_t* make_stray(self, long long offset) except NULL
    cdef int jump(self, long long offset) except -1
    cdef int step_over_skips(self) except -1
    cdef int add_skip(self, long long start, long long end) except -1
    cdef int forget_all(self) except -1
    cdef int attempts_of(self, long long offset) noexcept
    cdef int expire_ring(self, long long mono_ns) except -1
    cdef int expire_strays(self, long long mono_ns) except -1
    cdef long long depth_c(self) noexcept
    cdef bint has_timers(self) noexcept
