# The keys of one window that are busy: a table by their hash, with a queue of messages for each.
#
# A key is busy while a message holds it. What is behind it is a queue of strays in the order of the
# log, linked by their ids; here stand the first and the last. The table has the keys that are busy
# now, so its size follows what is in flight and aside, however many keys there are.

cdef struct busy_t:
    u64 key
    u64 first, last  # ids; 0: nothing is behind
    u64 exhausted  # the id of the last one that held it in this state
    u32 holders  # 0: a slot that is free
    bint is_crowded  # it is held since before there was this order, or by several


cdef enum:
    KEY_TABLE_MIN = 64
    TABLE_KEPT = 8192  # a larger one is given back when no key is busy

cdef u64 MIX = 0x9E3779B97F4A7C15
cdef u64 MIX_END = 0xD6E8FEB86659FD93


cdef u64 hash_of_key(const u8* data, u32 size) noexcept:
    """Never 0. Eight bytes at a time; keys of up to eight bytes have hashes of their own, and keys
    of one hash share an order."""
    cdef u64 hash = size * MIX_END, word
    while size >= 8:
        hash = (hash ^ load_u64(data)) * MIX
        hash ^= hash >> 32
        data += 8
        size -= 8
    if size:
        word = 0
        memcpy(&word, data, size)
        hash = (hash ^ word) * MIX
        hash ^= hash >> 32
    hash *= MIX_END
    hash ^= hash >> 29
    return hash if hash else 1


cdef class BusyKeys:
    cdef busy_t* table
    cdef u32 capacity, count

    def __dealloc__(self):
        free(self.table)

    cdef busy_t* find(self, u64 key) noexcept:
        cdef u32 slot
        if self.count == 0:
            return NULL
        slot = <u32>(key & (self.capacity - 1))
        while self.table[slot].holders:
            if self.table[slot].key == key:
                return &self.table[slot]
            slot = (slot + 1) & (self.capacity - 1)
        return NULL

    cdef busy_t* hold(self, u64 key) except NULL:
        """One more message holds the key; pointers to others are not valid any more."""
        cdef busy_t* busy = self.find(key)
        cdef u32 slot
        if busy != NULL:
            busy.holders += 1
            busy.is_crowded = True
            return busy
        if (self.count + 1) * 2 > self.capacity:
            self.grow()
        slot = <u32>(key & (self.capacity - 1))
        while self.table[slot].holders:
            slot = (slot + 1) & (self.capacity - 1)
        busy = &self.table[slot]
        busy.key, busy.first, busy.last, busy.holders = key, 0, 0, 1
        busy.is_crowded, busy.exhausted = False, 0
        self.count += 1
        return busy

    cdef bint take(self, u64 key) except -1:
        """Hold a key that no message holds, in one look. False: it is busy."""
        cdef u32 slot
        if (self.count + 1) * 2 > self.capacity:
            self.grow()
        slot = <u32>(key & (self.capacity - 1))
        while self.table[slot].holders:
            if self.table[slot].key == key:
                return False
            slot = (slot + 1) & (self.capacity - 1)
        self.table[slot].key, self.table[slot].holders = key, 1
        self.table[slot].first = self.table[slot].last = 0
        self.table[slot].is_crowded, self.table[slot].exhausted = False, 0
        self.count += 1
        return True

    cdef int grow(self) except -1:
        cdef u32 capacity = self.capacity * 2 if self.capacity else KEY_TABLE_MIN
        cdef busy_t* table = <busy_t*>calloc(capacity, sizeof(busy_t))
        cdef u32 i, slot
        if table == NULL:
            raise MemoryError(f"no memory for {capacity} busy keys")
        for i in range(self.capacity):
            if self.table[i].holders:
                slot = <u32>(self.table[i].key & (capacity - 1))
                while table[slot].holders:
                    slot = (slot + 1) & (capacity - 1)
                table[slot] = self.table[i]
        free(self.table)
        self.table, self.capacity = table, capacity
        return 0

    cdef void remove(self, busy_t* busy) noexcept:
        """What stands behind it in the table moves up, so that no tombstones are needed."""
        cdef u32 mask = self.capacity - 1
        cdef u32 hole = <u32>(busy - self.table), slot = hole, home
        self.count -= 1
        if self.count == 0 and self.capacity > TABLE_KEPT:
            self.clear()
            return
        while True:
            slot = (slot + 1) & mask
            if self.table[slot].holders == 0:
                break
            home = <u32>(self.table[slot].key & mask)
            if ((slot - home) & mask) >= ((slot - hole) & mask):
                self.table[hole] = self.table[slot]
                hole = slot
        self.table[hole].holders = 0

    cdef void clear(self) noexcept:
        if self.capacity > TABLE_KEPT:
            free(self.table)
            self.table, self.capacity = NULL, 0
        elif self.capacity:
            memset(self.table, 0, self.capacity * sizeof(busy_t))
        self.count = 0
