"""What tails, windows, connections and the engine share: work lists, buffers, the time.

The parts of the kernel never call one another upward. A tail that committed, a window that has
room and a connection that has output put themselves on a list here, once; the engine works the
lists off.

    list           holds      put there by                              worked off by
    dirty_tails    Tail       first append to an open batch             Engine.dirty_tails
    settled        tuples     Tail.commit_to, fail_from (tail, serial, ok, waiters)  Engine.flush
    handed         Tail       handed_end moved                          Engine.flush
    pumps          Window     RDY, FIN, commit, requeue, load, drained  Engine.flush
    unstalled      Conn       Tail.seal: there is room again            Engine.flush
    ready          Conn       resume, feed, an answered FIFO            Engine.poll
    outputs        Conn       replies, OKs                              Engine.flush
    interests      Conn       halted, resumed, full, drained            Engine.flush
    journals       Window     cursor, finished or stray changes         Engine.dirty_windows
    active         Window     something in flight or delayed            Engine.tick
    searches       Window     delayed messages to be found in the log   Engine.take_searches
    shorts         Window     a small refill is put off                 Engine.poll
    detached       Conn       output, halted, resumed or gone, no fd    Engine.dirty_detached
"""

from penstock.kernel.fast.buffer cimport buf_t
from penstock.kernel.fast.labels cimport Labels
from penstock.kernel.fast.trace cimport Trace
from penstock.kernel.fast.types cimport i64, u32, u64

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
    cdef buf_t pieces, keys  # of one PUB_EXT or MPUB_EXT (extended.pxd)
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
