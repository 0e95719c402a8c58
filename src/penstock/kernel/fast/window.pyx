"""One channel on one partition (declared, and explained, in window.pxd)."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

from penstock.kernel.fast.batch cimport HEADER_BYTES, batch_header_t, id_at_c, id_index_c
from penstock.kernel.fast.buffer cimport buf_append, buf_compact, buf_free, buf_init, buf_take
from penstock.kernel.fast.hub cimport Hub
from penstock.kernel.fast.tail cimport Tail, view_t

cdef enum:
    WAITING = 1
    DELAYED = 2
    IN_FLIGHT = 3
    DONE = 0
    NOT_IN_FLIGHT = 1
    NOT_OWNER = 2
    RING_SPAN_MAX = 65536
    RING_SPAN_MIN = 64
    ENTRY_CURSOR = 1
    ENTRY_FINISHED = 2
    ENTRY_STRAY = 3
    ENTRY_GONE = 4
    ENTRY_RESET = 5

cdef long long NEVER = <long long>0x7FFFFFFFFFFFFFFF


cdef packed struct entry_t:
    unsigned char kind
    unsigned char state
    unsigned short attempts
    unsigned int reserved
    long long a
    long long b
    unsigned long long id


cdef int add_entry(buf_t* out, int kind, int state, int attempts, long long a, long long b,
                   unsigned long long id) except -1:
    cdef entry_t entry
    entry.kind, entry.state, entry.attempts = kind, state, attempts
    entry.reserved = 0
    entry.a, entry.b, entry.id = a, b, id
    return buf_append(out, &entry, sizeof(entry_t))


cdef class Block:
    """Whole sound batches read from a file; keeps the Python buffer alive."""

    def __cinit__(self, object keeper):
        cdef size_t position = 0
        cdef const batch_header_t* header
        PyObject_GetBuffer(keeper, &self.buffer, PyBUF_SIMPLE)
        self.held = True
        self.data = <const unsigned char*>self.buffer.buf
        self.size = self.buffer.len
        self.starts = []
        self.first_offset = self.end_offset = 0
        while position + HEADER_BYTES <= self.size:
            header = <const batch_header_t*>(self.data + position)
            if header.length < HEADER_BYTES or position + header.length > self.size:
                break
            if not self.starts:
                self.first_offset = header.base_offset
            self.starts.append(position)
            self.end_offset = header.base_offset + header.count
            position += header.length
        if position != self.size:
            raise ValueError(f"block of {self.size} bytes does not end with a batch: {position}")

    cdef int release(self) except -1:
        if self.held:
            self.held = False
            PyBuffer_Release(&self.buffer)
        return 0

    def __dealloc__(self):
        if self.held:
            self.held = False
            PyBuffer_Release(&self.buffer)

    cdef bint view(self, long long offset, view_t* out) except -1:
        cdef Py_ssize_t low = 0, high = len(self.starts), middle
        cdef const batch_header_t* header
        cdef size_t at
        if offset < self.first_offset or offset >= self.end_offset:
            return False
        while high - low > 1:
            middle = (low + high) >> 1
            at = self.starts[middle]
            if (<const batch_header_t*>(self.data + at)).base_offset <= offset:
                low = middle
            else:
                high = middle
        at = self.starts[low]
        header = <const batch_header_t*>(self.data + at)
        if offset >= header.base_offset + header.count:
            return False
        out.base_offset = header.base_offset
        out.base_id = header.base_id
        out.timestamp_ns = header.timestamp_ns
        out.count = header.count
        out.bodies_length = header.bodies_length
        out.lengths = self.data + at + HEADER_BYTES
        out.bodies = out.lengths + 4 * <size_t>header.count
        out.trailer = NULL
        out.trailer_length = 0
        if header.flags & 1:
            out.trailer = out.bodies + header.bodies_length
            out.trailer_length = self.data + at + header.length - out.trailer
        return True


cdef class Window:
    def __cinit__(self, Hub hub not None, Tail tail not None, long long start):
        self.hub, self.tail = hub, tail
        self.low = self.next = start
        self.redo_end = 0
        self.count_base = tail.handed_end
        self.touch_max_ns = 900 * <long long>1000000000
        self.skips, self.conns = [], []
        self.skip_start = NEVER
        self.forward_place.base_offset = self.stray_place.base_offset = -1
        buf_init(&self.waiting)
        buf_init(&self.journal)
        self.cursor_changed = True

    def __dealloc__(self):
        free(self.owners)
        free(self.deadlines)
        free(self.runs)
        free(self.strays)
        free(self.delays)
        free(self.fins)
        free(self.consumer_table)
        buf_free(&self.waiting)
        buf_free(&self.journal)

    # --- lists of the hub ---

    cdef int mark_pump(self) except -1:
        if not self.pump_listed and not self.forgotten:
            self.pump_listed = True
            self.hub.pumps.append(self)
        return 0

    cdef int mark_journal(self) except -1:
        if not self.journal_listed and not self.forgotten:
            self.journal_listed = True
            self.hub.journals.append(self)
        return 0

    cdef int mark_active(self) except -1:
        if not self.active_listed and not self.forgotten:
            self.active_listed = True
            self.hub.active.append(self)
        return 0

    # --- what people and the broker see ---

    @property
    def paused(self):
        return self._paused

    @paused.setter
    def paused(self, bint value):
        self._paused = value
        self.mark_pump()

    cdef long long depth_c(self) noexcept:
        cdef long long ahead = self.tail.handed_end - self.next - self.skipped_ahead
        return (ahead if ahead > 0 else 0) + self.strays_waiting

    @property
    def depth(self):
        return self.depth_c()

    @property
    def in_flight(self):
        return self.ring_in_flight + self.strays_in_flight

    @property
    def delayed(self):
        return self.strays_delayed

    @property
    def message_count(self):
        return self.tail.handed_end - self.count_base

    @property
    def consumers(self):
        return self.consumer_count

    @property
    def journal_dirty(self):
        return self.journal_listed

    @property
    def deadline_ns(self):
        cdef long long ring = self.ring_deadline_ns if self.ring_in_flight else 0
        cdef long long stray = self.stray_deadline_ns if self.strays_in_flight else 0
        if ring and stray:
            return min(ring, stray)
        return ring or stray

    @property
    def due_ns(self):
        cdef stray_t* stray
        while self.delay_count:
            stray = self.find_stray(self.delays[0].id)
            if stray != NULL and stray.state == DELAYED and stray.deadline_ns == self.delays[0].due_ns:
                return self.delays[0].due_ns
            self.pop_delay()
        return 0

    @property
    def floor(self):
        cdef long long floor = self.low
        cdef unsigned int i
        for i in range(self.stray_capacity):
            if self.strays[i].state and self.strays[i].offset < floor:
                floor = self.strays[i].offset
        return floor

    cdef bint has_timers(self) noexcept:
        return self.ring_in_flight or self.strays_in_flight or self.strays_delayed

    # --- consumers ---

    cdef consumer_t* consumer(self, unsigned int serial) noexcept:
        cdef unsigned int i
        for i in range(self.consumer_count):
            if self.consumer_table[i].serial == serial:
                return self.consumer_table[i]
        return NULL

    cdef int add_consumer(self, object conn, consumer_t* consumer) except -1:
        if self.consumer_count == self.consumer_capacity:
            self.consumer_capacity = self.consumer_capacity * 2 if self.consumer_capacity else 4
            self.consumer_table = <consumer_t**>realloc(
                self.consumer_table, self.consumer_capacity * sizeof(consumer_t*)
            )
            if self.consumer_table == NULL:
                raise MemoryError("no memory for consumers")
        self.consumer_table[self.consumer_count] = consumer
        self.consumer_count += 1
        self.conns.append(conn)
        self.mark_pump()
        return 0

    cdef int remove_consumer(self, object conn, consumer_t* consumer) except -1:
        cdef unsigned int i
        for i in range(self.consumer_count):
            if self.consumer_table[i] == consumer:
                self.consumer_count -= 1
                while i < self.consumer_count:
                    self.consumer_table[i] = self.consumer_table[i + 1]
                    i += 1
                self.conns.remove(conn)
                break
        if self.consumer_count == 0:
            self.forward = None
            self.stray_block = None
            self.forward_needed = self.stray_needed = False
        return 0

    # --- the ring ---

    cdef int ring_room(self, long long count) except -1:
        """Make [low, next + count) fit. Beyond the span the oldest message becomes a stray."""
        cdef long long span = self.next + count - self.low
        cdef unsigned int capacity, mask, old_mask
        cdef unsigned int* owners
        cdef long long* deadlines
        cdef long long offset
        if span <= self.ring_capacity:
            return 0
        while span > RING_SPAN_MAX and self.low < self.next:
            self.evict_low()
            span = self.next + count - self.low
        capacity = self.ring_capacity if self.ring_capacity else RING_SPAN_MIN
        while capacity < span:
            capacity *= 2
        if capacity <= self.ring_capacity:
            return 0
        owners = <unsigned int*>calloc(capacity, sizeof(unsigned int))
        deadlines = <long long*>calloc(capacity, sizeof(long long))
        if owners == NULL or deadlines == NULL:
            free(owners)
            free(deadlines)
            raise MemoryError(f"no memory for {capacity} messages in flight")
        mask, old_mask = capacity - 1, self.ring_capacity - 1
        offset = self.low
        while offset < self.next:
            owners[offset & mask] = self.owners[offset & old_mask]
            deadlines[offset & mask] = self.deadlines[offset & old_mask]
            offset += 1
        free(self.owners)
        free(self.deadlines)
        self.owners, self.deadlines, self.ring_capacity = owners, deadlines, capacity
        return 0

    cdef int evict_low(self) except -1:
        if self.owners[self.low & (self.ring_capacity - 1)]:
            self.make_stray(self.low)
        self.advance_low()
        return 0

    cdef int evict_all(self) except -1:
        while self.low < self.next:
            self.evict_low()
        return 0

    cdef void advance_low(self) noexcept:
        cdef unsigned int mask = self.ring_capacity - 1
        cdef long long low = self.low
        cdef run_t* run
        while low < self.next and self.owners[low & mask] == 0:
            low += 1
        if low == self.low:
            return
        self.low = low
        self.cursor_changed = True
        while self.run_count:
            run = &self.runs[self.run_head]
            if run.first_offset + run.count > low:
                break
            self.run_head = (self.run_head + 1) & (self.run_capacity - 1)
            self.run_count -= 1
            if self.run_hint:
                self.run_hint -= 1

    cdef stray_t* make_stray(self, long long offset) except NULL:
        """Move an in-flight message from the ring to the strays; the caller sets what follows."""
        cdef unsigned int slot = offset & (self.ring_capacity - 1)
        cdef stray_t* stray = self.put_stray(
            self.id_of(offset), offset, self.attempts_of(offset), IN_FLIGHT
        )
        cdef consumer_t* consumer = self.consumer(self.owners[slot])
        stray.owner = self.owners[slot]
        stray.deadline_ns = self.deadlines[slot]
        stray.delivered_ns = stray.deadline_ns - (
            consumer.timeout_ns if consumer != NULL else 0
        )
        if self.stray_deadline_ns == 0 or stray.deadline_ns < self.stray_deadline_ns:
            self.stray_deadline_ns = stray.deadline_ns
        self.owners[slot] = 0
        self.ring_in_flight -= 1
        self.note_stray(stray)
        return stray

    cdef int attempts_of(self, long long offset) noexcept:
        return 2 if offset < self.redo_end else 1

    # --- runs: ids of what is in the ring ---

    cdef int add_run(self, unsigned long long first_id, long long first_offset, unsigned int count) except -1:
        cdef run_t* run
        cdef run_t* grown
        cdef unsigned int i, capacity
        if self.run_count:
            run = &self.runs[(self.run_head + self.run_count - 1) & (self.run_capacity - 1)]
            if (run.first_offset + run.count == first_offset
                    and id_at_c(run.first_id, run.count) == first_id):
                run.count += count
                return 0
        if self.run_count == self.run_capacity:
            capacity = self.run_capacity * 2 if self.run_capacity else 8
            grown = <run_t*>calloc(capacity, sizeof(run_t))
            if grown == NULL:
                raise MemoryError("no memory for runs")
            for i in range(self.run_count):
                grown[i] = self.runs[(self.run_head + i) & (self.run_capacity - 1)]
            free(self.runs)
            self.runs, self.run_head, self.run_capacity = grown, 0, capacity
        run = &self.runs[(self.run_head + self.run_count) & (self.run_capacity - 1)]
        run.first_id, run.first_offset, run.count = first_id, first_offset, count
        self.run_count += 1
        return 0

    cdef long long offset_of(self, unsigned long long id) noexcept:
        """Offset of an id that was delivered from the log's own ids, or -1."""
        cdef unsigned int mask = self.run_capacity - 1
        cdef unsigned int low = 0, high = self.run_count, middle
        cdef run_t* run
        cdef long long index
        if high == 0:
            return -1
        if self.run_hint < high:
            run = &self.runs[(self.run_head + self.run_hint) & mask]
            index = id_index_c(run.first_id, run.count, id)
            if index >= 0:
                return run.first_offset + index
        while high - low > 1:
            middle = (low + high) >> 1
            if self.runs[(self.run_head + middle) & mask].first_id <= id:
                low = middle
            else:
                high = middle
        run = &self.runs[(self.run_head + low) & mask]
        index = id_index_c(run.first_id, run.count, id)
        if index < 0:
            return -1
        self.run_hint = low
        return run.first_offset + index

    cdef unsigned long long id_of(self, long long offset) noexcept:
        cdef unsigned int mask = self.run_capacity - 1
        cdef unsigned int low = 0, high = self.run_count, middle
        cdef run_t* run
        while high - low > 1:
            middle = (low + high) >> 1
            if self.runs[(self.run_head + middle) & mask].first_offset <= offset:
                low = middle
            else:
                high = middle
        run = &self.runs[(self.run_head + low) & mask]
        return id_at_c(run.first_id, offset - run.first_offset)

    # --- journal notes ---

    cdef int note_finished(self, long long start, long long end) except -1:
        cdef range_t* last
        if self.fin_count:
            last = &self.fins[self.fin_count - 1]
            if last.end == start:
                last.end = end
                return 0
        if self.fin_count == self.fin_capacity:
            self.fin_capacity = self.fin_capacity * 2 if self.fin_capacity else 16
            self.fins = <range_t*>realloc(self.fins, self.fin_capacity * sizeof(range_t))
            if self.fins == NULL:
                raise MemoryError("no memory for finished ranges")
        self.fins[self.fin_count].start = start
        self.fins[self.fin_count].end = end
        self.fin_count += 1
        return self.mark_journal()

    cdef int note_stray(self, stray_t* stray) except -1:
        add_entry(&self.journal, ENTRY_STRAY, stray.state, stray.attempts, stray.offset,
                  stray.deadline_ns if stray.state == DELAYED else 0, stray.id)
        return self.mark_journal()

    cdef int note_gone(self, stray_t* stray) except -1:
        add_entry(&self.journal, ENTRY_GONE, 0, 0, stray.offset, 0, stray.id)
        return self.mark_journal()

    def take_journal(self):
        cdef buf_t out
        cdef unsigned int i
        cdef bytes result
        buf_init(&out)
        try:
            if self.reset_pending or self.cursor_changed:
                add_entry(&out, ENTRY_RESET if self.reset_pending else ENTRY_CURSOR, 0, 0, self.low,
                          max(self.next, self.redo_end), 0)
            for i in range(self.fin_count):
                if self.fins[i].end > self.low:
                    add_entry(&out, ENTRY_FINISHED, 0, 0, max(self.fins[i].start, self.low),
                              self.fins[i].end, 0)
            buf_append(&out, self.journal.data, self.journal.length)
            result = out.data[:out.length] if out.length else b""
        finally:
            buf_free(&out)
        self.fin_count = 0
        self.journal.length = 0
        self.cursor_changed = self.reset_pending = False
        return result

    def snapshot(self):
        cdef buf_t out
        cdef unsigned int i
        cdef long long offset = self.low, start
        cdef unsigned int mask = self.ring_capacity - 1
        buf_init(&out)
        try:
            add_entry(&out, ENTRY_CURSOR, 0, 0, self.low, max(self.next, self.redo_end), 0)
            while offset < self.next:
                if self.owners[offset & mask]:
                    offset += 1
                    continue
                start = offset
                while offset < self.next and self.owners[offset & mask] == 0:
                    offset += 1
                add_entry(&out, ENTRY_FINISHED, 0, 0, start, offset, 0)
            for skip in self.skips:
                add_entry(&out, ENTRY_FINISHED, 0, 0, max(<long long>skip[0], self.next), skip[1], 0)
            for i in range(self.stray_capacity):
                if self.strays[i].state:
                    add_entry(&out, ENTRY_STRAY, self.strays[i].state, self.strays[i].attempts,
                              self.strays[i].offset,
                              self.strays[i].deadline_ns if self.strays[i].state == DELAYED else 0,
                              self.strays[i].id)
            return out.data[:out.length]
        finally:
            buf_free(&out)

    def restore(self, long long low, long long next, finished, strays):
        cdef stray_t* stray
        self.forget_all()
        self.low = self.next = low
        self.redo_end = next
        for start, end in finished:
            self.add_skip(max(<long long>start, low), end)
        for offset, id, attempts, state, due_ns in strays:
            stray = self.put_stray(id, offset, attempts, WAITING)
            if state == DELAYED:
                self.stray_sleeps(stray, due_ns)
            else:
                self.stray_waits(stray)
            if offset >= low:
                self.add_skip(offset, offset + 1)
        self.step_over_skips()
        self.fin_count = 0
        self.journal.length = 0
        self.mark_pump()
        if self.has_timers():
            self.mark_active()

    # --- strays ---

    cdef stray_t* find_stray(self, unsigned long long id) noexcept:
        cdef unsigned int mask = self.stray_capacity - 1
        cdef unsigned int slot
        if self.stray_count == 0:
            return NULL
        slot = <unsigned int>((id * <unsigned long long>0x9E3779B97F4A7C15) >> 32) & mask
        while self.strays[slot].id:
            if self.strays[slot].id == id and self.strays[slot].state:
                return &self.strays[slot]
            slot = (slot + 1) & mask
        return NULL

    cdef stray_t* put_stray(self, unsigned long long id, long long offset, int attempts, int state) except NULL:
        cdef unsigned int mask, slot, i, old_capacity
        cdef stray_t* old
        cdef stray_t* stray = self.find_stray(id)
        if stray != NULL:
            raise RuntimeError(f"message {id:016x} is a stray already")
        if id == 0:
            raise RuntimeError(f"the message at offset {offset} has no id")
        if (self.stray_used + 1) * 4 > self.stray_capacity * 3:
            old, old_capacity = self.strays, self.stray_capacity
            self.stray_capacity = 16
            while self.stray_capacity < (self.stray_count + 1) * 3:
                self.stray_capacity *= 2
            self.strays = <stray_t*>calloc(self.stray_capacity, sizeof(stray_t))
            if self.strays == NULL:
                self.strays, self.stray_capacity = old, old_capacity
                raise MemoryError("no memory for strays")
            mask = self.stray_capacity - 1
            self.stray_used = self.stray_count
            for i in range(old_capacity):
                if old[i].state:
                    slot = <unsigned int>((old[i].id * <unsigned long long>0x9E3779B97F4A7C15) >> 32) & mask
                    while self.strays[slot].id:
                        slot = (slot + 1) & mask
                    self.strays[slot] = old[i]
            free(old)
        mask = self.stray_capacity - 1
        slot = <unsigned int>((id * <unsigned long long>0x9E3779B97F4A7C15) >> 32) & mask
        while self.strays[slot].state:
            slot = (slot + 1) & mask
        stray = &self.strays[slot]
        if stray.id == 0:
            self.stray_used += 1
        memset(stray, 0, sizeof(stray_t))
        stray.id, stray.offset, stray.attempts = id, offset, attempts
        self.stray_count += 1
        self.set_state(stray, state)
        return stray

    cdef int set_state(self, stray_t* stray, int state) except -1:
        self.strays_waiting += (state == WAITING) - (stray.state == WAITING)
        self.strays_delayed += (state == DELAYED) - (stray.state == DELAYED)
        self.strays_in_flight += (state == IN_FLIGHT) - (stray.state == IN_FLIGHT)
        stray.state = state
        return 0

    cdef int remove_stray(self, stray_t* stray) except -1:
        """Leaves the id as a tombstone, so that probing goes on past it."""
        self.note_gone(stray)
        self.set_state(stray, 0)
        self.stray_count -= 1
        if self.stray_count == 0:
            memset(self.strays, 0, self.stray_capacity * sizeof(stray_t))
            self.stray_used = 0
            self.waiting.start = self.waiting.length = 0
            self.delay_count = 0
        return 0

    cdef int stray_waits(self, stray_t* stray) except -1:
        self.set_state(stray, WAITING)
        if self.waiting.start > 4096:
            buf_compact(&self.waiting)
        buf_append(&self.waiting, &stray.id, 8)
        self.note_stray(stray)
        return self.mark_pump()

    cdef stray_t* first_waiting(self) noexcept:
        cdef stray_t* stray
        while self.waiting.start < self.waiting.length:
            stray = self.find_stray((<unsigned long long*>(self.waiting.data + self.waiting.start))[0])
            if stray != NULL and stray.state == WAITING:
                return stray
            buf_take(&self.waiting, 8)
        return NULL

    cdef int stray_sleeps(self, stray_t* stray, long long due_ns) except -1:
        """DELAYED until `due_ns`: sift it up the heap."""
        cdef unsigned int child, parent
        if self.delay_count == self.delay_capacity:
            self.delay_capacity = self.delay_capacity * 2 if self.delay_capacity else 16
            self.delays = <delay_t*>realloc(self.delays, self.delay_capacity * sizeof(delay_t))
            if self.delays == NULL:
                raise MemoryError("no memory for delayed messages")
        self.set_state(stray, DELAYED)
        stray.deadline_ns = due_ns
        child = self.delay_count
        self.delay_count += 1
        while child:
            parent = (child - 1) >> 1
            if self.delays[parent].due_ns <= due_ns:
                break
            self.delays[child] = self.delays[parent]
            child = parent
        self.delays[child].due_ns, self.delays[child].id = due_ns, stray.id
        self.note_stray(stray)
        return self.mark_active()

    cdef void pop_delay(self) noexcept:
        cdef delay_t last
        cdef unsigned int parent = 0, child
        self.delay_count -= 1
        if self.delay_count == 0:
            return
        last = self.delays[self.delay_count]
        while True:
            child = 2 * parent + 1
            if child >= self.delay_count:
                break
            if child + 1 < self.delay_count and self.delays[child + 1].due_ns < self.delays[child].due_ns:
                child += 1
            if self.delays[child].due_ns >= last.due_ns:
                break
            self.delays[parent] = self.delays[child]
            parent = child
        self.delays[parent] = last

    cdef int stray_flies(self, stray_t* stray, unsigned int owner, long long mono_ns, long long timeout_ns) except -1:
        self.set_state(stray, IN_FLIGHT)
        stray.attempts += 1
        stray.owner, stray.delivered_ns = owner, mono_ns
        stray.deadline_ns = mono_ns + timeout_ns
        if self.stray_deadline_ns == 0 or stray.deadline_ns < self.stray_deadline_ns:
            self.stray_deadline_ns = stray.deadline_ns
        self.note_stray(stray)
        return self.mark_active()

    # --- FIN, REQ, TOUCH ---

    cdef int finish_c(self, unsigned int serial, unsigned long long id) except -1:
        cdef long long offset = self.offset_of(id)
        cdef unsigned int slot
        cdef stray_t* stray
        if offset >= self.low and offset < self.next:
            slot = offset & (self.ring_capacity - 1)
            if self.owners[slot]:
                if self.owners[slot] != serial:
                    return NOT_OWNER
                self.owners[slot] = 0
                self.ring_in_flight -= 1
                self.finish_count += 1
                self.note_finished(offset, offset + 1)
                if offset == self.low:
                    self.advance_low()
                return DONE
        stray = self.find_stray(id)
        if stray == NULL or stray.state != IN_FLIGHT:
            return NOT_IN_FLIGHT
        if stray.owner != serial:
            return NOT_OWNER
        self.finish_count += 1
        self.remove_stray(stray)
        return DONE

    cdef stray_t* take_flying(self, unsigned int serial, unsigned long long id, int* held) except? NULL:
        """The in-flight message as a stray (moved out of the ring if it was there), or NULL."""
        cdef long long offset = self.offset_of(id)
        cdef unsigned int owner
        cdef stray_t* stray
        held[0] = DONE
        if offset >= self.low and offset < self.next:
            owner = self.owners[offset & (self.ring_capacity - 1)]
            if owner:
                if owner != serial:
                    held[0] = NOT_OWNER
                    return NULL
                stray = self.make_stray(offset)
                if offset == self.low:
                    self.advance_low()
                return stray
        stray = self.find_stray(id)
        if stray == NULL or stray.state != IN_FLIGHT:
            held[0] = NOT_IN_FLIGHT
            return NULL
        if stray.owner != serial:
            held[0] = NOT_OWNER
            return NULL
        return stray

    def finish(self, unsigned int conn_serial, unsigned long long id):
        cdef int held = self.finish_c(conn_serial, id)
        cdef consumer_t* consumer
        if held == DONE:
            consumer = self.consumer(conn_serial)
            if consumer != NULL:
                consumer.in_flight -= 1
                consumer.finish_count += 1
            self.mark_pump()
        return held

    def requeue(self, unsigned int conn_serial, unsigned long long id, long long delay_ns, long long wall_ns):
        cdef int held
        cdef stray_t* stray = self.take_flying(conn_serial, id, &held)
        cdef consumer_t* consumer
        if stray == NULL:
            return held
        self.requeue_count += 1
        consumer = self.consumer(conn_serial)
        if consumer != NULL:
            consumer.in_flight -= 1
            consumer.requeue_count += 1
        if delay_ns > 0:
            self.stray_sleeps(stray, wall_ns + delay_ns)
        else:
            self.stray_waits(stray)
        self.mark_pump()
        return DONE

    def touch(self, unsigned int conn_serial, unsigned long long id, long long mono_ns):
        cdef int held
        cdef stray_t* stray = self.take_flying(conn_serial, id, &held)
        cdef consumer_t* consumer
        cdef long long deadline_ns
        if stray == NULL:
            return held
        consumer = self.consumer(conn_serial)
        if consumer != NULL:
            deadline_ns = min(mono_ns + consumer.timeout_ns, stray.delivered_ns + self.touch_max_ns)
            stray.deadline_ns = deadline_ns
            if deadline_ns < self.stray_deadline_ns:
                self.stray_deadline_ns = deadline_ns
        return DONE

    # --- timers ---

    def expire(self, long long mono_ns):
        cdef int fired = 0
        if self.ring_in_flight and mono_ns >= self.ring_deadline_ns:
            fired += self.expire_ring(mono_ns)
        if self.strays_in_flight and mono_ns >= self.stray_deadline_ns:
            fired += self.expire_strays(mono_ns)
        return fired

    cdef int expire_ring(self, long long mono_ns) except -1:
        """One pass over the ring; leaves the exact earliest deadline behind."""
        cdef unsigned int mask = self.ring_capacity - 1
        cdef long long offset = self.low, earliest = NEVER, deadline
        cdef int fired = 0
        cdef stray_t* stray
        while offset < self.next:
            if self.owners[offset & mask]:
                deadline = self.deadlines[offset & mask]
                if deadline <= mono_ns:
                    stray = self.make_stray(offset)
                    self.time_out(stray)
                    fired += 1
                elif deadline < earliest:
                    earliest = deadline
            offset += 1
        self.ring_deadline_ns = earliest if earliest != NEVER else 0
        self.advance_low()
        return fired

    cdef int expire_strays(self, long long mono_ns) except -1:
        cdef unsigned int i
        cdef long long earliest = NEVER
        cdef int fired = 0
        for i in range(self.stray_capacity):
            if self.strays[i].state != IN_FLIGHT:
                continue
            if self.strays[i].deadline_ns <= mono_ns:
                self.time_out(&self.strays[i])
                fired += 1
            elif self.strays[i].deadline_ns < earliest:
                earliest = self.strays[i].deadline_ns
        self.stray_deadline_ns = earliest if earliest != NEVER else 0
        return fired

    cdef int time_out(self, stray_t* stray) except -1:
        cdef consumer_t* consumer = self.consumer(stray.owner)
        if consumer != NULL:
            consumer.in_flight -= 1
        self.timeout_count += 1
        return self.stray_waits(stray)

    def release(self, long long wall_ns):
        cdef int fired = 0
        cdef stray_t* stray
        cdef delay_t top
        while self.delay_count and self.delays[0].due_ns <= wall_ns:
            top = self.delays[0]
            self.pop_delay()
            stray = self.find_stray(top.id)
            if stray != NULL and stray.state == DELAYED and stray.deadline_ns == top.due_ns:
                self.stray_waits(stray)
                fired += 1
        return fired

    # --- reading ---

    def load(self, int which, block):
        cdef Block loaded = Block(block)
        if which == 0:
            self.forward, self.forward_needed = loaded, False
            self.forward_place.base_offset = -1
        else:
            self.stray_block, self.stray_needed = loaded, False
            self.stray_place.base_offset = -1
        self.mark_pump()
        return len(loaded.starts)

    def lose(self, unsigned long long id):
        cdef stray_t* stray = self.find_stray(id)
        if stray != NULL:
            self.remove_stray(stray)
        self.stray_needed = False
        self.mark_pump()

    def lose_range(self, long long start, long long end):
        """Drop every waiting stray of [start, end): its bytes can't be read. Returns how many."""
        cdef unsigned int i
        cdef int lost = 0
        for i in range(self.stray_capacity):
            if self.strays[i].state and start <= self.strays[i].offset < end:
                self.remove_stray(&self.strays[i])
                lost += 1
                if self.stray_count == 0:
                    break
        self.stray_needed = False
        self.mark_pump()
        return lost

    # --- moving the cursor ---

    @cython.wraparound(True)
    cdef int add_skip(self, long long start, long long end) except -1:
        cdef list merged
        if end <= start:
            return 0
        if self.skips and self.skips[-1][1] <= start:
            if self.skips[-1][1] == start:
                self.skips[-1] = (self.skips[-1][0], end)
            else:
                self.skips.append((start, end))
            self.skipped_ahead += end - start
        else:
            merged = []
            for one in sorted([*self.skips, (start, end)]):
                if merged and one[0] <= merged[-1][1]:
                    merged[-1] = (merged[-1][0], max(merged[-1][1], one[1]))
                else:
                    merged.append(one)
            self.skips = merged
            self.skipped_ahead = sum([end - start for start, end in merged])
        self.skip_start = self.skips[0][0]
        return 0

    cdef int step_over_skips(self) except -1:
        """While `next` lies in a skip, jump to its end."""
        cdef long long start, end
        while self.skips:
            start, end = self.skips[0]
            if start > self.next:
                break
            if end > self.next:
                self.jump(end)
            del self.skips[0]
            self.skipped_ahead -= end - start
        self.skip_start = self.skips[0][0] if self.skips else NEVER
        return 0

    cdef int jump(self, long long offset) except -1:
        """Move `next` forward without delivering. A long jump empties the ring first."""
        cdef unsigned int mask
        if self.low == self.next:
            self.low = self.next = offset
        elif offset - self.low <= RING_SPAN_MAX:
            self.ring_room(offset - self.next)
            mask = self.ring_capacity - 1
            while self.next < offset:
                self.owners[self.next & mask] = 0
                self.next += 1
            self.advance_low()
        else:
            self.evict_all()
            self.low = self.next = offset
        self.cursor_changed = True
        return self.mark_journal()

    def skip(self, long long from_offset, long long to_offset):
        cdef long long start = max(from_offset, self.next)
        if to_offset > start:
            self.add_skip(start, to_offset)
            self.note_finished(start, to_offset)
            self.step_over_skips()
            self.forward_needed = False
            self.mark_pump()

    cdef int forget_all(self) except -1:
        cdef unsigned int i
        for i in range(self.consumer_count):
            self.consumer_table[i].in_flight = 0
        if self.ring_capacity:
            memset(self.owners, 0, self.ring_capacity * sizeof(unsigned int))
        self.ring_in_flight = self.ring_deadline_ns = 0
        self.run_count = self.run_head = self.run_hint = 0
        if self.stray_capacity:
            memset(self.strays, 0, self.stray_capacity * sizeof(stray_t))
        self.stray_count = self.stray_used = 0
        self.strays_waiting = self.strays_delayed = self.strays_in_flight = 0
        self.stray_deadline_ns = 0
        self.waiting.start = self.waiting.length = 0
        self.delay_count = 0
        self.skips = []
        self.skip_start, self.skipped_ahead, self.redo_end = NEVER, 0, 0
        self.forward = self.stray_block = None
        self.forward_needed = self.stray_needed = False
        self.forward_place.base_offset = self.stray_place.base_offset = -1
        self.fin_count = 0
        self.journal.length = 0
        return 0

    def empty(self):
        self.seek(self.tail.handed_end)

    def seek(self, long long offset):
        self.forget_all()
        self.low = self.next = offset
        self.reset_pending = True
        self.mark_journal()
        self.mark_pump()

    def in_flight_records(self, Py_ssize_t count_max):
        cdef list found = []
        cdef long long offset = self.low
        cdef unsigned int mask = self.ring_capacity - 1
        cdef unsigned int i
        while offset < self.next and len(found) < count_max:
            if self.owners[offset & mask]:
                found.append((offset, self.id_of(offset), self.attempts_of(offset),
                              self.owners[offset & mask], self.deadlines[offset & mask]))
            offset += 1
        for i in range(self.stray_capacity):
            if len(found) >= count_max:
                break
            if self.strays[i].state == IN_FLIGHT:
                found.append((self.strays[i].offset, self.strays[i].id, self.strays[i].attempts,
                              self.strays[i].owner, self.strays[i].deadline_ns))
        return found

    def validate(self):
        cdef unsigned int mask = self.ring_capacity - 1
        cdef long long offset = self.low, flying = 0
        cdef unsigned int i
        cdef long long counts[4]
        memset(counts, 0, sizeof(counts))
        if not self.low <= self.next or self.next - self.low > self.ring_capacity:
            raise RuntimeError(f"window [{self.low}, {self.next}) does not fit its ring")
        while offset < self.next:
            flying += self.owners[offset & mask] != 0
            if self.owners[offset & mask] and not 0 < self.ring_deadline_ns <= self.deadlines[offset & mask]:
                raise RuntimeError(f"offset {offset} is due before the ring's earliest deadline")
            offset += 1
        if self.low < self.next and self.owners[self.low & mask] == 0:
            raise RuntimeError(f"low {self.low} stands on a finished message")
        for i in range(self.stray_capacity):
            counts[self.strays[i].state & 3] += 1
            if self.strays[i].state and self.offset_in_ring(&self.strays[i]):
                raise RuntimeError(f"offset {self.strays[i].offset} is a stray and in the ring")
        if (flying != self.ring_in_flight or counts[WAITING] != self.strays_waiting
                or counts[DELAYED] != self.strays_delayed or counts[IN_FLIGHT] != self.strays_in_flight):
            raise RuntimeError("counts of in-flight, waiting or delayed messages do not add up")
        if self.skipped_ahead != sum([end - start for start, end in self.skips]):
            raise RuntimeError("skipped offsets do not add up")

    cdef bint offset_in_ring(self, stray_t* stray) noexcept:
        if stray.offset < self.low or stray.offset >= self.next:
            return False
        return self.owners[stray.offset & (self.ring_capacity - 1)] != 0
