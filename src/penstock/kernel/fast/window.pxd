"""One channel on one partition: what was delivered, finished, requeued, delayed.

                      low                next            handed_end
    finished ........ | in flight / done | not delivered  |
                      +---- the ring ----+

**The ring** is indexed by `offset & mask` and covers [low, next): an owner (connection serial, 0
= nothing left to do here) and a deadline, 12 bytes a message. First deliveries live here and
nowhere else.

**Runs** (runs.pxd) say which ids those offsets have. **Strays** (strays.pxd) are the messages
that left that path: timed out, requeued, delayed, touched, with an id of their own, or so old
that the ring would outgrow its bound.

**Skips** are ranges at or above `next` that the cursor steps over (finished before a restart,
strays restored from the journal, damaged, dropped by an ephemeral channel).

**Redo**: after a restart the cursor starts at `low` again; offsets below `redo_end` were
delivered once."""

from penstock.kernel.fast.block cimport Block
from penstock.kernel.fast.hub cimport Hub
from penstock.kernel.fast.runs cimport Runs
from penstock.kernel.fast.strays cimport Strays, stray_t
from penstock.kernel.fast.tail cimport Tail, view_t
from penstock.kernel.fast.types cimport i64, u32, u64

cdef struct consumer_t:
    u32 serial
    bint closing
    bint blocked  # socket full, or output on hold beyond its bound
    int sample_rate
    i64 rdy
    i64 in_flight
    i64 timeout_ns
    i64 message_count
    i64 finish_count
    i64 requeue_count

cdef struct range_t:
    i64 start
    i64 end

cdef struct place_t:  # where a reader stands inside a batch, so that the next sums on from there
    i64 base_offset
    u32 index
    u32 position

cdef class Window:
    cdef Hub hub
    cdef readonly Tail tail
    cdef public object owner
    cdef bint _paused
    cdef readonly i64 low, next
    cdef i64 count_base
    cdef public i64 touch_max_ns
    cdef readonly i64 timeout_count, requeue_count, finish_count
    # ring
    cdef u32* owners
    cdef i64* deadlines
    cdef u32 ring_capacity
    cdef i64 ring_in_flight
    cdef i64 ring_deadline_ns  # lower bound, 0: none
    cdef Runs runs
    cdef Strays strays
    # skips, redo
    cdef list skips  # (start, end), sorted, disjoint; rare
    cdef i64 skip_start  # start of skips[0], or a number no offset reaches
    cdef i64 skipped_ahead
    cdef i64 redo_end
    # reading
    cdef Block forward, stray_block
    cdef bint forward_needed, stray_needed
    cdef place_t forward_place, stray_place
    # consumers
    cdef list conns  # Conn; delivery.pyx knows the type
    cdef consumer_t** consumer_table
    cdef u32 consumer_count, consumer_capacity
    cdef u32 turn  # rotates the first consumer
    cdef bint stray_turn
    cdef i64 refill_ns  # mono: then small refills go out too; 0: none is put off
    # journal
    cdef range_t* fins
    cdef u32 fin_count, fin_capacity
    cdef bint cursor_changed, reset_pending
    # lists of the hub
    cdef bint pump_listed, journal_listed, active_listed, short_listed, forgotten

    cdef int mark_pump(self) except -1
    cdef int mark_journal(self) except -1
    cdef int mark_active(self) except -1
    cdef consumer_t* consumer(self, u32 serial) noexcept
    cdef int add_consumer(self, object conn, consumer_t* consumer) except -1
    cdef int remove_consumer(self, object conn, consumer_t* consumer) except -1
    cdef int ring_room(self, i64 count) except -1
    cdef int evict_low(self) except -1
    cdef int evict_all(self) except -1
    cdef void advance_low(self) noexcept
    cdef int note_finished(self, i64 start, i64 end) except -1
    cdef int stray_waits(self, stray_t* stray) except -1
    cdef int stray_sleeps(self, stray_t* stray, i64 due_ns) except -1
    cdef int stray_flies(self, stray_t* stray, consumer_t* consumer, i64 mono_ns) except -1
    cdef int remove_stray(self, stray_t* stray) except -1
    cdef int finish_c(self, u32 serial, u64 id) except -1
    cdef stray_t* take_flying(self, u32 serial, u64 id, int* held) except? NULL
    cdef int time_out(self, stray_t* stray) except -1
    cdef void land(self, stray_t* stray) noexcept
    cdef i64 skipped_below(self, i64 end) noexcept
    cdef bint offset_in_ring(self, stray_t* stray) noexcept
    cdef stray_t* make_stray(self, i64 offset) except NULL
    cdef int jump(self, i64 offset) except -1
    cdef int step_over_skips(self) except -1
    cdef int add_skip(self, i64 start, i64 end) except -1
    cdef int forget_all(self) except -1
    cdef int attempts_of(self, i64 offset) noexcept
    cdef int expire_ring(self, i64 mono_ns) except -1
    cdef int expire_strays(self, i64 mono_ns) except -1
    cdef i64 depth_c(self) noexcept
    cdef bint has_timers(self) noexcept
