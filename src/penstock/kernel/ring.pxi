# The state of one channel in one partition, and the ring of what is in flight for the first time.
#
# window.pxi tells what the parts of the state are. Here are its consumers, the ring, the lists of
# the hub that the window stands on, and the trace of its messages; cursor.pxi has the moves.

cdef enum:
    RING_SPAN_MAX = 65536  # beyond it the oldest message in flight becomes a stray

# What a connection is to its windows; the first part of it (peer.pxi).
cdef class Consumer(Named):
    cdef readonly u32 serial
    cdef public bint closing
    cdef bint eof  # it has ended its stream: what it got now would only time out
    cdef bint blocked  # socket full, or output on hold beyond its bound
    cdef public bint enveloped  # gets partitions, headers and keys (framing.pxi)
    cdef public bint extended  # gets headers
    cdef public bint detailed  # gets positions
    cdef u32 tag_bytes  # 0: no tag
    cdef u8 tag_text[TAG_BYTES_MAX]
    cdef public int sample_rate
    cdef int nearness  # Locality of types.py
    cdef u32 window_count  # that share its RDY
    cdef i64 rdy_count
    cdef readonly i64 in_flight  # in all of them
    cdef public i64 timeout_ns
    cdef readonly i64 message_count
    cdef readonly i64 finish_count
    cdef readonly i64 requeue_count

cdef struct body_at_t:  # where a reader stands inside a batch, so that the next sums on from there
    i64 base_offset
    u32 index
    u32 position

cdef enum:
    RING_SPAN_MIN = 64
    PARKED_MAX = 1 << 20  # delayed messages that are strays before the cursor meets them

cdef enum:  # Locality
    UNKNOWN = 0
    GLOBAL = 1
    REGION = 2
    ZONE = 3


cdef class Ring(Named):
    cdef Hub hub
    cdef readonly Tail tail
    cdef public object owner
    cdef bint _paused
    cdef public bint skips_tests
    cdef readonly i64 low, next
    cdef public i64 count_base  # what of the tail's handed_end does not count as given to it
    cdef public i64 touch_max_ns
    cdef readonly i64 timeout_count, requeue_count, finish_count, expired_count
    cdef int _attempts_max
    cdef public int auto_ack_attempts  # 0: off
    cdef public i64 auto_ack_age_ns
    cdef readonly i64 auto_ack_count
    cdef i64 allowance_left  # bytes of frames
    cdef i64 outdated_end  # below it nothing is sent any more
    # ring
    cdef u32* owners
    cdef i64* deadlines
    cdef u64* ring_keys  # hashes, 0: no key; NULL: there is no order
    cdef u32 ring_capacity
    cdef i64 ring_in_flight
    cdef i64 ring_deadline_ns  # lower bound, 0: none
    cdef Runs runs
    cdef Strays strays
    cdef Latencies latencies  # None: not measured
    # skips, redo
    cdef Skips skips
    # delayed messages ahead (parking.pxi)
    cdef i64 parked_end  # those below it are parked, but for what is to be searched
    cdef public i64 parked_max
    cdef i64 search_from  # from here to `search_end` the log is to be searched
    cdef readonly i64 search_end
    cdef Beyond beyond
    cdef i64 redo_end
    # reading
    cdef Block forward, stray_block
    cdef bint forward_needed, stray_needed
    cdef body_at_t forward_body, stray_body
    cdef Trailer forward_trailer, stray_trailer  # None: no batch with a trailer was met yet
    # consumers
    cdef list conns  # Consumer; delivery.pxi knows that each is a Conn
    cdef void** consumer_table  # the same, to be looked through without counting references
    cdef Tags tags  # None: no consumer has a tag
    cdef u32 consumer_count, consumer_capacity
    cdef u32 turn  # rotates the first consumer
    cdef bint prefers  # a consumer is nearer than others may be
    cdef i64 delivered[4]  # messages, by Locality
    cdef bint stray_turn
    cdef i64 refill_ns  # mono: then small refills go out too; 0: none is put off
    # trace
    cdef u64 _trace_below
    cdef dict traced_ids  # of messages that have one and are not done; None: no such message
    cdef bint tracing  # is any message traced?
    cdef u32 client_hint
    # journal
    cdef range_t* fins
    cdef u32 fin_count, fin_capacity
    cdef bint cursor_changed, reset_pending
    # lists of the hub
    cdef bint pump_listed, journal_listed, active_listed, short_listed, search_listed
    cdef bint forgotten
    cdef u32 number  # in the order in which they were made

    def __cinit__(self, Hub hub not None, Tail tail not None, i64 start):
        self.hub, self.tail = hub, tail
        hub.window_number += 1
        self.number = hub.window_number
        self.low = self.next = start
        self.redo_end = 0
        self.count_base = tail.handed_end
        self.allowance_left = <i64>1 << 62
        self.touch_max_ns = 900 * <i64>1000000000
        self.conns = []
        self.runs, self.strays, self.skips, self.beyond = Runs(), Strays(), Skips(), Beyond()
        self.parked_max = PARKED_MAX
        self.forward_body.base_offset = self.stray_body.base_offset = -1
        self.cursor_changed = True

    def __dealloc__(self):
        free(self.owners)
        free(self.deadlines)
        free(self.ring_keys)
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

    cdef Consumer consumer(self, u32 serial):
        cdef u32 i
        for i in range(self.consumer_count):
            if (<Consumer>self.consumer_table[i]).serial == serial:
                return <Consumer>self.consumer_table[i]
        return None

    cdef int add_consumer(self, Consumer consumer) except -1:
        if self.consumer_count == self.consumer_capacity:
            self.consumer_table = <void**>grown(
                self.consumer_table, sizeof(void*), &self.consumer_capacity, 4, "consumers")
        self.consumer_table[self.consumer_count] = <void*>consumer
        self.consumer_count += 1
        self.conns.append(consumer)
        if consumer.tag_bytes:
            if self.tags is None:
                self.tags = Tags()
            self.tags.join(self.strays, consumer.tag_text, consumer.tag_bytes)
        self.weigh_consumers()
        self.mark_pump()
        return 0

    cdef int remove_consumer(self, Consumer consumer) except -1:
        cdef u32 i
        if self.tracing and consumer.in_flight:
            self.trace_left(consumer)
        for i in range(self.consumer_count):
            if self.consumer_table[i] == <void*>consumer:
                self.consumer_count -= 1
                while i < self.consumer_count:
                    self.consumer_table[i] = self.consumer_table[i + 1]
                    i += 1
                self.conns.remove(consumer)
                self.forget_tag(consumer)
                self.weigh_consumers()
                break
        if self.consumer_count == 0:
            self.forward = None
            self.stray_block = None
            self.forward_needed = self.stray_needed = False
        return 0

    cdef int forget_tag(self, Consumer consumer) except -1:
        """What waited for the last one with a tag is for the others now."""
        if consumer.tag_bytes:
            if not self.tags.leave(self.strays, consumer.tag_text, consumer.tag_bytes):
                self.tags = None
            self.mark_pump()
        return 0

    cdef void weigh_consumers(self) noexcept:
        cdef u32 i
        self.prefers = False
        for i in range(self.consumer_count):
            self.prefers |= (<Consumer>self.consumer_table[i]).nearness > GLOBAL

    cdef i64 in_flight_of(self, u32 serial) noexcept:
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
        cdef u32 capacity
        if span <= self.ring_capacity:
            return 0
        while span > RING_SPAN_MAX and self.low < self.next:
            self.evict_low()
            span = self.next + count - self.low
        capacity = self.ring_capacity if self.ring_capacity else RING_SPAN_MIN
        while capacity < span:
            capacity *= 2
        if capacity > self.ring_capacity:
            self.grow_ring(capacity)
        return 0

    cdef int grow_ring(self, u32 capacity) except -1:
        cdef u32* owners = <u32*>calloc(capacity, sizeof(u32))
        cdef i64* deadlines = <i64*>calloc(capacity, sizeof(i64))
        cdef u64* keys = <u64*>calloc(capacity, sizeof(u64)) if self.strays.linked else NULL
        cdef u32 mask = capacity - 1, old_mask = self.ring_capacity - 1
        cdef i64 offset = self.low
        if owners == NULL or deadlines == NULL or (self.strays.linked and keys == NULL):
            free(owners)
            free(deadlines)
            free(keys)
            raise MemoryError(f"no memory for {capacity} messages in flight")
        while offset < self.next:
            owners[offset & mask] = self.owners[offset & old_mask]
            deadlines[offset & mask] = self.deadlines[offset & old_mask]
            if keys != NULL:
                keys[offset & mask] = self.ring_keys[offset & old_mask]
            offset += 1
        free(self.owners)
        free(self.deadlines)
        free(self.ring_keys)
        self.owners, self.deadlines, self.ring_keys = owners, deadlines, keys
        self.ring_capacity = capacity
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
        cdef Consumer consumer = self.consumer(self.owners[slot])
        stray.owner = self.owners[slot]
        stray.deadline_ns = self.deadlines[slot]
        stray.delivered_ns = stray.deadline_ns - (
            consumer.timeout_ns if consumer is not None else 0
        )
        if self.latencies is not None:
            stray.timestamp_ns = self.latencies.timestamp_of(offset)
        self.strays.expect(stray.deadline_ns)
        if self.ring_keys != NULL and self.ring_keys[slot]:
            self.strays.link(stray).key = self.ring_keys[slot]
            self.strays.link(stray).holds = True
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
        if i < self.consumer_count and (<Consumer>self.consumer_table[i]).serial == serial:
            return self.conns[i]
        for i in range(self.consumer_count):
            if (<Consumer>self.consumer_table[i]).serial == serial:
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
            return self.hub.trace.note(kind, self.hub.now_ns(), id_at(base_id, index), offset,
                                       count, attempts, 0, self.tail, self, client)
        for i in range(count):
            self.trace(kind, id_at(base_id, index + i), offset + i, attempts, client)
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

    cdef int trace_left(self, Consumer consumer) except -1:
        """A consumer goes; what it has in flight stays so until it times out."""
        cdef i64 offset = self.low
        cdef u32 mask = self.ring_capacity - 1
        cdef u32 i
        cdef stray_t* stray
        while offset < self.next:
            if self.owners[offset & mask] == consumer.serial:
                self.trace(DISCONNECTED, self.runs.id_of(offset), offset,
                           self.attempts_of(offset), consumer)
            offset += 1
        for i in range(self.strays.capacity):
            stray = &self.strays.table[i]
            if stray.state == IN_FLIGHT and stray.owner == consumer.serial:
                self.trace(DISCONNECTED, stray.id, stray.offset, stray.attempts, consumer)
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
