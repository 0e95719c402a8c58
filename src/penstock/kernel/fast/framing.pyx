"""Message frames out of batches (declared, and explained, in framing.pxd)."""

from libc.string cimport memcpy

from penstock.kernel.fast.batch cimport id_at_c
from penstock.kernel.fast.buffer cimport buf_reserve
from penstock.kernel.fast.extframe cimport between_t, find_between, is_long_for, put_between
from penstock.kernel.fast.frames cimport COUNTED_HEAD_BYTES, HEAD_BYTES, HEAD_ID_AT, put_head
from penstock.kernel.fast.hexid cimport id_encode
from penstock.kernel.fast.sending cimport CHUNK_BYTES
from penstock.kernel.fast.types cimport u8
from penstock.kernel.fast.unaligned cimport load_u32


cdef u32 body_position(view_t* view, u32 index, place_t* place) noexcept:
    """Where body `index` begins; sums on from the place remembered, if it is in the same batch."""
    cdef u32 at = 0, position = 0
    if place.base_offset == view.base_offset and place.index <= index:
        at, position = place.index, place.position
    while at < index:
        position += load_u32(view.lengths + 4 * <size_t>at)
        at += 1
    place.base_offset, place.index, place.position = view.base_offset, index, position
    return position


cdef int put_frame(buf_t* out, view_t* view, u32 position, u32 size,
                   i64 timestamp_ns, int attempts, u64 id) except -1:
    cdef u8* p
    if out.length + HEAD_BYTES + size > out.capacity:
        buf_reserve(out, HEAD_BYTES + size)
    p = out.data + out.length
    put_head(p, COUNTED_HEAD_BYTES + size, timestamp_ns, attempts)
    id_encode(id, p + HEAD_ID_AT)
    memcpy(p + HEAD_BYTES, view.bodies + position, size)
    out.length += HEAD_BYTES + size
    return 0


cdef int put_long_frame(buf_t* out, consumer_t* me, Trailer trailer, between_t* between,
                        view_t* view, u32 index, u32 position, u32 size,
                        i64 timestamp_ns, int attempts, u64 id) except -1:
    cdef u32 rest = between.bytes + size
    cdef u8* p
    if out.length + HEAD_BYTES + rest > out.capacity:
        buf_reserve(out, HEAD_BYTES + rest)
    p = out.data + out.length
    put_head(p, COUNTED_HEAD_BYTES + rest, timestamp_ns, attempts)
    id_encode(id, p + HEAD_ID_AT)
    put_between(p + HEAD_BYTES, me, trailer, between, view, index, size)
    memcpy(p + HEAD_BYTES + between.bytes, view.bodies + position, size)
    out.length += HEAD_BYTES + rest
    return 0


cdef int put_one(buf_t* out, consumer_t* me, Window window, Trailer trailer, view_t* view,
                 u32 index, u32 position, u32 size, i64 timestamp_ns, int attempts,
                 u64 id) except -1:
    """Whatever kind of frame the consumer gets."""
    cdef between_t between
    if not is_long_for(me):
        return put_frame(out, view, position, size, timestamp_ns, attempts, id)
    between.partition = window.tail.partition
    find_between(me, trailer, index, &between)
    return put_long_frame(out, me, trailer, &between, view, index, position, size, timestamp_ns,
                          attempts, id)


cdef u32 put_plain_run(Window window, u32 serial, buf_t* out, view_t* view, u32 index,
                       u32* position, u32 count, int attempts, i64 deadline_ns) except? 0:
    """No keys to keep in order, nothing between a message's head and its body."""
    cdef u32* owners = window.owners
    cdef i64* deadlines = window.deadlines
    cdef const u8* lengths = view.lengths + 4 * <size_t>index
    cdef u64 base_id = view.base_id
    cdef i64 offset = window.next, timestamp_ns = view.timestamp_ns
    cdef u32 mask = window.ring_capacity - 1, slot, size, done = 0, place = position[0]
    while done < count:
        size = load_u32(lengths + 4 * <size_t>done)
        if done and out.length + HEAD_BYTES + size > CHUNK_BYTES:
            break
        put_frame(out, view, place, size, timestamp_ns, attempts, id_at_c(base_id, index + done))
        place += size
        slot = (offset + done) & mask
        owners[slot] = serial
        deadlines[slot] = deadline_ns
        done += 1
    position[0] = place
    return done


cdef u32 put_long_run(Window window, Conn conn, buf_t* out, view_t* view, Trailer trailer,
                      u32 index, u32* position, u32 count, int attempts,
                      i64 deadline_ns) except? 0:
    """With headers, positions or partitions for those who asked for them; in a channel with an
    order it ends before a message whose key is busy."""
    cdef u32 mask = window.ring_capacity - 1, slot, size, done = 0
    cdef u64 key
    cdef between_t between
    cdef bint is_long = is_long_for(conn.me)
    between.bytes = 0
    between.partition = window.tail.partition
    while done < count:
        size = load_u32(view.lengths + 4 * <size_t>(index + done))
        if is_long:
            find_between(conn.me, trailer, index + done, &between)
        if done and out.length + HEAD_BYTES + between.bytes + size > CHUNK_BYTES:
            break
        slot = (window.next + done) & mask
        if window.ring_keys != NULL:
            key = window.key_of(view, trailer, index + done)
            if key and not window.busy.take(key):
                break
            window.ring_keys[slot] = key
        if is_long:
            put_long_frame(out, conn.me, trailer, &between, view, index + done, position[0], size,
                           view.timestamp_ns, attempts, id_at_c(view.base_id, index + done))
        else:
            put_frame(out, view, position[0], size, view.timestamp_ns, attempts,
                      id_at_c(view.base_id, index + done))
        position[0] += size
        window.owners[slot] = conn.serial
        window.deadlines[slot] = deadline_ns
        done += 1
    return done
