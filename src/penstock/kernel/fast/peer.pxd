"""What every connection has, whatever it says: buffers, an output, a window, an end.

Its states are told in conn.pxd, which adds what is said: commands in, publishes owed. Output goes
out with the turn, unless the client asked to have deliveries held back (`output_every`); a response
takes everything that is held with it.
"""

from penstock.kernel.fast.buffer cimport buf_t
from penstock.kernel.fast.filters cimport Sieve
from penstock.kernel.fast.hub cimport Hub
from penstock.kernel.fast.ring cimport consumer_t
from penstock.kernel.fast.trace cimport Named
from penstock.kernel.fast.types cimport i64, u8, u32, u64
from penstock.kernel.fast.window cimport Window

cdef enum:
    STATE_MAGIC = 0
    STATE_COMMAND = 1
    STATE_BODY = 2
    STATE_DRAINING = 3
    STATE_GONE = 4

cdef class Peer(Named):
    cdef Hub hub
    cdef readonly u32 serial
    cdef readonly int fd  # -1: detached, or closed
    cdef public object owner
    cdef consumer_t* me
    cdef i64 rdy_asked, rdy_cap  # what it wants, and an operator lets it have (0: all)
    cdef list subscribed  # Window, in the order in which they were
    cdef Window hit  # the one that had the message of the latest FIN; None: none is subscribed
    cdef bint has_left  # some window before
    cdef Sieve sieve  # None: it wants to see all
    # how they share its room (shares.pxd), where there are several
    cdef i64* grants  # what is left of the share of each
    cdef u32 grant_capacity
    cdef u32 turn, turn_next  # the place of the window that comes first, now and in the next round
    cdef u64 share_round, gather_round
    cdef bint share_small  # the room was too little for a refill when it was shared out
    cdef bint share_whole  # the room is not split
    cdef bint crowded  # the output was full since the last round
    cdef int state
    cdef bint halted, held, stalled, eof, failed, hung_up
    cdef public i64 last_command_ns
    cdef buf_t input, output
    cdef i64 body_size_max
    # output on hold
    cdef i64 hold_bytes, hold_ns, hold_since_ns
    cdef bint closing_after_flush, shut
    cdef i64 drain_until_ns, drained_bytes
    # lists of the hub, and the socket half
    cdef bint output_listed, ready_listed, interest_listed
    cdef u32 interest
    cdef bint want_write, hold_listed, lazy
    cdef bint urgent  # a response is among what is unsent: nothing is held
    cdef u32 slot
    cdef bint detached, detached_listed

    cdef i64 noted_bytes  # of the input, in `Hub.held_bytes`

    cdef void set_rdy(self, i64 value) noexcept
    cdef int note_input(self) except -1
    cdef int send_frame(self, int frame_type, const u8* data, size_t size) except -1
    cdef int mark_output(self) except -1
    cdef int mark_ready(self) except -1
    cdef int mark_interest(self) except -1
    cdef int mark_detached(self) except -1
    cdef int halt(self, tuple event) except -1
    cdef int note_eof(self) except -1
    cdef int gone(self, str reason) except -1
    cdef bint holding(self, i64 mono_ns) noexcept
    cdef bint all_paused(self)
    cdef int mark_windows(self) except -1
    cdef int mark_drained(self) except -1
    cdef u32 place_of(self, Window window) noexcept
    cdef int finish_elsewhere(self, u64 id, int held) except -1
    cdef bint has_beside(self, Window window, u64 id) noexcept
    cdef int leave_window(self, Window window) except -1
    cdef bint wants_input(self) noexcept
    cdef size_t unsent_c(self) noexcept
