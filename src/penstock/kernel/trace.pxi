# What happens to messages that are traced, as events of fixed size in one buffer.
#
# An event is laid out here as it will lie in a message of the topic `_trace` (docs/formats.md).
# Topics, channels and clients stand in it as numbers: an object gets its number with its first
# event in a chunk, and the chunk is handed out with the list of its objects, to whom Python gives
# names.
#
# A message is traced when its id is in the sample, the same one for all that happens to it; or when
# it has a trace id. `hash(id) < below` is the sample; `below` 0 is none, and the highest is all.
#
# What happens to one message after the other, at one time, is one record: a run. At full load
# nearly all is, so a traced message costs a few comparisons and no bytes.

cdef enum:  # TraceKind of types.py
    PUBLISHED = 1
    SENT = 2
    FINISHED = 3
    REQUEUED = 4
    TIMED_OUT = 5
    TOUCHED = 6
    DELAYED_ = 7
    RELEASED = 8
    DEAD_LETTERED = 9
    SKIPPED = 10
    FILTERED = 11
    DISCONNECTED = 12
    EMPTIED = 13


cdef u64 TRACE_ALL = 0xFFFFFFFFFFFFFFFF
cdef u32 CHUNK_RECORDS = limits.TRACE_CHUNK_RECORDS
cdef u32 CHUNK_EVENTS = limits.TRACE_CHUNK_EVENTS
cdef i64 COUNT_MAX = 0xFFFFFFFF
cdef u32 ANY_INDEX = 0xFFFFFFFF  # above all that a batch has


cdef bint in_sample(u64 id, u64 below) noexcept:
    return below == TRACE_ALL or mix(id) < below


cdef bint is_named(u16 number, Named named, u32 chunk) noexcept:
    """Is this the number of that name in this chunk?"""
    if named is None:
        return number == 0
    return named.trace_chunk == chunk and named.trace_number == number


cdef class Named:
    cdef u32 trace_chunk
    cdef u16 trace_number
    cdef u16 trace_partition  # of a tail; 0 for all others


cdef class Trace:
    cdef event_t* events
    cdef u32 count  # of records
    cdef u32 event_count  # events that they stand for
    cdef u32 chunk  # number of the open one; 0 is none
    cdef u64 next_id  # that goes on with the last record; 0: nothing does
    cdef i64 next_offset
    cdef u32 grower  # the consumer whose next FIN may be one more of the last record; 0: nobody's
    cdef list names
    cdef list chunks

    def __cinit__(self):
        self.names, self.chunks = [], []
        self.chunk = 1

    def __dealloc__(self):
        free(self.events)

    cdef int number(self, Named named) except -1:
        """It occurs in this chunk for the first time."""
        self.names.append(named)
        named.trace_chunk, named.trace_number = self.chunk, <u16>len(self.names)
        return 0

    cdef int note(self, int kind, i64 time_ns, u64 id, i64 offset, u32 count, int attempts,
                  u64 trace_id, Named topic, Named channel, Named client) except -1:
        """Of `count` messages in a row, each with the id after the one before."""
        cdef event_t* event
        cdef u32 some
        if id == self.next_id and id and offset == self.next_offset:
            event = &self.events[self.count - 1]
            if (
                event.time_ns == time_ns and event.kind == kind
                and event.attempts == <u16>attempts and event.trace_id == trace_id
                and is_named(event.channel, channel, self.chunk)
                and is_named(event.client, client, self.chunk)
                and is_named(event.topic, topic, self.chunk)
                and self.event_count + count <= CHUNK_EVENTS
            ):
                event.count += count
                self.event_count += count
                self.next_id, self.next_offset = id_at(id, count), offset + count
                return 0
        while count:
            event = self.add_event(kind, topic, channel, client)
            some = min(count, CHUNK_EVENTS - self.event_count)
            event.time_ns, event.message_id, event.offset = time_ns, id, offset
            event.trace_id, event.attempts, event.count = trace_id, <u16>attempts, some
            self.event_count += some
            count -= some
            id, offset = id_at(id, some), offset + some
        self.next_id, self.next_offset = id, offset
        return 0

    cdef bint grow(self, i64 time_ns, u64 id, i64 offset, int attempts) noexcept:
        """One more of the last record, if it goes on with it; all but the message is known to be
        alike."""
        cdef event_t* event
        if id != self.next_id or offset != self.next_offset or self.event_count == CHUNK_EVENTS:
            return False
        event = &self.events[self.count - 1]
        if event.time_ns != time_ns or event.attempts != <u16>attempts:
            return False
        event.count += 1
        self.event_count += 1
        self.next_id = id + 1 if id & 0xFFF != 0xFFF else id_at(id, 1)
        self.next_offset = offset + 1
        return True

    cdef event_t* add_event(self, int kind, Named topic, Named channel, Named client) except NULL:
        """A new record with its names, and room for an event. The caller gives it all else."""
        cdef event_t* event
        if self.count == CHUNK_RECORDS or self.event_count == CHUNK_EVENTS:
            self.cut()
        if self.events == NULL:
            self.events = <event_t*>calloc(CHUNK_RECORDS, sizeof(event_t))
            if self.events == NULL:
                raise MemoryError("no memory for trace events")
        if topic.trace_chunk != self.chunk:
            self.number(topic)
        if channel is not None and channel.trace_chunk != self.chunk:
            self.number(channel)
        if client is not None and client.trace_chunk != self.chunk:
            self.number(client)
        event = &self.events[self.count]
        self.count += 1
        self.grower = 0
        event.topic = topic.trace_number
        event.channel = channel.trace_number if channel is not None else 0
        event.client = client.trace_number if client is not None else 0
        event.partition = topic.trace_partition
        event.kind, event.zero = kind, 0
        return event

    cdef int note_range(self, int kind, i64 time_ns, i64 start, i64 end, Named topic,
                        Named channel) except -1:
        cdef event_t* event
        while start < end:
            event = self.add_event(kind, topic, channel, None)
            self.event_count += 1
            self.next_id = 0
            event.time_ns, event.offset = time_ns, start
            event.message_id = event.trace_id = event.attempts = 0
            event.count = <u32>min(end - start, COUNT_MAX)
            start += event.count
        return 0

    cdef int note_published(self, view_t* batch, u64 below, Named topic,
                            list publishers) except -1:
        """`publishers`: (index of the first message, connection or None), rising; or None."""
        cdef section_t section, ids, traces, tries
        cdef size_t position = 0
        cdef u32 start = 0, end, change
        cdef u32 changes = len(publishers) if publishers is not None else 0
        cdef Named client = None
        ids.entries = traces.entries = tries.entries = 0
        if batch.trailer != NULL:
            while section_next(batch.trailer, batch.trailer_length, batch.count, &position,
                               &section) == 1:
                if section.type == SECTION_ID:
                    ids = section
                elif section.type == SECTION_TRACE:
                    traces = section
                elif section.type == SECTION_ATTEMPTS:
                    tries = section
        if not below and not traces.entries:
            return 0
        if below != TRACE_ALL or ids.entries or traces.entries or tries.entries:
            return self.note_special(batch, below, topic, publishers, &ids, &traces, &tries)
        for change in range(changes + 1):
            end = publishers[change][0] if change < changes else batch.count
            if start < end:
                self.note(PUBLISHED, batch.timestamp_ns, id_at(batch.base_id, start),
                          batch.base_offset + start, end - start, 0, 0, topic, None, client)
            if change < changes:
                start, client = end, publishers[change][1]
        return 0

    cdef int note_special(self, view_t* batch, u64 below, Named topic, list publishers,
                          section_t* ids, section_t* traces, section_t* tries) except -1:
        """The same, where each message has to be looked at."""
        cdef u32 i, from_index = ANY_INDEX, change = 0
        cdef u64 id
        cdef i64 trace_id, attempts, own_id
        cdef Named client = None
        cdef u32 changes = len(publishers) if publishers is not None else 0
        if changes:
            from_index = publishers[0][0]
        for i in range(batch.count):
            while from_index <= i:
                client = publishers[change][1]
                change += 1
                from_index = publishers[change][0] if change < changes else ANY_INDEX
            id = id_at(batch.base_id, i)
            trace_id = attempts = 0
            if ids.entries and section_value(ids, i, &own_id):
                id = <u64>own_id
            if traces.entries:
                section_value(traces, i, &trace_id)
            if not trace_id and not (below and in_sample(id, below)):
                continue
            if tries.entries:
                section_value(tries, i, &attempts)
            self.note(PUBLISHED, batch.timestamp_ns, id, batch.base_offset + i, 1, <int>attempts,
                      <u64>trace_id, topic, None, client)
        return 0

    cdef int cut(self) except -1:
        if self.count:
            self.chunks.append((self.names, (<u8*>self.events)[:self.count * sizeof(event_t)]))
            self.names = []
            self.count = self.event_count = self.grower = 0
            self.next_id = 0
            self.chunk += 1
            if self.chunk == 0:
                self.chunk = 1
        return 0

    cdef list take(self):
        cdef list chunks
        self.cut()
        chunks, self.chunks = self.chunks, []
        return chunks
