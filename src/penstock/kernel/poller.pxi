# A timer of the system, as a descriptor that an epoll can watch.

from libc.errno cimport errno

import os

from penstock.kernel._codec cimport i64, u32, u64
from penstock.kernel.window cimport Hub, Window

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


cdef extern from "time.h" nogil:
    int clock_gettime(int clock, timespec* now)

cdef extern from * nogil:
    """
    #include <poll.h>
    #include <time.h>
    static int wait_readable(int fd, long long wait_ns)
    {
        struct pollfd one = {fd, POLLIN, 0};
        struct timespec wait = {0, wait_ns};
        return ppoll(&one, 1, &wait, NULL) > 0;
    }
    """
    int wait_readable(int fd, long long wait_ns)


cdef i64 monotonic_ns() noexcept:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC_ID, &now)
    return <i64>now.tv_sec * 1000000000 + now.tv_nsec


cdef bint wait_for(int fd, i64 wait_ns) noexcept:
    """Until it is readable. False: it was not, for so long (less than a second)."""
    cdef bint readable
    if wait_ns <= 0:
        return False
    with nogil:
        readable = wait_readable(fd, wait_ns)
    return readable


cdef i64 first_deadline(list drains, list holds, list shorts) except -1:
    """When the first of these connections and windows wants to be looked at; 0: none does."""
    cdef i64 earliest = 0
    cdef Conn conn
    cdef Window window
    for conn in drains:
        if earliest == 0 or conn.drain_until_ns < earliest:
            earliest = conn.drain_until_ns
    for conn in holds:
        if earliest == 0 or conn.hold_since_ns + conn.hold_ns < earliest:
            earliest = conn.hold_since_ns + conn.hold_ns
    for window in shorts:
        if window.refill_ns and (earliest == 0 or window.refill_ns < earliest):
            earliest = window.refill_ns
    return earliest


# Which descriptors an engine watches: its sockets, by slot, and its own.
#
# Consumers with a large RDY are watched by a second epoll, `lazy_fd`, which the first one watches
# in turn: so they can be left alone for a moment all together (`Engine.read_consumers`).

cdef extern from "sys/epoll.h" nogil:
    ctypedef union epoll_data_t:
        unsigned long long u64
    struct epoll_event:
        unsigned int events
        epoll_data_t data


cdef extern from "sys/epoll.h" nogil:
    int epoll_ctl(int epfd, int op, int fd, epoll_event* event)
    enum: EPOLLIN
    enum: EPOLLOUT
    enum: EPOLL_CTL_ADD
    enum: EPOLL_CTL_MOD
    enum: EPOLL_CTL_DEL

cdef enum:
    LAZY_RDY_MIN = 64  # below it every FIN matters: waiting would cost rate


cdef class Poller:
    cdef Hub hub
    cdef int epoll_fd, wake_fd, timer_fd
    cdef int lazy_fd  # an epoll of its own for consumers with a large RDY 
    cdef bint lazy_watched
    cdef list slots  # Conn or None, by slot
    cdef list free_slots

    cdef int watch(self, int fd, u64 tag) except -1:
        cdef epoll_event event
        event.events = EPOLLIN
        event.data.u64 = tag
        if epoll_ctl(self.epoll_fd, EPOLL_CTL_ADD, fd, &event):
            raise OSError(errno, "epoll_ctl failed")
        return 0

    def fileno(self):
        return self.epoll_fd

    def wake(self):
        os.eventfd_write(self.wake_fd, 1)

    cdef int release_socket(self, Conn conn) except -1:
        cdef int fd = conn.fd
        if fd < 0:
            return conn.mark_detached()
        self.forget_socket(conn)
        os.close(fd)
        return 0

    cdef int forget_socket(self, Conn conn) except -1:
        if conn.interest:
            conn.interest = 0
            epoll_ctl(self.home_of(conn), EPOLL_CTL_DEL, conn.fd, NULL)
        conn.fd = -1
        self.slots[conn.slot] = None
        self.free_slots.append(conn.slot)
        return 0

    cdef int work_interests(self) except -1:
        cdef list interests = self.hub.interests
        cdef Conn conn
        self.hub.interests = []
        for conn in interests:
            conn.interest_listed = False
            if conn.fd >= 0 and conn.state != STATE_GONE:
                self.set_interest(conn)
            else:
                conn.mark_detached()
        return 0

    cdef int set_interest(self, Conn conn) except -1:
        """Tell epoll what we wait for; nothing at all when that is nothing, as a hung-up peer would
        otherwise be reported for ever."""
        cdef epoll_event event
        cdef int op
        cdef u32 wanted = 0
        cdef bint lazy
        if conn.wants_input() and conn.unsent_c() <= <size_t>self.hub.output_bytes_max:
            wanted |= EPOLLIN
        if conn.want_write:
            wanted |= EPOLLOUT
        lazy = conn.hit is not None and conn.me.rdy >= LAZY_RDY_MIN
        if wanted == conn.interest and lazy == conn.lazy:
            return 0
        if lazy != conn.lazy:
            if conn.interest:
                epoll_ctl(self.home_of(conn), EPOLL_CTL_DEL, conn.fd, NULL)
                conn.interest = 0
            conn.lazy = lazy
        op = EPOLL_CTL_MOD
        if conn.interest == 0:
            op = EPOLL_CTL_ADD
        elif wanted == 0:
            op = EPOLL_CTL_DEL
        event.events = wanted
        event.data.u64 = (<u64>conn.slot << 32) | conn.serial
        if wanted == conn.interest:
            return 0
        if epoll_ctl(self.home_of(conn), op, conn.fd, &event):
            raise OSError(errno, f"epoll_ctl of descriptor {conn.fd} failed")
        conn.interest = wanted
        return 0

    cdef int home_of(self, Conn conn) noexcept:
        return self.lazy_fd if conn.lazy else self.epoll_fd
