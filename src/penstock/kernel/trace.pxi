# Events about traced messages.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdlib cimport calloc, free

from penstock.limits import TRACE_CHUNK_EVENTS, TRACE_CHUNK_RECORDS

cdef u32 RECORDS_MAX = TRACE_CHUNK_RECORDS
cdef u32 EVENTS_MAX = TRACE_CHUNK_EVENTS
cdef u64 ALL = 0xFFFFFFFFFFFFFFFF
cdef i64 COUNT_MAX = 0xFFFFFFFF
cdef u32 ANY_INDEX = 0xFFFFFFFF  # above all that a batch has


cdef bint in_sample(u64 id, u64 below) noexcept:
    return below == ALL or mix(id) < below


cdef bint is_named(u16 number, Named named, u32 chunk) noexcept:
    """Is this the number of that name in this chunk?"""
    if named is None:
        return number == 0
    return named.trace_chunk == chunk and named.trace_number == number


cdef class Trace:
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
                and self.told + count <= EVENTS_MAX
            ):
                event.count += count
                self.told += count
                self.next_id, self.next_offset = id_at_c(id, count), offset + count
                return 0
        while count:
            event = self.place(kind, topic, channel, client)
            some = min(count, EVENTS_MAX - self.told)
            event.time_ns, event.message_id, event.offset = time_ns, id, offset
            event.trace_id, event.attempts, event.count = trace_id, <u16>attempts, some
            self.told += some
            count -= some
            id, offset = id_at_c(id, some), offset + some
        self.next_id, self.next_offset = id, offset
        return 0

    cdef bint grow(self, i64 time_ns, u64 id, i64 offset, int attempts) noexcept:
        cdef event_t* event
        if id != self.next_id or offset != self.next_offset or self.told == EVENTS_MAX:
            return False
        event = &self.events[self.count - 1]
        if event.time_ns != time_ns or event.attempts != <u16>attempts:
            return False
        event.count += 1
        self.told += 1
        self.next_id = id + 1 if id & 0xFFF != 0xFFF else id_at_c(id, 1)
        self.next_offset = offset + 1
        return True

    cdef event_t* place(self, int kind, Named topic, Named channel, Named client) except NULL:
        """A new record with its names, and room for an event. The caller gives it all else."""
        cdef event_t* event
        if self.count == RECORDS_MAX or self.told == EVENTS_MAX:
            self.cut()
        if self.events == NULL:
            self.events = <event_t*>calloc(RECORDS_MAX, sizeof(event_t))
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
            event = self.place(kind, topic, channel, None)
            self.told += 1
            self.next_id = 0
            event.time_ns, event.offset = time_ns, start
            event.message_id = event.trace_id = event.attempts = 0
            event.count = <u32>min(end - start, COUNT_MAX)
            start += event.count
        return 0

    cdef int note_published(self, batch_t* batch, u64 below, Named topic,
                            list publishers) except -1:
        """`publishers`: (index of the first message, connection or None), rising; or None."""
        cdef section_t section, ids, traces, tries
        cdef size_t position = 0
        cdef u32 start = 0, end, told
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
        if below != ALL or ids.entries or traces.entries or tries.entries:
            return self.note_special(batch, below, topic, publishers, &ids, &traces, &tries)
        for told in range(changes + 1):
            end = publishers[told][0] if told < changes else batch.count
            if start < end:
                self.note(PUBLISHED, batch.timestamp_ns, id_at_c(batch.base_id, start),
                          batch.base_offset + start, end - start, 0, 0, topic, None, client)
            if told < changes:
                start, client = end, publishers[told][1]
        return 0

    cdef int note_special(self, batch_t* batch, u64 below, Named topic, list publishers,
                          section_t* ids, section_t* traces, section_t* tries) except -1:
        """The same, where each message has to be looked at."""
        cdef u32 i, from_index = ANY_INDEX, told = 0
        cdef u64 id
        cdef i64 trace_id, attempts, own_id
        cdef Named client = None
        cdef u32 changes = len(publishers) if publishers is not None else 0
        if changes:
            from_index = publishers[0][0]
        for i in range(batch.count):
            while from_index <= i:
                client = publishers[told][1]
                told += 1
                from_index = publishers[told][0] if told < changes else ANY_INDEX
            id = id_at_c(batch.base_id, i)
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
            self.count = self.told = self.grower = 0
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


# Runs among the records of trace events, taken apart (codec/traceruns.py says what a run is). A
# search looks at records, so what it does not want costs it no more than a few comparisons, however
# many events they stand for.

cdef struct span_t:  # of the events of one record
    u32 start
    u32 end


cdef const event_t* records_of(Lent records) except NULL:
    if records.size % sizeof(event_t):
        raise ValueError(f"{records.size} bytes are no whole records")
    return <const event_t*>records.data


cdef u32 events_of(const event_t* record) noexcept:
    return record.count if record.message_id else 1


cdef event_t* put(event_t* out, const event_t* record, u32 start, u32 end) noexcept:
    """Some events of a record, each by itself; where the next one goes."""
    cdef u32 i
    for i in range(start, end):
        out[0] = record[0]
        if record.message_id:
            out.message_id = id_at_c(record.message_id, i)
            out.offset = <i64>(<u64>record.offset + i)
            out.count = 1
        out += 1
    return out


cdef bytes blank_events(u64 total, i64 events_max):
    if <i64>total > events_max:
        raise ValueError(f"{total} events are more than {events_max}")
    return PyBytes_FromStringAndSize(NULL, total * sizeof(event_t))


def expand_events(records, i64 events_max):
    """Each event by itself; `records` as they are when there is no run among them."""
    cdef Lent data = lent_by(records)
    cdef const event_t* first = records_of(data)
    cdef size_t count = data.size // sizeof(event_t), i
    cdef u64 total = 0
    cdef bint plain = True
    cdef bytes expanded
    cdef event_t* out
    for i in range(count):
        total += events_of(&first[i])
        plain = plain and events_of(&first[i]) == 1
    if plain and <i64>total <= events_max:
        return records
    expanded = blank_events(total, events_max)
    out = <event_t*>PyBytes_AS_STRING(expanded)
    for i in range(count):
        out = put(out, &first[i], 0, events_of(&first[i]))
    return expanded


cdef span_t wanted(const event_t* record, u64 message_id, u64 trace_id) noexcept:
    """Of the events of a record, those that are asked for."""
    cdef span_t span
    cdef i64 index
    span.start = span.end = 0
    if not message_id and not trace_id:
        span.end = 0 if record.message_id else 1
    elif trace_id and record.trace_id == trace_id:
        span.end = events_of(record)
    elif message_id and record.message_id:
        index = id_index_c(record.message_id, record.count, message_id)
        if index >= 0:
            span.start, span.end = <u32>index, <u32>index + 1
    return span


def pick_events(records, u64 message_id, u64 trace_id, i64 events_max):
    """The events of one message, and of all with this trace id, each by itself."""
    cdef Lent data = lent_by(records)
    cdef const event_t* first = records_of(data)
    cdef size_t count = data.size // sizeof(event_t), i
    cdef u64 total = 0
    cdef span_t span
    cdef bytes picked
    cdef event_t* out
    for i in range(count):
        span = wanted(&first[i], message_id, trace_id)
        total += span.end - span.start
    if not total:
        return b""
    picked = blank_events(total, events_max)
    out = <event_t*>PyBytes_AS_STRING(picked)
    for i in range(count):
        span = wanted(&first[i], message_id, trace_id)
        out = put(out, &first[i], span.start, span.end)
    return picked
