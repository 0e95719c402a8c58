"""The descriptors of an engine, and what epoll is told of them (declared in poller.pxd)."""

from libc.errno cimport errno

import os

from penstock.kernel.fast.conn cimport Conn
from penstock.kernel.fast.peer cimport STATE_GONE
from penstock.kernel.fast.types cimport u32, u64

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
