# Growable byte buffers over malloc.

cdef u8 NOTHING = 0  # where no bytes begin


cdef void buf_init(buf_t* buf) noexcept:
    buf.data = NULL
    buf.start = 0
    buf.length = 0
    buf.capacity = 0


cdef void buf_free(buf_t* buf) noexcept:
    free(buf.data)
    buf_init(buf)


cdef int buf_reserve(buf_t* buf, size_t extra) except -1:
    """Room for `extra` more bytes behind `length`; doubles, so that appending stays linear."""
    cdef size_t need = buf.length + extra
    cdef size_t capacity
    cdef u8* data
    if need <= buf.capacity:
        return 0
    capacity = buf.capacity * 2 if buf.capacity else 512  # an idle connection has none at all
    if capacity < need:
        capacity = need
    data = <u8*>realloc(buf.data, capacity)
    if data == NULL:
        raise MemoryError(f"cannot grow a buffer to {capacity} bytes")
    buf.data = data
    buf.capacity = capacity
    return 0


cdef int buf_append(buf_t* buf, const void* data, size_t size) except -1:
    if buf.length + size > buf.capacity:
        buf_reserve(buf, size)
    memcpy(buf.data + buf.length, data, size)
    buf.length += size
    return 0


cdef void buf_compact(buf_t* buf) noexcept:
    if buf.start:
        memmove(buf.data, buf.data + buf.start, buf.length - buf.start)
        buf.length -= buf.start
        buf.start = 0


cdef void buf_take(buf_t* buf, size_t size) noexcept:
    """Drop `size` bytes from the front."""
    buf.start += size
    if buf.start >= buf.length:
        buf.start = 0
        buf.length = 0


# Not for the collector of cycles: it would drop the buffer's owner, and never release the buffer.
@cython.final
@cython.freelist(4)
@cython.no_gc
cdef class Lent:
    def __dealloc__(self):
        PyBuffer_Release(&self.buffer)


cdef Lent lent_by(object owner):
    cdef Lent lent = Lent.__new__(Lent)
    PyObject_GetBuffer(owner, &lent.buffer, PyBUF_SIMPLE)
    lent.data, lent.size = <const u8*>lent.buffer.buf, <size_t>lent.buffer.len
    if not lent.size:
        lent.data = &NOTHING
    return lent


cdef class Span:
    """A read-only view of C memory that its keeper owns (buffer protocol)."""

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, 1, flags)

    def __releasebuffer__(self, Py_buffer* view):
        pass

    def __len__(self):
        return self.size


cdef Span span_of(u8* data, Py_ssize_t size, object keeper):
    cdef Span span = Span.__new__(Span)
    span.data = data
    span.size = size
    span.keeper = keeper
    return span
