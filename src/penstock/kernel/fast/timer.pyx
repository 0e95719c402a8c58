"""A timer of the system (declared in timer.pxd)."""

from libc.errno cimport errno

from penstock.kernel.fast.types cimport i64

cdef extern from "sys/timerfd.h" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    struct itimerspec:
        timespec it_interval
        timespec it_value
    int timerfd_create(int clock, int flags)
    int timerfd_settime(int fd, int flags, const itimerspec* new, itimerspec* old)
    enum: TFD_NONBLOCK
    enum: TFD_CLOEXEC

cdef enum:
    CLOCK_MONOTONIC_ID = 1


cdef int timer_open() noexcept:
    """A descriptor, or -1."""
    return timerfd_create(CLOCK_MONOTONIC_ID, TFD_NONBLOCK | TFD_CLOEXEC)


cdef int timer_arm(int fd, i64 wait_ns) except -1:
    cdef itimerspec when
    when.it_interval.tv_sec = when.it_interval.tv_nsec = when.it_value.tv_sec = 0
    when.it_value.tv_nsec = wait_ns
    if timerfd_settime(fd, 0, &when, NULL):
        raise OSError(errno, "timerfd_settime failed")
    return 0


cdef int timer_disarm(int fd) except -1:
    """Setting a timer also takes back an expiry that was not read."""
    return timer_arm(fd, 0)
