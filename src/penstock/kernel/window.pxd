include "tail.pxd"
include "strays.pxd"
include "stored.pxd"
include "filters.pxd"
include "ring.pxd"
include "keyorder.pxd"

from penstock.kernel._codec cimport i64, u32, u64, u8

# Where one channel stands in one partition: the moves that keep the state whole.
#
# window.pxd tells what the ring, runs, strays, skips and redo are. Everything here leaves the state
# such that `validate` holds and `take_journal` says what changed.

cdef class Cursor(Ordered):
    cdef i64 search_start_c(self) noexcept
    cdef int widen_search(self, i64 start, i64 end) except -1
    cdef int searched_to(self, i64 offset) except -1
    cdef int list_search(self) except -1
    cdef int count_anew(self) except -1
    cdef int note_finished(self, i64 start, i64 end) except -1
    cdef int stray_waits(self, stray_t* stray) except -1
    cdef int stray_sleeps(self, stray_t* stray, i64 due_ns) except -1
    cdef int stray_flies(self, stray_t* stray, consumer_t* consumer, i64 mono_ns) except -1
    cdef int remove_stray(self, stray_t* stray) except -1
    cdef stray_t* rename_stray(self, stray_t* stray, u64 id) except NULL
    cdef int jump(self, i64 offset) except -1
    cdef int step_over_skips(self) except -1
    cdef int forget_all(self) except -1
    cdef i64 finish_wall_ns(self) noexcept
    cdef int measure_finished(self) except -1


# What people and the broker see of a window: numbers, messages, and whether it is whole.

cdef class Survey(Cursor):
    cdef i64 deliverable_c(self) noexcept
    cdef i64 ahead_c(self) noexcept
    cdef bint offset_in_ring(self, stray_t* stray) noexcept


# One channel on one partition: what was delivered, finished, requeued, delayed.
#
#                       low                next            handed_end
#     finished ........ | in flight / done | not delivered  |
#                       +---- the ring ----+
#
# **The ring** is indexed by `offset & mask` and covers [low, next): an owner (connection serial, 0
# = nothing left to do here) and a deadline, 12 bytes a message. First deliveries live here and
# nowhere else.
#
# **Runs** (`Runs`) say which ids those offsets have. **Strays** (`Strays`) are the messages
# that left that path: timed out, requeued, delayed, touched, with an id of their own, or so old
# that the ring would outgrow its bound.
#
# **Skips** are ranges at or above `next` that the cursor steps over (finished before a restart,
# strays restored from the journal, delayed, damaged, dropped by an ephemeral channel).
#
# **Redo**: after a restart the cursor starts at `low` again; offsets below `redo_end` were
# delivered once.

cdef enum:
    FIN_LINE_BYTES = 21  # "FIN " + 16 + "\n"

cdef enum:  # Held; the higher of two windows' answers is the connection's
    DONE = 0
    NOT_IN_FLIGHT = 1
    NOT_OWNER = 2

cdef class Window(Survey):
    cdef int finish_c(self, u32 serial, u64 id) except -1
    cdef u32 finish_row(self, u32 serial, const u8* data, size_t size) except? 0
    cdef stray_t* take_flying(self, u32 serial, u64 id, int* held) except? NULL
    cdef int time_out(self, stray_t* stray) except -1
    cdef void land(self, stray_t* stray) noexcept
    cdef bint has(self, u64 id) noexcept
    cdef int expire_ring(self, i64 mono_ns) except -1
    cdef int expire_strays(self, i64 mono_ns) except -1
