"""Where one channel stands in one partition (see cursor.pxd and window.pxd)."""

from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

from penstock.kernel.fast.batch cimport id_at_c
from penstock.kernel.fast.beyond cimport Beyond
from penstock.kernel.fast.buffer cimport buf_append, buf_free, buf_init, buf_t
from penstock.kernel.fast.entries cimport ENTRY_CURSOR, ENTRY_FINISHED, ENTRY_RESET, add_entry
from penstock.kernel.fast.hub cimport Hub
from penstock.kernel.fast.latency cimport Latencies
from penstock.kernel.fast.runs cimport Runs
from penstock.kernel.fast.skips cimport Skips
from penstock.kernel.fast.strays cimport DELAYED, IN_FLIGHT, WAITING, Strays, stray_t
from penstock.kernel.fast.tail cimport Tail
from penstock.kernel.fast.trace cimport (
    DELAYED_, DISCONNECTED, EMPTIED, FINISHED, SKIPPED, Named, Trace, in_sample,
)
from penstock.kernel.fast.types cimport i64, u16, u32, u64

cdef enum:
    RING_SPAN_MAX = 65536  # beyond it the oldest message in flight becomes a stray
    RING_SPAN_MIN = 64
    PARKED_MAX = 1 << 20  # delayed messages that are strays before the cursor meets them

cdef enum:
    GLOBAL = 1  # Locality

cdef u64 TRACE_ALL = 0xFFFFFFFFFFFFFFFF


cdef class Cursor:
    def __cinit__(self, Hub hub not None, Tail tail not None, i64 start):
        self.hub, self.tail = hub, tail
        hub.window_number += 1
        self.number = hub.window_number
        self.low = self.next = start
        self.redo_end = 0
        self.count_base = tail.handed_end
        self.touch_max_ns = 900 * <i64>1000000000
        self.conns = []
        self.runs, self.strays, self.skips, self.beyond = Runs(), Strays(), Skips(), Beyond()
        self.parked_max = PARKED_MAX
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
        self.weigh_consumers()
        self.mark_pump()
        return 0

    cdef int remove_consumer(self, object conn, consumer_t* consumer) except -1:
        cdef u32 i
        if self.tracing and consumer.in_flight:
            self.trace_left(conn, consumer.serial)
        for i in range(self.consumer_count):
            if self.consumer_table[i] == consumer:
                self.consumer_count -= 1
                while i < self.consumer_count:
                    self.consumer_table[i] = self.consumer_table[i + 1]
                    i += 1
                self.conns.remove(conn)
                self.weigh_consumers()
                break
        if self.consumer_count == 0:
            self.forward = None
            self.stray_block = None
            self.forward_needed = self.stray_needed = False
        return 0

    cdef void weigh_consumers(self) noexcept:
        cdef u32 i
        self.prefers = False
        for i in range(self.consumer_count):
            self.prefers |= self.consumer_table[i].locality > GLOBAL

    cdef i64 in_flight_of_c(self, u32 serial) noexcept:
        cdef i64 offset = self.low, count = 0
        cdef u32 mask = self.ring_capacity - 1
        cdef u32 i
        while offset < self.next:
            count += self.owners[offset & mask] == serial
            offset += 1
        for i in range(self.strays.capacity):
            count += (self.strays.table[i].state == IN_FLIGHT
                      and self.strays.table[i].owner == serial)
        return count

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
        if self.latencies is not None:
            stray.timestamp_ns = self.latencies.timestamp_of(offset)
        self.strays.expect(stray.deadline_ns)
        self.owners[slot] = 0
        self.ring_in_flight -= 1
        self.strays.note(stray)
        self.mark_journal()
        return stray

    cdef int attempts_of(self, i64 offset) noexcept:
        return 2 if offset < self.redo_end else 1

    # --- trace ---

    @property
    def trace_below(self):
        return self._trace_below

    @trace_below.setter
    def trace_below(self, u64 value):
        self._trace_below = value
        self.tracing = value != 0 or self.traced_ids is not None

    cdef int mark_traced(self, u64 id, u64 trace_id) except -1:
        """A message is met. If it has a trace id, all that happens to it is an event."""
        if trace_id and self.tail.traceable:
            if self.traced_ids is None:
                self.traced_ids, self.tracing = {}, True
            self.traced_ids[id] = trace_id
        return 0

    cdef int forget_traced(self, u64 id) except -1:
        if self.traced_ids is not None:
            self.traced_ids.pop(id, None)
            if not self.traced_ids:
                self.traced_ids, self.tracing = None, self._trace_below != 0
        return 0

    cdef Named client_of(self, u32 serial):
        """The consumer, if it is still here. Questions about one come in a row."""
        cdef u32 i = self.client_hint
        if i < self.consumer_count and self.consumer_table[i].serial == serial:
            return self.conns[i]
        for i in range(self.consumer_count):
            if self.consumer_table[i].serial == serial:
                self.client_hint = i
                return self.conns[i]
        return None

    cdef int trace(self, int kind, u64 id, i64 offset, int attempts, Named client) except -1:
        cdef object found = None
        cdef u64 trace_id = 0
        if self.traced_ids is not None:
            found = self.traced_ids.get(id)
        if found is not None:
            trace_id = found
        elif not (self._trace_below and in_sample(id, self._trace_below)):
            return 0
        return self.hub.trace.note(kind, self.hub.now_ns(), id, offset, 1, attempts, trace_id,
                                   self.tail, self, client)

    cdef int trace_run(self, int kind, u64 base_id, u32 index, i64 offset, u32 count, int attempts,
                       Named client) except -1:
        """The same of messages in a row, of a batch with this base id."""
        cdef u32 i
        if self._trace_below == TRACE_ALL and self.traced_ids is None:
            return self.hub.trace.note(kind, self.hub.now_ns(), id_at_c(base_id, index), offset,
                                       count, attempts, 0, self.tail, self, client)
        for i in range(count):
            self.trace(kind, id_at_c(base_id, index + i), offset + i, attempts, client)
        return 0

    cdef int trace_finished(self, u32 serial, u64 id, i64 offset) except -1:
        """Of a message in the ring. At full speed it is one more of a run."""
        cdef Trace trace = self.hub.trace
        cdef int attempts = self.attempts_of(offset)
        cdef bint all_alike = self._trace_below == TRACE_ALL and self.traced_ids is None
        if all_alike and trace.grower == serial:
            if trace.grow(self.hub.now_ns(), id, offset, attempts):
                return 0
        self.trace(FINISHED, id, offset, attempts, self.client_of(serial))
        self.forget_traced(id)
        if all_alike:
            trace.grower = serial
        return 0

    cdef int trace_stray(self, int kind, stray_t* stray) except -1:
        cdef Named client = self.client_of(stray.owner) if stray.state == IN_FLIGHT else None
        return self.trace(kind, stray.id, stray.offset, stray.attempts, client)

    cdef int trace_left(self, Named conn, u32 serial) except -1:
        """A consumer goes; what it has in flight stays so until it times out."""
        cdef i64 offset = self.low
        cdef u32 mask = self.ring_capacity - 1
        cdef u32 i
        cdef stray_t* stray
        while offset < self.next:
            if self.owners[offset & mask] == serial:
                self.trace(DISCONNECTED, self.runs.id_of(offset), offset,
                           self.attempts_of(offset), conn)
            offset += 1
        for i in range(self.strays.capacity):
            stray = &self.strays.table[i]
            if stray.state == IN_FLIGHT and stray.owner == serial:
                self.trace(DISCONNECTED, stray.id, stray.offset, stray.attempts, conn)
        return 0

    cdef int trace_emptied(self, i64 offset) except -1:
        """The cursor is about to be set: what lay below `offset` and was not done is dropped. Some
        of the range may have been done before."""
        cdef i64 end = min(self.low, offset) if self._trace_below else offset, at
        cdef u32 i, owner
        for i in range(self.strays.capacity):
            if self.strays.table[i].state and self.strays.table[i].offset < end:
                self.trace_stray(EMPTIED, &self.strays.table[i])
        if self._trace_below:
            return self.hub.trace.note_range(EMPTIED, self.hub.now_ns(), self.low, offset,
                                             self.tail, self)
        for id in list(self.traced_ids):
            at = self.runs.offset_of(<u64>id)
            if self.low <= at < min(self.next, offset):
                owner = self.owners[at & (self.ring_capacity - 1)]
                if owner:
                    self.trace(EMPTIED, <u64>id, at, self.attempts_of(at), self.client_of(owner))
        return 0

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
        if self._attempts_max and stray.attempts >= self._attempts_max:
            self.strays.exhaust(stray)
            self.mark_journal()
            return self.mark_pump()  # its consumer has room for another
        if stray.offset < self.outdated_end:
            self.expired_count += 1
            if self.tracing:
                self.trace_stray(SKIPPED, stray)
            self.remove_stray(stray)
            return self.mark_pump()
        self.strays.wait(stray)
        self.mark_journal()
        return self.mark_pump()

    cdef int stray_sleeps(self, stray_t* stray, i64 due_ns) except -1:
        if self.tracing:
            self.trace_stray(DELAYED_, stray)
        self.strays.sleep(stray, due_ns)
        self.mark_journal()
        return self.mark_active()

    cdef int stray_flies(self, stray_t* stray, consumer_t* consumer, i64 mono_ns) except -1:
        self.strays.fly(stray, consumer.serial, mono_ns, mono_ns + consumer.timeout_ns)
        self.mark_journal()
        return self.mark_active()

    cdef int remove_stray(self, stray_t* stray) except -1:
        if self.traced_ids is not None:
            self.forget_traced(stray.id)
        self.strays.remove(stray)
        return self.mark_journal()

    cdef stray_t* rename_stray(self, stray_t* stray, u64 id) except NULL:
        """The same message under another id. The journal knows that before it loses the old one."""
        cdef stray_t before = stray[0]
        stray = self.strays.put(id, before.offset, before.attempts, WAITING)
        stray.timestamp_ns, stray.cause = before.timestamp_ns, before.cause
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
        cdef u32 i
        if self.latencies is not None:
            self.measure_finished()
            self.latencies.clear()
        for i in range(self.consumer_count):
            self.consumer_table[i].in_flight -= self.in_flight_of_c(self.consumer_table[i].serial)
        if self.ring_capacity:
            memset(self.owners, 0, self.ring_capacity * sizeof(u32))
        self.ring_in_flight = self.ring_deadline_ns = 0
        self.runs.clear()
        self.strays.clear()
        self.skips.clear()
        self.parked_end = self.redo_end = self.outdated_end = 0
        self.search_from = self.search_end = 0
        self.beyond.clear(0, 0)
        self.forward = self.stray_block = None
        self.forward_needed = self.stray_needed = False
        self.forward_place.base_offset = self.stray_place.base_offset = -1
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
