"""A timer of the system, as a descriptor that an epoll can watch."""

from penstock.kernel.fast.types cimport i64

cdef int timer_open() noexcept
cdef int timer_arm(int fd, i64 wait_ns) except -1
cdef int timer_disarm(int fd) except -1
