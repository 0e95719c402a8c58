from penstock.kernel._codec cimport Named, i64, u32, u64, u8

# How long messages took from their timestamp to their FIN: counts in buckets, one set a channel.
#
# A bucket is a 32nd of a power of two, from 1 us (all below is bucket 0) to some 50 days, so its
# middle is off by 1.6 % at most.
#
# FINs of the ring are not looked at one by one: at the end of a turn the finished ranges, which the
# journal is made of, are laid over `runs`: what was delivered, from which batch, so with which
# timestamp. Strays carry their timestamp themselves.

cdef enum:
    BUCKETS = 42 * 32 + 1

cdef struct delivered_t:
    i64 start
    i64 end
    i64 timestamp_ns

cdef class Latencies:
    cdef u64 counts[BUCKETS]
    cdef delivered_t* runs  # offsets rise; those below `head` are done with
    cdef u32 head, count, capacity

    cdef int delivered(self, i64 offset, i64 count, i64 timestamp_ns) except -1
    cdef u32 find(self, i64 offset) noexcept
    cdef i64 timestamp_of(self, i64 offset) noexcept
    cdef void finished(self, i64 start, i64 end, i64 wall_ns) noexcept
    cdef void note(self, i64 latency_ns, u64 count) noexcept
    cdef void trim(self, i64 low) noexcept
    cdef void clear(self) noexcept
    cdef dict take(self)


# The state of one channel in one partition, and the ring of what is in flight for the first time.
#
# window.pxd tells what the parts of the state are. Here are its consumers, the ring, the lists of
# the hub that the window stands on, and the trace of its messages; window.pxd has the moves.

cdef enum:
    RING_SPAN_MAX = 65536  # beyond it the oldest message in flight becomes a stray

cdef struct consumer_t:
    u32 serial
    bint closing
    bint eof  # it has ended its stream: what it got now would only time out
    bint blocked  # socket full, or output on hold beyond its bound
    bint enveloped  # gets partitions, headers and keys (framing.pxi)
    bint extended  # gets headers
    bint detailed  # gets positions
    u32 tag_bytes  # 0: no tag
    u8 tag[TAG_BYTES_MAX]
    int sample_rate
    int locality  # Locality of types.py
    u32 window_count  # that share its RDY
    i64 rdy
    i64 in_flight  # in all of them
    i64 timeout_ns
    i64 message_count
    i64 finish_count
    i64 requeue_count

cdef struct place_t:  # where a reader stands inside a batch, so that the next sums on from there
    i64 base_offset
    u32 index
    u32 position

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
    cdef place_t forward_place, stray_place
    cdef Trailer forward_trailer, stray_trailer  # None: no batch with a trailer was met yet
    # consumers
    cdef list conns  # Conn; delivery.pxi knows the type
    cdef consumer_t** consumer_table
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

    cdef int mark_traced(self, u64 id, u64 trace_id) except -1
    cdef int forget_traced(self, u64 id) except -1
    cdef Named client_of(self, u32 serial)
    cdef int trace(self, int kind, u64 id, i64 offset, int attempts, Named client) except -1
    cdef int trace_run(self, int kind, u64 base_id, u32 index, i64 offset, u32 count, int attempts,
                       Named client) except -1
    cdef int trace_finished(self, u32 serial, u64 id, i64 offset) except -1
    cdef int trace_stray(self, int kind, stray_t* stray) except -1
    cdef int trace_left(self, Named conn, u32 serial) except -1
    cdef int trace_emptied(self, i64 offset) except -1
    cdef bint has_timers(self) noexcept
    cdef int mark_pump(self) except -1
    cdef int mark_journal(self) except -1
    cdef int mark_active(self) except -1
    cdef consumer_t* consumer(self, u32 serial) noexcept
    cdef i64 in_flight_of(self, u32 serial) noexcept
    cdef int forget_tag(self, consumer_t* consumer) except -1
    cdef void weigh_consumers(self) noexcept
    cdef int add_consumer(self, object conn, consumer_t* consumer) except -1
    cdef int remove_consumer(self, object conn, consumer_t* consumer) except -1
    cdef int ring_room(self, i64 count) except -1
    cdef int grow_ring(self, u32 capacity) except -1
    cdef int evict_low(self) except -1
    cdef int evict_all(self) except -1
    cdef void advance_low(self) noexcept
    cdef stray_t* make_stray(self, i64 offset) except NULL
    cdef int attempts_of(self, i64 offset) noexcept
