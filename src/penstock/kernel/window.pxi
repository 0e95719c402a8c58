# One channel on one partition: what was delivered, finished, requeued, delayed.
#
#                       low                next            handed_end
#     finished ........ | in flight / done | not delivered  |
#                       +---- the ring ----+
#
# **The ring** is indexed by `offset & mask` and covers [low, next): an owner (connection serial, 0
# = nothing left to do here) and a deadline, 12 bytes a message. First deliveries live here and
# nowhere else.
#
# **Runs** (`Runs`) say which ids those offsets have. **Strays** (`Strays`) are the messages
# that left that path: timed out, requeued, delayed, touched, with an id of their own, or so old
# that the ring would outgrow its bound.
#
# **Skips** are ranges at or above `next` that the cursor steps over (finished before a restart,
# strays restored from the journal, delayed, damaged, dropped by an ephemeral channel).
#
# **Redo**: after a restart the cursor starts at `low` again; offsets below `redo_end` were
# delivered once.

cdef enum:
    FIN_LINE_BYTES = 21  # "FIN " + 16 + "\n"

cdef enum:  # Held; the higher of two windows' answers is the connection's
    DONE = 0
    NOT_IN_FLIGHT = 1
    NOT_OWNER = 2


cdef inline bint is_fin_line(const u8* data) noexcept:
    """As every client writes it; what stands between is for `id_decode`."""
    return data[20] == 10 and memcmp(data, b"FIN ", 4) == 0


cdef class Window(Survey):
    # --- the search for delayed messages ---

    @property
    def search_start(self):
        return self.search_start_c()

    @property
    def searched(self):
        cdef i64 start = self.search_start_c()
        cdef i64 found_end = start if start < self.search_end else self.parked_end
        return min(found_end, self.beyond.start) if self.beyond.count else found_end

    @searched.setter
    def searched(self, i64 offset):
        self.parked_end = min(offset, self.tail.handed_end)

    def recount(self, i64 wall_ns):
        cdef bint has_room = self.strays.delayed_count <= self.parked_max // 2
        if self.search_start_c() < self.search_end or not self.beyond.count:
            return
        if has_room or self.beyond.due_ns <= wall_ns:
            self.search_from = max(self.beyond.start, self.next)
            self.search_end = self.beyond.end
            self.beyond.begin(self.search_from, wall_ns)
            self.list_search()

    # --- FIN, REQ, TOUCH ---

    cdef bint has(self, u64 id) noexcept:
        """Is a message with this id in flight, waiting or delayed here?"""
        cdef i64 offset = self.runs.offset_of(id)
        if offset >= self.low and offset < self.next:
            if self.owners[offset & (self.ring_capacity - 1)]:
                return True
        return self.strays.find(id) != NULL

    cdef int finish_c(self, u32 serial, u64 id) except -1:
        cdef i64 offset = self.runs.offset_of(id)
        cdef u32 slot
        cdef stray_t* stray
        if offset >= self.low and offset < self.next:
            slot = offset & (self.ring_capacity - 1)
            if self.owners[slot]:
                if self.owners[slot] != serial:
                    return NOT_OWNER
                if self.tracing:
                    self.trace_finished(serial, id, offset)
                self.owners[slot] = 0
                self.ring_in_flight -= 1
                self.finish_count += 1
                if self._order != ORDER_NONE:
                    self.let_go_ring(slot)
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
        if self.latencies is not None and stray.timestamp_ns:
            self.latencies.note(self.finish_wall_ns() - stray.timestamp_ns, 1)
        if self.tracing:
            self.trace_stray(FINISHED, stray)
        self.remove_stray(stray)
        return DONE

    cdef u32 finish_row(self, u32 serial, const u8* data, size_t size) except? 0:
        """The FINs at the front of `data`, while they are of messages that follow one another in
        the ring: most clients finish in the order in which they receive. Returns how many; the
        one behind them, and all that is special, is for `finish_c`."""
        cdef run_t* run = self.runs.hinted()
        cdef u32 mask = self.ring_capacity - 1, done = 0, count
        cdef i64 index = 0
        cdef u64 id
        if run == NULL or self.tracing or self._order != ORDER_NONE:
            return 0
        while size >= FIN_LINE_BYTES and is_fin_line(data) and id_decode(data + 4, &id):
            if done == 0:
                index = id_index(run.first_id, run.count, id)
                if index < 0 or run.first_offset + index < self.low:
                    break
                count = run.count - <u32>index
            elif done == count or id != id_at(run.first_id, index + done):
                break
            if self.owners[(run.first_offset + index + done) & mask] != serial:
                break
            self.owners[(run.first_offset + index + done) & mask] = 0
            done += 1
            data, size = data + FIN_LINE_BYTES, size - FIN_LINE_BYTES
        if done:
            index += run.first_offset
            self.ring_in_flight -= done
            self.finish_count += done
            self.note_finished(index, index + done)
            if index == self.low:
                self.advance_low()
        return done

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
        cdef Consumer consumer
        if held == DONE:
            consumer = self.consumer(conn_serial)
            if consumer is not None:
                consumer.in_flight -= 1
                consumer.finish_count += 1
            self.mark_pump()
        return held

    def requeue(self, u32 conn_serial, u64 id, i64 delay_ns, i64 wall_ns):
        cdef int held
        cdef stray_t* stray = self.take_flying(conn_serial, id, &held)
        cdef Consumer consumer
        if stray == NULL:
            return held
        if self.tracing:
            self.trace_stray(REQUEUED, stray)
        self.requeue_count += 1
        stray.cause = ENDED_REQUEUED
        consumer = self.consumer(conn_serial)
        if consumer is not None:
            consumer.in_flight -= 1
            consumer.requeue_count += 1
        if delay_ns > 0 and stray.offset >= self.outdated_end:
            self.stray_sleeps(stray, wall_ns + delay_ns)
        else:
            self.stray_waits(stray)
        self.mark_pump()
        return DONE

    def touch(self, u32 conn_serial, u64 id, i64 mono_ns):
        cdef int held
        cdef stray_t* stray = self.take_flying(conn_serial, id, &held)
        cdef Consumer consumer
        cdef i64 deadline_ns
        if stray == NULL:
            return held
        if self.tracing:
            self.trace_stray(TOUCHED, stray)
        consumer = self.consumer(conn_serial)
        if consumer is not None:
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
        cdef bint is_there
        if self.tracing:
            self.trace_stray(TIMED_OUT, stray)
        is_there = self.consumer(stray.owner) is not None
        stray.cause = ENDED_TIMED_OUT if is_there else ENDED_DISCONNECTED
        self.land(stray)
        self.timeout_count += 1
        return self.stray_waits(stray)

    cdef void land(self, stray_t* stray) noexcept:
        """If it is in flight, its consumer has one less."""
        cdef Consumer consumer
        if stray.state == IN_FLIGHT:
            consumer = self.consumer(stray.owner)
            if consumer is not None:
                consumer.in_flight -= 1

    def release(self, i64 wall_ns):
        cdef int fired = 0
        cdef stray_t* stray = self.strays.take_due(wall_ns)
        while stray != NULL:
            if self.tracing:
                self.trace_stray(RELEASED, stray)
            self.stray_waits(stray)
            fired += 1
            stray = self.strays.take_due(wall_ns)
        return fired

    def outdate(self, i64 offset):
        cdef i64 before = self.depth + self.delayed, expired
        cdef stray_t* stray
        cdef list old = []
        cdef u32 i
        cdef u64 id
        if offset <= self.outdated_end:
            return 0
        self.outdated_end = offset
        for i in range(self.strays.capacity):
            stray = &self.strays.table[i]
            if stray.offset < offset and stray.state in (WAITING, DELAYED, BEHIND):
                old.append((stray.offset, stray.id))
        old.sort()
        for _, id in old:
            stray = self.strays.find(id)
            if self.tracing:
                self.trace_stray(SKIPPED, stray)
            self.remove_stray(stray)
        self.stray_needed = False
        self.skip(self.next, offset)
        expired = before - self.depth - self.delayed
        self.expired_count += expired
        self.mark_pump()
        return expired

    # --- messages that have used their attempts ---

    @property
    def exhausted(self):
        return self.strays.exhausted_count

    @property
    def attempts_max(self):
        return self._attempts_max

    @attempts_max.setter
    def attempts_max(self, int value):
        """What waits, and what is exhausted and not taken, is judged anew."""
        cdef list judged = []
        cdef u32 i
        cdef u64 id
        cdef stray_t* stray
        self._attempts_max = value
        stray = self.strays.take_exhausted()
        while stray != NULL:
            judged.append((stray.offset, stray.id))
            stray = self.strays.take_exhausted()
        for i in range(self.strays.capacity):
            stray = &self.strays.table[i]
            if stray.state == WAITING and value and stray.attempts >= value:
                judged.append((stray.offset, stray.id))
        judged.sort()
        for _, id in judged:
            self.stray_waits(self.strays.find(id))

    def take_exhausted(self, Py_ssize_t count_max):
        cdef list taken = []
        cdef stray_t* stray
        while len(taken) < count_max:
            stray = self.strays.take_exhausted()
            if stray == NULL:
                break
            taken.append(StrayRecord(stray.offset, stray.id, stray.attempts, EXHAUSTED, 0,
                                     stray.cause))
        return taken

    def settle_exhausted(self, u64 id, bint done):
        cdef stray_t* stray = self.strays.find(id)
        if stray == NULL or not (stray.state == EXHAUSTED or (
                stray.state == BEHIND and 0 < self._attempts_max <= stray.attempts)):
            return False
        if done:
            if self.tracing:
                self.trace_stray(DEAD_LETTERED, stray)
            self.remove_stray(stray)
        elif stray.state == EXHAUSTED:
            self.stray_waits(stray)
        return True

    # --- reading ---

    def load(self, int which, block):
        cdef Block loaded = Block(block)
        if which == FORWARD_BLOCK:
            self.forward, self.forward_needed = loaded, False
            self.forward_body.base_offset = -1
        else:
            self.stray_block, self.stray_needed = loaded, False
            self.stray_body.base_offset = -1
        self.mark_pump()
        return len(loaded.starts)

    def lose_range(self, i64 start, i64 end, int kind=SKIPPED):
        """Drop every waiting stray of [start, end), which is noted as `kind`. Returns how many."""
        cdef u32 i
        cdef int lost = 0
        for i in range(self.strays.capacity):
            if self.strays.table[i].state and start <= self.strays.table[i].offset < end:
                self.land(&self.strays.table[i])
                if self.tracing:
                    self.trace_stray(kind, &self.strays.table[i])
                self.remove_stray(&self.strays.table[i])
                lost += 1
                if self.strays.count == 0:
                    break
        self.stray_needed = False
        self.mark_pump()
        return lost

    # --- by hand ---

    def holder(self, u64 id):
        cdef i64 offset = self.runs.offset_of(id)
        cdef stray_t* stray
        if offset >= self.low and offset < self.next:
            if self.owners[offset & (self.ring_capacity - 1)]:
                return self.owners[offset & (self.ring_capacity - 1)]
        stray = self.strays.find(id)
        return stray.owner if stray != NULL and stray.state == IN_FLIGHT else 0

    def settle_stray(self, u64 id, i64 due_ns):
        cdef stray_t* stray = self.strays.find(id)
        if stray == NULL or stray.state not in (WAITING, DELAYED, BEHIND):
            return False
        if self.tracing:
            self.trace_stray(FINISHED if due_ns < 0 else REQUEUED, stray)
        if due_ns < 0:
            self.finish_count += 1
            self.remove_stray(stray)
        else:
            self.requeue_count += 1
            if due_ns > 0 and stray.offset >= self.outdated_end:
                self.stray_sleeps(stray, due_ns)
            elif stray.state != BEHIND:  # it has to wait for those before it
                self.stray_waits(stray)
        self.stray_needed = False
        self.mark_pump()
        return True
