"""One channel on one partition (declared, and explained, in window.pxd)."""

cimport cython
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

from penstock.kernel.fast.block cimport Block
from penstock.kernel.fast.buffer cimport buf_append, buf_free, buf_init, buf_t
from penstock.kernel.fast.entries cimport (
    ENTRY_CURSOR, ENTRY_FINISHED, ENTRY_RESET, add_entry,
)
from penstock.kernel.fast.hub cimport Hub
from penstock.kernel.fast.runs cimport Runs
from penstock.kernel.fast.strays cimport DELAYED, IN_FLIGHT, WAITING, Strays, stray_t
from penstock.kernel.fast.tail cimport Tail
from penstock.kernel.fast.types cimport i64, u32, u64

cdef enum:
    DONE = 0
    NOT_IN_FLIGHT = 1
    NOT_OWNER = 2
    RING_SPAN_MAX = 65536
    RING_SPAN_MIN = 64

cdef i64 NEVER = <i64>0x7FFFFFFFFFFFFFFF


cdef class Window:
    def __cinit__(self, Hub hub not None, Tail tail not None, i64 start):
        self.hub, self.tail = hub, tail
        self.low = self.next = start
        self.redo_end = 0
        self.count_base = tail.handed_end
        self.touch_max_ns = 900 * <i64>1000000000
        self.skips, self.conns = [], []
        self.runs, self.strays = Runs(), Strays()
        self.skip_start = NEVER
        self.forward_place.base_offset = self.stray_place.base_offset = -1
        self.cursor_changed = True

    def __dealloc__(self):
        free(self.owners)
        free(self.deadlines)
        free(self.fins)
        free(self.consumer_table)

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

    cdef i64 depth_c(self) noexcept:
        cdef i64 ahead = self.tail.handed_end - self.next
        if self.skipped_ahead:
            ahead -= self.skipped_below(self.tail.handed_end)
        return (ahead if ahead > 0 else 0) + self.strays.waiting_count

    cdef i64 skipped_below(self, i64 end) noexcept:
        """How much of the skips lies below `end`; they may reach beyond what is handed."""
        cdef i64 total = 0, skip_start, skip_end
        for skip_start, skip_end in self.skips:
            if skip_start < end:
                total += min(skip_end, end) - skip_start
        return total

    @property
    def depth(self):
        return self.depth_c()

    @property
    def in_flight(self):
        return self.ring_in_flight + self.strays.flying_count

    @property
    def delayed(self):
        return self.strays.delayed_count

    @property
    def message_count(self):
        return self.tail.handed_end - self.count_base

    @property
    def consumers(self):
        return self.consumer_count

    @property
    def journal_dirty(self):
        return bool(self.cursor_changed or self.reset_pending or self.fin_count
                    or self.strays.notes.length)

    @property
    def deadline_ns(self):
        cdef i64 ring = self.ring_deadline_ns if self.ring_in_flight else 0
        cdef i64 stray = self.strays.deadline_ns if self.strays.flying_count else 0
        if ring and stray:
            return min(ring, stray)
        return ring or stray

    @property
    def due_ns(self):
        return self.strays.first_due()

    @property
    def floor(self):
        return self.strays.lowest_offset(self.low)

    cdef bint has_timers(self) noexcept:
        return self.ring_in_flight or self.strays.flying_count or self.strays.delayed_count

    # --- consumers ---

    cdef consumer_t* consumer(self, u32 serial) noexcept:
        cdef u32 i
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
        cdef u32 i
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

    cdef int ring_room(self, i64 count) except -1:
        """Make [low, next + count) fit. Beyond the span the oldest message becomes a stray."""
        cdef i64 span = self.next + count - self.low
        cdef u32 capacity, mask, old_mask
        cdef u32* owners
        cdef i64* deadlines
        cdef i64 offset
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
        owners = <u32*>calloc(capacity, sizeof(u32))
        deadlines = <i64*>calloc(capacity, sizeof(i64))
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
        cdef u32 mask = self.ring_capacity - 1
        cdef i64 low = self.low
        while low < self.next and self.owners[low & mask] == 0:
            low += 1
        if low == self.low:
            return
        self.low = low
        self.cursor_changed = True
        self.runs.trim(low)

    cdef stray_t* make_stray(self, i64 offset) except NULL:
        """Move an in-flight message from the ring to the strays; the caller sets what follows."""
        cdef u32 slot = offset & (self.ring_capacity - 1)
        cdef stray_t* stray = self.strays.put(
            self.runs.id_of(offset), offset, self.attempts_of(offset), IN_FLIGHT
        )
        cdef consumer_t* consumer = self.consumer(self.owners[slot])
        stray.owner = self.owners[slot]
        stray.deadline_ns = self.deadlines[slot]
        stray.delivered_ns = stray.deadline_ns - (
            consumer.timeout_ns if consumer != NULL else 0
        )
        self.strays.expect(stray.deadline_ns)
        self.owners[slot] = 0
        self.ring_in_flight -= 1
        self.strays.note(stray)
        self.mark_journal()
        return stray

    cdef int attempts_of(self, i64 offset) noexcept:
        return 2 if offset < self.redo_end else 1

    # --- journal notes ---

    cdef int note_finished(self, i64 start, i64 end) except -1:
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

    # --- strays: the table's moves, and the lists that follow from them ---

    cdef int stray_waits(self, stray_t* stray) except -1:
        self.strays.wait(stray)
        self.mark_journal()
        return self.mark_pump()

    cdef int stray_sleeps(self, stray_t* stray, i64 due_ns) except -1:
        self.strays.sleep(stray, due_ns)
        self.mark_journal()
        return self.mark_active()

    cdef int stray_flies(self, stray_t* stray, consumer_t* consumer, i64 mono_ns) except -1:
        self.strays.fly(stray, consumer.serial, mono_ns, mono_ns + consumer.timeout_ns)
        self.mark_journal()
        return self.mark_active()

    cdef int remove_stray(self, stray_t* stray) except -1:
        self.strays.remove(stray)
        return self.mark_journal()

    def take_journal(self):
        cdef buf_t out
        cdef u32 i
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
            buf_append(&out, self.strays.notes.data, self.strays.notes.length)
            result = out.data[:out.length] if out.length else b""
        finally:
            buf_free(&out)
        self.fin_count = 0
        self.strays.notes.length = 0
        self.cursor_changed = self.reset_pending = False
        return result

    def snapshot(self):
        cdef buf_t out
        cdef u32 i
        cdef i64 offset = self.low, start
        cdef u32 mask = self.ring_capacity - 1
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
                add_entry(&out, ENTRY_FINISHED, 0, 0, max(<i64>skip[0], self.next), skip[1], 0)
            self.strays.write_all(&out)
            return out.data[:out.length]
        finally:
            buf_free(&out)

    def restore(self, i64 low, i64 next, finished, strays):
        cdef stray_t* stray
        self.forget_all()
        self.low = self.next = low
        self.redo_end = next
        for start, end in finished:
            self.add_skip(max(<i64>start, low), end)
        for offset, id, attempts, state, due_ns in strays:
            stray = self.strays.put(id, offset, attempts, WAITING)
            if state == DELAYED:
                self.stray_sleeps(stray, due_ns)
            else:
                self.stray_waits(stray)
            if offset >= low:
                self.add_skip(offset, offset + 1)
        self.step_over_skips()
        self.fin_count = 0
        self.strays.notes.length = 0
        self.mark_pump()
        if self.has_timers():
            self.mark_active()

    # --- FIN, REQ, TOUCH ---

    cdef int finish_c(self, u32 serial, u64 id) except -1:
        cdef i64 offset = self.runs.offset_of(id)
        cdef u32 slot
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
        stray = self.strays.find(id)
        if stray == NULL or stray.state != IN_FLIGHT:
            return NOT_IN_FLIGHT
        if stray.owner != serial:
            return NOT_OWNER
        self.finish_count += 1
        self.remove_stray(stray)
        return DONE

    cdef stray_t* take_flying(self, u32 serial, u64 id, int* held) except? NULL:
        """The in-flight message as a stray (moved out of the ring if it was there), or NULL."""
        cdef i64 offset = self.runs.offset_of(id)
        cdef u32 owner
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
        stray = self.strays.find(id)
        if stray == NULL or stray.state != IN_FLIGHT:
            held[0] = NOT_IN_FLIGHT
            return NULL
        if stray.owner != serial:
            held[0] = NOT_OWNER
            return NULL
        return stray

    def finish(self, u32 conn_serial, u64 id):
        cdef int held = self.finish_c(conn_serial, id)
        cdef consumer_t* consumer
        if held == DONE:
            consumer = self.consumer(conn_serial)
            if consumer != NULL:
                consumer.in_flight -= 1
                consumer.finish_count += 1
            self.mark_pump()
        return held

    def requeue(self, u32 conn_serial, u64 id, i64 delay_ns, i64 wall_ns):
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

    def touch(self, u32 conn_serial, u64 id, i64 mono_ns):
        cdef int held
        cdef stray_t* stray = self.take_flying(conn_serial, id, &held)
        cdef consumer_t* consumer
        cdef i64 deadline_ns
        if stray == NULL:
            return held
        consumer = self.consumer(conn_serial)
        if consumer != NULL:
            deadline_ns = min(mono_ns + consumer.timeout_ns, stray.delivered_ns + self.touch_max_ns)
            stray.deadline_ns = deadline_ns
            self.strays.expect(deadline_ns)
        return DONE

    # --- timers ---

    def expire(self, i64 mono_ns):
        cdef int fired = 0
        if self.ring_in_flight and mono_ns >= self.ring_deadline_ns:
            fired += self.expire_ring(mono_ns)
        if self.strays.flying_count and mono_ns >= self.strays.deadline_ns:
            fired += self.expire_strays(mono_ns)
        return fired

    cdef int expire_ring(self, i64 mono_ns) except -1:
        """One pass over the ring; leaves the exact earliest deadline behind."""
        cdef u32 mask = self.ring_capacity - 1
        cdef i64 offset = self.low, earliest = NEVER, deadline
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

    cdef int expire_strays(self, i64 mono_ns) except -1:
        """One pass over the table. What is late goes back in the order of deadline and log."""
        cdef u32 i
        cdef i64 earliest = NEVER
        cdef stray_t* stray
        cdef list late = []
        for i in range(self.strays.capacity):
            stray = &self.strays.table[i]
            if stray.state != IN_FLIGHT:
                continue
            if stray.deadline_ns <= mono_ns:
                late.append((stray.deadline_ns, stray.offset, i))
            elif stray.deadline_ns < earliest:
                earliest = stray.deadline_ns
        late.sort()
        for _, _, i in late:
            self.time_out(&self.strays.table[i])
        self.strays.deadline_ns = earliest if earliest != NEVER else 0
        return len(late)

    cdef int time_out(self, stray_t* stray) except -1:
        self.land(stray)
        self.timeout_count += 1
        return self.stray_waits(stray)

    cdef void land(self, stray_t* stray) noexcept:
        """If it is in flight, its consumer has one less."""
        cdef consumer_t* consumer
        if stray.state == IN_FLIGHT:
            consumer = self.consumer(stray.owner)
            if consumer != NULL:
                consumer.in_flight -= 1

    def release(self, i64 wall_ns):
        cdef int fired = 0
        cdef stray_t* stray = self.strays.take_due(wall_ns)
        while stray != NULL:
            self.stray_waits(stray)
            fired += 1
            stray = self.strays.take_due(wall_ns)
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

    def lose(self, u64 id):
        cdef stray_t* stray = self.strays.find(id)
        if stray != NULL:
            self.land(stray)
            self.remove_stray(stray)
        self.stray_needed = False
        self.mark_pump()

    def lose_range(self, i64 start, i64 end):
        """Drop every waiting stray of [start, end): its bytes can't be read. Returns how many."""
        cdef u32 i
        cdef int lost = 0
        for i in range(self.strays.capacity):
            if self.strays.table[i].state and start <= self.strays.table[i].offset < end:
                self.land(&self.strays.table[i])
                self.remove_stray(&self.strays.table[i])
                lost += 1
                if self.strays.count == 0:
                    break
        self.stray_needed = False
        self.mark_pump()
        return lost

    # --- moving the cursor ---

    @cython.wraparound(True)
    cdef int add_skip(self, i64 start, i64 end) except -1:
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
        cdef i64 start, end
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

    cdef int jump(self, i64 offset) except -1:
        """Move `next` forward without delivering. A long jump empties the ring first."""
        cdef u32 mask
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

    def skip(self, i64 from_offset, i64 to_offset):
        cdef i64 start = max(from_offset, self.next)
        if to_offset > start:
            self.add_skip(start, to_offset)
            self.note_finished(start, to_offset)
            self.step_over_skips()
            self.forward_needed = False
            self.mark_pump()

    cdef int forget_all(self) except -1:
        cdef u32 i
        for i in range(self.consumer_count):
            self.consumer_table[i].in_flight = 0
        if self.ring_capacity:
            memset(self.owners, 0, self.ring_capacity * sizeof(u32))
        self.ring_in_flight = self.ring_deadline_ns = 0
        self.runs.clear()
        self.strays.clear()
        self.skips = []
        self.skip_start, self.skipped_ahead, self.redo_end = NEVER, 0, 0
        self.forward = self.stray_block = None
        self.forward_needed = self.stray_needed = False
        self.forward_place.base_offset = self.stray_place.base_offset = -1
        self.fin_count = 0
        self.strays.notes.length = 0
        return 0

    def empty(self):
        self.seek(self.tail.handed_end)

    def seek(self, i64 offset):
        self.forget_all()
        self.low = self.next = offset
        self.reset_pending = True
        self.mark_journal()
        self.mark_pump()

    def in_flight_records(self, Py_ssize_t count_max):
        cdef list found = []
        cdef i64 offset = self.low
        cdef u32 mask = self.ring_capacity - 1
        cdef u32 i
        cdef stray_t* stray
        while offset < self.next and len(found) < count_max:
            if self.owners[offset & mask]:
                found.append((offset, self.runs.id_of(offset), self.attempts_of(offset),
                              self.owners[offset & mask], self.deadlines[offset & mask]))
            offset += 1
        for i in range(self.strays.capacity):
            if len(found) >= count_max:
                break
            if self.strays.table[i].state == IN_FLIGHT:
                stray = &self.strays.table[i]
                found.append((stray.offset, stray.id, stray.attempts, stray.owner,
                              stray.deadline_ns))
        return found

    def validate(self):
        cdef u32 mask = self.ring_capacity - 1
        cdef i64 offset = self.low, flying = 0, deadline
        cdef u32 i
        cdef i64 counts[4]
        memset(counts, 0, sizeof(counts))
        if not self.low <= self.next or self.next - self.low > self.ring_capacity:
            raise RuntimeError(f"window [{self.low}, {self.next}) does not fit its ring")
        while offset < self.next:
            flying += self.owners[offset & mask] != 0
            deadline = self.deadlines[offset & mask]
            if self.owners[offset & mask] and not 0 < self.ring_deadline_ns <= deadline:
                raise RuntimeError(f"offset {offset} is due before the ring's earliest deadline")
            offset += 1
        if self.low < self.next and self.owners[self.low & mask] == 0:
            raise RuntimeError(f"low {self.low} stands on a finished message")
        for i in range(self.strays.capacity):
            counts[self.strays.table[i].state & 3] += 1
            if self.strays.table[i].state and self.offset_in_ring(&self.strays.table[i]):
                offset = self.strays.table[i].offset
                raise RuntimeError(f"offset {offset} is a stray and in the ring")
        if (flying != self.ring_in_flight or counts[WAITING] != self.strays.waiting_count
                or counts[DELAYED] != self.strays.delayed_count
                or counts[IN_FLIGHT] != self.strays.flying_count):
            raise RuntimeError("counts of in-flight, waiting or delayed messages do not add up")
        if self.skipped_ahead != sum([end - start for start, end in self.skips]):
            raise RuntimeError("skipped offsets do not add up")

    cdef bint offset_in_ring(self, stray_t* stray) noexcept:
        if stray.offset < self.low or stray.offset >= self.next:
            return False
        return self.owners[stray.offset & (self.ring_capacity - 1)] != 0
