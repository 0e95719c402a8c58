"""Delayed messages that are counted and are not among the strays.

A stray costs memory, so a channel has a bounded number of them before its cursor comes by. The
delayed messages beyond that bound stay in the log. They are found by passes over it, and a pass
counts those that are due after its own time. So whether one is in the count follows from its
offset and due time alone, and nothing is kept for it: `met` takes out the one at the cursor, and a
later pass, which finds some of them due and parks others, leaves the count right at every step.
"""

from penstock.kernel.fast.types cimport i64

cdef class Beyond:
    cdef i64 start, end, at  # passes went over [start, end), the last one up to `at`
    cdef i64 count
    cdef i64 pass_ns, before_ns  # the time of the last pass, and of the one before
    cdef i64 due_ns  # when the first one that the last pass counted is due

    cdef void clear(self, i64 offset, i64 wall_ns) noexcept
    cdef void begin(self, i64 offset, i64 wall_ns) noexcept
    cdef bint counts(self, i64 offset, i64 due_ns) noexcept
    cdef void add(self, i64 offset, i64 due_ns) noexcept
    cdef void expect(self, i64 due_ns) noexcept
    cdef void met(self, i64 offset, i64 due_ns) noexcept
    cdef void passed(self, i64 offset) noexcept
    cdef bint overlaps(self, i64 start, i64 end) noexcept
    cdef int validate(self, i64 next) except -1
