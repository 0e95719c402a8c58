# Bulk data for readers of the log, moved in a thread that never takes Python's lock.
#
# `bulk.pyi` says what it promises. Jobs go to the thread and come
# back as pointers through two pipes, so that there is no lock that a thread of low priority could
# hold while the loop waits for it: a low priority (`nice`) is what makes readers stand back where
# they and publishers want the same core.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport EAGAIN, EINTR, EIO, ENOMEM, ETIMEDOUT, errno
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memmove
from posix.resource cimport PRIO_PROCESS, setpriority
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec
from posix.types cimport off_t
from posix.unistd cimport pread, read as c_read, write as c_write

import os

from penstock.kernel._codec cimport (
    CHECK_INTACT, CHECK_SHORT, SHORT_HEADER_BYTES, batch_header_t, batch_parts_c, check_batch_c,
    i64, parts_t, u64,
)

from penstock.kernel.types import BulkResult, BulkStatus


cdef extern from "unistd.h" nogil:
    long syscall(long number, ...)

cdef extern from "sys/syscall.h" nogil:
    long SYS_gettid

cdef extern from "sys/socket.h" nogil:
    int MSG_NOSIGNAL, MSG_DONTWAIT, MSG_MORE
    ssize_t c_send "send" (int fd, const void* data, size_t length, int flags)

cdef extern from "sys/sendfile.h" nogil:
    ssize_t sendfile(int out_fd, int in_fd, off_t* position, size_t count)

cdef extern from "sys/epoll.h" nogil:
    int EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL
    unsigned int EPOLLIN, EPOLLOUT, EPOLLONESHOT
    ctypedef union epoll_data_t:
        void* ptr
    struct epoll_event:
        unsigned int events
        epoll_data_t data
    int epoll_create1(int flags)
    int epoll_ctl(int epfd, int operation, int fd, epoll_event* event)
    int epoll_wait(int epfd, epoll_event* events, int events_max, int timeout_ms)

cdef enum:
    CHECK, SEND, READ

cdef enum:
    DONE = 0
    CORRUPT = 1
    FAILED = 2

cdef enum:
    WINDOW_BYTES = 256 << 10  # of a file at a time: it stays in the processor's cache
    SLICE_BYTES = 256 << 10  # sent to one socket before the next has its turn
    EVENTS_MAX = 16
    STALL_LOOK_MS = 1000

cdef struct job_t:
    u64 token
    int kind
    int status
    int error
    int file_fd
    int socket_fd
    bint waits  # for its socket
    bint registered
    i64 position
    i64 end
    i64 expected  # check: the offset of the batch at `position`
    i64 limit
    i64 from_offset
    i64 to_offset
    i64 bytes_max
    i64 start  # found by check: where the range begins, and its first offset
    i64 base_offset
    i64 moved_ns
    size_t head_bytes
    size_t head_sent
    char* data  # send: the head; read: where the bytes go


cdef i64 now_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <i64>now.tv_sec * 1000000000 + now.tv_nsec


cdef class Bulk:
    cdef int _epoll, _nice
    cdef i64 _stall_ns
    cdef int _jobs_in, _jobs_out, _done_in, _done_out
    cdef job_t** _sends  # those under way
    cdef int _send_count, _sends_max
    cdef unsigned char* _window
    cdef size_t _window_bytes
    cdef dict _buffers  # of reads, by token
    cdef int _out  # jobs given and not yet taken back
    cdef bint _ended

    def __cinit__(self, int sends_max, i64 stall_ns, int nice):
        self._epoll = self._jobs_in = self._jobs_out = self._done_in = self._done_out = -1
        self._sends_max, self._stall_ns, self._nice = sends_max, stall_ns, nice
        self._buffers = {}
        self._sends = <job_t**>calloc(sends_max, sizeof(job_t*))
        self._window = <unsigned char*>malloc(WINDOW_BYTES)
        self._window_bytes = WINDOW_BYTES
        if self._sends == NULL or self._window == NULL:
            raise MemoryError("no memory for sending in bulk")
        self._jobs_out, self._jobs_in = os.pipe2(os.O_CLOEXEC)
        self._done_out, self._done_in = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._jobs_out, False)
        os.set_blocking(self._done_out, False)
        self._epoll = epoll_create1(EPOLL_CLOEXEC)
        if self._epoll < 0:
            raise OSError(errno, os.strerror(errno))
        cdef epoll_event event
        event.events = EPOLLIN
        event.data.ptr = NULL
        if epoll_ctl(self._epoll, EPOLL_CTL_ADD, self._jobs_out, &event) != 0:
            raise OSError(errno, os.strerror(errno))

    def __dealloc__(self):
        cdef int index
        if self._sends != NULL:
            for index in range(self._send_count):
                free(self._sends[index].data)
                free(self._sends[index])
            free(self._sends)
        free(self._window)
        for fd in (self._epoll, self._jobs_in, self._jobs_out, self._done_in, self._done_out):
            if fd >= 0:
                os.close(fd)

    # --- the loop's side ---

    def fileno(self):
        return self._done_out

    def check(
        self,
        u64 token,
        int file_fd,
        i64 position,
        i64 expected,
        i64 end,
        i64 limit,
        i64 from_offset,
        i64 to_offset,
        i64 bytes_max,
    ):
        cdef job_t* job = self._new(token, CHECK, file_fd, position, end)
        job.expected, job.limit = expected, limit
        job.from_offset, job.to_offset, job.bytes_max = from_offset, to_offset, bytes_max
        self._give(job)

    def send(
        self, u64 token, int socket_fd, bytes head, int file_fd, i64 position, i64 length
    ):
        cdef job_t* job = self._new(token, SEND, file_fd, position, position + length)
        job.socket_fd = socket_fd
        job.head_bytes = len(head)
        job.data = <char*>malloc(job.head_bytes + 1)
        if job.data == NULL:
            free(job)
            raise MemoryError("no memory for a head")
        memcpy(job.data, PyBytes_AS_STRING(head), job.head_bytes)
        self._give(job)

    def read(self, u64 token, int file_fd, i64 position, i64 length):
        buffer = PyBytes_FromStringAndSize(NULL, length)
        cdef job_t* job = self._new(token, READ, file_fd, position, position + length)
        job.data = PyBytes_AS_STRING(buffer)
        self._buffers[token] = buffer
        self._give(job)

    cdef job_t* _new(self, u64 token, int kind, int file_fd, i64 position, i64 end) except NULL:
        cdef job_t* job = <job_t*>calloc(1, sizeof(job_t))
        if job == NULL:
            raise MemoryError("no memory for a job")
        job.token, job.kind, job.file_fd = token, kind, file_fd
        job.position, job.end = position, end
        job.socket_fd = -1
        job.start = position
        return job

    cdef int _give(self, job_t* job) except -1:
        if c_write(self._jobs_in, &job, sizeof(job)) != sizeof(job):
            raise OSError(errno, os.strerror(errno))
        self._out += 1
        return 0

    def finished(self):
        cdef job_t* job
        cdef list found = []
        while c_read(self._done_out, &job, sizeof(job)) == sizeof(job):
            self._out -= 1
            found.append(
                BulkResult(
                    job.token,
                    BulkStatus(job.status),
                    job.error,
                    job.start,
                    job.position,
                    job.base_offset,
                    job.expected,
                    self._buffers.pop(job.token, b""),
                )
            )
            if job.kind == SEND:
                free(job.data)
            free(job)
        return found

    def end(self):
        cdef job_t* none = NULL
        if c_write(self._jobs_in, &none, sizeof(none)) != sizeof(none):
            raise OSError(errno, os.strerror(errno))

    # --- the thread's side ---

    def run(self):
        with nogil:
            setpriority(PRIO_PROCESS, <int>syscall(SYS_gettid), self._nice)
            self._serve()

    cdef void _serve(self) noexcept nogil:
        cdef epoll_event events[EVENTS_MAX]
        cdef job_t* job
        cdef i64 looked_ns = now_ns()
        cdef int count, index, timeout_ms
        cdef bint moving
        while not self._ended:
            moving = False
            for index in range(self._send_count):
                moving = moving or not self._sends[index].waits
            timeout_ms = 0 if moving else (STALL_LOOK_MS if self._send_count else -1)
            count = epoll_wait(self._epoll, events, EVENTS_MAX, timeout_ms)
            for index in range(count):
                job = <job_t*>events[index].data.ptr
                if job == NULL:
                    self._take()
                else:
                    job.waits = False
            index = 0
            while index < self._send_count:
                job = self._sends[index]
                if not job.waits and self._send_step(job):
                    self._send_count -= 1
                    self._sends[index] = self._sends[self._send_count]
                    self._finish(job)
                else:
                    index += 1
            if self._send_count and now_ns() - looked_ns > <i64>STALL_LOOK_MS * 1000000:
                looked_ns = now_ns()
                self._end_stalled(looked_ns)

    cdef void _take(self) noexcept nogil:
        """Jobs that are quick are done here; sends are taken up as far as there is room."""
        cdef job_t* job
        while c_read(self._jobs_out, &job, sizeof(job)) == sizeof(job):
            if job == NULL:
                self._ended = True
                return
            if job.kind == CHECK:
                self._check(job)
            elif job.kind == READ:
                self._read(job)
            elif self._send_count == self._sends_max:
                job.status, job.error = FAILED, ENOMEM
            else:
                job.moved_ns = now_ns()
                self._sends[self._send_count] = job
                self._send_count += 1
                continue
            self._finish(job)

    cdef void _finish(self, job_t* job) noexcept nogil:
        if job.registered:
            epoll_ctl(self._epoll, EPOLL_CTL_DEL, job.socket_fd, NULL)
        while c_write(self._done_in, &job, sizeof(job)) < 0 and errno == EINTR:
            pass

    cdef void _end_stalled(self, i64 at_ns) noexcept nogil:
        cdef int index = 0
        cdef job_t* job
        while index < self._send_count:
            job = self._sends[index]
            if job.waits and at_ns - job.moved_ns > self._stall_ns:
                job.status, job.error = FAILED, ETIMEDOUT
                self._send_count -= 1
                self._sends[index] = self._sends[self._send_count]
                self._finish(job)
            else:
                index += 1

    # --- sending ---

    cdef bint _send_step(self, job_t* job) noexcept nogil:
        """One slice. True when the job is at its end, for better or worse."""
        cdef ssize_t moved
        cdef off_t position = job.position
        cdef i64 left = job.end - job.position
        cdef int flags = MSG_NOSIGNAL | MSG_DONTWAIT
        if job.head_sent < job.head_bytes:
            moved = c_send(
                job.socket_fd,
                job.data + job.head_sent,
                job.head_bytes - job.head_sent,
                flags | MSG_MORE if left else flags,
            )
            if moved < 0:
                return self._send_stopped(job)
            job.head_sent += moved
            job.moved_ns = now_ns()
            if job.head_sent < job.head_bytes:
                return False
        if left:
            moved = sendfile(
                job.socket_fd, job.file_fd, &position, left if left < SLICE_BYTES else SLICE_BYTES
            )
            if moved < 0:
                return self._send_stopped(job)
            if moved == 0:  # the file is shorter than it was
                job.status, job.error = FAILED, EIO
                return True
            job.position += moved
            job.moved_ns = now_ns()
        return job.position == job.end

    cdef bint _send_stopped(self, job_t* job) noexcept nogil:
        cdef epoll_event event
        cdef int operation = EPOLL_CTL_MOD if job.registered else EPOLL_CTL_ADD
        if errno == EINTR:
            return False
        if errno == EAGAIN:
            event.events = EPOLLOUT | EPOLLONESHOT
            event.data.ptr = job
            if epoll_ctl(self._epoll, operation, job.socket_fd, &event) == 0:
                job.registered = job.waits = True
                return False
        job.status, job.error = FAILED, errno
        return True

    # --- reading and checking ---

    cdef void _read(self, job_t* job) noexcept nogil:
        cdef ssize_t got
        while job.position < job.end:
            got = pread(
                job.file_fd,
                job.data + (job.position - job.start),
                job.end - job.position,
                job.position,
            )
            if got < 0 and errno == EINTR:
                continue
            if got <= 0:
                job.status, job.error = FAILED, errno if got < 0 else EIO
                return
            job.position += got

    cdef void _check(self, job_t* job) noexcept nogil:
        """Walk from batch to batch. On return [start, position) are the intact batches that were
        asked for, and `expected` is the offset after them; or what corrupt stands at `position`."""
        cdef parts_t parts
        cdef const batch_header_t* header = &parts.header
        cdef size_t at = 0, filled = 0
        cdef unsigned int length
        cdef int found
        cdef i64 total = 0
        job.start = job.base_offset = -1
        self._shrink()
        while job.position < job.end and job.expected != job.limit:
            length = 0
            found = CHECK_SHORT
            if filled - at >= SHORT_HEADER_BYTES:
                found = check_batch_c(self._window + at, filled - at, &length)
            if found == CHECK_SHORT:
                if not self._fill(job, &at, &filled, length):
                    return
                continue
            if found == CHECK_INTACT:
                batch_parts_c(self._window + at, &parts)
            if found != CHECK_INTACT or <i64>header.base_offset != job.expected:
                self._corrupt(job)
                return
            if job.start >= 0 and (
                <i64>header.base_offset >= job.to_offset or total + length > job.bytes_max
            ):
                return
            if job.start < 0 and <i64>header.base_offset + header.count > job.from_offset:
                job.start, job.base_offset = job.position, header.base_offset
            if job.start >= 0:
                total += length
            job.expected += header.count
            job.position += length
            at += length
        if job.start < 0:
            job.start = job.position

    cdef void _shrink(self) noexcept nogil:
        """What one huge batch needed is not kept."""
        cdef unsigned char* smaller
        if self._window_bytes > WINDOW_BYTES:
            smaller = <unsigned char*>realloc(self._window, WINDOW_BYTES)
            if smaller != NULL:
                self._window, self._window_bytes = smaller, WINDOW_BYTES

    cdef bint _fill(self, job_t* job, size_t* at, size_t* filled, size_t needed) noexcept nogil:
        """More of the file behind what is left in the window: a whole batch, if one is begun."""
        cdef size_t kept = filled[0] - at[0]
        cdef size_t room = needed if needed > WINDOW_BYTES else WINDOW_BYTES
        cdef unsigned char* larger
        cdef ssize_t got
        if job.position + <i64>needed > job.end or <i64>kept >= job.end - job.position:
            self._corrupt(job)  # it would end behind the end of what was written
            return False
        if room > self._window_bytes:
            larger = <unsigned char*>realloc(self._window, room)
            if larger == NULL:
                job.status, job.error = FAILED, ENOMEM
                return False
            self._window, self._window_bytes = larger, room
        memmove(self._window, self._window + at[0], kept)
        at[0], filled[0] = 0, kept
        if <i64>room > job.end - job.position:
            room = job.end - job.position
        got = pread(job.file_fd, self._window + kept, room - kept, job.position + <i64>kept)
        if got < 0 and errno != EINTR:
            job.status, job.error = FAILED, errno
            return False
        if got == 0:
            self._corrupt(job)
            return False
        if got > 0:
            filled[0] += got
        return True

    cdef void _corrupt(self, job_t* job) noexcept nogil:
        """Sound batches before it are an answer of their own."""
        if job.start < 0:
            job.status = CORRUPT
            job.start = job.position
