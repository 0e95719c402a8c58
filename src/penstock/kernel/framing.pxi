# The head of a message frame, as V2 has it:
#
#     [u32 BE 30 + body][u32 BE 2][i64 BE timestamp][u16 BE attempts][16 hex id][body]

cdef enum:
    HEAD_BYTES = 34  # of a frame, before the body
    COUNTED_HEAD_BYTES = 30  # of it, what its first field counts
    HEAD_ID_AT = 18


# What stands between the id and the body in frames of a client that asked for more.
#
#     enveloped  partition u16 BE, and then as for an extended one; but a message with a key and
#                without headers has extver 1, length u16 BE and the key
#     extended   extver u8: 4 with headers, and then length u16 BE and the JSON object; else 0
#     detailed   offset i64 BE, bytes stored u32 BE (a message's own, as a traced publish says)
#
# An extended client of an extended topic gets the second, SUB_ADVANCED and SUB_ORDERED the third,
# behind the headers. The first is for clients that ask for an `envelope`, on any topic.

cdef struct between_t:
    int partition
    u8 version  # of `ext`
    const u8* ext  # headers or key; NULL: none
    u32 ext_bytes
    u32 bytes  # of all that stands between

cdef inline bint is_long_for(Consumer me) noexcept:
    """Is there anything between id and body?"""
    return me.extended or me.detailed or me.enveloped


cdef enum:
    EXT_NONE = 0
    EXT_KEY = 1
    EXT_JSON = 4
    VALUE_BYTES_MAX = 65535  # what the length field of the frame can say
    EXT_HEAD_BYTES = 3  # version and length
    PARTITION_BYTES = 2
    DETAIL_BYTES = 12
    LENGTH_BYTES = 4  # of a message in its batch


cdef void find_between(Consumer me, Trailer trailer, u32 index, between_t* out) noexcept:
    """`out.partition` is the caller's."""
    out.ext = NULL
    out.bytes = 0
    if me.enveloped or me.extended:
        find_ext(trailer, SECTION_HEADERS, EXT_JSON, index, out)
        if out.ext == NULL and me.enveloped:
            find_ext(trailer, SECTION_KEY, EXT_KEY, index, out)
        out.bytes = 1 if out.ext == NULL else EXT_HEAD_BYTES + out.ext_bytes
    if me.enveloped:
        out.bytes += PARTITION_BYTES
    if me.detailed:
        out.bytes += DETAIL_BYTES


cdef void find_ext(Trailer trailer, u32 section, u8 version, u32 index, between_t* out) noexcept:
    out.version, out.ext_bytes = version, 0
    if trailer is not None:
        out.ext = trailer.bytes_of(section, index, &out.ext_bytes)
    if out.ext_bytes == 0 or out.ext_bytes > VALUE_BYTES_MAX:
        out.ext = NULL


cdef void put_between(u8* at, Consumer me, Trailer trailer, between_t* between, view_t* view,
                      u32 index, u32 body_bytes) noexcept:
    """`at` has room for `between.bytes`."""
    cdef u32 stored_bytes = LENGTH_BYTES + body_bytes
    if me.enveloped:
        put_be16(at, between.partition)
        at += PARTITION_BYTES
    if me.enveloped or me.extended:
        if between.ext == NULL:
            at[0] = EXT_NONE
            at += 1
        else:
            at[0] = between.version
            put_be16(at + 1, between.ext_bytes)
            memcpy(at + EXT_HEAD_BYTES, between.ext, between.ext_bytes)
            at += EXT_HEAD_BYTES + between.ext_bytes
    if me.detailed:
        if trailer is not None:
            stored_bytes += <u32>trailer.stored_bytes(index)
        put_be64(at, view.base_offset + index)
        put_be32(at + 8, stored_bytes)


# Messages of a batch as frames at the end of an output: one, or a run of them.
#
# A run ends where the chunk is full, so at least its first message is always put, however large. A
# client that asked for nothing special gets a plain run: what differs from one message to the next
# is its id, its size and its body, and all else is looked up once for all of them.

cdef u32 body_position(view_t* view, u32 index, body_at_t* last) noexcept:
    """Where body `index` begins; sums on from the one remembered, if it is in the same batch."""
    cdef u32 at = 0, position = 0
    if last.base_offset == view.base_offset and last.index <= index:
        at, position = last.index, last.position
    while at < index:
        position += load_u32(view.lengths + 4 * <size_t>at)
        at += 1
    last.base_offset, last.index, last.position = view.base_offset, index, position
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


cdef int put_long_frame(buf_t* out, Consumer me, Trailer trailer, between_t* between,
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


cdef int put_one(buf_t* out, Consumer me, Window window, Trailer trailer, view_t* view,
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
    cdef u32 mask = window.ring_capacity - 1, slot, size, done = 0, start = position[0]
    while done < count:
        size = load_u32(lengths + 4 * <size_t>done)
        if done and out.length + HEAD_BYTES + size > CHUNK_BYTES:
            break
        put_frame(out, view, start, size, timestamp_ns, attempts, id_at(base_id, index + done))
        start += size
        slot = (offset + done) & mask
        owners[slot] = serial
        deadlines[slot] = deadline_ns
        done += 1
    position[0] = start
    return done


cdef u32 put_long_run(Window window, Conn conn, buf_t* out, view_t* view, Trailer trailer,
                      u32 index, u32* position, u32 count, int attempts,
                      i64 deadline_ns) except? 0:
    """With headers, positions or partitions for those who asked for them; in a channel with an
    order it ends before a message whose key is busy."""
    cdef u32 mask = window.ring_capacity - 1, slot, size, done = 0
    cdef u64 key
    cdef between_t between
    cdef bint is_long = is_long_for(conn)
    between.bytes = 0
    between.partition = window.tail.partition
    while done < count:
        size = load_u32(view.lengths + 4 * <size_t>(index + done))
        if is_long:
            find_between(conn, trailer, index + done, &between)
        if done and out.length + HEAD_BYTES + between.bytes + size > CHUNK_BYTES:
            break
        slot = (window.next + done) & mask
        if window.ring_keys != NULL:
            key = window.key_of(view, trailer, index + done)
            if key and not window.busy.take(key):
                break
            window.ring_keys[slot] = key
        if is_long:
            put_long_frame(out, conn, trailer, &between, view, index + done, position[0], size,
                           view.timestamp_ns, attempts, id_at(view.base_id, index + done))
        else:
            put_frame(out, view, position[0], size, view.timestamp_ns, attempts,
                      id_at(view.base_id, index + done))
        position[0] += size
        window.owners[slot] = conn.serial
        window.deadlines[slot] = deadline_ns
        done += 1
    return done


# What was built for a consumer goes out on its socket; what does not go out is kept with it.

cdef enum:
    CHUNK_BYTES = 256 << 10  # frames built before they are sent; 64 KiB costs consume 30 %


cdef extern from "sys/socket.h" nogil:
    ssize_t c_send "send"(int fd, const void* data, size_t size, int flags)
    enum: MSG_DONTWAIT
    enum: MSG_NOSIGNAL


cdef int send_now(Conn conn, Hub hub, buf_t* out) except -1:
    """Frames just built; what does not go out is kept with the connection."""
    cdef ssize_t n = c_send(conn.fd, out.data, out.length, MSG_DONTWAIT | MSG_NOSIGNAL)
    if n < 0:
        if errno != EAGAIN and errno != EINTR:
            return conn.gone("send failed")
        n = 0
    if <size_t>n < out.length:
        buf_append(&conn.output, out.data + n, out.length - n)
        conn.blocked = True
        conn.want_write = True
        conn.mark_interest()
    return 0


cdef int send_waiting(Conn conn, Hub hub) except -1:
    """Send a socket connection's own output buffer."""
    cdef ssize_t n
    cdef size_t size = conn.unsent_c()
    if size:
        n = c_send(conn.fd, conn.output.data + conn.output.start, size, MSG_DONTWAIT | MSG_NOSIGNAL)
        if n < 0:
            if errno != EAGAIN and errno != EINTR:
                return conn.gone("send failed")
            n = 0
        buf_take(&conn.output, n)
    if conn.unsent_c():
        conn.blocked = True
        if not conn.want_write:
            conn.want_write = True
        return conn.mark_interest()
    conn.hold_since_ns = 0
    conn.urgent = False
    if conn.output.capacity > CHUNK_BYTES:
        buf_free(&conn.output)
    if conn.want_write:
        conn.want_write = False
        conn.mark_interest()
    return conn.mark_drained()
