"""What happens to messages that are traced, as events of fixed size in one buffer.

An event is laid out here as it will lie in a message of the topic `_trace` (docs/formats.md).
Topics, channels and clients stand in it as numbers: an object gets its number with its first event
in a chunk, and the chunk is handed out with the list of its objects, to whom Python gives names.

A message is traced when its id is in the sample, the same one for all that happens to it; or when
it has a trace id. `hash(id) < below` is the sample; `below` 0 is none, and the highest is all.

What happens to one message after the other, at one time, is one record: a run. At full load nearly
all is, so a traced message costs a few comparisons and no bytes.
"""

from penstock.kernel.fast.sections cimport section_t
from penstock.kernel.fast.types cimport i64, u8, u16, u32, u64

cdef enum:  # TraceKind of interface.py
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
    CORRUPT = 16

cdef packed struct event_t:
    i64 time_ns
    u64 message_id
    i64 offset
    u64 trace_id
    u32 count
    u16 topic
    u16 channel
    u16 client
    u16 attempts
    u16 partition
    u8 kind
    u8 zero

cdef struct batch_t:  # what was published
    i64 base_offset
    u64 base_id
    i64 timestamp_ns
    u32 count
    const u8* trailer
    size_t trailer_length

cdef class Named:
    cdef u32 trace_chunk
    cdef u16 trace_number
    cdef u16 trace_partition  # of a tail; 0 for all others

cdef class Trace:
    cdef event_t* events
    cdef u32 count  # of records
    cdef u32 told  # events that they stand for
    cdef u32 chunk  # number of the open one; 0 is none
    cdef u64 next_id  # that goes on with the last record; 0: nothing does
    cdef i64 next_offset
    cdef u32 grower  # the consumer whose next FIN may be one more of the last record; 0: nobody's
    cdef list names
    cdef list chunks

    # of `count` messages in a row, each with the id after the one before
    cdef int note(self, int kind, i64 time_ns, u64 id, i64 offset, u32 count, int attempts,
                  u64 trace_id, Named topic, Named channel, Named client) except -1
    # one more of the last record, if it goes on with it; all but the message is known to be alike
    cdef bint grow(self, i64 time_ns, u64 id, i64 offset, int attempts) noexcept
    cdef event_t* place(self, int kind, Named topic, Named channel, Named client) except NULL
    cdef int note_range(self, int kind, i64 time_ns, i64 start, i64 end, Named topic,
                        Named channel) except -1
    cdef int note_published(self, batch_t* batch, u64 below, Named topic,
                            list publishers) except -1
    cdef int note_special(self, batch_t* batch, u64 below, Named topic, list publishers,
                          section_t* ids, section_t* traces, section_t* tries) except -1
    cdef int number(self, Named named) except -1
    cdef int cut(self) except -1
    cdef list take(self)

cdef bint in_sample(u64 id, u64 below) noexcept
