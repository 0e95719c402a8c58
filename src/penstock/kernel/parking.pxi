# Delayed messages become strays when they are handed to a channel, wherever its cursor stands: they
# are deferred, and no part of the depth.
#
# Those in memory are parked by the pump. What was handed over and is in the log alone has to be
# searched: the window says from where to where, the broker reads it, and `search` parks what it
# finds. So are those in memory that have an id of their own, for what they are a copy of may come
# before them, and those for which there is no room (`Beyond`).


cdef Trailer trailer_ahead(Window window, view_t* view):
    """Of the batch that the cursor is in; None: it has none."""
    if view.trailer == NULL:
        return None
    if window.forward_trailer is None:
        window.forward_trailer = Trailer()
    window.forward_trailer.open(view)
    return window.forward_trailer


cdef Trailer trailer_of_stray(Window window, view_t* view):
    if view.trailer == NULL:
        return None
    if window.stray_trailer is None:
        window.stray_trailer = Trailer()
    window.stray_trailer.open(view)
    return window.stray_trailer


cdef bint is_repeated(view_t* view, size_t end, u32 index) noexcept:
    """Do sections before `end` have a due time for the message, too? Then it was looked at."""
    cdef size_t position = 0
    cdef section_t section
    cdef i64 value
    while section_next(view.trailer, view.trailer_length, view.count, &position, &section) == 1:
        if position >= end:
            return False
        if section.type == SECTION_DUE and section_value(&section, index, &value):
            return True
    return False


# --- contents of memory ---

cdef int register_delayed(Window window, Hub hub) except -1:
    """Delayed messages at the cursor start their wait now, consumers or not (in memory only)."""
    cdef view_t view
    cdef special_t special
    cdef Trailer trailer
    cdef u32 index
    if window.skips.start <= window.next:
        window.step_over_skips()
    while window.next < window.tail.handed_end and window.tail.view(window.next, &view):
        if view.trailer == NULL:
            break
        trailer = trailer_ahead(window, &view)
        index = <u32>(window.next - view.base_offset)
        trailer.find(&view, index, &special)
        if special.due_ns <= hub.wall_ns:
            break
        if special.own_id and window.has(special.id):
            special.id = id_at(view.base_id, index)
        delay_next(window, &special, window.key_of(&view, trailer, index))
    if window.parked_end < window.tail.handed_end:
        park_ahead(window, hub)
    return 0


cdef int delay_next(Window window, special_t* special, u64 key) except -1:
    """The message at the cursor waits for its time."""
    window.beyond.met(window.next, special.due_ns)
    window.mark_traced(special.id, special.trace_id)
    park(window, window.next, special, key)
    window.jump(window.next + 1)
    if window.skips.start <= window.next:
        window.step_over_skips()
    return 0


cdef int park(Window window, i64 offset, special_t* special, u64 key) except -1:
    cdef stray_t* stray = window.strays.put(special.id, offset, <int>special.attempts, WAITING)
    if key:
        window.strays.link(stray).key = key
    return window.stray_sleeps(stray, special.due_ns)


cdef int park_at(Window window, view_t* view, i64 offset, special_t* special) except -1:
    """One ahead of the cursor, which is to step over it."""
    cdef u64 key = 0
    window.mark_traced(special.id, special.trace_id)
    if window._order:
        key = window.key_of(view, trailer_of_stray(window, view), <u32>(offset - view.base_offset))
    park(window, offset, special, key)
    return window.skips.add(offset, offset + 1)


cdef int park_ahead(Window window, Hub hub) except -1:
    """Those behind messages that are still to be delivered. What was handed over and has left
    memory since then is to be searched."""
    cdef Tail tail = window.tail
    cdef view_t view
    cdef i64 at = max(window.parked_end, window.next), batch_end
    cdef i64 end = tail.handed_end
    cdef i64 in_memory = end
    if tail.ring_count:
        in_memory = min(end, tail.ring[tail.ring_head & (tail.ring_capacity - 1)].base_offset)
    window.parked_end = end
    if at < in_memory:
        window.widen_search(at, in_memory)
        at = in_memory
    while at < min(tail.trailer_end, end):
        if not tail.view(at, &view):
            raise RuntimeError(f"{tail.topic!r}: offset {at} is in memory, and in no batch")
        batch_end = min(view.base_offset + view.count, end)
        if view.trailer != NULL and not park_batch(window, hub, &view, at, batch_end):
            return 0
        at = batch_end
    return 0


cdef bint park_batch(Window window, Hub hub, view_t* view, i64 start, i64 end) except -1:
    """False: there are too many by now."""
    cdef Trailer trailer = trailer_of_stray(window, view)
    cdef size_t position = 0
    cdef section_t section
    cdef special_t special
    cdef u32 i, index
    cdef i64 offset
    while section_next(view.trailer, view.trailer_length, view.count, &position, &section) == 1:
        if section.type != SECTION_DUE:
            continue
        for i in range(section.entries):
            index = load_u32(section.indexes + 4 * <size_t>i)
            offset = view.base_offset + index
            if offset < start or offset >= end or window.skips.has(offset):
                continue
            trailer.find(view, index, &special)
            if special.due_ns <= hub.wall_ns:
                continue
            if window.strays.delayed_count >= window.parked_max:
                window.widen_search(offset, window.tail.handed_end)
                return False
            if special.own_id:
                window.widen_search(offset, end)
            else:
                park_at(window, view, offset, &special)
    return True


# --- contents of the log ---

cdef int search_block(Window window, object buffer, i64 end, u64 ids_from) except -1:
    """Delayed messages of whole batches, from the window's `search_start` to `end`."""
    cdef Block block = Block(buffer)
    cdef view_t view
    cdef i64 at = block.first_offset
    while block.view(at, &view):
        if view.trailer != NULL:
            search_batch(window, &view, end, ids_from)
        at = view.base_offset + view.count
    return 0


cdef int search_batch(Window window, view_t* view, i64 end, u64 ids_from) except -1:
    cdef size_t position = 0, before = 0
    cdef section_t section
    cdef u32 i, index
    cdef i64 offset, start = window.search_start_c()
    while section_next(view.trailer, view.trailer_length, view.count, &position, &section) == 1:
        if section.type == SECTION_DUE:
            for i in range(section.entries):
                index = load_u32(section.indexes + 4 * <size_t>i)
                offset = view.base_offset + index
                if offset < start or offset >= end or window.skips.has(offset):
                    continue
                if not (before and is_repeated(view, position, index)):
                    search_one(window, view, index, ids_from)
            before = position
    return 0


cdef int search_one(Window window, view_t* view, u32 index, u64 ids_from) except -1:
    """No message that is still to be delivered has an id below `ids_from` by the log's own count;
    another may turn out to be the original, so there the log's id serves."""
    cdef Beyond beyond = window.beyond
    cdef special_t special
    cdef i64 offset = view.base_offset + index
    trailer_of_stray(window, view).find(view, index, &special)
    if special.own_id and (special.id >= ids_from or window.has(special.id)):
        special.id = id_at(view.base_id, index)
    if special.due_ns <= beyond.pass_ns:
        beyond.met(offset, special.due_ns)
    elif window.strays.delayed_count < window.parked_max and not window.has(special.id):
        beyond.met(offset, special.due_ns)
        park_at(window, view, offset, &special)
    elif beyond.counts(offset, special.due_ns):
        beyond.expect(special.due_ns)
    else:
        beyond.add(offset, special.due_ns)
    return 0
