"""Which descriptors an engine watches: its sockets, by slot, and its own.

Consumers with a large RDY are watched by a second epoll, `lazy_fd`, which the first one watches in
turn: so they can be left alone for a moment all together (`Engine.read_consumers`)."""

from penstock.kernel.fast.conn cimport Conn
from penstock.kernel.fast.hub cimport Hub
from penstock.kernel.fast.types cimport u64

cdef extern from "sys/epoll.h" nogil:
    ctypedef union epoll_data_t:
        unsigned long long u64
    struct epoll_event:
        unsigned int events
        epoll_data_t data

cdef class Poller:
    cdef Hub hub
    cdef int epoll_fd, wake_fd, timer_fd
    cdef int lazy_fd  # an epoll of its own for consumers with a large RDY 
    cdef bint lazy_watched
    cdef list slots  # Conn or None, by slot
    cdef list free_slots

    cdef int watch(self, int fd, u64 tag) except -1
    cdef int home_of(self, Conn conn) noexcept
    cdef int work_interests(self) except -1
    cdef int release_socket(self, Conn conn) except -1
    cdef int forget_socket(self, Conn conn) except -1
    cdef int set_interest(self, Conn conn) except -1
