"""A run of whole sound batches read from a file (declared in block.pxd)."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

from penstock.kernel.fast.batch cimport HEADER_BYTES, batch_header_t
from penstock.kernel.fast.memory cimport view_t
from penstock.kernel.fast.types cimport i64, u8


# Not for the collector of cycles: it would drop the buffer's owner, and never release the buffer.
# What a block holds (bytes or a view of them, and a list of numbers) leads nowhere else.
@cython.no_gc
cdef class Block:
    """Whole sound batches read from a file; keeps the Python buffer alive."""

    def __cinit__(self, object keeper):
        cdef size_t position = 0
        cdef const batch_header_t* header
        PyObject_GetBuffer(keeper, &self.buffer, PyBUF_SIMPLE)
        self.held = True
        self.data = <const u8*>self.buffer.buf
        self.size = self.buffer.len
        self.starts = []
        self.first_offset = self.end_offset = 0
        while position + HEADER_BYTES <= self.size:
            header = <const batch_header_t*>(self.data + position)
            if header.length < HEADER_BYTES or position + header.length > self.size:
                break
            if not self.starts:
                self.first_offset = header.base_offset
            self.starts.append(position)
            self.end_offset = header.base_offset + header.count
            position += header.length
        if position != self.size:
            raise ValueError(f"block of {self.size} bytes does not end with a batch: {position}")

    cdef int release(self) except -1:
        if self.held:
            self.held = False
            PyBuffer_Release(&self.buffer)
        return 0

    def __dealloc__(self):
        if self.held:
            self.held = False
            PyBuffer_Release(&self.buffer)

    cdef bint view(self, i64 offset, view_t* out) except -1:
        cdef Py_ssize_t low = 0, high = len(self.starts), middle
        cdef const batch_header_t* header
        cdef size_t at
        if offset < self.first_offset or offset >= self.end_offset:
            return False
        while high - low > 1:
            middle = (low + high) >> 1
            at = self.starts[middle]
            if (<const batch_header_t*>(self.data + at)).base_offset <= offset:
                low = middle
            else:
                high = middle
        at = self.starts[low]
        header = <const batch_header_t*>(self.data + at)
        if offset >= header.base_offset + header.count:
            return False
        out.base_offset = header.base_offset
        out.base_id = header.base_id
        out.timestamp_ns = header.timestamp_ns
        out.count = header.count
        out.bodies_length = header.bodies_length
        out.lengths = self.data + at + HEADER_BYTES
        out.bodies = out.lengths + 4 * <size_t>header.count
        out.trailer = NULL
        out.trailer_length = 0
        if header.flags & 1:
            out.trailer = out.bodies + header.bodies_length
            out.trailer_length = self.data + at + header.length - out.trailer
        return True
