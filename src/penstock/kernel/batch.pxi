# Walking the trailer of a batch: typed sections, each a small table by message index.
#
# The rules are those of `codec/sections.py`. Every length is compared with what is left before
# anything behind it is read, in 64 bits, so no announced number can lead outside the trailer. A
# section of an unknown type is skipped whatever it holds; one of a known type must fit to the byte.


cdef bint _known(unsigned int type) noexcept nogil:
    return SECTION_TIMESTAMP <= type <= SECTION_TRACE or SECTION_KEY <= type <= SECTION_HEADERS


cdef bint _zeros(const unsigned char* at, size_t size) noexcept nogil:
    cdef size_t i
    for i in range(size):
        if at[i]:
            return False
    return True


cdef bint _indexes_rise(const section_t* section, unsigned int count) noexcept nogil:
    cdef unsigned int i, index, least = 0
    for i in range(section.entries):
        index = load_u32(section.indexes + 4 * <size_t>i)
        if index < least or index >= count:
            return False
        least = index + 1
    return True


cdef bint _table_fits(
    const unsigned char* payload, size_t size, unsigned int count, section_t* section
) noexcept nogil:
    cdef bint integers = section.type < SECTION_BYTES_TYPE_MIN
    cdef unsigned long long fixed_bytes, blob_bytes = 0
    cdef unsigned int i
    if size < 4:
        return False
    section.entries = load_u32(payload)
    fixed_bytes = 4 + <unsigned long long>section.entries * (12 if integers else 8)
    if fixed_bytes > size:
        return False
    section.indexes = payload + 4
    section.values = section.indexes + 4 * <size_t>section.entries
    section.blob = payload + fixed_bytes
    if not _indexes_rise(section, count):
        return False
    if not integers:
        for i in range(section.entries):
            blob_bytes += load_u32(section.values + 4 * <size_t>i)
    return fixed_bytes + blob_bytes == size


cdef int section_next(
    const unsigned char* trailer,
    size_t trailer_bytes,
    unsigned int count,
    size_t* position,
    section_t* section,
) noexcept nogil:
    cdef const unsigned char* at
    cdef size_t left, length
    cdef unsigned int flags
    while trailer_bytes - position[0] >= SECTION_HEADER_BYTES:
        at = trailer + position[0]
        section.type = at[0] | at[1] << 8
        if section.type == 0:
            break
        flags = at[2] | at[3] << 8
        length = load_u32(at + 4)
        left = trailer_bytes - position[0] - SECTION_HEADER_BYTES
        if length > left:
            return -1
        position[0] += SECTION_HEADER_BYTES + length
        if not _known(section.type):
            continue
        if flags or not _table_fits(at + SECTION_HEADER_BYTES, length, count, section):
            return -1
        return 1
    return 0 if _zeros(trailer + position[0], trailer_bytes - position[0]) else -1


cdef bint section_value(section_t* section, unsigned int index, long long* value) noexcept:
    """Binary search of a section's rising indexes."""
    cdef unsigned int low = 0, high = section.entries, middle
    while low < high:
        middle = (low + high) >> 1
        if load_u32(section.indexes + 4 * middle) < index:
            low = middle + 1
        else:
            high = middle
    if low == section.entries or load_u32(section.indexes + 4 * <size_t>low) != index:
        return False
    value[0] = <long long>load_u64(section.values + 8 * <size_t>low)
    return True


# The batch of `docs/formats.md`: made, checked and taken apart.
#
# `codec/batch.py` says the same at leisure. `check_batch_c` is total: it takes
# any bytes and reads none outside them. Numbers of the header are compared in 64 bits before they
# are used, the crc comes before anything of variable size is believed, and the sums last.

if sys.byteorder != "little":
    raise ImportError("the compiled kernel is built for little-endian machines only")

cdef enum:
    SEQUENCE_BITS = 12
    SEQUENCE_MASK = 0xFFF
    NODE_MASK = 0x3FF000
    TICK_SHIFT = 22
    TICK_NS_BITS = 20
    U32_MAX = 0xFFFFFFFF

cdef unsigned long long TICK_MASK = (1ULL << 42) - 1
cdef long long TICK_EPOCH = 1288834974288LL
cdef long long TICK_MAX = (1LL << 41) - 1
cdef unsigned long long OFFSET_MAX = 0x7FFFFFFFFFFFFFFFULL
cdef tuple CHECKS = tuple(BatchCheck)


# --- ids ---

cpdef unsigned long long id_at(
    unsigned long long base_id, unsigned long long index
) noexcept nogil:
    """The id of message `index` of a batch from `base_id`."""
    cdef unsigned long long sequence = base_id & SEQUENCE_MASK
    # carried apart, so that an index near 2^64 does not wrap the sum
    cdef unsigned long long steps = sequence + (index & SEQUENCE_MASK)
    cdef unsigned long long tick = (
        (base_id >> TICK_SHIFT) + (index >> SEQUENCE_BITS) + (steps >> SEQUENCE_BITS)
    ) & TICK_MASK
    return tick << TICK_SHIFT | (base_id & NODE_MASK) | (steps & SEQUENCE_MASK)


cpdef long long id_index(
    unsigned long long base_id, unsigned int count, unsigned long long id
) noexcept nogil:
    """The index of `id` in a batch of `count` from `base_id`, or -1."""
    cdef unsigned long long ticks
    cdef long long index
    if (base_id ^ id) & NODE_MASK:
        return -1
    ticks = ((id >> TICK_SHIFT) - (base_id >> TICK_SHIFT)) & TICK_MASK
    index = (
        <long long>(ticks << SEQUENCE_BITS)
        + <long long>(id & SEQUENCE_MASK)
        - <long long>(base_id & SEQUENCE_MASK)
    )
    return index if 0 <= index < <long long>count else -1


cpdef unsigned long long id_above(
    unsigned long long last_id, unsigned int node_id, long long wall_ns
) noexcept nogil:
    """The id that a node gives out at that time, above `last_id`."""
    cdef long long tick = min(max((wall_ns >> TICK_NS_BITS) - TICK_EPOCH, 1LL), TICK_MAX)
    cdef unsigned long long node_bits = node_id << SEQUENCE_BITS & NODE_MASK
    cdef unsigned long long last_node_bits = last_id & NODE_MASK
    cdef unsigned long long id = <unsigned long long>tick << TICK_SHIFT | node_bits
    if id > last_id:
        return id
    if node_bits == last_node_bits and last_id & SEQUENCE_MASK != SEQUENCE_MASK:
        return last_id + 1
    return ((last_id >> TICK_SHIFT) + (node_bits <= last_node_bits)
            & TICK_MASK) << TICK_SHIFT | node_bits


# --- check ---


cdef size_t header_bytes_c(const unsigned char* data, size_t available) noexcept nogil:
    cdef size_t size = 0
    if available >= SHORT_HEADER_BYTES:
        if load_u32(data) == <unsigned int>SHORT_MAGIC:
            size = SHORT_HEADER_BYTES
        elif load_u32(data) == <unsigned int>BATCH_MAGIC:
            size = HEADER_BYTES
    return size if size <= available else 0


cdef unsigned int _short_length(unsigned int body_length) noexcept nogil:
    """What is too long for a batch wraps to less than its body."""
    cdef unsigned long long used = SHORT_HEADER_BYTES + <unsigned long long>body_length
    return <unsigned int>((used + BATCH_ALIGNMENT_BYTES - 1) & ~7ULL)


cdef void batch_parts_c(const unsigned char* data, parts_t* parts) noexcept nogil:
    cdef const short_header_t* brief = <const short_header_t*>data
    cdef batch_header_t* header = &parts.header
    if brief.magic != <unsigned int>SHORT_MAGIC:
        memcpy(header, data, HEADER_BYTES)
        parts.header_bytes = HEADER_BYTES
        parts.lengths = data + HEADER_BYTES
        parts.bodies = parts.lengths + 4 * <size_t>header.count
        return
    memset(header, 0, HEADER_BYTES)
    header.magic, header.crc = brief.magic, brief.crc
    header.length = _short_length(brief.body_length)
    header.base_offset, header.base_id = brief.base_offset, brief.base_id
    header.timestamp_ns = brief.timestamp_ns
    header.synced_end = brief.base_offset - brief.unsynced
    header.leader_epoch = brief.leader_epoch
    header.count = 1
    header.bodies_length = brief.body_length
    parts.header_bytes = SHORT_HEADER_BYTES
    parts.lengths = data + BATCH_CRC_FROM
    parts.bodies = data + SHORT_HEADER_BYTES


cdef unsigned long long _trailer_at(const parts_t* parts) noexcept nogil:
    cdef unsigned long long at = parts.header_bytes + <unsigned long long>parts.header.bodies_length
    if parts.header_bytes == HEADER_BYTES:
        at += 4 * <unsigned long long>parts.header.count
    return at


cdef bint _fields_fit(const parts_t* parts) noexcept nogil:
    """What the header alone can tell."""
    cdef const batch_header_t* header = &parts.header
    cdef unsigned long long trailer_at = _trailer_at(parts)
    if header.count == 0 or header.length % BATCH_ALIGNMENT_BYTES:
        return False
    if header.flags & ~BATCH_FLAG_TRAILER or header.base_offset > OFFSET_MAX - header.count:
        return False
    if parts.header_bytes != HEADER_BYTES and header.synced_end > header.base_offset:
        return False
    if trailer_at > header.length:
        return False
    return header.flags & BATCH_FLAG_TRAILER or header.length - trailer_at < BATCH_ALIGNMENT_BYTES


cdef bint _lengths_add_up(const parts_t* parts) noexcept nogil:
    cdef unsigned long long total = 0
    cdef size_t i, count = parts.header.count
    for i in range(count):
        total += load_u32(parts.lengths + 4 * i)
    return total == parts.header.bodies_length


cdef bint _trailer_fits(const parts_t* parts) noexcept nogil:
    cdef const unsigned char* trailer = parts.bodies + parts.header.bodies_length
    cdef size_t size = parts.header.length - _trailer_at(parts)
    cdef size_t position = 0
    cdef section_t section
    cdef int found = 1
    if not parts.header.flags & BATCH_FLAG_TRAILER:
        while position < size and trailer[position] == 0:
            position += 1
        return position == size
    while found == 1:
        found = section_next(trailer, size, parts.header.count, &position, &section)
    return found == 0


cdef bint _may_begin(const unsigned char* data, size_t available) noexcept nogil:
    """Is this a magic, as far as it goes?"""
    cdef unsigned int long_magic = BATCH_MAGIC, short_magic = SHORT_MAGIC
    cdef size_t size = min(available, <size_t>4)
    return memcmp(data, &long_magic, size) == 0 or memcmp(data, &short_magic, size) == 0


cdef int check_batch_c(
    const unsigned char* data, size_t available, unsigned int* length
) noexcept nogil:
    cdef parts_t parts
    length[0] = 0
    if not _may_begin(data, available):
        return CHECK_NO_MAGIC
    if available >= 12:
        length[0] = load_u32(data + 8)
        if load_u32(data) == <unsigned int>SHORT_MAGIC:
            length[0] = _short_length(length[0])
    if not header_bytes_c(data, available):
        return CHECK_SHORT
    batch_parts_c(data, &parts)
    if not _fields_fit(&parts):
        return CHECK_BAD_FIELDS
    if available < length[0]:
        return CHECK_SHORT
    if crc32c_update(0, data + BATCH_CRC_FROM, length[0] - BATCH_CRC_FROM) != parts.header.crc:
        return CHECK_BAD_CRC
    if not _lengths_add_up(&parts) or not _trailer_fits(&parts):
        return CHECK_BAD_FIELDS
    return CHECK_INTACT


cdef bint batch_fits_c(const unsigned char* data, size_t available) noexcept nogil:
    cdef parts_t parts
    if not header_bytes_c(data, available):
        return False
    batch_parts_c(data, &parts)
    return (
        _fields_fit(&parts)
        and parts.header.length <= available
        and _lengths_add_up(&parts)
    )


cdef const unsigned char* batch_trailer_c(
    const parts_t* parts, size_t* trailer_bytes
) noexcept nogil:
    """Where the trailer of a checked batch begins, and its bytes (0 without one)."""
    trailer_bytes[0] = 0
    if parts.header.flags & BATCH_FLAG_TRAILER:
        trailer_bytes[0] = parts.header.length - _trailer_at(parts)
    return parts.bodies + parts.header.bodies_length


# --- the Python face ---


cdef Lent _lent_from(object owner, Py_ssize_t position):
    """The bytes of any object from a position on."""
    cdef Lent lent
    if position < 0:
        raise ValueError(f"position {position} is negative")
    lent = lent_by(owner)
    position = min(position, <Py_ssize_t>lent.size)
    lent.data += position
    lent.size -= position
    return lent


cdef Lent _whole_batch(data, Py_ssize_t position, parts_t* parts):
    cdef Lent batch = _lent_from(data, position)
    _expect_header(batch, position, parts)
    if not batch_fits_c(batch.data, batch.size):
        raise ValueError(f"no whole batch at {position}")
    return batch


cdef int _expect_header(Lent batch, Py_ssize_t position, parts_t* parts) except -1:
    if not header_bytes_c(batch.data, batch.size):
        raise ValueError(f"no batch header at {position}")
    batch_parts_c(batch.data, parts)
    return 0


def blank(Py_ssize_t length):
    """A buffer to read batches into; what it holds until then is anything."""
    if length < 0:
        raise ValueError(f"a buffer of {length} bytes")
    return PyByteArray_FromStringAndSize(NULL, length)


def check_batch(data, Py_ssize_t position):
    """(BatchCheck, length): length is the batch's own claim, 0 when unknown."""
    cdef Lent batch = _lent_from(data, position)
    cdef unsigned int length = 0
    cdef int check
    with nogil:
        check = check_batch_c(batch.data, batch.size, &length)
    return CHECKS[check], length


def check_batches(data, long long expected, limit=None):
    """As in `codec/batch.py`."""
    cdef Lent batch = lent_by(data)
    cdef long long last = -1 if limit is None else limit
    cdef size_t position = 0
    cdef unsigned int length, claimed = 0
    cdef int check
    cdef parts_t parts
    with nogil:
        while position < batch.size and expected != last:
            length = 0
            check = check_batch_c(batch.data + position, batch.size - position, &length)
            if check != CHECK_INTACT:
                claimed = length if check == CHECK_SHORT else 0
                break
            batch_parts_c(batch.data + position, &parts)
            if <long long>parts.header.base_offset != expected:
                break
            expected += parts.header.count
            position += length
    return position, expected, claimed


def decode_header(data, Py_ssize_t position):
    """The header at `position`, its numbers not checked. ValueError where no batch begins."""
    cdef Lent batch = _lent_from(data, position)
    cdef parts_t parts
    _expect_header(batch, position, &parts)
    cdef const batch_header_t* header = &parts.header
    return BatchHeader(
        header.length,
        header.flags,
        header.producer_epoch,
        header.base_offset,
        header.base_id,
        header.timestamp_ns,
        header.synced_end,
        header.producer_id,
        header.first_sequence,
        header.leader_epoch,
        header.count,
        header.bodies_length,
    )


def decode_bodies(data, Py_ssize_t position):
    cdef parts_t parts
    cdef Lent batch = _whole_batch(data, position, &parts)
    cdef size_t i
    cdef const char* body = <const char*>parts.bodies
    cdef unsigned int length
    cdef list bodies = []
    for i in range(parts.header.count):
        length = load_u32(parts.lengths + 4 * i)
        bodies.append(PyBytes_FromStringAndSize(body, length))
        body += length
    return bodies


def decode_sections(data, Py_ssize_t position):
    cdef parts_t parts
    cdef Lent batch = _whole_batch(data, position, &parts)
    cdef size_t trailer_bytes, at = 0
    cdef const unsigned char* trailer = batch_trailer_c(&parts, &trailer_bytes)
    cdef section_t section
    cdef int found
    cdef dict sections = {}
    while True:
        found = section_next(trailer, trailer_bytes, parts.header.count, &at, &section)
        if found <= 0:
            break
        sections.setdefault(section.type, {}).update(_table(&section))
    if found < 0:
        raise ValueError(f"malformed trailer in the batch at {position}")
    return sections


cdef dict _table(const section_t* section):
    cdef dict table = {}
    cdef const char* blob = <const char*>section.blob
    cdef unsigned int i, length
    cdef bint signed = section.type in (1, 3, 4)  # timestamp, due, attempts
    cdef object value
    for i in range(section.entries):
        if section.type >= SECTION_BYTES_TYPE_MIN:
            length = load_u32(section.values + 4 * <size_t>i)
            value = PyBytes_FromStringAndSize(blob, length)
            blob += length
        elif signed:
            value = <long long>load_u64(section.values + 8 * <size_t>i)
        else:
            value = load_u64(section.values + 8 * <size_t>i)
        table[load_u32(section.indexes + 4 * <size_t>i)] = value
    return table


# --- encode ---


def encode_batch(
    bodies,
    unsigned long long base_offset,
    unsigned long long base_id,
    long long timestamp_ns,
    unsigned long long synced_end=0,
    unsigned int leader_epoch=0,
    unsigned long long producer_id=0,
    unsigned short producer_epoch=0,
    unsigned int first_sequence=0,
    sections=None,
):
    """One whole batch. ValueError for what cannot be said, OverflowError for too large a number."""
    cdef list items = list(bodies)
    cdef size_t count = len(items)
    cdef bytes trailer = encode_sections(sections, count) if sections else b""
    cdef unsigned long long bodies_length, length
    cdef batch_header_t header
    if count == 0:
        raise ValueError("a batch holds at least one message")
    bodies_length = 0
    for item in items:
        bodies_length += PyBytes_Size(item)
    length = HEADER_BYTES + 4 * count + bodies_length + len(trailer)
    length = (length + BATCH_ALIGNMENT_BYTES - 1) // BATCH_ALIGNMENT_BYTES * BATCH_ALIGNMENT_BYTES
    if length > <unsigned long long>U32_MAX:
        raise OverflowError("batch header: a batch is at most 4 GiB long")
    if base_offset > OFFSET_MAX - count:
        raise OverflowError("batch header: offsets have 63 bits")
    header.magic = BATCH_MAGIC
    header.crc = 0
    header.length = length
    header.flags = BATCH_FLAG_TRAILER if trailer else 0
    header.producer_epoch = producer_epoch
    header.base_offset = base_offset
    header.base_id = base_id
    header.timestamp_ns = timestamp_ns
    header.synced_end = synced_end
    header.producer_id = producer_id
    header.first_sequence = first_sequence
    header.leader_epoch = leader_epoch
    header.count = count
    header.bodies_length = bodies_length
    return _assemble(&header, items, trailer)


cdef bytes _assemble(const batch_header_t* header, list items, bytes trailer):
    cdef bytes batch = PyBytes_FromStringAndSize(NULL, header.length)
    cdef unsigned char* start = <unsigned char*>PyBytes_AS_STRING(batch)
    cdef unsigned char* lengths = start + HEADER_BYTES
    cdef unsigned char* at = lengths + 4 * <size_t>header.count
    cdef unsigned char* end = start + header.length
    cdef char* body
    cdef Py_ssize_t body_bytes
    memcpy(start, header, HEADER_BYTES)
    for item in items:
        PyBytes_AsStringAndSize(item, &body, &body_bytes)
        store_u32(lengths, <unsigned int>body_bytes)
        lengths += 4
        memcpy(at, body, body_bytes)
        at += body_bytes
    memcpy(at, PyBytes_AS_STRING(trailer), len(trailer))
    at += len(trailer)
    memset(at, 0, end - at)
    store_u32(start + 4, crc32c_update(0, start + BATCH_CRC_FROM, header.length - BATCH_CRC_FROM))
    return batch
