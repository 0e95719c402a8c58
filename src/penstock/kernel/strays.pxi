# Entries of the channel journal (docs/formats.md), 32 bytes each.

cdef enum:
    ENTRY_CURSOR = 1
    ENTRY_FINISHED = 2
    ENTRY_STRAY = 3
    ENTRY_GONE = 4
    ENTRY_RESET = 5


cdef packed struct entry_t:
    u8 kind
    u8 state
    u16 attempts
    u32 reserved
    i64 a
    i64 b
    u64 id


cdef int add_entry(buf_t* out, int kind, int state, int attempts, i64 a, i64 b,
                   u64 id) except -1:
    cdef entry_t entry
    entry.kind, entry.state, entry.attempts = kind, state, attempts
    entry.reserved = 0
    entry.a, entry.b, entry.id = a, b, id
    return buf_append(out, &entry, sizeof(entry_t))


# Messages that left the window's common path, in a table by id.
#
#     state      in the table with        and also in
#     WAITING    attempts so far          `waiting`, a queue of ids, first in first out
#     DELAYED    due time, wall clock     `delays`, a heap of (due time, id)
#     IN_FLIGHT  owner, deadline, mono    -
#     EXHAUSTED  attempts so far          `exhausted`, a queue of ids, until it is taken
#     BEHIND     attempts so far          the queue of its key (keyorder.pxi)
#
# Queue and heap hold ids and are checked against the table when something is taken out of them, so
# leaving a state costs nothing there. The table is open addressing; a removed stray keeps its id as
# a tombstone until the table is made anew. Every change but that between waiting, behind and
# exhausted, which the journal does not tell apart, is noted as a journal entry in `notes`.
#
# Where there is an order, each slot of the table has a link beside it, at the same index.

cdef enum:
    WAITING = 1
    DELAYED = 2
    IN_FLIGHT = 3
    EXHAUSTED = 5
    BEHIND = 6

cdef enum:  # Cause
    ENDED_TIMED_OUT = 1
    ENDED_REQUEUED = 2
    ENDED_DISCONNECTED = 3

cdef struct stray_t:
    u64 id  # 0: a slot never used
    i64 offset
    i64 deadline_ns  # in flight: mono; delayed: wall
    i64 delivered_ns
    i64 timestamp_ns  # of the message, when it is known
    u32 owner
    u32 turn  # of its latest entry in a queue; older entries are outlived
    u16 attempts
    u8 state  # 0: removed
    u8 cause  # of the end of its last attempt; 0: unknown

cdef struct link_t:
    u64 key  # hash; 0: it has none, or it is not known
    u64 before, after  # ids of its neighbours in the queue of the key
    bint holds  # no other message of the key is sent
    bint unknown  # its key stands in the log, and was not looked up

cdef struct turn_t:
    u64 id
    u64 turn

cdef struct delay_t:
    i64 due_ns
    u64 id

cdef enum:
    TABLE_MIN = 16


cdef inline u32 slot_of(u64 id, u32 capacity) noexcept:
    """Fibonacci hashing: ids differ in few bits."""
    return <u32>((id * <u64>0x9E3779B97F4A7C15) >> 32) & (capacity - 1)


cdef inline bint is_sooner(delay_t* one, delay_t* other) noexcept:
    """What is due at the same time comes in the order of the ids, which is mostly the log's."""
    return one.due_ns < other.due_ns or (one.due_ns == other.due_ns and one.id < other.id)


cdef int write_stray(buf_t* out, stray_t* stray) except -1:
    cdef bint stands = stray.state == EXHAUSTED or stray.state == BEHIND
    cdef int state = WAITING if stands else stray.state
    return add_entry(out, ENTRY_STRAY, state, stray.attempts, stray.offset,
                     stray.deadline_ns if stray.state == DELAYED else 0, stray.id)


cdef class Strays:
    cdef stray_t* table
    cdef link_t* links  # NULL: there is no order
    cdef bint linked
    cdef u32 capacity, count, used
    cdef i64 waiting_count, delayed_count, flying_count, exhausted_count, behind_count
    cdef i64 deadline_ns  # lower bound over those in flight, 0: none
    cdef buf_t waiting  # turn_t
    cdef buf_t exhausted  # turn_t
    cdef u32 turns
    cdef delay_t* delays
    cdef u32 delay_count, delay_capacity
    cdef buf_t notes

    def __cinit__(self):
        buf_init(&self.waiting)
        buf_init(&self.exhausted)
        buf_init(&self.notes)

    def __dealloc__(self):
        free(self.table)
        free(self.links)
        free(self.delays)
        buf_free(&self.waiting)
        buf_free(&self.exhausted)
        buf_free(&self.notes)

    # --- the table ---

    cdef stray_t* find(self, u64 id) noexcept:
        cdef u32 slot
        if self.count == 0:
            return NULL
        slot = slot_of(id, self.capacity)
        while self.table[slot].id:
            if self.table[slot].id == id and self.table[slot].state:
                return &self.table[slot]
            slot = (slot + 1) & (self.capacity - 1)
        return NULL

    cdef stray_t* put(self, u64 id, i64 offset, int attempts, int state) except NULL:
        """A new stray; pointers to others are not valid any more."""
        cdef u32 slot
        cdef stray_t* stray
        if id == 0:
            raise RuntimeError(f"the message at offset {offset} has no id")
        if self.find(id) != NULL:
            raise RuntimeError(f"message {id:016x} is a stray already")
        if (self.used + 1) * 4 > self.capacity * 3:
            self.grow()
        slot = slot_of(id, self.capacity)
        while self.table[slot].state:
            slot = (slot + 1) & (self.capacity - 1)
        stray = &self.table[slot]
        if stray.id == 0:
            self.used += 1
        memset(stray, 0, sizeof(stray_t))
        if self.linked:
            memset(self.link(stray), 0, sizeof(link_t))
        stray.id, stray.offset, stray.attempts = id, offset, attempts
        self.count += 1
        self.set_state(stray, state)
        return stray

    cdef int grow(self) except -1:
        """A new table of the right size, without tombstones."""
        cdef u32 capacity = TABLE_MIN, i, slot
        cdef stray_t* table
        cdef link_t* links = NULL
        while capacity < (self.count + 1) * 3:
            capacity *= 2
        table = <stray_t*>calloc(capacity, sizeof(stray_t))
        if self.linked:
            links = <link_t*>calloc(capacity, sizeof(link_t))
        if table == NULL or (self.linked and links == NULL):
            free(table)
            free(links)
            raise MemoryError(f"no memory for {capacity} strays")
        for i in range(self.capacity):
            if self.table[i].state:
                slot = slot_of(self.table[i].id, capacity)
                while table[slot].id:
                    slot = (slot + 1) & (capacity - 1)
                table[slot] = self.table[i]
                if self.linked:
                    links[slot] = self.links[i]
        free(self.table)
        free(self.links)
        self.table, self.links, self.capacity, self.used = table, links, capacity, self.count
        return 0

    cdef int link_all(self, bint linked) except -1:
        """From now on there is an order, or none; what is here has no key yet."""
        free(self.links)
        self.links, self.linked = NULL, linked
        if linked and self.capacity:
            self.links = <link_t*>calloc(self.capacity, sizeof(link_t))
            if self.links == NULL:
                raise MemoryError(f"no memory for the order of {self.capacity} strays")
        return 0

    cdef link_t* link(self, stray_t* stray) noexcept:
        return &self.links[stray - self.table]

    cdef void set_state(self, stray_t* stray, int state) noexcept:
        self.waiting_count += (state == WAITING) - (stray.state == WAITING)
        self.delayed_count += (state == DELAYED) - (stray.state == DELAYED)
        self.flying_count += (state == IN_FLIGHT) - (stray.state == IN_FLIGHT)
        self.exhausted_count += (state == EXHAUSTED) - (stray.state == EXHAUSTED)
        self.behind_count += (state == BEHIND) - (stray.state == BEHIND)
        stray.state = state

    cdef int remove(self, stray_t* stray) except -1:
        add_entry(&self.notes, ENTRY_GONE, 0, 0, stray.offset, 0, stray.id)
        self.set_state(stray, 0)
        self.count -= 1
        if self.count == 0:
            self.clear()
        return 0

    cdef void clear(self) noexcept:
        """Forget every stray; notes are kept."""
        if self.capacity > 1024:  # clearing it would cost more than a new one
            free(self.table)
            free(self.links)
            self.table, self.links, self.capacity = NULL, NULL, 0
        elif self.capacity:
            memset(self.table, 0, self.capacity * sizeof(stray_t))
        self.count = self.used = self.delay_count = 0
        self.waiting_count = self.delayed_count = self.flying_count = self.exhausted_count = 0
        self.behind_count = 0
        self.deadline_ns = 0
        buf_free(&self.waiting)
        buf_free(&self.exhausted)

    cdef int note(self, stray_t* stray) except -1:
        return write_stray(&self.notes, stray)

    cdef int write_all(self, buf_t* out) except -1:
        cdef u32 i
        for i in range(self.capacity):
            if self.table[i].state:
                write_stray(out, &self.table[i])
        return 0

    cdef i64 lowest_offset(self, i64 below) noexcept:
        cdef u32 i
        for i in range(self.capacity):
            if self.table[i].state and self.table[i].offset < below:
                below = self.table[i].offset
        return below

    # --- waiting ---

    cdef int queue(self, buf_t* waiting, stray_t* stray) except -1:
        cdef turn_t entry
        self.turns += 1
        stray.turn = self.turns
        entry.id, entry.turn = stray.id, self.turns
        if waiting.start > 4096:
            buf_compact(waiting)
        return buf_append(waiting, &entry, sizeof(turn_t))

    cdef stray_t* first_of(self, buf_t* waiting, int state) noexcept:
        """The stray at the head of a queue; entries that were outlived are dropped."""
        cdef stray_t* stray
        cdef turn_t* entry
        while waiting.start < waiting.length:
            entry = <turn_t*>(waiting.data + waiting.start)
            stray = self.find(entry.id)
            if stray != NULL and stray.state == state and stray.turn == entry.turn:
                return stray
            buf_take(waiting, sizeof(turn_t))
        return NULL

    cdef int wait(self, stray_t* stray) except -1:
        self.set_state(stray, WAITING)
        return self.queue(&self.waiting, stray)

    cdef int exhaust(self, stray_t* stray) except -1:
        self.set_state(stray, EXHAUSTED)
        return self.queue(&self.exhausted, stray)

    cdef stray_t* take_exhausted(self) noexcept:
        """The next one that was not taken yet, or NULL."""
        cdef stray_t* stray = self.first_of(&self.exhausted, EXHAUSTED)
        if stray != NULL:
            buf_take(&self.exhausted, sizeof(turn_t))
        return stray

    # --- in flight ---

    cdef int fly(self, stray_t* stray, u32 owner, i64 mono_ns, i64 deadline_ns) except -1:
        self.set_state(stray, IN_FLIGHT)
        stray.attempts += 1
        stray.owner, stray.delivered_ns, stray.deadline_ns = owner, mono_ns, deadline_ns
        self.expect(deadline_ns)
        return self.note(stray)

    cdef void expect(self, i64 deadline_ns) noexcept:
        if self.deadline_ns == 0 or deadline_ns < self.deadline_ns:
            self.deadline_ns = deadline_ns

    # --- delayed: a binary heap ---

    cdef int sleep(self, stray_t* stray, i64 due_ns) except -1:
        cdef u32 child = self.delay_count, parent
        cdef delay_t entry
        entry.due_ns, entry.id = due_ns, stray.id
        if self.delay_count == self.delay_capacity:
            self.delays = <delay_t*>grown(
                self.delays, sizeof(delay_t), &self.delay_capacity, TABLE_MIN, "delayed messages")
        self.set_state(stray, DELAYED)
        stray.deadline_ns = due_ns
        self.delay_count += 1
        while child:
            parent = (child - 1) >> 1
            if not is_sooner(&entry, &self.delays[parent]):
                break
            self.delays[child] = self.delays[parent]
            child = parent
        self.delays[child] = entry
        return self.note(stray)

    cdef void pop_delay(self) noexcept:
        cdef delay_t last
        cdef u32 parent = 0, child, right
        self.delay_count -= 1
        if self.delay_count == 0:
            return
        last = self.delays[self.delay_count]
        while True:
            child = 2 * parent + 1
            if child >= self.delay_count:
                break
            right = child + 1
            if right < self.delay_count and is_sooner(&self.delays[right], &self.delays[child]):
                child = right
            if not is_sooner(&self.delays[child], &last):
                break
            self.delays[parent] = self.delays[child]
            parent = child
        self.delays[parent] = last

    cdef stray_t* top_delay(self) noexcept:
        """The stray that is due first; entries that outlived their stray's delay are dropped."""
        cdef stray_t* stray
        while self.delay_count:
            stray = self.find(self.delays[0].id)
            if (stray != NULL and stray.state == DELAYED
                    and stray.deadline_ns == self.delays[0].due_ns):
                return stray
            self.pop_delay()
        return NULL

    cdef i64 first_due(self) noexcept:
        return self.delays[0].due_ns if self.top_delay() != NULL else 0

    cdef stray_t* take_due(self, i64 wall_ns) noexcept:
        cdef stray_t* stray = self.top_delay()
        if stray == NULL or stray.deadline_ns > wall_ns:
            return NULL
        self.pop_delay()
        return stray
