"""Sealed batches of one tail, in order (declared in sealed.pxd)."""

from penstock.kernel.fast.hub cimport free_batch, membatch_t
from penstock.kernel.fast.types cimport i64, u64


cdef class Sealed:
    def __dealloc__(self):
        if self.batch != NULL:
            free_batch(self.batch)

    cdef membatch_t* take(self) noexcept:
        """The batch, which is now the caller's."""
        cdef membatch_t* batch = self.batch
        self.batch = NULL
        return batch


cdef Sealed sealed_of(membatch_t* batch, u64 serial, list waiters, list publishers):
    cdef Sealed sealed = Sealed.__new__(Sealed)
    sealed.batch, sealed.serial = batch, serial
    sealed.waiters, sealed.publishers = waiters, publishers
    return sealed


cdef Py_ssize_t sealed_before(list queue, i64 start, i64 offset) except -1:
    """How many batches of a queue that begins at `start` end at or below `offset`, where a batch
    has to begin or the queue to end."""
    cdef Py_ssize_t count = 0
    cdef i64 end = start
    while end < offset and count < len(queue):
        end += (<Sealed>queue[count]).batch.count
        count += 1
    if end != offset:
        raise ValueError(f"no sealed batch ends or begins at {offset}")
    return count


cdef int sealed_validate(list queue, i64 start, i64 end) except -1:
    cdef Sealed sealed
    for sealed in queue:
        if sealed.batch.base_offset != start:
            raise RuntimeError(f"a sealed batch at {sealed.batch.base_offset}, not at {start}")
        start += sealed.batch.count
    if start != end:
        raise RuntimeError(f"the sealed batches end at {start}, not at {end}")
    return 0
