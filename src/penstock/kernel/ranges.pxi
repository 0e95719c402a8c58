# Which ids the offsets of a window's ring have.
#
# One run for each piece of a batch delivered in order: (first id, first offset, count). Ids and
# offsets both rise along a log, so the runs are sorted by both; a FIN finds its offset by
# arithmetic in the run that the last one fell into, or by binary search. Runs are dropped from the
# front as `low` passes them.

cdef struct run_t:
    u64 first_id
    i64 first_offset
    u32 count


cdef i64 NEVER = <i64>0x7FFFFFFFFFFFFFFF


cdef class Runs:
    cdef run_t* runs
    cdef u32 head, count, capacity, hint

    def __dealloc__(self):
        free(self.runs)

    cdef void trim(self, i64 low) noexcept:
        """Drop the runs wholly below `low`."""
        cdef run_t* run
        while self.count:
            run = &self.runs[self.head]
            if run.first_offset + run.count > low:
                break
            self.head = (self.head + 1) & (self.capacity - 1)
            self.count -= 1
            if self.hint:
                self.hint -= 1

    cdef void clear(self) noexcept:
        self.head = self.count = self.hint = 0

    cdef int add(self, u64 first_id, i64 first_offset, u32 count) except -1:
        cdef run_t* run
        if self.count:
            run = &self.runs[(self.head + self.count - 1) & (self.capacity - 1)]
            if (run.first_offset + run.count == first_offset
                    and id_at(run.first_id, run.count) == first_id):
                run.count += count
                return 0
        if self.count == self.capacity:
            self.runs = <run_t*>grown_ring(
                self.runs, sizeof(run_t), &self.head, &self.capacity, 8, "runs")
        run = &self.runs[(self.head + self.count) & (self.capacity - 1)]
        run.first_id, run.first_offset, run.count = first_id, first_offset, count
        self.count += 1
        return 0

    cdef i64 offset_of(self, u64 id) noexcept:
        """Offset of an id that was delivered from the log's own ids, or -1."""
        cdef u32 mask = self.capacity - 1
        cdef u32 low = 0, high = self.count, middle
        cdef run_t* run
        cdef i64 index
        if high == 0:
            return -1
        if self.hint < high:
            run = &self.runs[(self.head + self.hint) & mask]
            index = id_index(run.first_id, run.count, id)
            if index >= 0:
                return run.first_offset + index
        while high - low > 1:
            middle = (low + high) >> 1
            if self.runs[(self.head + middle) & mask].first_id <= id:
                low = middle
            else:
                high = middle
        run = &self.runs[(self.head + low) & mask]
        index = id_index(run.first_id, run.count, id)
        if index < 0:
            return -1
        self.hint = low
        return run.first_offset + index

    cdef run_t* hinted(self) noexcept:
        """Where the last id that was asked for stands; NULL: nowhere."""
        return &self.runs[(self.head + self.hint) & (self.capacity - 1)] if (
            self.hint < self.count) else NULL

    cdef u64 id_of(self, i64 offset) noexcept:
        cdef u32 mask = self.capacity - 1
        cdef u32 low = 0, high = self.count, middle
        cdef run_t* run
        while high - low > 1:
            middle = (low + high) >> 1
            if self.runs[(self.head + middle) & mask].first_offset <= offset:
                low = middle
            else:
                high = middle
        run = &self.runs[(self.head + low) & mask]
        return id_at(run.first_id, offset - run.first_offset)


# Ranges ahead of a cursor that it steps over, sorted and apart from each other.
#
# They are added anywhere, mostly at the end, and taken from the front: both cost no more with
# many of them, because delayed messages behind a backlog are a range each.

cdef struct range_t:
    i64 start
    i64 end

cdef enum:
    CAPACITY_MIN = 8
    CAPACITY_KEPT = 1024  # room for this many ranges is not given back


cdef class Skips:
    cdef range_t* ranges
    cdef u32 first, count, capacity  # what lies before `first` is taken
    cdef readonly i64 start  # of the first range, or a number that no offset reaches
    cdef readonly i64 total  # offsets

    def __cinit__(self):
        self.start = NEVER

    def __dealloc__(self):
        free(self.ranges)

    cdef u32 at(self, i64 offset) noexcept:
        """The first range that ends at `offset` or behind it; the end of all if there is none."""
        cdef u32 low = self.first, high = self.first + self.count, middle
        while low < high:
            middle = (low + high) >> 1
            if self.ranges[middle].end < offset:
                low = middle + 1
            else:
                high = middle
        return low

    cdef bint has(self, i64 offset) noexcept:
        cdef u32 at = self.at(offset + 1)
        return at < self.first + self.count and self.ranges[at].start <= offset

    cdef i64 below(self, i64 end) noexcept:
        """How many offsets of them are below `end`."""
        cdef u32 at = self.first + self.count
        cdef i64 total = self.total
        while at > self.first and self.ranges[at - 1].end > end:
            at -= 1
            total -= self.ranges[at].end - max(end, self.ranges[at].start)
        return total

    cdef int add(self, i64 start, i64 end) except -1:
        """One more; what touches it or overlaps becomes one with it."""
        cdef u32 first, last, end_of_all = self.first + self.count
        if end <= start:
            return 0
        first = last = self.at(start)
        while last < end_of_all and self.ranges[last].start <= end:
            start, end = min(start, self.ranges[last].start), max(end, self.ranges[last].end)
            self.total -= self.ranges[last].end - self.ranges[last].start
            last += 1
        if first == last:
            self.insert(first, start, end)
        else:
            self.ranges[first].start, self.ranges[first].end = start, end
            memmove(&self.ranges[first + 1], &self.ranges[last],
                    (end_of_all - last) * sizeof(range_t))
            self.count -= last - first - 1
        self.total += end - start
        self.start = self.ranges[self.first].start
        return 0

    cdef int insert(self, u32 at, i64 start, i64 end) except -1:
        cdef u32 before = self.first
        if self.first + self.count == self.capacity:
            self.make_room()
            at -= before - self.first
        memmove(&self.ranges[at + 1], &self.ranges[at],
                (self.first + self.count - at) * sizeof(range_t))
        self.ranges[at].start, self.ranges[at].end = start, end
        self.count += 1
        return 0

    cdef int make_room(self) except -1:
        if self.first > self.count:
            memmove(self.ranges, &self.ranges[self.first], self.count * sizeof(range_t))
            self.first = 0
        else:
            self.ranges = <range_t*>grown(
                self.ranges, sizeof(range_t), &self.capacity, CAPACITY_MIN, "skipped ranges")
        return 0

    cdef i64 take_first(self) noexcept:
        """Its end; there must be one."""
        cdef range_t taken = self.ranges[self.first]
        self.first += 1
        self.count -= 1
        self.total -= taken.end - taken.start
        if self.count:
            self.start = self.ranges[self.first].start
        else:
            self.clear()
        return taken.end

    cdef void clear(self) noexcept:
        self.first = self.count = 0
        self.start, self.total = NEVER, 0
        if self.capacity > CAPACITY_KEPT:
            free(self.ranges)
            self.ranges, self.capacity = NULL, 0

    cdef int write_all(self, buf_t* out, i64 least) except -1:
        """As finished ranges of the journal, from `least` on."""
        cdef u32 i
        for i in range(self.first, self.first + self.count):
            add_entry(out, ENTRY_FINISHED, 0, 0, max(self.ranges[i].start, least),
                      self.ranges[i].end, 0)
        return 0

    cdef int validate(self) except -1:
        cdef u32 i
        cdef i64 total = 0, before = -1
        for i in range(self.first, self.first + self.count):
            if not before < self.ranges[i].start < self.ranges[i].end:
                raise RuntimeError(f"skip at {self.ranges[i].start} is out of order")
            before = self.ranges[i].end
            total += self.ranges[i].end - self.ranges[i].start
        if total != self.total:
            raise RuntimeError("skipped offsets do not add up")
        if self.start != (self.ranges[self.first].start if self.count else NEVER):
            raise RuntimeError(f"the first skip does not begin at {self.start}")
        return 0


# Delayed messages that are counted and are not among the strays.
#
# A stray costs memory, so a channel has a bounded number of them before its cursor comes by. The
# delayed messages beyond that bound stay in the log. They are found by passes over it, and a pass
# counts those that are due after its own time. So whether one is in the count follows from its
# offset and due time alone, and nothing is kept for it: `met` takes out the one at the cursor, and
# a later pass, which finds some of them due and parks others, leaves the count right at every step.

cdef class Beyond:
    cdef i64 start, end, at  # passes went over [start, end), the last one up to `at`
    cdef i64 count
    cdef i64 pass_ns, before_ns  # the time of the last pass, and of the one before
    cdef i64 due_ns  # when the first one that the last pass counted is due

    def __cinit__(self):
        self.clear(0, 0)

    cdef void clear(self, i64 offset, i64 wall_ns) noexcept:
        """Nothing is counted; the next pass begins at `offset`."""
        self.start = self.end = self.at = offset
        self.count = 0
        self.pass_ns = self.before_ns = wall_ns
        self.due_ns = NEVER

    cdef void begin(self, i64 offset, i64 wall_ns) noexcept:
        """A pass over what is counted; the last one is over."""
        self.at = offset
        self.before_ns, self.pass_ns = self.pass_ns, wall_ns
        self.due_ns = NEVER

    cdef bint counts(self, i64 offset, i64 due_ns) noexcept:
        cdef i64 since_ns = self.pass_ns if offset < self.at else self.before_ns
        return self.start <= offset < self.end and due_ns > since_ns

    cdef void add(self, i64 offset, i64 due_ns) noexcept:
        if not self.count:
            self.start = offset
        self.count += 1
        self.expect(due_ns)

    cdef void expect(self, i64 due_ns) noexcept:
        self.due_ns = min(self.due_ns, due_ns)

    cdef void met(self, i64 offset, i64 due_ns) noexcept:
        """It is counted no more: the cursor passes it, or it is parked, or it is due."""
        if self.count and self.counts(offset, due_ns):
            self.count -= 1

    cdef void passed(self, i64 offset) noexcept:
        """The pass has come up to here."""
        self.at = max(self.at, offset)
        self.end = max(self.end, self.at)

    cdef bint overlaps(self, i64 start, i64 end) noexcept:
        return self.count > 0 and start < self.end and end > self.start

    cdef int validate(self, i64 next) except -1:
        cdef i64 room = self.end - max(self.start, next)
        if not 0 <= self.count <= max(room, <i64>0):
            raise RuntimeError(f"{self.count} delayed messages are counted, of {room} at most")
        return 0
