"""How the windows of one connection share its room (declared in shares.pxd)."""

from libc.stdlib cimport realloc
from libc.string cimport memset

from penstock.kernel.fast.hub cimport Hub
from penstock.kernel.fast.parking cimport register_delayed
from penstock.kernel.fast.peer cimport Peer
from penstock.kernel.fast.types cimport i64, u32
from penstock.kernel.fast.window cimport Window


cdef int gather_siblings(Hub hub) except -1:
    cdef Py_ssize_t at = 0
    cdef Window window, sibling
    cdef Peer conn
    hub.round += 1
    while at < len(hub.pumps):  # it grows
        window = <Window>hub.pumps[at]
        at += 1
        if window.forgotten:
            continue
        register_delayed(window, hub)
        for conn in window.conns:
            if (conn.me.window_count > 1 and conn.gather_round != hub.round
                    and room_of(conn.me) > 0):
                conn.gather_round = hub.round
                for sibling in conn.subscribed:
                    if sibling.deliverable_c() > 0:
                        sibling.mark_pump()
    return 0


cdef int share_out(list windows, Hub hub, int phase) except -1:
    """At the beginning of a round, before anything of it is sent."""
    cdef Window window
    cdef Peer conn
    hub.round += 1
    for window in windows:
        for conn in window.conns:
            if conn.me.window_count > 1 and conn.share_round != hub.round:
                conn.share_round = hub.round
                share_room(conn, phase)
    return 0


cdef bint has_to_send(Window window) noexcept:
    return (not window._paused and not window.forward_needed and not window.stray_needed
            and window.deliverable_c() > 0)


cdef int share_room(Peer conn, int phase) except -1:
    cdef u32 ready = 0
    cdef i64 room = room_of(conn.me)
    cdef Window window
    clear_grants(conn)
    conn.share_small = is_small(conn.me, room)
    if phase != PHASE_NEXT:
        conn.share_whole = phase == PHASE_FIRST and room >= WHOLE_ROOM_MIN
    conn.turn_next = conn.turn
    for window in conn.subscribed:
        ready += has_to_send(window)
    if room == 0 or ready == 0:
        return 0
    if conn.crowded:
        grant_whole(conn, room, -1)
    elif conn.share_whole:
        grant_whole(conn, room, room // ready)
    else:
        grant_evenly(conn, room // ready, room % ready)
    return 0


cdef int clear_grants(Peer conn) except -1:
    cdef u32 count = conn.me.window_count
    cdef i64* grants
    if conn.grant_capacity < count:
        grants = <i64*>realloc(conn.grants, count * sizeof(i64))
        if grants == NULL:
            raise MemoryError("no memory for the shares of windows")
        conn.grants, conn.grant_capacity = grants, count
    memset(conn.grants, 0, count * sizeof(i64))
    return 0


cdef void grant_evenly(Peer conn, i64 each, i64 extra) noexcept:
    cdef u32 i, place, count = conn.me.window_count
    for i in range(count):
        place = (conn.turn + i) % count
        if not has_to_send(<Window>conn.subscribed[place]):
            continue
        conn.grants[place] = each + (extra > 0)
        if extra == 1:
            conn.turn_next = (place + 1) % count
        extra -= extra > 0


cdef void grant_whole(Peer conn, i64 room, i64 little) noexcept:
    """All they have to those with no more than `little`; the rest to the first of the others."""
    cdef u32 i, place, count = conn.me.window_count, first = count
    cdef i64 deliverable
    for i in range(count):
        place = (conn.turn + i) % count
        if not has_to_send(<Window>conn.subscribed[place]):
            continue
        deliverable = (<Window>conn.subscribed[place]).deliverable_c()
        if deliverable <= little:
            conn.grants[place] = deliverable
            room -= deliverable
        elif first == count:
            first = place
    if first < count:
        conn.grants[first] = room
        conn.turn_next = (first + 1) % count


cdef i64 offer_of(Peer conn, Window window, bint patient, bint free) noexcept:
    cdef i64 room = room_of(conn.me), grant
    if room == 0:
        return 0
    if patient and conn.share_small:
        return PUT_OFF
    if free:
        return room
    grant = conn.grants[conn.place_of(window)]
    return min(grant, room) if grant > 0 else PASSED_BY


cdef int spend(Peer conn, Window window, i64 count) except -1:
    conn.grants[conn.place_of(window)] -= count
    conn.turn, conn.crowded = conn.turn_next, False
    return 0
