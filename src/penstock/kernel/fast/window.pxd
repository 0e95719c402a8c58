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
strays restored from the journal, delayed, damaged, dropped by an ephemeral channel).

**Redo**: after a restart the cursor starts at `low` again; offsets below `redo_end` were
delivered once."""

from penstock.kernel.fast.strays cimport stray_t
from penstock.kernel.fast.survey cimport Survey
from penstock.kernel.fast.types cimport i64, u32, u64

cdef enum:  # Held; the higher of two windows' answers is the connection's
    DONE = 0
    NOT_IN_FLIGHT = 1
    NOT_OWNER = 2

cdef class Window(Survey):
    cdef int finish_c(self, u32 serial, u64 id) except -1
    cdef stray_t* take_flying(self, u32 serial, u64 id, int* held) except? NULL
    cdef int time_out(self, stray_t* stray) except -1
    cdef void land(self, stray_t* stray) noexcept
    cdef bint has(self, u64 id) noexcept
    cdef int expire_ring(self, i64 mono_ns) except -1
    cdef int expire_strays(self, i64 mono_ns) except -1
