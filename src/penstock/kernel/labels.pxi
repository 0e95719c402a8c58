# What the trailer of an open batch is to say of its messages: a table for each section.
#
# A table's columns stand in C buffers as they go to disk. So a message with a key and headers makes
# no Python object, and sealing copies each column once.

cdef enum:
    TABLES = 7

cdef struct table_t:
    buf_t indexes  # u32 each, rising
    buf_t values  # integers: 8 bytes each; bytes: lengths, u32 each
    buf_t blob  # bytes: the values end to end


cdef enum:
    INTEGERS = SECTION_TRACE - SECTION_TIMESTAMP + 1  # tables of integers; those of bytes follow


cdef int table_index(int section) noexcept:
    """The index of a section's table; -1: it is unknown. Indexes rise as the types do."""
    if SECTION_TIMESTAMP <= section <= SECTION_TRACE:
        return section - SECTION_TIMESTAMP
    if SECTION_KEY <= section <= SECTION_HEADERS:
        return INTEGERS + section - SECTION_KEY
    return -1


cdef int type_at(int index) noexcept:
    return SECTION_TIMESTAMP + index if index < INTEGERS else SECTION_KEY + index - INTEGERS


cdef i64 bits_of(int section, object value) except? -1:
    """ID and TRACE are unsigned."""
    cdef u64 unsigned_value
    if section == SECTION_ID or section == SECTION_TRACE:
        unsigned_value = value
        return <i64>unsigned_value
    return value


cdef int check_label(int section, object value) except -1:
    if table_index(section) < 0:
        raise ValueError(f"unknown section type {section}")
    if section < SECTION_BYTES_TYPE_MIN:
        bits_of(section, value)
    elif not isinstance(value, bytes):
        raise TypeError(f"section {section} holds bytes, not {type(value).__name__}")
    return 0


cdef class Labels:
    cdef table_t tables[TABLES]
    cdef size_t size  # of the entries

    def __cinit__(self):
        cdef int index
        for index in range(TABLES):
            buf_init(&self.tables[index].indexes)
            buf_init(&self.tables[index].values)
            buf_init(&self.tables[index].blob)

    def __dealloc__(self):
        cdef int index
        for index in range(TABLES):
            buf_free(&self.tables[index].indexes)
            buf_free(&self.tables[index].values)
            buf_free(&self.tables[index].blob)

    cdef int put_integer(self, int section, u32 index, i64 value) except -1:
        cdef table_t* table = &self.tables[table_index(section)]
        cdef size_t entries = table.indexes.length // 4
        if entries and (<u32*>table.indexes.data)[entries - 1] == index:
            (<i64*>table.values.data)[entries - 1] = value  # the last word counts
            return 0
        buf_append(&table.values, &value, 8)  # little-endian hosts only; checked in engine.pyx
        buf_append(&table.indexes, &index, 4)
        self.size += 12
        return 0

    cdef int put_bytes(self, int section, u32 index, const u8* data, size_t size) except -1:
        """Once for each message."""
        cdef table_t* table = &self.tables[table_index(section)]
        cdef u32 length = <u32>size
        if size:
            buf_append(&table.blob, data, size)
        buf_append(&table.values, &length, 4)
        buf_append(&table.indexes, &index, 4)
        self.size += 8 + size
        return 0

    cdef int put(self, int section, u32 index, object value) except -1:
        if section < SECTION_BYTES_TYPE_MIN:
            return self.put_integer(section, index, bits_of(section, value))
        return self.put_bytes(section, index, <const u8*><bytes>value, len(<bytes>value))

    cdef int write(self, buf_t* out) except -1:
        """All sections, by type; empty ones are left out."""
        cdef table_t* table
        cdef int index
        cdef u16 kind, flags = 0
        cdef u32 length, entries
        for index in range(TABLES):
            table = &self.tables[index]
            if table.indexes.length == 0:
                continue
            kind = <u16>type_at(index)
            entries = <u32>(table.indexes.length // 4)
            length = <u32>(4 + table.indexes.length + table.values.length + table.blob.length)
            buf_append(out, &kind, 2)
            buf_append(out, &flags, 2)
            buf_append(out, &length, 4)
            buf_append(out, &entries, 4)
            buf_append(out, table.indexes.data, table.indexes.length)
            buf_append(out, table.values.data, table.values.length)
            if table.blob.length:
                buf_append(out, table.blob.data, table.blob.length)
        return 0

    cdef void clear(self) noexcept:
        cdef int index
        for index in range(TABLES):
            self.tables[index].indexes.length = 0
            self.tables[index].values.length = 0
            self.tables[index].blob.length = 0
        self.size = 0

    cdef size_t held_bytes(self) noexcept:
        cdef int index
        cdef size_t held = 0
        for index in range(TABLES):
            held += self.tables[index].indexes.capacity
            held += self.tables[index].values.capacity + self.tables[index].blob.capacity
        return held
