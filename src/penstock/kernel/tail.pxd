from libc.string cimport memchr

from penstock.kernel._codec cimport (
    Named, Trace, batch_header_t, buf_t, i64, short_header_t, u32, u64, u8,
)

# What the trailer of an open batch is to say of its messages: a table for each section.
#
# A table's columns stand in C buffers as they go to disk. So a message with a key and headers makes
# no Python object, and sealing copies each column once.

cdef enum:
    TABLES = 7

cdef struct table_t:
    buf_t indexes  # u32 each, rising
    buf_t values  # integers: 8 bytes each; bytes: lengths, u32 each
    buf_t blob  # bytes: the values end to end

cdef class Labels:
    cdef table_t tables[TABLES]
    cdef size_t size  # of the entries

    cdef int put_integer(self, int section, u32 index, i64 value) except -1
    cdef int put_bytes(self, int section, u32 index, const u8* data, size_t size) except -1
    cdef int put(self, int section, u32 index, object value) except -1
    cdef int write(self, buf_t* out) except -1
    cdef void clear(self) noexcept
    cdef size_t held_bytes(self) noexcept

cdef int check_label(int section, object value) except -1


# What tails, windows, connections and the engine share: work lists, buffers, the time.
#
# The parts of the kernel never call one another upward. A tail that committed, a window that has
# room and a connection that has output put themselves on a list here, once; the engine works the
# lists off.
#
#     list           holds      put there by                              worked off by
#     dirty_tails    Tail       first append to an open batch             Engine.dirty_tails
#     settled        tuples     commit_to, fail_from, doubt: (tail, serial, outcome, waiters)
#                                                                         Engine.flush
#     handed         Tail       handed_end moved                          Engine.flush
#     pumps          Window     RDY, FIN, commit, requeue, load, drained  Engine.flush
#     unstalled      Conn       Tail.seal: there is room again            Engine.flush
#     ready          Conn       resume, feed, an answered FIFO            Engine.poll
#     outputs        Conn       replies, OKs                              Engine.flush
#     interests      Conn       halted, resumed, full, drained            Engine.flush
#     journals       Window     cursor, finished or stray changes         Engine.dirty_windows
#     active         Window     something in flight or delayed            Engine.tick
#     searches       Window     delayed messages to be found in the log   Engine.take_searches
#     shorts         Window     a small refill is put off                 Engine.poll
#     detached       Conn       output, halted, resumed or gone, no fd    Engine.dirty_detached

cdef enum:  # what has become of a publish
    PENDING = 0
    STORED = 1
    FAILED = 2
    IN_DOUBT = 3  # it may be stored, elsewhere or later

cdef struct membatch_t:
    i64 base_offset
    u64 base_id
    i64 timestamp_ns
    u32 count
    bint fitted  # its buffers have no room to grow
    buf_t lengths
    buf_t bodies
    buf_t trailer

cdef class Hub:
    cdef list dirty_tails, handed, settled, unstalled, pumps, ready
    cdef list outputs, interests, journals, active, shorts, searches, detached
    cdef list events
    cdef Trace trace
    cdef dict routes  # topic -> Route
    cdef i64 mono_ns, wall_ns
    cdef i64 polled_ns  # mono: when the turn began to read
    cdef i64 wall_ahead_ns  # of the wall clock, before mono
    cdef i64 message_bytes_max, body_bytes_max, rdy_count_max
    cdef i64 line_bytes_max, batch_bytes_max, output_bytes_max, input_bytes_max
    cdef buf_t receive  # one recv lands here; a connection's remainder is put in front
    cdef buf_t scratch  # frames on their way to one socket
    cdef buf_t pieces, keys  # of one PUB_EXT or MPUB_EXT (extended.pxi)
    cdef list spare_labels
    cdef membatch_t** pool
    cdef u32 pool_count
    cdef i64 held_bytes_max, held_bytes  # input of all connections, but for what is small
    cdef i64 held_small_bytes
    cdef size_t memory_bytes, memory_bytes_max  # committed batches of all tails together
    cdef size_t recent_bytes_max  # of one tail, kept though no window waits for it
    cdef u64 sent_count, sent_before  # messages: now, and before the last round
    cdef u64 round  # of deliveries to connections with several windows
    cdef u32 shared_count  # such connections
    cdef u32 window_number  # of the newest window
    cdef u64 seed  # of what is drawn for sampled consumers

    cdef i64 now_ns(self) noexcept
    cdef membatch_t* take_batch(self) except NULL
    cdef void give_batch(self, membatch_t* batch) noexcept
    cdef Labels take_labels(self)
    cdef int give_labels(self, Labels labels) except -1
    cdef membatch_t* fit_batch(self, membatch_t* batch) noexcept

cdef size_t membatch_bytes(membatch_t* batch) noexcept
cdef void free_batch(membatch_t* batch) noexcept


# The newest committed batches of one partition: a ring, oldest first, bounded in bytes.
#
# `view_t` is how delivery looks at a batch, wherever it is: in this ring or in a block read from a
# file.

cdef struct view_t:
    i64 base_offset
    u64 base_id
    i64 timestamp_ns
    u32 count
    u32 bodies_length
    const u8* lengths
    const u8* bodies
    const u8* trailer
    size_t trailer_length

cdef class Memory(Named):
    cdef Hub hub
    cdef readonly bytes topic
    cdef readonly i64 committed_end
    cdef bint _handing  # its windows get what is committed
    cdef membatch_t** ring
    cdef u32 ring_head, ring_count, ring_capacity
    cdef size_t memory_bytes, memory_bytes_max
    cdef i64 trailer_end  # of the newest batch in memory that has a trailer

    cdef int grow_ring(self) except -1
    cdef int keep(self, membatch_t* batch) except -1
    cdef int drop_oldest(self) except -1
    cdef int trim(self, i64 below_offset) except -1
    cdef bint view(self, i64 offset, view_t* out) noexcept
    cdef int validate_memory(self) except -1


# Sealed batches of one tail, in order: the queue between its committed and its written end.
#
# An entry is what is known of a batch until it is committed or has failed. The queue is a list, as
# it is short and changes once a batch.

cdef class Sealed:
    cdef membatch_t* batch  # owned; NULL once it is committed or has failed
    cdef u64 serial  # of the open batch that it was; entries of connections name it. 0: of none
    cdef list waiters, publishers

    cdef membatch_t* take(self) noexcept

cdef Sealed sealed_of(membatch_t* batch, u64 serial, list waiters, list publishers)
cdef Py_ssize_t sealed_before(list queue, i64 start, i64 offset) except -1
cdef int sealed_validate(list queue, i64 start, i64 end) except -1


# Several messages in one body, as /mpub brings them (`Pack` of types.py).
#
# Looked at twice: once to count and check, once to take. The second walk so needs no undo, and both
# together cost far less than one object per message.

cdef enum:
    PACK_FRAMED = 1
    PACK_LINES = 2
    BAD_COUNT = -1
    BAD_MESSAGE = -2
    NO_MESSAGE = -1

cdef inline i64 signed_be32(const u8* p) noexcept:
    return <i64><int>((<u32>p[0] << 24) | (<u32>p[1] << 16) | (<u32>p[2] << 8) | p[3])

cdef inline i64 framed_count(const u8* data, size_t size, i64 count_max, i64 bytes_max) noexcept:
    cdef size_t position = 4
    cdef i64 count, length, i
    if size < 4:
        return BAD_COUNT
    count = signed_be32(data)
    if count <= 0 or count > count_max:
        return BAD_COUNT
    for i in range(count):
        if size - position < 4:
            return BAD_MESSAGE
        length = signed_be32(data + position)
        position += 4
        if length <= 0 or length > bytes_max or <size_t>length > size - position:
            return BAD_MESSAGE
        position += <size_t>length
    return count

cdef inline size_t line_end(const u8* data, size_t size, size_t position) noexcept:
    cdef const void* found = memchr(data + position, 10, size - position)
    return size if found == NULL else <size_t>(<const u8*>found - data)

cdef inline i64 line_count(const u8* data, size_t size, i64 bytes_max) noexcept:
    cdef size_t position = 0, end
    cdef i64 count = 0
    while position < size:
        end = line_end(data, size, position)
        if <i64>(end - position) > bytes_max:
            return BAD_MESSAGE
        if end > position:
            count += 1
        position = end + 1
    return count


# The writing end of one partition in memory.
#
# A batch in memory is a `membatch_t`: its lengths, its bodies and (rarely) its trailer in three
# buffers, just as they go to disk behind the header. The tail holds the open batch, a short row of
# sealed batches (`Sealed`) and the newest committed ones (`Memory`).
#
#     committed ring [memory_start, committed_end) | sealed [.., written_end) | open (no offsets)

# The header of an open batch, in either form. It begins with that, so its address is the header's.
cdef union header_t:
    batch_header_t full
    short_header_t brief

cdef struct head_t:
    header_t header
    size_t size
    size_t lengths_bytes  # how many of the batch's lengths are written
    size_t total

# Where a log ends: what the next batch of it gets, and how far it may be written at once.
cdef class LogEnd:
    cdef object _file  # a `log.disk.File`
    cdef int fd  # its descriptor
    cdef public i64 position, prepared  # in that file: its end, and that of its prepared part
    cdef public i64 last_position  # of the newest batch
    cdef public i64 index_position  # a batch from here on is one for the index
    cdef public i64 age_end_ns  # a batch of a later time is one for the next segment
    cdef public i64 synced_end
    cdef public i64 last_timestamp_ns
    cdef public u64 last_id
    cdef public u32 node_id, epoch

cdef class Tail(Memory):
    cdef readonly int partition
    cdef public object owner
    cdef public bint refusing
    cdef public i64 append_end_max  # no publish may end above it; 0: no bound
    cdef public bint traceable  # messages with trace ids are traced
    cdef public u64 trace_below  # and so is this sample of the others (`Trace`)
    cdef object open_publisher  # who sent the newest message
    cdef list open_publishers  # (index, connection or None); None: not noted
    cdef membatch_t* open_batch
    cdef Labels labels  # of the open batch; None while no message has any
    cdef list open_waiters
    cdef list open_stalled  # connections that wait for room in the open batch
    cdef public i64 waiting_bytes  # of publishes that wait for room in it
    cdef public i64 waiting_bytes_max  # 0: no bound
    cdef i64 stalled_bytes  # of the waiting ones, of those connections
    cdef list sealed  # of Sealed, from committed_end to written_end
    cdef Py_ssize_t sealed_room  # `sealed_max`
    cdef readonly u64 open_serial  # number of the open batch; entries of connections name it
    cdef readonly i64 written_end
    cdef public i64 handed_end  # set by the broker once, before the first window (a restart)
    cdef readonly i64 message_count, message_bytes
    cdef list windows
    cdef bint listed  # in the engine's list of dirty tails
    cdef bint handed_listed
    cdef bint forgotten  # its topic is gone: connections must look it up anew

    cdef int note_publisher(self, object conn) except -1
    cdef int trace_published(self, membatch_t* batch, list publishers) except -1
    cdef int append_c(self, const u8* body, u32 size) except -1
    cdef int append_one(self, const u8* body, u32 size, i64 due_ns) except -1
    cdef Labels label(self)
    cdef int drop_labels(self) except -1
    cdef size_t open_size(self) noexcept
    cdef int add_due(self, i64 due_ns) except -1
    cdef i64 count_pack_c(self, int pack, const u8* body, size_t size, i64 count_max,
                          i64 message_bytes_max) except -3
    # the connection waits for room, with a publish of this length; False: too many do
    cdef bint stall(self, object conn, i64 length) except -1
    cdef int unstall(self) except -1
    cdef bint has_room(self, u32 count) noexcept
    cdef bint can_seal(self) noexcept
    cdef int check_room(self) except -1
    cdef int mark_dirty(self) except -1
    cdef int head_open(self, head_t* head, u64 base_id, i64 timestamp_ns, i64 synced_end,
                       u32 leader_epoch, bint may_be_short) except -1
    cdef int next_open(self) except -1
    cdef bint store_c(self, LogEnd end, i64 wall_ns) except -1
    cdef int write_open(self, LogEnd end, head_t* head) except -1
    cdef int commit_oldest(self) except -1
    cdef list buffers(self, membatch_t* batch, head_t* head)
    cdef int advance_handed(self) except -1
