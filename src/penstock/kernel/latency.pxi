# How long messages took from their timestamp to their FIN: counts in buckets, one set a channel.
#
# A bucket is a 32nd of a power of two, from 1 us (all below is bucket 0) to some 50 days, so its
# middle is off by 1.6 % at most.
#
# FINs of the ring are not looked at one by one: at the end of a turn the finished ranges, which the
# journal is made of, are laid over `runs`: what was delivered, from which batch, so with which
# timestamp. Strays carry their timestamp themselves.

cdef enum:
    BUCKETS = 42 * 32 + 1

cdef struct delivered_t:
    i64 start
    i64 end
    i64 timestamp_ns


cdef extern from *:
    """
    static inline int ps_top_bit(unsigned long long value) { return 63 - __builtin_clzll(value); }
    """
    int top_bit "ps_top_bit"(unsigned long long value) noexcept nogil

cdef enum:
    LOWEST_BITS = 10  # below 2 ** 10 ns all is one bucket
    STEP_BITS = 5


cdef u32 bucket_of(i64 latency_ns) noexcept:
    cdef int bits
    if latency_ns < 1 << LOWEST_BITS:
        return 0
    bits = top_bit(<u64>latency_ns)
    return min(
        <u32>(((bits - LOWEST_BITS) << STEP_BITS) + 1
              + ((latency_ns >> (bits - STEP_BITS)) & ((1 << STEP_BITS) - 1))),
        <u32>BUCKETS - 1,
    )


cdef class Latencies:
    cdef u64 counts[BUCKETS]
    cdef delivered_t* runs  # offsets rise; those below `head` are done with
    cdef u32 head, count, capacity

    def __dealloc__(self):
        free(self.runs)

    cdef int delivered(self, i64 offset, i64 count, i64 timestamp_ns) except -1:
        cdef delivered_t* last
        if self.count > self.head:
            last = &self.runs[self.count - 1]
            if last.end == offset and last.timestamp_ns == timestamp_ns:
                last.end += count
                return 0
        if self.count == self.capacity:
            self.runs = <delivered_t*>grown(
                self.runs, sizeof(delivered_t), &self.capacity, 16, "what was delivered")
        last = &self.runs[self.count]
        last.start, last.end, last.timestamp_ns = offset, offset + count, timestamp_ns
        self.count += 1
        return 0

    cdef u32 find(self, i64 offset) noexcept:
        """The first run that ends above `offset`."""
        cdef u32 low = self.head, high = self.count, middle
        while low < high:
            middle = (low + high) >> 1
            if self.runs[middle].end <= offset:
                low = middle + 1
            else:
                high = middle
        return low

    cdef i64 timestamp_of(self, i64 offset) noexcept:
        """0 when it was not noted."""
        cdef u32 at = self.find(offset)
        if at < self.count and self.runs[at].start <= offset:
            return self.runs[at].timestamp_ns
        return 0

    cdef void finished(self, i64 start, i64 end, i64 wall_ns) noexcept:
        cdef u32 at = self.find(start)
        cdef i64 first, last
        while at < self.count and self.runs[at].start < end:
            first, last = max(start, self.runs[at].start), min(end, self.runs[at].end)
            self.note(wall_ns - self.runs[at].timestamp_ns, <u64>(last - first))
            at += 1

    cdef void note(self, i64 latency_ns, u64 count) noexcept:
        self.counts[bucket_of(latency_ns)] += count

    cdef void trim(self, i64 low) noexcept:
        """What is wholly below `low` is done with."""
        while self.head < self.count and self.runs[self.head].end <= low:
            self.head += 1
        if self.head == self.count:
            self.head = self.count = 0
        elif self.head > 64 and self.head * 2 > self.count:
            self.count -= self.head
            memmove(self.runs, self.runs + self.head, self.count * sizeof(delivered_t))
            self.head = 0

    cdef void clear(self) noexcept:
        self.head = self.count = 0

    cdef dict take(self):
        cdef dict taken = {}
        cdef u32 i
        for i in range(BUCKETS):
            if self.counts[i]:
                taken[i] = self.counts[i]
        memset(self.counts, 0, sizeof(self.counts))
        return taken
