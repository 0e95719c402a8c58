# Batches as Arrow-shaped columns, and columns as a batch, at about the speed of copying them.
#
# Two passes over the batches: the first checks each one and adds up
# what the columns will need, the second fills them without the interpreter's lock. Lengths become
# value offsets by a running sum; the bodies of a batch are copied as one piece. A section of bytes
# is looked at first: where no message has one, which is the rule, nothing is made of it.

cdef enum:
    ATTEMPTS_MAX = 0xFFFF  # attempts are a u16 on the wire


# --- decode ---

# Where the next row goes. A bytearray's memory is aligned for any of these.
cdef struct rows_t:
    long long* offsets
    long long* timestamps
    unsigned long long* ids
    unsigned short* attempts
    long long* body_offsets
    char* bodies
    long long body_end  # of all bodies so far


cdef void _fill_plain(rows_t* rows, const parts_t* parts) noexcept nogil:
    cdef const batch_header_t* header = &parts.header
    cdef size_t i, count = header.count
    cdef long long first = <long long>header.base_offset
    cdef long long timestamp_ns = header.timestamp_ns
    cdef unsigned long long base_id = header.base_id
    cdef long long body_end = rows.body_end
    for i in range(count):
        rows.offsets[i] = first + <long long>i
        rows.timestamps[i] = timestamp_ns
    for i in range(count):
        rows.ids[i] = id_at(base_id, i)
    for i in range(count):
        body_end += load_u32(parts.lengths + 4 * i)
        rows.body_offsets[i] = body_end
    memset(rows.attempts, 0, 2 * count)
    memcpy(rows.bodies + rows.body_end, parts.bodies, header.bodies_length)
    rows.body_end = body_end


cdef void _fill_own(rows_t* rows, const parts_t* parts) noexcept nogil:
    """What the trailer says about single messages."""
    cdef size_t trailer_bytes, position = 0
    cdef const unsigned char* trailer = batch_trailer_c(parts, &trailer_bytes)
    cdef section_t section
    cdef unsigned int i, index
    cdef unsigned long long value
    while section_next(trailer, trailer_bytes, parts.header.count, &position, &section) == 1:
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
    cdef parts_t parts
    cdef size_t position = 0
    rows.body_offsets[0] = 0
    rows.body_offsets += 1
    while position < size:
        batch_parts_c(data + position, &parts)
        _fill_plain(rows, &parts)
        _fill_own(rows, &parts)
        rows.offsets += parts.header.count
        rows.timestamps += parts.header.count
        rows.ids += parts.header.count
        rows.attempts += parts.header.count
        rows.body_offsets += parts.header.count
        position += parts.header.length


cdef int _measure(
    const unsigned char* data, size_t size, size_t* position, size_t* count, size_t* body_bytes
) noexcept nogil:
    """Checks all batches; stops at the first that is not intact, which begins at `position`."""
    cdef parts_t parts
    cdef unsigned int length
    cdef int check
    while position[0] < size:
        check = check_batch_c(data + position[0], size - position[0], &length)
        if check != CHECK_INTACT:
            return check
        batch_parts_c(data + position[0], &parts)
        count[0] += parts.header.count
        body_bytes[0] += parts.header.bodies_length
        position[0] += length
    return CHECK_INTACT


# Of one message; no address: it has none.
cdef struct value_t:
    const unsigned char* at
    unsigned int length


cdef size_t _entries(const unsigned char* data, size_t size, unsigned int type) noexcept nogil:
    """How many there are of this section in checked batches."""
    cdef parts_t parts
    cdef const unsigned char* trailer
    cdef size_t trailer_bytes, at, position = 0, entries = 0
    cdef section_t section
    while position < size:
        batch_parts_c(data + position, &parts)
        if parts.header.flags & BATCH_FLAG_TRAILER:
            trailer = batch_trailer_c(&parts, &trailer_bytes)
            at = 0
            while section_next(trailer, trailer_bytes, parts.header.count, &at, &section) == 1:
                if section.type == type:
                    entries += section.entries
        position += parts.header.length
    return entries


cdef void _find(
    value_t* found, const unsigned char* data, size_t size, unsigned int type
) noexcept nogil:
    """Where the value of each message stands; the last one counts, where there are several."""
    cdef parts_t parts
    cdef const unsigned char* trailer
    cdef const unsigned char* value
    cdef size_t trailer_bytes, at, position = 0
    cdef unsigned int i, index, length
    cdef section_t section
    while position < size:
        batch_parts_c(data + position, &parts)
        trailer = batch_trailer_c(&parts, &trailer_bytes)
        at = 0
        while section_next(trailer, trailer_bytes, parts.header.count, &at, &section) == 1:
            if section.type != type:
                continue
            value = section.blob
            for i in range(section.entries):
                index = load_u32(section.indexes + 4 * <size_t>i)
                length = load_u32(section.values + 4 * <size_t>i)
                found[index].at = value
                found[index].length = length
                value += length
        found += parts.header.count
        position += parts.header.length


cdef void _copy(
    const value_t* found, size_t count, unsigned char* present, long long* offsets, char* values
) noexcept nogil:
    cdef size_t i
    cdef long long end = 0
    offsets[0] = 0
    for i in range(count):
        if found[i].at != NULL:
            present[i >> 3] |= <unsigned char>(1 << (i & 7))
            memcpy(values + end, found[i].at, found[i].length)
            end += found[i].length
        offsets[i + 1] = end


cdef _values(const unsigned char* data, size_t size, size_t count, unsigned int type):
    """None when no message has one."""
    cdef size_t i, total = 0
    cdef value_t* found
    if not _entries(data, size, type):
        return None
    found = <value_t*>calloc(count, sizeof(value_t))
    if found == NULL:
        raise MemoryError()
    try:
        _find(found, data, size, type)
        for i in range(count):
            total += found[i].length
        made = Values(
            bytearray((count + 7) // 8),
            PyByteArray_FromStringAndSize(NULL, 8 * count + 8),
            PyByteArray_FromStringAndSize(NULL, total),
        )
        _copy(
            found,
            count,
            <unsigned char*>PyByteArray_AS_STRING(made.present),
            <long long*>PyByteArray_AS_STRING(made.offsets),
            PyByteArray_AS_STRING(made.values),
        )
        return made
    finally:
        free(found)


def decode_columns(data, sections=()):
    """Whole intact batches -> columns. ValueError names the position of one that is not intact."""
    cdef Lent lent = lent_by(data)
    cdef size_t position = 0, count = 0, body_bytes = 0
    cdef rows_t rows
    cdef int check
    for section in sections:
        if section < SECTION_BYTES_TYPE_MIN:
            raise ValueError(f"section {section} holds no bytes")
    with nogil:
        check = _measure(lent.data, lent.size, &position, &count, &body_bytes)
    if check != CHECK_INTACT:
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
        _fill(&rows, lent.data, lent.size)
    if sections:
        made = tuple(
            [_values(lent.data, lent.size, count, section) for section in sections]
        )
        columns = columns._replace(sections=made)
    return columns


# --- encode ---


cdef int _check_parts(
    const unsigned char* lengths,
    size_t lengths_bytes,
    size_t bodies_bytes,
    const unsigned char* trailer,
    size_t trailer_bytes,
) except -1:
    cdef size_t i, position = 0, count = lengths_bytes // 4
    cdef unsigned long long total = 0
    cdef section_t section
    cdef int found = 1
    if count == 0 or lengths_bytes % 4:
        raise ValueError("a batch holds at least one message, with a length of 4 bytes each")
    if HEADER_BYTES + lengths_bytes + bodies_bytes + trailer_bytes > U32_MAX - 7:
        raise OverflowError("batch header: a batch is at most 4 GiB long")
    for i in range(count):
        total += load_u32(lengths + 4 * i)
    if total != bodies_bytes:
        raise ValueError("the lengths do not add up to the bodies")
    while found == 1:
        found = section_next(trailer, trailer_bytes, count, &position, &section)
    if found < 0:
        raise ValueError("the trailer is malformed")
    return 0


cdef bytes _joined(
    batch_header_t* header,
    const unsigned char* lengths,
    const unsigned char* bodies,
    const unsigned char* trailer,
    size_t trailer_bytes,
):
    cdef size_t lengths_bytes = 4 * <size_t>header.count
    cdef size_t used = HEADER_BYTES + lengths_bytes + header.bodies_length + trailer_bytes
    cdef size_t padding = -used % BATCH_ALIGNMENT_BYTES
    header.magic = BATCH_MAGIC
    header.length = <unsigned int>(used + padding)
    header.flags = BATCH_FLAG_TRAILER if trailer_bytes else 0
    cdef bytes batch = PyBytes_FromStringAndSize(NULL, header.length)
    cdef unsigned char* start = <unsigned char*>PyBytes_AS_STRING(batch)
    cdef unsigned char* at = start + HEADER_BYTES
    with nogil:
        memcpy(start, header, HEADER_BYTES)
        memcpy(at, lengths, lengths_bytes)
        at += lengths_bytes
        memcpy(at, bodies, header.bodies_length)
        at += header.bodies_length
        memcpy(at, trailer, trailer_bytes)
        memset(at + trailer_bytes, 0, padding)
        store_u32(
            start + 4, crc32c_update(0, start + BATCH_CRC_FROM, header.length - BATCH_CRC_FROM)
        )
    return batch


def encode_columns(
    lengths,
    bodies,
    unsigned long long base_offset,
    unsigned long long base_id,
    long long timestamp_ns,
    trailer=b"",
):
    """One whole batch from its columns. ValueError for what cannot be said."""
    cdef Lent sizes = lent_by(lengths), content = lent_by(bodies), sections = lent_by(trailer)
    cdef batch_header_t header
    _check_parts(sizes.data, sizes.size, content.size, sections.data, sections.size)
    memset(&header, 0, HEADER_BYTES)
    header.count = sizes.size // 4
    header.bodies_length = content.size
    header.base_offset = base_offset
    header.base_id = base_id
    header.timestamp_ns = timestamp_ns
    if base_offset > OFFSET_MAX - header.count:
        raise OverflowError("batch header: offsets have 63 bits")
    return _joined(&header, sizes.data, content.data, sections.data, sections.size)
