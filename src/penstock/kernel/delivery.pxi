# Delivery: from batches, wherever they are, to message frames on a consumer's socket.
#
# Frames are those of framing.pxi, with what stands between id and body for clients
# that asked for it. They are built by copy into one shared scratch buffer and sent at once; what a
# socket does not take is copied to the connection, which gets nothing more until that is gone. So
# no batch is pinned by a slow consumer, and a connection holds at most one scratch buffer.

cdef enum:
    BEYOND_ALL = 4  # no Locality is as near
    OUT_OF_ROOM = -2
    REFILL_NS = 2000000  # a small refill waits so long; measured gains come from far shorter waits


# --- which consumer may have how much ---

cdef int pump_all(Hub hub) except -1:
    """See to all windows that are listed. Those whose consumers have others beside them go on in
    rounds, until nothing more is sent within the shares; then the rest is for any."""
    cdef list windows, rest
    cdef Window window
    if hub.shared_count:
        gather_siblings(hub)
        hub.pumps.sort(key=window_number)
    windows, hub.pumps = hub.pumps, []
    for window in windows:
        window.pump_listed = False
    rest = pump_round(windows, hub, PHASE_FIRST)
    while rest and has_sent(hub):
        rest = pump_round(rest, hub, PHASE_NEXT)
    if rest:
        rest = pump_round(rest, hub, PHASE_SPLIT)
    while rest and has_sent(hub):
        rest = pump_round(rest, hub, PHASE_SPLIT)
    if rest:
        pump_round(rest, hub, PHASE_FREE)
    return 0


cdef inline bint has_sent(Hub hub) noexcept:
    """Anything, in the last round."""
    return hub.sent_count != hub.sent_before


def window_number(Window window):
    return window.number


cdef list pump_round(list windows, Hub hub, int phase):
    """Those are returned that have more to send, and a consumer with room for others."""
    cdef Window window
    cdef list rest = None
    hub.sent_before = hub.sent_count
    if hub.shared_count and phase != PHASE_FREE:
        share_out(windows, hub, phase)
    for window in windows:
        if not window.forgotten and pump(window, hub, phase == PHASE_FREE):
            if rest is None:
                rest = []
            rest.append(window)
    return rest


cdef i64 offer(Window window, u32 i, bint patient, bint free) noexcept:
    """How many messages consumer `i` may have now, or PUT_OFF or PASSED_BY."""
    cdef Consumer consumer = <Consumer>window.consumer_table[i]
    cdef i64 room
    if consumer.window_count > 1:
        return offer_of(<Conn>window.conns[i], window, patient, free)
    room = room_of(consumer)
    return PUT_OFF if patient and is_small(consumer, room) else room


cdef int pump(Window window, Hub hub, bint free) except -1:
    """Deliver while there are messages and consumers with room. Returns 1 where a consumer was
    passed by for the sake of its other windows."""
    cdef u32 i, index, ready, count
    cdef i64 available, room, share
    cdef i64 sent
    cdef bint patient = window.refill_ns == 0 or hub.mono_ns < window.refill_ns
    cdef bint passed = False
    cdef int least = 0, nearer = BEYOND_ALL
    register_delayed(window, hub)
    if not patient:
        window.refill_ns = 0
    while not window._paused and window.allowance_left > 0:
        if window.unknown and window.consumer_count:
            window.step_over_skips()  # strays stand there, whose turn comes as the cursor passes
            if not window.knows_all():
                return 0
        available = window.deliverable_c()
        if available <= 0:
            return 0
        count = window.consumer_count
        ready = 0
        passed = False
        if window.prefers:
            least = nearest_with_room(window, nearer)
            patient = False  # to wait for a better refill would send messages further away
        for i in range(count):
            if (<Consumer>window.consumer_table[i]).nearness < least:
                continue
            room = offer(window, i, patient, free)
            ready += room > 0
            passed = passed or room == PASSED_BY
            if room == PUT_OFF:
                put_off(window, hub)
        if ready == 0:
            return passed
        sent = 0
        share = (available + ready - 1) // ready
        for i in range(count):
            index = (window.turn + i) % count
            if (<Consumer>window.consumer_table[index]).nearness < least:
                continue
            room = offer(window, index, patient, free)
            if room > 0:
                sent += deliver(window, <Conn>window.conns[index], hub, min(room, share), free)
            if window.consumer_count != count:
                window.mark_pump()  # one is gone: its socket failed
                return 0
        if sent == 0 and least > 0 and window.tags is not None:
            nearer = least  # what there is may be for others, which are further away
            continue
        if sent == 0:
            return passed
        nearer = BEYOND_ALL
        hub.sent_count += sent
        window.turn = (window.turn + 1) % count
    return 0


cdef int nearest_with_room(Window window, int nearer) noexcept:
    """The nearest level, further away than `nearer`, where a consumer has room."""
    cdef u32 i
    cdef int nearest = 0, locality
    for i in range(window.consumer_count):
        locality = (<Consumer>window.consumer_table[i]).nearness
        if locality < nearer and room_of(<Consumer>window.consumer_table[i]) > 0:
            nearest = max(nearest, locality)
    return nearest


cdef int put_off(Window window, Hub hub) except -1:
    if window.refill_ns == 0:
        window.refill_ns = hub.mono_ns + REFILL_NS
    if not window.short_listed:
        window.short_listed = True
        hub.shorts.append(window)
    return 0


# --- one consumer ---

cdef i64 deliver(Window window, Conn conn, Hub hub, i64 quota, bint free) except -1:
    """Up to `quota` messages to one consumer; returns how many."""
    cdef buf_t* out = &hub.scratch
    cdef bint direct = conn.fd >= 0 and conn.unsent_c() == 0 and conn.hold_ns == 0
    cdef i64 sent = 0, for_strays = 0, unsent = 0
    cdef bint more = window.next < window.tail.handed_end, split = False
    if direct:
        out.length = 0
    else:
        out = &conn.output
        unsent = conn.unsent_c()
    if window.strays.waiting_count:
        for_strays = quota
        if more:
            split = True
            for_strays = (quota + window.stray_turn) >> 1
        sent = deliver_strays(window, conn, hub, out, for_strays)
    if more and sent < quota:
        sent += deliver_forward(window, conn, hub, out, quota - sent)
        if sent < quota and window.strays.waiting_count:
            # new messages left room: they are all delayed, or have to be read first, or strays
            # wait since they were looked at
            sent += deliver_strays(window, conn, hub, out, quota - sent)
    if sent == 0:
        return 0  # what is held back for a full send is no output of this turn
    conn.in_flight += sent
    conn.message_count += sent
    window.delivered[conn.nearness] += sent
    if conn.window_count > 1 and not free:
        spend(conn, window, sent)
    window.stray_turn ^= split  # an attempt that has to read first is no turn
    window.mark_active()
    window.mark_journal()
    window.allowance_left -= <i64>(out.length if direct else conn.unsent_c()) - unsent
    if direct:
        send_now(conn, hub, out)
    else:
        if conn.hold_ns and conn.hold_since_ns == 0:
            conn.hold_since_ns = hub.mono_ns
        conn.blocked = conn.unsent_c() >= CHUNK_BYTES
        conn.mark_output()
    return sent


cdef i64 deliver_forward(Window window, Conn conn, Hub hub, buf_t* out, i64 quota) except -1:
    cdef i64 sent = 0, last, count, done
    cdef u32 index, special
    cdef int fate = SENT_NOW
    cdef view_t view
    cdef Trailer trailer
    cdef turn_of_t turn
    cdef bint found, singly = conn.sample_rate != 0
    begin_turn(window, conn, &turn)
    while sent < quota and out.length < CHUNK_BYTES:
        if window.skips.start <= window.next:
            window.step_over_skips()
        if window.next >= window.tail.handed_end or not window.may_go_on():
            break
        found = window.tail.view(window.next, &view)
        if not found and window.forward is not None:
            found = window.forward.view(window.next, &view)
        if not found:
            if not window.forward_needed:
                window.forward_needed = True
                hub.events.append((NEED, window, FORWARD_BLOCK, window.next))
            break
        last = min(view.base_offset + view.count, window.tail.handed_end)
        last = min(last, window.skips.start)
        count = min(quota - sent, last - window.next)
        index = special = <u32>(window.next - view.base_offset)
        trailer = trailer_ahead(window, &view)
        if (not singly and window.next >= window.redo_end
                and window.runs_on(&view, trailer, index, turn.sifts)):
            special = view.count if trailer is None else trailer.special_from(index)
        if special == index:
            done = deliver_one(window, conn, hub, out, &view, trailer, &turn)
        else:
            count = min(count, <i64>(special - index))
            if turn.sifts:
                fate = sift(window, conn, hub, trailer, index, &count, &turn)
            if fate != SENT_NOW:
                done = 0 if sift_out(window, conn, &view, fate, count, &turn) else OUT_OF_ROOM
            else:
                done = deliver_run(window, conn, hub, out, &view, trailer, count)
        if done == OUT_OF_ROOM:
            break
        sent += done
    return sent


cdef i64 deliver_run(Window window, Conn conn, Hub hub, buf_t* out, view_t* view, Trailer trailer,
                     i64 count) except -1:
    """The common case: a row of messages of one batch that have nothing special, as many as fit
    the chunk."""
    cdef u32 index = <u32>(window.next - view.base_offset)
    cdef u32 position = body_position(view, index, &window.forward_body)
    cdef u32 done
    cdef int attempts = window.attempts_of(window.next)
    cdef i64 deadline_ns = hub.mono_ns + conn.timeout_ns
    cdef i64 offset = window.next
    window.ring_room(count)
    if window.ring_keys != NULL or is_long_for(conn):
        done = put_long_run(window, conn, out, view, trailer, index, &position, <u32>count,
                            attempts, deadline_ns)
    else:
        done = put_plain_run(window, conn.serial, out, view, index, &position, <u32>count,
                             attempts, deadline_ns)
    window.forward_body.index, window.forward_body.position = index + done, position
    if window.trace_below:
        window.trace_run(SENT, view.base_id, index, offset, done, attempts, conn)
    window.runs.add(id_at(view.base_id, index), offset, done)
    if window.latencies is not None:
        window.latencies.delivered(offset, done, view.timestamp_ns)
    window.next += done
    window.cursor_changed = True
    if window.ring_in_flight == 0 or deadline_ns < window.ring_deadline_ns:
        window.ring_deadline_ns = deadline_ns
    window.ring_in_flight += done
    return done


cdef i64 deliver_one(Window window, Conn conn, Hub hub, buf_t* out, view_t* view,
                     Trailer trailer, turn_of_t* turn) except -1:
    """A message that may be special: due later, an id or attempts of its own, or sampled away.
    OUT_OF_ROOM: it is for others, and stays where it is.

    One that was in flight before a restart goes through the strays, whose attempts are journalled:
    the next restart counts on from there.
    """
    cdef u32 index = <u32>(window.next - view.base_offset)
    cdef u32 position
    cdef u32 size = load_u32(view.lengths + 4 * <size_t>index)
    cdef special_t special
    cdef stray_t* stray
    cdef int attempts, fate = SENT_NOW
    cdef u64 key
    cdef bint is_busy
    nothing_special(view, index, &special)
    if trailer is not None:
        trailer.find(view, index, &special)
    if special.own_id and (window.has(special.id) or conn.find(special.id) is not None):
        special.own_id, special.id = False, id_at(view.base_id, index)  # taken: the log's own
    key = window.key_of(view, trailer, index)
    if special.due_ns > hub.wall_ns:
        delay_next(window, &special, key)
        return 0
    is_busy = key and window.is_busy(key)
    if is_busy and window.stops(key):
        return 0
    if not is_busy:
        fate = fate_of(window, conn, hub, trailer, index, special.id, special.attempts, turn)
    if fate == ASIDE and not has_room_aside(window):
        return OUT_OF_ROOM
    window.beyond.met(window.next, special.due_ns)
    window.mark_traced(special.id, special.trace_id)
    attempts = window.attempts_of(window.next)
    if is_busy:
        wait_behind(window, &special, <int>special.attempts + attempts - 1, key)
        return 0
    if fate == LEFT_OUT:
        leave_one_out(window, conn, &special)
        return 0
    position = body_position(view, index, &window.forward_body)
    # beyond the bound: its last attempt was in flight when the daemon ended
    if fate == ASIDE or (attempts > 1 and 0 < window._attempts_max < special.attempts + attempts):
        wait_aside(window, &special, <int>special.attempts + attempts - 1, turn.tag_class, key)
        return 0
    if special.own_id or special.attempts or attempts > 1:
        stray = stray_at_cursor(window, &special, attempts, key)
        window.stray_flies(stray, conn, hub.mono_ns)
        stray.timestamp_ns = special.timestamp_ns
        put_one(out, conn, window, trailer, view, index, position, size, special.timestamp_ns,
                stray.attempts, special.id)
        if window.tracing:
            window.trace(SENT, special.id, window.next, stray.attempts, conn)
        window.jump(window.next + 1)
        return 1
    if window.tracing:
        window.trace(SENT, special.id, window.next, attempts, conn)
    put_one(out, conn, window, trailer, view, index, position, size, special.timestamp_ns,
            attempts, special.id)
    take_into_ring(window, &special, key, conn.serial, hub.mono_ns + conn.timeout_ns)
    return 1


cdef stray_t* stray_at_cursor(Window window, special_t* special, int attempts,
                              u64 key) except NULL:
    """The message at the cursor goes through the strays. `attempts` counts the one to come."""
    cdef stray_t* stray = window.strays.put(
        special.id, window.next, <int>special.attempts + attempts - 1, WAITING
    )
    if key:
        window.hold(stray, key)
    return stray


cdef int take_into_ring(Window window, special_t* special, u64 key, u32 serial,
                        i64 deadline_ns) except -1:
    """The message at the cursor is in flight."""
    cdef u32 slot
    window.ring_room(1)
    slot = window.next & (window.ring_capacity - 1)
    window.owners[slot], window.deadlines[slot] = serial, deadline_ns
    if window.ring_keys != NULL:
        window.hold_ring(slot, key)
    window.runs.add(special.id, window.next, 1)
    if window.latencies is not None:
        window.latencies.delivered(window.next, 1, special.timestamp_ns)
    window.next += 1
    window.cursor_changed = True
    if window.ring_in_flight == 0 or deadline_ns < window.ring_deadline_ns:
        window.ring_deadline_ns = deadline_ns
    window.ring_in_flight += 1
    return 0


cdef int wait_behind(Window window, special_t* special, int attempts, u64 key) except -1:
    """The message at the cursor waits behind another of its key."""
    cdef stray_t* stray = window.strays.put(special.id, window.next, attempts, WAITING)
    window.put_behind(stray, key)
    window.strays.note(stray)
    return window.jump(window.next + 1)


cdef stray_t* known_apart(Window window, Conn conn, stray_t* stray, u64 log_id) except NULL:
    """The stray, with the log's own id if another window of the consumer has a message of the id
    that it came with: a FIN means one message."""
    cdef bint is_single = conn.window_count < 2 or stray.id == log_id or window.has(log_id)
    if is_single or not conn.has_beside(window, stray.id):
        return stray
    return window.rename_stray(stray, log_id)


cdef bint is_hopeless(Window window, stray_t* stray, i64 timestamp_ns, i64 wall_ns) noexcept:
    """Was it sent so often, and is it so old, that it is not sent again?"""
    if not window.auto_ack_attempts or stray.attempts <= window.auto_ack_attempts:
        return False
    return wall_ns - timestamp_ns > window.auto_ack_age_ns


cdef stray_t* next_stray(Window window, turn_of_t* turn, buf_t** queue) noexcept:
    """Of those that wait: the consumer's own, or one that may be. `queue` is where it stands."""
    cdef stray_t* stray
    if window.tags is not None:
        queue[0] = &window.tags.classes[turn.mine].waiting
        stray = window.strays.first_of(queue[0], WAITING)
        if stray != NULL:
            return stray
    queue[0] = &window.strays.waiting
    return window.strays.first_of(queue[0], WAITING)


cdef bint is_for_others(Window window, Trailer trailer, u32 index, turn_of_t* turn,
                        buf_t* queue) except -1:
    """Then it waits for them."""
    if window.tags is None or queue != &window.strays.waiting:
        return False
    turn.tag_class = window.tags.class_of(trailer, index)
    if turn.tag_class == turn.mine:
        return False
    window.tags.sort_out(window.strays, turn.tag_class)
    return True


cdef i64 deliver_strays(Window window, Conn conn, Hub hub, buf_t* out, i64 quota) except -1:
    cdef i64 sent = 0
    cdef stray_t* stray
    cdef buf_t* queue
    cdef view_t view
    cdef special_t special
    cdef Trailer trailer
    cdef turn_of_t turn
    cdef u32 index, position, size
    begin_turn(window, conn, &turn)
    while sent < quota and out.length < CHUNK_BYTES:
        stray = next_stray(window, &turn, &queue)
        if stray == NULL:
            break
        if not view_stray(window, stray, &view):
            break
        index = <u32>(stray.offset - view.base_offset)
        trailer = trailer_of_stray(window, &view)
        if is_for_others(window, trailer, index, &turn, queue):
            continue
        buf_take(queue, sizeof(turn_t))
        if is_left_out(window, conn, hub, trailer, index, stray.id, stray.attempts):
            if window.tracing:
                window.trace(FILTERED, stray.id, stray.offset, stray.attempts, conn)
            window.remove_stray(stray)
            continue
        position = body_position(&view, index, &window.stray_body)
        size = load_u32(view.lengths + 4 * <size_t>index)
        stray = known_apart(window, conn, stray, id_at(view.base_id, index))
        nothing_special(&view, index, &special)
        if trailer is not None:
            trailer.find(&view, index, &special)
            window.mark_traced(stray.id, special.trace_id)
        if is_hopeless(window, stray, special.timestamp_ns, hub.wall_ns):
            if window.tracing:
                window.trace_stray(SKIPPED, stray)
            window.auto_ack_count += 1
            window.remove_stray(stray)
            continue
        window.stray_flies(stray, conn, hub.mono_ns)
        stray.timestamp_ns = special.timestamp_ns
        put_one(out, conn, window, trailer, &view, index, position, size,
                special.timestamp_ns, stray.attempts, stray.id)
        if window.tracing:
            window.trace(SENT, stray.id, stray.offset, stray.attempts, conn)
        sent += 1
    return sent
