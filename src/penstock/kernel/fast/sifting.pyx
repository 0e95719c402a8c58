"""What becomes of a message at a consumer's turn (declared in sifting.pxd)."""

from penstock.kernel.fast.batch cimport id_at_c
from penstock.kernel.fast.conn cimport Conn
from penstock.kernel.fast.dice cimport sample_draw
from penstock.kernel.fast.filters cimport is_test
from penstock.kernel.fast.hub cimport Hub
from penstock.kernel.fast.memory cimport view_t
from penstock.kernel.fast.strays cimport WAITING, stray_t
from penstock.kernel.fast.tags cimport NO_TAG
from penstock.kernel.fast.trace cimport FILTERED
from penstock.kernel.fast.trailer cimport Trailer, special_t
from penstock.kernel.fast.types cimport i64, u32, u64
from penstock.kernel.fast.window cimport Window

cdef enum:
    TAG_ASIDE_MAX = 16384  # messages that wait beside the cursor; beyond it the cursor waits, too


cdef void begin_turn(Window window, Conn conn, turn_of_t* turn) noexcept:
    turn.mine = turn.place = NO_TAG
    turn.sifts = conn.sieve is not None or window.skips_tests
    if window.tags is not None:
        turn.mine = window.tags.find(conn.me.tag, conn.me.tag_bytes)
        turn.sifts = True


cdef bint is_left_out(Window window, Conn conn, Hub hub, Trailer trailer, u32 index, u64 id,
                      i64 attempts) except -1:
    """NSQ's draw is 0 to 99; what is above the rate is dropped for good."""
    if conn.me.sample_rate:
        if sample_draw(hub.seed, conn.serial, id, <u32>attempts) > <u32>conn.me.sample_rate:
            return True
    if window.skips_tests and is_test(trailer, index):
        return True
    return conn.sieve is not None and not conn.sieve.passes(trailer, index)


cdef int fate_of(Window window, Conn conn, Hub hub, Trailer trailer, u32 index, u64 id,
                 i64 attempts, turn_of_t* turn) except -1:
    if window.tags is not None:
        turn.place = window.tags.class_of(trailer, index)
        if turn.place != turn.mine:
            return ASIDE
    return LEFT_OUT if is_left_out(window, conn, hub, trailer, index, id, attempts) else SENT_NOW


cdef int sift(Window window, Conn conn, Hub hub, Trailer trailer, u32 index, i64* count,
              turn_of_t* turn) except -1:
    cdef int fate = fate_of(window, conn, hub, trailer, index, 0, 0, turn)
    cdef u32 place = turn.place
    cdef i64 done = 1
    while done < count[0]:
        if (fate_of(window, conn, hub, trailer, index + <u32>done, 0, 0, turn) != fate
                or turn.place != place):
            break
        done += 1
    count[0], turn.place = done, place
    return fate


cdef i64 sift_out(Window window, Conn conn, view_t* view, int fate, i64 count,
                  turn_of_t* turn) except -1:
    cdef u32 index = <u32>(window.next - view.base_offset)
    cdef i64 i
    cdef stray_t* stray
    if fate == LEFT_OUT:
        if window.trace_below:
            window.trace_run(FILTERED, view.base_id, index, window.next, <u32>count, 0, conn)
        window.note_finished(window.next, window.next + count)
    else:
        count = min(count, TAG_ASIDE_MAX - window.strays.waiting_count)
        if count <= 0:
            return 0
        for i in range(count):
            stray = window.strays.put(id_at_c(view.base_id, index + i), window.next + i, 0, WAITING)
            window.strays.queue(&window.tags.classes[turn.place].waiting, stray)
            window.strays.note(stray)
    window.jump(window.next + count)
    return count


cdef bint has_room_aside(Window window) noexcept:
    return window.strays.waiting_count < TAG_ASIDE_MAX


cdef int wait_aside(Window window, special_t* special, int attempts, u32 place,
                    u64 key) except -1:
    """The message at the cursor waits for a consumer of its class, or has used its attempts."""
    cdef stray_t* stray = window.strays.put(special.id, window.next, attempts, WAITING)
    cdef bint again = window.attempts_of(window.next) > 1  # what was never sent here is sent once
    if key:
        window.hold(stray, key)
    if again and 0 < window._attempts_max <= attempts:
        window.stray_waits(stray)
    else:
        window.strays.queue(&window.tags.classes[place].waiting, stray)
        window.strays.note(stray)
    return window.jump(window.next + 1)


cdef int leave_one_out(Window window, Conn conn, special_t* special) except -1:
    if window.tracing:
        window.trace(FILTERED, special.id, window.next, <int>special.attempts, conn)
        window.forget_traced(special.id)
    window.note_finished(window.next, window.next + 1)
    return window.jump(window.next + 1)
