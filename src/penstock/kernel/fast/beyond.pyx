"""Delayed messages that are only counted (declared, and explained, in beyond.pxd)."""

from penstock.kernel.fast.types cimport i64

cdef i64 NEVER = <i64>0x7FFFFFFFFFFFFFFF


cdef class Beyond:
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
