"""All connections of one daemon on an epoll of its own (interface.py tells of the turn)."""

from penstock.kernel.fast.conn cimport Conn
from penstock.kernel.fast.routes cimport Routes
from penstock.kernel.fast.tail cimport Tail
from penstock.kernel.fast.window cimport Window
from penstock.kernel.fast.types cimport i64, u32, u64

cdef class Engine(Routes):
    cdef u32 last_serial
    cdef list holds  # connections whose output is held back
    cdef list drains  # connections whose last bytes are read and dropped
    cdef readonly i64 deadline_ns

    cdef Py_ssize_t read_event(self, u64 tag, u32 ready) except -2
    cdef Py_ssize_t read_socket(self, Conn conn) except -2
    cdef int read_consumers(self) except -1
    cdef int work_ready(self) except -1
    cdef int work_settled(self) except -1
    cdef int work_pumps(self) except -1
    cdef int trim(self, Tail tail) except -1
    cdef int work_outputs(self) except -1
    cdef int work_output(self, Conn conn) except -1
    cdef int check_deadlines(self) except -1
    cdef int refill(self) except -1
    cdef int find_deadline(self) except -1
    cdef int finish_closing(self, Conn conn) except -1
    cdef list take_events(self)
    cdef Conn new_conn(self, int fd)
