# A topic's tails, and which of them takes the next publish that names no partition.
#
# All publishes of a turn go to one tail, so that they share one batch and one write. When its open
# batch is sealed the route moves on to the next number, so that appends are spread over the
# partitions. Large appends stay with a tail for some more of them: a log costs most where one
# begins with it again, with buffers, pages and syncs that others have pushed out meanwhile. How
# much that is, and how long, is bounded, so that bytes are spread as well.
#
# A tail that refuses is passed by, and one that has as many sealed batches as it may is taken only
# where all are like that: its open batch would wait for them. When another tail can write before
# that, the route goes on to it. One that writes nothing at all (`sealed_max` is 0) comes last.
#
# Nothing tells the route of a seal: it compares the number of the open batch with the one it chose.
#
# A key decides on the partition of its messages, for good: by its hash, modulo a number that is
# fixed when the topic is made, however many partitions it gets later.

cdef enum:
    ANY_PARTITION = -1  # none is named, or -1
    NO_PARTITION = -2  # a number that none can have

cdef inline bint accepts(Tail tail, u32 count) noexcept:
    """May so many messages be published to it now? For each publish, so it is inlined."""
    return not tail.refusing and (tail.append_end_max == 0 or tail.has_room(count))


cdef i64 PARTITIONS_MAX = limits.PARTITIONS_MAX
cdef i64 APPEND_BYTES_MIN = limits.ROUTE_APPEND_BYTES_MIN
cdef i64 STAY_BYTES = limits.ROUTE_STAY_BYTES
cdef i64 STAY_NS = limits.ROUTE_STAY_NS


cdef i64 partition_of(const u8* text, size_t size, size_t* length) noexcept:
    """The partition that the first word of `text` names, and the length of the word. A word that
    does not begin as a number is ignored, as NSQ ignores it; -1 is any."""
    cdef size_t start = 0, end
    cdef i64 value = 0
    cdef bint negative = False, digits = True
    if size and text[size - 1] == 13:
        size -= 1
    if size and (text[0] == 43 or text[0] == 45):
        negative = text[0] == 45
        start = 1
    end = start
    while end < size and text[end] != 32:
        if not 48 <= text[end] <= 57:
            if end == start:
                return ANY_PARTITION
            digits = False
        value = min(value * 10 + text[end] - 48, PARTITIONS_MAX)
        end += 1
    length[0] = end
    if end == start or (negative and end == 2 and text[1] == 49):
        return ANY_PARTITION
    return NO_PARTITION if negative or not digits or value == PARTITIONS_MAX else value


def tail_number(Tail tail):
    return tail.partition


cdef class Route:
    cdef list tails  # by number
    cdef Tail current  # None: there is none, and `forgotten` says so
    cdef u64 serial  # of the open batch that `current` gathers, as far as the route knows
    cdef i64 appends  # that `current` has got since it was chosen
    cdef i64 bytes_before  # of bodies, that had come to it before
    cdef i64 until_ns  # mono: then it has had its time
    cdef Tail only  # when there is one tail; else None
    cdef u32 hash_partitions  # by which keys are spread; 0: as many as there are tails
    cdef bint extended  # its messages may have any headers
    cdef bint needs_partition  # publishes must name a partition or a key
    cdef bint forgotten  # no tail is left: connections must look the topic up again

    def __cinit__(self):
        self.tails = []

    cdef int add(self, Tail tail) except -1:
        self.tails.append(tail)
        self.tails.sort(key=tail_number)
        if self.current is None:
            self.take(tail)
        self.only = tail if len(self.tails) == 1 else None
        return 0

    cdef bint remove(self, Tail tail) except -1:
        """True: none is left."""
        cdef Py_ssize_t index = self.tails.index(tail)
        del self.tails[index]
        tail.forgotten = True
        self.forgotten = not self.tails
        self.only = <Tail>self.tails[0] if len(self.tails) == 1 else None
        if self.forgotten:
            self.current = None
        elif tail is self.current:
            self.take(<Tail>self.tails[index % len(self.tails)])
        return self.forgotten

    cdef Tail find(self, i64 partition):
        cdef Tail tail
        if 0 <= partition < len(self.tails):  # where none is missing it stands at its number
            tail = <Tail>self.tails[partition]
            if tail.partition == partition:
                return tail
        for tail in self.tails:
            if tail.partition == partition:
                return tail
        return None

    cdef i64 number_of_key(self, const u8* key, size_t size) noexcept:
        """The number of the partition for messages with this key."""
        cdef u32 count = self.hash_partitions
        if count == 0:
            count = <u32>len(self.tails)
        return murmur3_32_c(key, size, 0) % count

    cdef Tail pick(self, u32 count):
        """The tail for so many messages. When all refuse: the one that would be next."""
        cdef Tail tail = self.current
        cdef bint accepted, stays
        if len(self.tails) == 1:
            return tail
        accepted = accepts(tail, count)
        stays = accepted and tail.sealed_room and tail.open_serial == self.serial
        if stays and tail.can_seal():
            return tail
        if accepted and tail.can_seal() and self.goes_on(tail):
            return self.begin_append(tail)
        return self.choose(count, stays)

    cdef Tail take(self, Tail tail):
        self.current, self.serial = tail, tail.open_serial
        self.appends, self.bytes_before = 1, tail.message_bytes
        self.until_ns = tail.hub.mono_ns + STAY_NS
        return tail

    cdef Tail begin_append(self, Tail tail):
        self.serial = tail.open_serial
        self.appends += 1
        return tail

    cdef bint goes_on(self, Tail tail) noexcept:
        """Does the next append go to the same tail?"""
        cdef i64 size = tail.message_bytes - self.bytes_before
        return (size >= self.appends * APPEND_BYTES_MIN and size < STAY_BYTES
                and tail.hub.mono_ns < self.until_ns)

    cdef Tail choose(self, u32 count, bint stays):
        """Another tail; the same one where it `stays` and no other writes sooner."""
        cdef Tail tail, chosen = None
        cdef Py_ssize_t i, size = len(self.tails), first = self.tails.index(self.current) + 1
        for i in range(size):
            tail = <Tail>self.tails[(first + i) % size]
            if not accepts(tail, count):
                continue
            if tail.can_seal():
                return self.take(tail)
            if not stays and (chosen is None or not chosen.sealed_room):
                chosen = tail
        return self.current if chosen is None else self.take(chosen)
