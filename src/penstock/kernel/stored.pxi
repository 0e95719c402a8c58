# What the trailer of a batch says of its messages, for a reader that goes along the batch.
#
# `batch.pxi` walks and checks a trailer, which takes as long as the trailer is. A reader does so
# once for a batch. Then each section is a *spot*: where its table stands, and how far in it the
# reader has come, so that going on to the next message costs a comparison for each section. Going
# back begins at the front.
#
# Positions count from the trailer's beginning, not from an address: a batch is read on from
# wherever it is by then.

cdef struct special_t:
    bint own_id
    u64 id
    u64 trace_id
    i64 timestamp_ns
    i64 due_ns
    i64 attempts

cdef struct spot_t:
    u32 type
    u32 entries
    size_t indexes, values, blob
    u32 at  # the entry that the reader has come to
    size_t position  # of its value in the blob


cdef enum:
    SPOTS_MIN = 4
    INTEGER_ENTRY_BYTES = 12  # index and value
    BYTES_ENTRY_BYTES = 8  # index and length; the value is beside them


cdef void nothing_special(view_t* view, u32 index, special_t* out) noexcept:
    out.own_id = False
    out.id = id_at(view.base_id, index)
    out.timestamp_ns = view.timestamp_ns
    out.due_ns = out.attempts = 0
    out.trace_id = 0


cdef void note_special(special_t* out, u32 type, i64 value) noexcept:
    if type == SECTION_TIMESTAMP:
        out.timestamp_ns = value
    elif type == SECTION_ID:
        out.id, out.own_id = <u64>value, True
    elif type == SECTION_DUE:
        out.due_ns = value
    elif type == SECTION_ATTEMPTS:
        out.attempts = value
    elif type == SECTION_TRACE:
        out.trace_id = <u64>value


cdef class Trailer:
    cdef i64 base_offset  # of the batch; -1: of none yet
    cdef const u8* data
    cdef u32 count  # of messages
    cdef spot_t* spots
    cdef u32 spot_count, spot_capacity


    def __cinit__(self):
        self.base_offset = -1

    def __dealloc__(self):
        free(self.spots)

    cdef int open(self, view_t* view) except -1:
        cdef size_t position = 0
        cdef section_t section
        cdef spot_t* spot
        self.data = view.trailer
        if view.base_offset == self.base_offset:
            return 0
        self.base_offset, self.count, self.spot_count = -1, view.count, 0
        while section_next(view.trailer, view.trailer_length, view.count, &position,
                           &section) == 1:
            if section.entries == 0:
                continue
            if self.spot_count == self.spot_capacity:
                self.spots = <spot_t*>grown(
                    self.spots, sizeof(spot_t), &self.spot_capacity, SPOTS_MIN,
                    "the sections of a trailer")
            spot = &self.spots[self.spot_count]
            spot.type, spot.entries = section.type, section.entries
            spot.indexes = section.indexes - view.trailer
            spot.values = section.values - view.trailer
            spot.blob = section.blob - view.trailer
            spot.at, spot.position = 0, 0
            self.spot_count += 1
        self.base_offset = view.base_offset
        return 0

    cdef bint seek(self, spot_t* spot, u32 index) noexcept:
        """Move to the first entry of message `index`, or of one behind it. Is it that one's?"""
        cdef const u8* indexes = self.data + spot.indexes
        cdef const u8* lengths = self.data + spot.values
        cdef bint has_bytes = spot.type >= SECTION_BYTES_TYPE_MIN
        if spot.at and load_u32(indexes + 4 * <size_t>(spot.at - 1)) >= index:
            spot.at = 0
            spot.position = 0
        while spot.at < spot.entries and load_u32(indexes + 4 * <size_t>spot.at) < index:
            if has_bytes:
                spot.position += load_u32(lengths + 4 * <size_t>spot.at)
            spot.at += 1
        return spot.at < spot.entries and load_u32(indexes + 4 * <size_t>spot.at) == index

    cdef u32 special_from(self, u32 index) noexcept:
        """The first message from `index` on that is not sent just as if there were no trailer."""
        cdef u32 i, found = self.count
        cdef spot_t* spot
        for i in range(self.spot_count):
            spot = &self.spots[i]
            if spot.type >= SECTION_BYTES_TYPE_MIN:
                continue
            self.seek(spot, index)
            if spot.at < spot.entries:
                found = min(found, load_u32(self.data + spot.indexes + 4 * <size_t>spot.at))
        return found

    cdef void find(self, view_t* view, u32 index, special_t* out) noexcept:
        cdef u32 i
        cdef spot_t* spot
        nothing_special(view, index, out)
        for i in range(self.spot_count):
            spot = &self.spots[i]
            if spot.type < SECTION_BYTES_TYPE_MIN and self.seek(spot, index):
                note_special(out, spot.type,
                             <i64>load_u64(self.data + spot.values + 8 * <size_t>spot.at))

    cdef const u8* bytes_of(self, u32 type, u32 index, u32* size) noexcept:
        """A value of bytes; NULL: the message has none."""
        cdef u32 i
        cdef spot_t* spot
        cdef const u8* found = NULL
        for i in range(self.spot_count):
            spot = &self.spots[i]
            if spot.type == type and self.seek(spot, index):
                found = self.data + spot.blob + spot.position
                size[0] = load_u32(self.data + spot.values + 4 * <size_t>spot.at)
        return found

    cdef u64 stored_bytes(self, u32 index) noexcept:
        """What all sections together hold for a message."""
        cdef u32 i
        cdef u64 total = 0
        cdef spot_t* spot
        for i in range(self.spot_count):
            spot = &self.spots[i]
            if not self.seek(spot, index):
                continue
            if spot.type < SECTION_BYTES_TYPE_MIN:
                total += INTEGER_ENTRY_BYTES
            else:
                total += BYTES_ENTRY_BYTES
                total += load_u32(self.data + spot.values + 4 * <size_t>spot.at)
        return total


# A run of whole intact batches read from a file, looked at like a tail's memory.
#
# The caller has checked every crc. The Python buffer is kept, not copied, until the block is
# replaced.

cdef class Block:
    """Whole intact batches read from a file; keeps the Python buffer alive."""

    cdef Lent lent
    cdef list starts  # positions of the batches
    cdef i64 first_offset, end_offset

    def __cinit__(self, object keeper):
        cdef size_t position = 0
        cdef parts_t parts
        cdef const batch_header_t* header = &parts.header
        cdef const u8* data
        cdef size_t size
        self.lent = lent_by(keeper)
        data, size = self.lent.data, self.lent.size
        self.starts = []
        self.first_offset = self.end_offset = 0
        while header_bytes_c(data + position, size - position):
            batch_parts_c(data + position, &parts)
            if header.length < parts.header_bytes or position + header.length > size:
                break
            if not self.starts:
                self.first_offset = header.base_offset
            self.starts.append(position)
            self.end_offset = header.base_offset + header.count
            position += header.length
        if position != size:
            raise ValueError(f"block of {size} bytes does not end with a batch: {position}")

    cdef bint view(self, i64 offset, view_t* out) except -1:
        cdef Py_ssize_t low = 0, high = len(self.starts), middle
        cdef parts_t parts
        cdef const batch_header_t* header = &parts.header
        cdef const u8* data = self.lent.data
        cdef size_t at
        if offset < self.first_offset or offset >= self.end_offset:
            return False
        while high - low > 1:
            middle = (low + high) >> 1
            at = self.starts[middle]
            if (<const short_header_t*>(data + at)).base_offset <= offset:  # in both forms
                low = middle
            else:
                high = middle
        at = self.starts[low]
        batch_parts_c(data + at, &parts)
        if offset >= header.base_offset + header.count:
            return False
        view_parts(&parts, out)
        return True
