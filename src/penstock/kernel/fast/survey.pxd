"""What people and the broker see of a window: numbers, messages, and whether it is whole."""

from penstock.kernel.fast.cursor cimport Cursor
from penstock.kernel.fast.strays cimport stray_t
from penstock.kernel.fast.types cimport i64

cdef class Survey(Cursor):
    cdef i64 deliverable_c(self) noexcept
    cdef i64 ahead_c(self) noexcept
    cdef bint offset_in_ring(self, stray_t* stray) noexcept
