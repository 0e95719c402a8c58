# How delivery and the trace look at a batch, wherever it is: in a tail's memory, or in bytes read
# from a file.

cdef struct view_t:
    i64 base_offset
    u64 base_id
    i64 timestamp_ns
    u32 count
    u32 bodies_length
    const u8* lengths
    const u8* bodies
    const u8* trailer
    size_t trailer_length


cdef void view_parts(const parts_t* parts, view_t* out) noexcept:
    cdef const batch_header_t* header = &parts.header
    out.base_offset = header.base_offset
    out.base_id = header.base_id
    out.timestamp_ns = header.timestamp_ns
    out.count = header.count
    out.bodies_length = header.bodies_length
    out.lengths = parts.lengths
    out.bodies = parts.bodies
    out.trailer = NULL
    out.trailer_length = 0
    if header.flags & BATCH_FLAG_TRAILER:
        out.trailer = out.bodies + header.bodies_length
        out.trailer_length = parts.lengths - parts.header_bytes + header.length - out.trailer
