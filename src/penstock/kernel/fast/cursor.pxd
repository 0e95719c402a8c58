"""Where one channel stands in one partition: the moves that keep the state whole.

window.pxd tells what the ring, runs, strays, skips and redo are. Everything here leaves the state
such that `validate` holds and `take_journal` says what changed.
"""

from penstock.kernel.fast.keyorder cimport Ordered
from penstock.kernel.fast.ring cimport consumer_t, place_t
from penstock.kernel.fast.strays cimport stray_t
from penstock.kernel.fast.types cimport i64, u64

cdef class Cursor(Ordered):
    cdef i64 search_start_c(self) noexcept
    cdef int widen_search(self, i64 start, i64 end) except -1
    cdef int searched_to(self, i64 offset) except -1
    cdef int list_search(self) except -1
    cdef int count_anew(self) except -1
    cdef int note_finished(self, i64 start, i64 end) except -1
    cdef int stray_waits(self, stray_t* stray) except -1
    cdef int stray_sleeps(self, stray_t* stray, i64 due_ns) except -1
    cdef int stray_flies(self, stray_t* stray, consumer_t* consumer, i64 mono_ns) except -1
    cdef int remove_stray(self, stray_t* stray) except -1
    cdef stray_t* rename_stray(self, stray_t* stray, u64 id) except NULL
    cdef int jump(self, i64 offset) except -1
    cdef int step_over_skips(self) except -1
    cdef int forget_all(self) except -1
    cdef i64 finish_wall_ns(self) noexcept
    cdef int measure_finished(self) except -1
