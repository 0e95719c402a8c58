# The trailer of a batch: typed sections, each a small table by message index. See sections.pyx.
#
#     type u16 | flags u16 | length u32 | payload           one after another
#     integers (types below 64)   n u32 | n indexes u32, rising | n values of 8 bytes
#     bytes (types from 64)       n u32 | n indexes u32, rising | n lengths u32 | the bytes

cdef enum:
    SECTION_TIMESTAMP = 1
    SECTION_ID = 2
    SECTION_DUE = 3
    SECTION_ATTEMPTS = 4
    SECTION_TRACE = 5
    SECTION_KEY = 64
    SECTION_HEADERS = 65

cdef enum:
    SECTION_HEADER_BYTES = 8
    SECTION_BYTES_TYPE_MIN = 64

# One section of a known type, checked. Pointers go into the batch; no alignment is promised.
cdef struct section_t:
    unsigned int type
    unsigned int entries
    const unsigned char* indexes  # u32 each, rising, below the batch's count
    const unsigned char* values  # integers: 8 bytes each; bytes: lengths, u32 each
    const unsigned char* blob  # bytes: the values end to end

# Walks a trailer from `position[0]` (0 at first). 1: `section` is the next one of a known type;
# 0: the end; -1: malformed.
cdef int section_next(
    const unsigned char* trailer,
    size_t trailer_bytes,
    unsigned int count,
    size_t* position,
    section_t* section,
) noexcept nogil

# The integer that a section has for message `index`, if it has one.
cdef bint section_value(section_t* section, unsigned int index, long long* value) noexcept
