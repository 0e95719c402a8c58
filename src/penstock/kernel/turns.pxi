# What is drawn for a message of a sampled consumer: 0 to 99.
#
# A draw is a function of the engine's seed, the connection, the message and its attempts: so a
# history can be played again, and it does not matter in which order consumers are served. The
# engine's seed is passed in, as the time is; a daemon draws one when it starts.
#
# `mix` is the end of splitmix64, which spreads numbers that differ in few bits over all numbers.
# Serials and attempts go through it by themselves first: else the next message's first attempt
# would draw what this one's second drew.

cdef enum:
    SAMPLE_DRAWS = 100


cdef inline u64 mix(u64 number) noexcept:
    number = (number ^ (number >> 30)) * <u64>0xBF58476D1CE4E5B9
    number = (number ^ (number >> 27)) * <u64>0x94D049BB133111EB
    return number ^ (number >> 31)


cdef inline u32 sample_draw(u64 seed, u32 serial, u64 id, u32 attempts) noexcept:
    cdef u64 stream = mix(seed + <u64>0x9E3779B97F4A7C15 * (((<u64>attempts) << 32) + serial))
    return <u32>(mix(stream ^ id) % SAMPLE_DRAWS)


# What becomes of a message at a consumer's turn: it is sent, or is for others, or is left out.
#
# Messages in a row that meet the same fate are taken together, so that a consumer with a filter or
# a tag is served in runs as others are.

cdef enum:  # fates
    SENT_NOW = 0
    LEFT_OUT = 1  # of the channel: the consumer does not want it
    ASIDE = 2  # for consumers with another tag

cdef struct turn_of_t:  # a consumer's turn
    u32 mine  # its class (filters.pxi)
    u32 tag_class  # that of the message looked at last
    bint sifts  # may anything but SENT_NOW come up, with messages that have nothing special?


cdef enum:
    TAG_ASIDE_MAX = 16384  # messages that wait beside the cursor; beyond it the cursor waits, too


cdef void begin_turn(Window window, Conn conn, turn_of_t* turn) noexcept:
    turn.mine = turn.tag_class = NO_TAG
    turn.sifts = conn.sieve is not None or window.skips_tests
    if window.tags is not None:
        turn.mine = window.tags.find(conn.tag_text, conn.tag_bytes)
        turn.sifts = True


cdef bint is_left_out(Window window, Conn conn, Hub hub, Trailer trailer, u32 index, u64 id,
                      i64 attempts) except -1:
    """NSQ's draw is 0 to 99; what is above the rate is dropped for good."""
    if conn.sample_rate:
        if sample_draw(hub.seed, conn.serial, id, <u32>attempts) > <u32>conn.sample_rate:
            return True
    if window.skips_tests and is_test(trailer, index):
        return True
    return conn.sieve is not None and not conn.sieve.passes(trailer, index)


cdef int fate_of(Window window, Conn conn, Hub hub, Trailer trailer, u32 index, u64 id,
                 i64 attempts, turn_of_t* turn) except -1:
    if window.tags is not None:
        turn.tag_class = window.tags.class_of(trailer, index)
        if turn.tag_class != turn.mine:
            return ASIDE
    return LEFT_OUT if is_left_out(window, conn, hub, trailer, index, id, attempts) else SENT_NOW


cdef int sift(Window window, Conn conn, Hub hub, Trailer trailer, u32 index, i64* count,
              turn_of_t* turn) except -1:
    """The fate of the next messages, which have nothing special; `count` is then how many share
    it."""
    cdef int fate = fate_of(window, conn, hub, trailer, index, 0, 0, turn)
    cdef u32 tag_class = turn.tag_class
    cdef i64 done = 1
    while done < count[0]:
        if (fate_of(window, conn, hub, trailer, index + <u32>done, 0, 0, turn) != fate
                or turn.tag_class != tag_class):
            break
        done += 1
    count[0], turn.tag_class = done, tag_class
    return fate


cdef i64 sift_out(Window window, Conn conn, view_t* view, int fate, i64 count,
                  turn_of_t* turn) except -1:
    """How many messages are out of the cursor's way; 0: there is no room to put them aside."""
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
            stray = window.strays.put(id_at(view.base_id, index + i), window.next + i, 0, WAITING)
            window.strays.queue(&window.tags.classes[turn.tag_class].waiting, stray)
            window.strays.note(stray)
    window.jump(window.next + count)
    return count


cdef bint has_room_aside(Window window) noexcept:
    return window.strays.waiting_count < TAG_ASIDE_MAX


cdef int wait_aside(Window window, special_t* special, int attempts, u32 tag_class,
                    u64 key) except -1:
    """The message at the cursor waits for a consumer of its class, or has used its attempts."""
    cdef stray_t* stray = window.strays.put(special.id, window.next, attempts, WAITING)
    cdef bint again = window.attempts_of(window.next) > 1  # what was never sent here is sent once
    if key:
        window.hold(stray, key)
    if again and 0 < window._attempts_max <= attempts:
        window.stray_waits(stray)
    else:
        window.strays.queue(&window.tags.classes[tag_class].waiting, stray)
        window.strays.note(stray)
    return window.jump(window.next + 1)


cdef int leave_one_out(Window window, Conn conn, special_t* special) except -1:
    if window.tracing:
        window.trace(FILTERED, special.id, window.next, <int>special.attempts, conn)
        window.forget_traced(special.id)
    window.note_finished(window.next, window.next + 1)
    return window.jump(window.next + 1)


# How the windows of one connection share its room: no window waits for more than its share.
#
# Deliveries go in rounds. At the beginning of each the free room of a connection is divided among
# those of its windows that have something to send, and what does not divide goes to one window
# after the other, so that with RDY 1 they take turns. A window sends no more than its share. What
# is left, because some had less to send, is divided again, as long as anything is sent; then it is
# for any window, as where the others wait to be read or prefer a nearer consumer.
#
# A large room is kept whole, for each window that is touched costs a turn: a record in its journal,
# a send, and as much again when the FINs come. First those windows get all they have that have less
# than an even share; the rest is for one of the others, each in its turn, and what that one leaves
# is for the next. When a round sends nothing, as where that one waits for its order, the room is
# divided as a small one is.
#
# Bytes are shared, too: when the output of a connection was full, whoever came first had it all. In
# the round after that one window gets all of the room, each in its turn.
#
# A connection with one window has no shares, and costs nothing here.

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

cdef inline i64 room_of(Consumer consumer) noexcept:
    cdef i64 room = consumer.rdy_count - consumer.in_flight
    return 0 if room <= 0 or consumer.closing or consumer.blocked or consumer.eof else room

cdef inline bint is_small(Consumer consumer, i64 room) noexcept:
    """Hysteresis: a large RDY is refilled in pieces worth a send. A smaller one is put off, but
    never for good: some clients answer nothing before they hold all that they asked for."""
    return (room > 0 and consumer.rdy_count >= HYSTERESIS_RDY_MIN
            and 2 * consumer.in_flight > consumer.rdy_count and 4 * room < consumer.rdy_count)


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
            if (conn.window_count > 1 and conn.gather_round != hub.round
                    and room_of(conn) > 0):
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
            if conn.window_count > 1 and conn.share_round != hub.round:
                conn.share_round = hub.round
                share_room(conn, phase)
    return 0


cdef bint has_to_send(Window window) noexcept:
    return (not window._paused and not window.forward_needed and not window.stray_needed
            and window.deliverable_c() > 0)


cdef int share_room(Peer conn, int phase) except -1:
    cdef u32 ready = 0
    cdef i64 room = room_of(conn)
    cdef Window window
    clear_grants(conn)
    conn.share_small = is_small(conn, room)
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
    cdef u32 count = conn.window_count
    cdef i64* grants
    if conn.grant_capacity < count:
        grants = <i64*>realloc(conn.grants, count * sizeof(i64))
        if grants == NULL:
            raise MemoryError("no memory for the shares of windows")
        conn.grants, conn.grant_capacity = grants, count
    memset(conn.grants, 0, count * sizeof(i64))
    return 0


cdef void grant_evenly(Peer conn, i64 each, i64 extra) noexcept:
    cdef u32 i, index, count = conn.window_count
    for i in range(count):
        index = (conn.turn + i) % count
        if not has_to_send(<Window>conn.subscribed[index]):
            continue
        conn.grants[index] = each + (extra > 0)
        if extra == 1:
            conn.turn_next = (index + 1) % count
        extra -= extra > 0


cdef void grant_whole(Peer conn, i64 room, i64 little) noexcept:
    """All they have to those with no more than `little`; the rest to the first of the others."""
    cdef u32 i, index, count = conn.window_count, first = count
    cdef i64 deliverable
    for i in range(count):
        index = (conn.turn + i) % count
        if not has_to_send(<Window>conn.subscribed[index]):
            continue
        deliverable = (<Window>conn.subscribed[index]).deliverable_c()
        if deliverable <= little:
            conn.grants[index] = deliverable
            room -= deliverable
        elif first == count:
            first = index
    if first < count:
        conn.grants[first] = room
        conn.turn_next = (first + 1) % count


cdef i64 offer_of(Peer conn, Window window, bint patient, bint free) noexcept:
    cdef i64 room = room_of(conn), grant
    if room == 0:
        return 0
    if patient and conn.share_small:
        return PUT_OFF
    if free:
        return room
    grant = conn.grants[conn.index_of(window)]
    return min(grant, room) if grant > 0 else PASSED_BY


cdef int spend(Peer conn, Window window, i64 count) except -1:
    conn.grants[conn.index_of(window)] -= count
    conn.turn, conn.crowded = conn.turn_next, False
    return 0
