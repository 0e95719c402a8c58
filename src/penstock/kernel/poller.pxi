# A timer of the system, as a descriptor that an epoll can watch.

cdef extern from "sys/timerfd.h" nogil:
    int timerfd_create(int clock, int flags)
    int timerfd_settime(int fd, int flags, const itimerspec* new, itimerspec* old)
    enum: TFD_NONBLOCK
    enum: TFD_CLOEXEC


cdef int timer_open() noexcept:
    """A descriptor, or -1."""
    return timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)


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
    clock_gettime(CLOCK_MONOTONIC, &now)
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
# in turn: so they can be left alone for a moment all together (`read_consumers`).

cdef extern from "sys/socket.h" nogil:
    ssize_t c_recv "recv"(int fd, void* data, size_t size, int flags)

cdef extern from "sys/epoll.h" nogil:
    ctypedef union epoll_data_t:
        unsigned long long u64
    struct epoll_event:
        unsigned int events
        epoll_data_t data
    int epoll_create1(int flags)
    int epoll_ctl(int epfd, int op, int fd, epoll_event* event)
    int epoll_wait(int epfd, epoll_event* events, int count, int timeout)
    enum: EPOLL_CLOEXEC
    enum: EPOLLIN
    enum: EPOLLOUT
    enum: EPOLLERR
    enum: EPOLLHUP
    enum: EPOLL_CTL_ADD
    enum: EPOLL_CTL_MOD
    enum: EPOLL_CTL_DEL

cdef enum:
    LAZY_RDY_MIN = 64  # below it every FIN matters: waiting would cost rate
    EVENTS_MAX = 256  # sockets looked at in one turn; the rest come in the next
    LAZY_READ_BYTES = 2048  # reads below it are not worth a wake-up of their own
    LAZY_NS_PER_MESSAGE = 600  # a consumer with this much in flight cannot run dry meanwhile
    LAZY_NS_MAX = 1500000
    LAZY_NS_MIN = 200000  # measured: 200 us takes FIN-per-packet from 2.4 to 0.5 us a message
    RECV_BYTES = 256 << 10  # measured: 64 KiB costs MPUB 30 %, 1 MiB gains nothing
    READS_MAX = 4  # of one socket in a turn: what lies there goes out with one write and one sync
    FRONT_BYTES_MAX = 256 << 10  # a remainder up to here is copied in front of the next recv

# Tags of descriptors that are not connections; serial 0 is never one.
cdef u64 WAKE_TAG = 0
cdef u64 LAZY_TAG = (<u64>1) << 32
cdef u64 TIMER_TAG = (<u64>2) << 32


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
        lazy = conn.hit is not None and conn.rdy_count >= LAZY_RDY_MIN
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

    # --- reading ---

    cdef bint read_ready(self, bint sockets_only=False) except -1:
        """All that epoll names. False: nothing was read, as none of them is ready, or others than
        sockets where those alone are asked for."""
        cdef epoll_event events[EVENTS_MAX]
        cdef int count, i
        cdef u64 tag
        cdef bint consumers = False
        count = epoll_wait(self.epoll_fd, events, EVENTS_MAX, 0)
        if sockets_only:
            for i in range(count):
                if not events[i].data.u64 & 0xFFFFFFFF:
                    return False
        for i in range(count):
            tag = events[i].data.u64
            if tag & 0xFFFFFFFF:
                self.read_event(tag, events[i].events)
            elif tag == WAKE_TAG:
                try:
                    os.eventfd_read(self.wake_fd)
                except BlockingIOError:
                    continue  # another reader was first: nothing is lost, we are awake
            else:
                consumers = True
        if consumers:
            self.read_consumers()
        return count > 0

    cdef Py_ssize_t read_event(self, u64 tag, u32 ready) except -2:
        """One socket that epoll named; returns the bytes read from it."""
        cdef Conn conn = <Conn>self.slots[tag >> 32]
        cdef Py_ssize_t size, total = 0
        cdef int rounds
        if conn is None or conn.serial != <u32>(tag & 0xFFFFFFFF):
            return 0
        if ready & EPOLLOUT:
            conn.mark_output()
        if not ready & (EPOLLIN | EPOLLERR | EPOLLHUP):
            return 0
        for rounds in range(READS_MAX):
            if not conn.wants_input():  # of a flood of commands for Python one is taken in a turn
                break
            size = self.read_socket(conn)
            total += size
            if size < RECV_BYTES:
                break
        return total

    cdef int read_consumers(self) except -1:
        """Consumers with a large RDY. Many clients write each FIN by itself, and nobody waits for
        its answer: while all who spoke said little and have plenty in flight, they are not watched
        but looked at every 200 us, or less often when the one with the least in flight has much,
        so that one read takes many FINs."""
        cdef epoll_event events[EVENTS_MAX]
        cdef int count, i
        cdef Py_ssize_t size
        cdef bint eager = False
        cdef i64 wait_ns = LAZY_NS_MAX
        cdef Conn conn
        cdef u64 tag
        count = epoll_wait(self.lazy_fd, events, EVENTS_MAX, 0)
        for i in range(count):
            tag = events[i].data.u64
            conn = <Conn>self.slots[tag >> 32]
            size = self.read_event(tag, events[i].events)
            if conn is not None and (size >= LAZY_READ_BYTES or conn.halted
                                     or 2 * conn.in_flight <= conn.rdy_count):
                eager = True
            elif conn is not None:
                wait_ns = min(wait_ns, LAZY_NS_PER_MESSAGE * conn.in_flight)
        if count and not eager:
            if self.lazy_watched:
                self.lazy_watched = False
                epoll_ctl(self.epoll_fd, EPOLL_CTL_DEL, self.lazy_fd, NULL)
            timer_arm(self.timer_fd, max(wait_ns, <i64>LAZY_NS_MIN))
        elif not self.lazy_watched:
            self.lazy_watched = True
            self.watch(self.lazy_fd, LAZY_TAG)
            timer_disarm(self.timer_fd)
        return 0

    cdef Py_ssize_t read_socket(self, Conn conn) except -2:
        """One recv. A short remainder goes in front of it in the shared buffer; into a long one the
        bytes are received straight."""
        cdef Hub hub = self.hub
        cdef size_t kept = conn.input.length - conn.input.start
        cdef ssize_t n
        if conn.state == STATE_GONE:
            return 0
        if kept <= FRONT_BYTES_MAX:
            n = c_recv(conn.fd, hub.receive.data + kept, RECV_BYTES, MSG_DONTWAIT)
            if n > 0:
                if kept:
                    memcpy(hub.receive.data, conn.input.data + conn.input.start, kept)
                    conn.input.start = conn.input.length = 0
                conn.receive(hub.receive.data, kept + n)
                conn.note_input()
                return n
        else:
            buf_reserve(&conn.input, RECV_BYTES)
            n = c_recv(conn.fd, conn.input.data + conn.input.length, RECV_BYTES, MSG_DONTWAIT)
            if n > 0:
                conn.input.length += n
                conn.reparse()
                conn.note_input()
                return n
        if n == 0:
            if conn.state == STATE_DRAINING:
                conn.gone("closed")
            else:
                conn.note_eof()
        elif errno != EAGAIN and errno != EINTR:
            conn.gone("connection lost")
        return 0
