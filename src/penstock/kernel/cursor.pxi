# Where one channel stands in one partition: the moves that keep the state whole.
#
# window.pxi tells what the ring, runs, strays, skips and redo are. Everything here leaves the state
# such that `validate` holds and `take_journal` says what changed.


cdef class Cursor(Ordered):
    # --- how long messages took ---

    cdef i64 finish_wall_ns(self) noexcept:
        """When what this turn read had arrived."""
        return self.hub.polled_ns + self.hub.wall_ahead_ns

    cdef int measure_finished(self) except -1:
        """Before the finished ranges are forgotten: they are all of this turn."""
        cdef u32 i
        for i in range(self.fin_count):
            self.latencies.finished(self.fins[i].start, self.fins[i].end, self.finish_wall_ns())
        self.latencies.trim(self.low)
        return 0

    @property
    def measures_latency(self):
        return self.latencies is not None

    @measures_latency.setter
    def measures_latency(self, bint value):
        if value != (self.latencies is not None):
            self.latencies = Latencies() if value else None

    def take_latencies(self):
        return self.latencies.take() if self.latencies is not None else {}

    # --- journal notes ---

    cdef int note_finished(self, i64 start, i64 end) except -1:
        cdef range_t* last
        if self.fin_count:
            last = &self.fins[self.fin_count - 1]
            if last.end == start:
                last.end = end
                return 0
        if self.fin_count == self.fin_capacity:
            self.fins = <range_t*>grown(
                self.fins, sizeof(range_t), &self.fin_capacity, 16, "finished ranges")
        self.fins[self.fin_count].start = start
        self.fins[self.fin_count].end = end
        self.fin_count += 1
        return self.mark_journal()

    # --- strays: the table's moves, and the lists that follow from them ---

    cdef int stray_waits(self, stray_t* stray) except -1:
        """It is to be sent, as soon as its order and its attempts allow."""
        cdef bint is_exhausted = 0 < self._attempts_max <= stray.attempts
        if stray.offset < self.outdated_end and not is_exhausted:
            self.expired_count += 1
            if self.tracing:
                self.trace_stray(SKIPPED, stray)
            self.remove_stray(stray)
            return self.mark_pump()
        if is_exhausted and self.is_unknown(stray):
            self.exhaust_unknown(stray)
            self.wait_in_turn(stray)
        elif not self.must_wait_behind(stray):
            self.wait_in_turn(stray)
        self.strays.note(stray)
        self.mark_journal()
        return self.mark_pump()

    cdef int stray_sleeps(self, stray_t* stray, i64 due_ns) except -1:
        if self.tracing:
            self.trace_stray(DELAYED_, stray)
        if self._order != ORDER_NONE:
            self.delay(stray)
        self.strays.sleep(stray, due_ns)
        self.mark_journal()
        return self.mark_active()

    cdef int stray_flies(self, stray_t* stray, Consumer consumer, i64 mono_ns) except -1:
        self.strays.fly(stray, consumer.serial, mono_ns, mono_ns + consumer.timeout_ns)
        self.mark_journal()
        return self.mark_active()

    cdef int remove_stray(self, stray_t* stray) except -1:
        if self.traced_ids is not None:
            self.forget_traced(stray.id)
        if self._order != ORDER_NONE:
            self.let_go(stray)
        self.strays.remove(stray)
        return self.mark_journal()

    cdef stray_t* rename_stray(self, stray_t* stray, u64 id) except NULL:
        """The same message under another id. The journal knows that before it loses the old one."""
        cdef stray_t before = stray[0]
        stray = self.strays.put(id, before.offset, before.attempts, WAITING)
        stray.timestamp_ns, stray.cause = before.timestamp_ns, before.cause
        if self._order != ORDER_NONE:
            self.strays.link(stray)[0] = self.strays.link(self.strays.find(before.id))[0]
            self.strays.link(self.strays.find(before.id)).key = 0
        self.strays.note(stray)
        self.remove_stray(self.strays.find(before.id))
        return self.strays.find(id)

    def take_journal(self):
        cdef buf_t out
        cdef u32 i
        cdef bytes result
        if self.latencies is not None:
            self.measure_finished()
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
            self.skips.write_all(&out, self.next)
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
            self.skips.add(max(<i64>start, low), end)
        for offset, id, attempts, state, due_ns, _ in strays:
            stray = self.strays.put(id, offset, attempts, WAITING)
            if self._order != ORDER_NONE:
                self.strays.link(stray).unknown = True
            if state == DELAYED:
                self.stray_sleeps(stray, due_ns)
            else:
                self.stray_waits(stray)
            if offset >= low:
                self.skips.add(offset, offset + 1)
        self.step_over_skips()
        self.fin_count = 0
        self.strays.notes.length = 0
        self.mark_pump()
        if self.has_timers():
            self.mark_active()

    # --- the search for delayed messages ---

    cdef i64 search_start_c(self) noexcept:
        return max(self.search_from, self.next)

    cdef int widen_search(self, i64 start, i64 end) except -1:
        if self.search_start_c() < self.search_end:
            self.search_from = min(self.search_from, start)
            self.search_end = max(self.search_end, end)
        else:
            if not self.beyond.count:
                self.beyond.clear(start, self.hub.wall_ns)
            self.search_from, self.search_end = self.beyond.at, end
        return self.list_search()

    cdef int list_search(self) except -1:
        if not self.search_listed and not self.forgotten:
            self.search_listed = True
            self.hub.searches.append(self)
        return 0

    cdef int searched_to(self, i64 offset) except -1:
        self.search_from = max(self.search_from, offset)
        self.beyond.passed(self.search_from)
        return self.mark_pump()

    cdef int count_anew(self) except -1:
        """A part of what is counted is skipped; only the log says how much of it was delayed."""
        self.search_end = max(self.beyond.end, self.search_end)
        self.search_from = max(self.beyond.start, self.next)
        self.beyond.clear(self.search_from, self.hub.wall_ns)
        return self.list_search()

    # --- moving the cursor ---

    cdef int step_over_skips(self) except -1:
        """While `next` lies in a skip, jump to its end."""
        cdef i64 end
        while self.skips.start <= self.next:
            end = self.skips.take_first()
            if end > self.next:
                self.jump(end)
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

    def skip(self, i64 from_offset, i64 to_offset, int kind=SKIPPED):
        cdef i64 start = max(from_offset, self.next)
        if to_offset > start:
            if self._trace_below and kind:
                self.hub.trace.note_range(kind, self.hub.now_ns(), start, to_offset, self.tail,
                                          self)
            self.skips.add(start, to_offset)
            self.note_finished(start, to_offset)
            self.step_over_skips()
            if self.beyond.overlaps(start, to_offset):
                self.count_anew()
            self.forward_needed = False
            self.mark_pump()

    cdef int forget_all(self) except -1:
        cdef Consumer consumer
        cdef u32 i
        if self.latencies is not None:
            self.measure_finished()
            self.latencies.clear()
        for i in range(self.consumer_count):
            consumer = <Consumer>self.consumer_table[i]
            consumer.in_flight -= self.in_flight_of(consumer.serial)
        if self.ring_capacity:
            memset(self.owners, 0, self.ring_capacity * sizeof(u32))
        self.ring_in_flight = self.ring_deadline_ns = 0
        self.runs.clear()
        self.strays.clear()
        if self.tags is not None:
            self.tags.clear()
        self.forget_keys()
        self.skips.clear()
        self.parked_end = self.redo_end = self.outdated_end = 0
        self.search_from = self.search_end = 0
        self.beyond.clear(0, 0)
        self.forward = self.stray_block = self.forward_trailer = self.stray_trailer = None
        self.forward_needed = self.stray_needed = False
        self.forward_body.base_offset = self.stray_body.base_offset = -1
        self.fin_count = 0
        self.strays.notes.length = 0
        self.traced_ids, self.tracing = None, self._trace_below != 0
        return 0

    def empty(self):
        self.seek(self.tail.handed_end)

    def seek(self, i64 offset):
        if self.tracing:
            self.trace_emptied(offset)
        self.forget_all()
        self.low = self.next = offset
        self.reset_pending = True
        self.mark_journal()
        self.mark_pump()


# What people and the broker see of a window: numbers, messages, and whether it is whole.

cdef class Survey(Cursor):
    # --- numbers ---

    @property
    def paused(self):
        return self._paused

    @paused.setter
    def paused(self, bint value):
        self._paused = value
        self.mark_pump()

    @property
    def allowance(self):
        return self.allowance_left

    @allowance.setter
    def allowance(self, i64 value):
        self.allowance_left = value
        self.mark_pump()

    cdef i64 deliverable_c(self) noexcept:
        """What the cursor may come to, delayed messages that are only counted included."""
        cdef i64 ahead = 0 if self._order != ORDER_NONE and self.stopped() else self.ahead_c()
        return ahead + self.strays.waiting_count

    cdef i64 ahead_c(self) noexcept:
        cdef i64 ahead = self.tail.handed_end - self.next
        if self.skips.total:  # they may reach beyond what is handed
            ahead -= self.skips.below(self.tail.handed_end)
        return ahead if ahead > 0 else 0

    @property
    def depth(self):
        cdef i64 strays = self.strays.waiting_count + self.strays.behind_count
        return self.ahead_c() + strays - self.beyond.count

    @property
    def order(self):
        return self._order

    @order.setter
    def order(self, int value):
        if value != self._order:
            self.begin_order(value)

    @property
    def behind(self):
        return self.strays.behind_count

    @property
    def in_flight(self):
        return self.ring_in_flight + self.strays.flying_count

    @property
    def delayed(self):
        return self.strays.delayed_count + self.beyond.count

    @property
    def unparked(self):
        return self.beyond.count

    @property
    def message_count(self):
        return self.tail.handed_end - self.count_base

    @property
    def consumers(self):
        return self.consumer_count

    @property
    def zone_local_count(self):
        return self.delivered[ZONE]

    @property
    def region_local_count(self):
        return self.delivered[REGION]

    @property
    def global_count(self):
        return self.delivered[GLOBAL] + self.delivered[UNKNOWN]

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

    # --- messages ---

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

    def stray_records(self, int state, Py_ssize_t count_max):
        """No more objects than are asked for, however many strays there are."""
        cdef list found = []
        cdef i64 bound = NEVER, key
        cdef u32 i
        cdef stray_t* stray
        if count_max <= 0:
            return []
        for i in range(self.strays.capacity):
            stray = &self.strays.table[i]
            if stray.state != state:
                continue
            key = stray.deadline_ns if state == DELAYED else stray.offset
            if key > bound:
                continue
            found.append((key, StrayRecord(stray.offset, stray.id, stray.attempts, state,
                                           key if state == DELAYED else 0)))
            if len(found) >= 2 * count_max:
                found.sort()
                del found[count_max:]
                bound = found[count_max - 1][0]
        found.sort()
        return [record for _, record in found[:count_max]]

    def unfinished_below(self, i64 offset):
        cdef i64 at = self.low, end = min(self.next, offset), count = 0
        cdef u32 mask = self.ring_capacity - 1
        cdef u32 i
        while at < end:
            count += self.owners[at & mask] != 0
            at += 1
        for i in range(self.strays.capacity):
            count += self.strays.table[i].state != 0 and self.strays.table[i].offset < offset
        return count

    # --- is it complete? ---

    def validate(self):
        cdef u32 mask = self.ring_capacity - 1
        cdef i64 offset = self.low, flying = 0, deadline
        cdef u32 i
        cdef i64 counts[8]
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
            counts[self.strays.table[i].state & 7] += 1
            if self.strays.table[i].state and self.offset_in_ring(&self.strays.table[i]):
                offset = self.strays.table[i].offset
                raise RuntimeError(f"offset {offset} is a stray and in the ring")
        if (flying != self.ring_in_flight or counts[WAITING] != self.strays.waiting_count
                or counts[DELAYED] != self.strays.delayed_count
                or counts[IN_FLIGHT] != self.strays.flying_count
                or counts[EXHAUSTED] != self.strays.exhausted_count
                or counts[BEHIND] != self.strays.behind_count):
            raise RuntimeError("counts of in-flight, waiting or delayed messages do not add up")
        for conn in self.conns:  # in all its windows together
            flying = sum([(<Ring>window).in_flight_of(conn.serial) for window in conn.windows])
            if conn.in_flight != flying:
                raise RuntimeError(f"connection {conn.serial} counts {conn.in_flight} in flight, "
                                   f"it has {flying}")
        self.validate_order()
        self.skips.validate()
        self.beyond.validate(self.next)
        if max(self.parked_end, self.search_end) > self.tail.handed_end:
            raise RuntimeError("delayed messages are looked for beyond what is handed over")

    cdef bint offset_in_ring(self, stray_t* stray) noexcept:
        if stray.offset < self.low or stray.offset >= self.next:
            return False
        return self.owners[stray.offset & (self.ring_capacity - 1)] != 0
