"""How the windows of one connection share its room (pure/shares.py says how, and why)."""

from penstock.kernel.fast.ring cimport consumer_t
from penstock.kernel.fast.hub cimport Hub
from penstock.kernel.fast.peer cimport Peer
from penstock.kernel.fast.types cimport i64
from penstock.kernel.fast.window cimport Window

cdef enum:
    HYSTERESIS_RDY_MIN = 64
    WHOLE_ROOM_MIN = 256
    PUT_OFF = -1  # it is better sent later, in one piece
    PASSED_BY = -2  # the room is for other windows of the consumer


cdef enum:  # of the rounds
    PHASE_FIRST = 1  # is the room large?
    PHASE_NEXT = 2  # what was large before is still kept whole
    PHASE_SPLIT = 3  # nothing more is sent in that way
    PHASE_FREE = 4  # the room is for any window


cdef inline i64 room_of(consumer_t* consumer) noexcept:
    cdef i64 room = consumer.rdy - consumer.in_flight
    return 0 if room <= 0 or consumer.closing or consumer.blocked or consumer.eof else room


cdef inline bint is_small(consumer_t* consumer, i64 room) noexcept:
    """Hysteresis: a large RDY is refilled in pieces worth a send. A smaller one is put off, but
    never for good: some clients answer nothing before they hold all that they asked for."""
    return (room > 0 and consumer.rdy >= HYSTERESIS_RDY_MIN
            and 2 * consumer.in_flight > consumer.rdy and 4 * room < consumer.rdy)


cdef int gather_siblings(Hub hub) except -1
cdef int share_out(list windows, Hub hub, int phase) except -1
cdef i64 offer_of(Peer conn, Window window, bint patient, bint free) noexcept
cdef int spend(Peer conn, Window window, i64 count) except -1
