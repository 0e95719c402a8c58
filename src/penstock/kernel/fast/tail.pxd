"""The writing end of one partition in memory.

A batch in memory is a `membatch_t`: its lengths, its bodies and (rarely) its trailer in three
buffers, just as they go to disk behind the header. The tail holds the open batch, a short row of
sealed batches (sealed.pxd) and the newest committed ones (memory.pxd).

    committed ring [memory_start, committed_end) | sealed [.., written_end) | open (no offsets yet)
"""

from penstock.kernel.fast.batch cimport batch_header_t
from penstock.kernel.fast.hub cimport membatch_t
from penstock.kernel.fast.labels cimport Labels
from penstock.kernel.fast.memory cimport Memory
from penstock.kernel.fast.types cimport i64, u8, u32, u64

cdef class Tail(Memory):
    cdef readonly int partition
    cdef public object owner
    cdef public bint refusing
    cdef public i64 append_end_max  # no publish may end above it; 0: no bound
    cdef public bint traceable  # messages with trace ids are traced
    cdef public u64 trace_below  # and so is this sample of the others (trace.pxd)
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
    cdef int commit_oldest(self) except -1
    cdef list buffers(self, membatch_t* batch, batch_header_t* header, size_t total)
    cdef int advance_handed(self) except -1
