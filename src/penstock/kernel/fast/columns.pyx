"""A range of whole batches as Arrow-shaped columns, at about the speed of copying them.

The twin of `pure/columns.py`. Two passes over the batches: the first checks each one and adds up
what the columns will need, the second fills them without the interpreter's lock. Lengths become
value offsets by a running sum; the bodies of a batch are copied as one piece.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from libc.string cimport memcpy, memset

from penstock.kernel.fast.batch cimport (
    CHECK_SOUND,
    HEADER_BYTES,
    batch_header_t,
    batch_trailer_c,
    check_batch_c,
    id_at_c,
)
from penstock.kernel.fast.sections cimport (
    SECTION_ATTEMPTS,
    SECTION_ID,
    SECTION_TIMESTAMP,
    section_next,
    section_t,
)
from penstock.kernel.fast.unaligned cimport load_u32, load_u64

from penstock.kernel.interface import BatchCheck, Columns

cdef enum:
    ATTEMPTS_MAX = 0xFFFF  # attempts are a u16 on the wire

# Where the next row goes. A bytearray's memory is aligned for any of these.
cdef struct rows_t:
    long long* offsets
    long long* timestamps
    unsigned long long* ids
    unsigned short* attempts
    long long* body_offsets
    char* bodies
    long long body_end  # of all bodies so far


cdef void _fill_plain(rows_t* rows, const unsigned char* data) noexcept nogil:
    cdef const batch_header_t* header = <const batch_header_t*>data
    cdef const unsigned char* lengths = data + HEADER_BYTES
    cdef size_t i, count = header.count
    cdef long long first = <long long>header.base_offset
    cdef long long timestamp_ns = header.timestamp_ns
    cdef unsigned long long base_id = header.base_id
    cdef long long body_end = rows.body_end
    for i in range(count):
        rows.offsets[i] = first + <long long>i
        rows.timestamps[i] = timestamp_ns
    for i in range(count):
        rows.ids[i] = id_at_c(base_id, i)
    for i in range(count):
        body_end += load_u32(lengths + 4 * i)
        rows.body_offsets[i] = body_end
    memset(rows.attempts, 0, 2 * count)
    memcpy(rows.bodies + rows.body_end, lengths + 4 * count, header.bodies_length)
    rows.body_end = body_end


cdef void _fill_own(rows_t* rows, const unsigned char* data) noexcept nogil:
    """What the trailer says about single messages."""
    cdef const batch_header_t* header = <const batch_header_t*>data
    cdef size_t trailer_bytes, position = 0
    cdef const unsigned char* trailer = batch_trailer_c(data, &trailer_bytes)
    cdef section_t section
    cdef unsigned int i, index
    cdef unsigned long long value
    while section_next(trailer, trailer_bytes, header.count, &position, &section) == 1:
        if section.type not in (SECTION_TIMESTAMP, SECTION_ID, SECTION_ATTEMPTS):
            continue
        for i in range(section.entries):
            index = load_u32(section.indexes + 4 * <size_t>i)
            value = load_u64(section.values + 8 * <size_t>i)
            if section.type == SECTION_TIMESTAMP:
                rows.timestamps[index] = <long long>value
            elif section.type == SECTION_ID:
                rows.ids[index] = value
            else:
                rows.attempts[index] = <unsigned short>max(0, min(<long long>value, ATTEMPTS_MAX))


cdef void _fill(rows_t* rows, const unsigned char* data, size_t size) noexcept nogil:
    cdef const batch_header_t* header
    cdef size_t position = 0
    rows.body_offsets[0] = 0
    rows.body_offsets += 1
    while position < size:
        header = <const batch_header_t*>(data + position)
        _fill_plain(rows, data + position)
        _fill_own(rows, data + position)
        rows.offsets += header.count
        rows.timestamps += header.count
        rows.ids += header.count
        rows.attempts += header.count
        rows.body_offsets += header.count
        position += header.length


cdef int _measure(
    const unsigned char* data, size_t size, size_t* position, size_t* count, size_t* body_bytes
) noexcept nogil:
    """Checks all batches; stops at the first that is not sound, whose place is `position`."""
    cdef const batch_header_t* header
    cdef unsigned int length
    cdef int check
    while position[0] < size:
        header = <const batch_header_t*>(data + position[0])
        check = check_batch_c(data + position[0], size - position[0], &length)
        if check != CHECK_SOUND:
            return check
        count[0] += header.count
        body_bytes[0] += header.bodies_length
        position[0] += length
    return CHECK_SOUND


cdef _columns(const unsigned char* data, size_t size):
    cdef size_t position = 0, count = 0, body_bytes = 0
    cdef rows_t rows
    cdef int check
    with nogil:
        check = _measure(data, size, &position, &count, &body_bytes)
    if check != CHECK_SOUND:
        raise ValueError(f"batch at {position}: {BatchCheck(check).name}")
    columns = Columns(
        count,
        PyByteArray_FromStringAndSize(NULL, 8 * count),
        PyByteArray_FromStringAndSize(NULL, 8 * count),
        PyByteArray_FromStringAndSize(NULL, 8 * count),
        PyByteArray_FromStringAndSize(NULL, 2 * count),
        PyByteArray_FromStringAndSize(NULL, 8 * count + 8),
        PyByteArray_FromStringAndSize(NULL, body_bytes),
    )
    rows.offsets = <long long*>PyByteArray_AS_STRING(columns.offsets)
    rows.timestamps = <long long*>PyByteArray_AS_STRING(columns.timestamps)
    rows.ids = <unsigned long long*>PyByteArray_AS_STRING(columns.ids)
    rows.attempts = <unsigned short*>PyByteArray_AS_STRING(columns.attempts)
    rows.body_offsets = <long long*>PyByteArray_AS_STRING(columns.body_offsets)
    rows.bodies = PyByteArray_AS_STRING(columns.bodies)
    rows.body_end = 0
    with nogil:
        _fill(&rows, data, size)
    return columns


def decode_columns(data):
    """Whole sound batches -> columns. ValueError names the position of one that is not sound."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return _columns(<const unsigned char*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
