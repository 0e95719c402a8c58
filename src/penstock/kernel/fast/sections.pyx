"""Walking the trailer of a batch: typed sections, each a small table by message index.

The rules are those of `pure/sections.py`. Every length is compared with what is left before
anything behind it is read, in 64 bits, so no announced number can lead outside the trailer. A
section of an unknown type is skipped whatever it holds; one of a known type must fit to the byte.
"""

from penstock.kernel.fast.unaligned cimport load_u32, load_u64


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
