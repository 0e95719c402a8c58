"""The writing end of one partition in memory.

A batch in memory is a `membatch_t`: its lengths, its bodies and (rarely) its trailer in three buffers,
just as they go to disk behind the header. The tail holds the open batch, at most one sealed batch and
a ring of committed batches, oldest first, bounded in bytes.

    committed ring [memory_start, committed_end) | sealed [.., written_end) | open (no offsets yet)

`view_t` is how delivery looks at a batch, wherever it is: in this ring or in a block read from a file.
"""

from penstock.kernel.fast.batch cimport batch_header_t
from penstock.kernel.fast.buffer cimport buf_t
from penstock.kernel.fast.hub cimport Hub, membatch_t

cdef struct view_t:
    long long base_offset
    unsigned long long base_id
    long long timestamp_ns
    unsigned int count
    unsigned int bodies_length
    const unsigned char* lengths
    const unsigned char* bodies
    const unsigned char* trailer
    size_t trailer_length

cdef struct due_t:
    unsigned int index
    long long due_ns

cdef class Tail:
    cdef readonly bytes topic
    cdef public object owner
    cdef public bint refusing
    cdef bint _handing
    cdef Hub hub
    cdef membatch_t* open_batch
    cdef due_t* dues
    cdef unsigned int due_count, due_capacity
    cdef list open_waiters
    cdef list open_stalled  # connections that wait for room in the open batch
    cdef membatch_t* sealed_batch
    cdef list sealed_waiters
    cdef readonly unsigned long long open_serial  # number of the open batch; entries of connections name it
    cdef readonly long long written_end, committed_end
    cdef public long long handed_end  # set by the broker once, before the first window (a restart)
    cdef membatch_t** ring
    cdef unsigned int ring_head, ring_count, ring_capacity
    cdef size_t memory_bytes, memory_bytes_max
    cdef readonly long long message_count, message_bytes
    cdef list windows
    cdef bint listed  # in the engine's list of dirty tails
    cdef bint handed_listed
    cdef bint forgotten  # its topic is gone: connections must look it up anew

    cdef int append_c(self, const unsigned char* body, unsigned int size) except -1
    cdef bint view(self, long long offset, view_t* out) noexcept
    cdef int mark_dirty(self) except -1
    cdef int write_trailer(self, membatch_t* batch) except -1
    cdef list buffers(self, membatch_t* batch, batch_header_t* header, size_t total)
    cdef int advance_handed(self) except -1
    cdef int keep(self, membatch_t* batch) except -1
    cdef int drop_oldest(self) except -1
