# The header of an open batch, in either form. It begins with that, so its address is the header's.
cdef union header_t:
    batch_header_t full
    short_header_t brief

cdef struct head_t:
    header_t header
    size_t size
    size_t lengths_bytes  # how many of the batch's lengths are written
    size_t total


cdef void short_head(short_header_t* header, membatch_t* batch, u16 unsynced,
                     u16 leader_epoch) noexcept:
    cdef u32 crc
    header.magic = SHORT_MAGIC
    header.body_length = <u32>batch.bodies.length
    header.leader_epoch = leader_epoch
    header.unsynced = unsynced
    header.base_offset = batch.base_offset
    header.base_id = batch.base_id
    header.timestamp_ns = batch.timestamp_ns
    crc = crc32c_update(0, <u8*>header + BATCH_CRC_FROM, SHORT_HEADER_BYTES - BATCH_CRC_FROM)
    crc = crc32c_update(crc, batch.bodies.data, batch.bodies.length)
    header.crc = crc32c_update(crc, batch.trailer.data, batch.trailer.length)


cdef void long_head(head_t* head, membatch_t* batch, i64 synced_end, u32 leader_epoch,
                    bint has_trailer) noexcept:
    cdef batch_header_t* header = &head.header.full
    cdef u32 crc
    memset(header, 0, HEADER_BYTES)
    header.magic = BATCH_MAGIC
    header.length = <u32>head.total
    header.flags = BATCH_FLAG_TRAILER if has_trailer else 0
    header.base_offset = batch.base_offset
    header.base_id = batch.base_id
    header.timestamp_ns = batch.timestamp_ns
    header.synced_end = synced_end
    header.leader_epoch = leader_epoch
    header.count = batch.count
    header.bodies_length = <u32>batch.bodies.length
    crc = crc32c_update(0, <u8*>header + BATCH_CRC_FROM, HEADER_BYTES - BATCH_CRC_FROM)
    crc = crc32c_update(crc, batch.lengths.data, batch.lengths.length)
    crc = crc32c_update(crc, batch.bodies.data, batch.bodies.length)
    header.crc = crc32c_update(crc, batch.trailer.data, batch.trailer.length)
