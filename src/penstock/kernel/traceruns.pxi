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
            out.message_id = id_at(record.message_id, i)
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
        index = id_index(record.message_id, record.count, message_id)
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
