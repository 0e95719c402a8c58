"""Publishes of a connection and their answers (declared, and explained, in owing.pxd)."""

from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from penstock.kernel.fast.buffer cimport buf_reserve
from penstock.kernel.fast.events cimport PUB_FAILED
from penstock.kernel.fast.hub cimport Hub
from penstock.kernel.fast.peer cimport STATE_GONE, Peer
from penstock.kernel.fast.tail cimport Tail
from penstock.kernel.fast.types cimport u8, u32, u64

cdef enum:  # outcomes of an owed entry
    PENDING = 0
    STORED = 1
    FAILED = 2

cdef u8* OK_FRAME = b"\x00\x00\x00\x06\x00\x00\x00\x00OK"


cdef class Owing(Peer):
    def __cinit__(self, Hub hub not None, u32 serial, int fd):
        self.published_counts = {}

    def __dealloc__(self):
        cdef u32 i
        if self.owed != NULL:
            for i in range(self.owed_count):
                Py_DECREF(<object>self.owed_at(i).tail)
            free(self.owed)

    cdef owed_t* owed_at(self, u32 place) noexcept:
        return &self.owed[(self.owed_head + place) & (self.owed_capacity - 1)]

    cdef bint owes_to(self, Tail tail) noexcept:
        """Does an unanswered publish wait for the open batch of this tail?"""
        cdef owed_t* entry
        cdef u32 place = self.owed_count
        while place:
            place -= 1
            entry = self.owed_at(place)
            if entry.tail == <void*>tail and entry.serial == tail.open_serial:
                return True
        return False

    cdef bint may_owe(self, Tail tail, int verb) noexcept:
        """Is there room for one more publish into this tail?"""
        if self.owed_count < OWED_MAX:
            return True
        return self.owed_at(self.owed_count - 1).verb == verb and self.owes_to(tail)

    cdef int owe(self, Tail tail, int verb) except -1:
        """One publish into the open batch of one tail."""
        cdef owed_t* last
        if self.owed_count:
            last = self.owed_at(self.owed_count - 1)
            if last.verb == verb and (
                (last.tail == <void*>tail and last.serial == tail.open_serial)
                or self.owes_to(tail)
            ):
                last.count += 1
                return 0
        return self.push_owed(tail, verb, 1)

    cdef int push_owed(self, Tail tail, int verb, u32 count) except -1:
        cdef owed_t* entry
        if self.owed_count == self.owed_capacity:
            self.grow_owed()
        tail.open_waiters.append(self)
        entry = self.owed_at(self.owed_count)
        Py_INCREF(tail)
        entry.tail, entry.serial, entry.count = <void*>tail, tail.open_serial, count
        entry.verb, entry.outcome = verb, PENDING
        self.owed_count += 1
        return 0

    cdef int grow_owed(self) except -1:
        cdef u32 capacity = 2 * self.owed_capacity if self.owed_capacity else OWED_MAX, i
        cdef owed_t* owed = <owed_t*>calloc(capacity, sizeof(owed_t))
        if owed == NULL:
            raise MemoryError("no memory for unanswered publishes")
        for i in range(self.owed_count):
            owed[i] = self.owed_at(i)[0]
        free(self.owed)
        self.owed, self.owed_head, self.owed_capacity = owed, 0, capacity
        return 0

    def appended(self, Tail tail not None, int verb):
        """Python appended one publish of ours (DPUB). A full FIFO can't happen: DPUB is a LINE,
        and a LINE waits until nothing is owed."""
        self.published_counts[tail.topic] = self.published_counts.get(tail.topic, 0) + 1
        self.owe(tail, verb)

    cdef int settle(self, Tail tail, u64 serial, bint stored) except -1:
        """A batch is through; answer what stands at the head of the FIFO."""
        cdef u32 i
        cdef owed_t* entry
        for i in range(self.owed_count):
            entry = self.owed_at(i)
            if entry.tail == <void*>tail and entry.serial == serial:
                entry.outcome = STORED if stored else FAILED
        return self.answer()

    cdef int answer(self) except -1:
        cdef owed_t* entry
        cdef u32 i
        cdef Tail tail
        while self.owed_count:
            entry = &self.owed[self.owed_head]
            if entry.outcome == PENDING:
                return 0
            tail = <Tail>entry.tail
            self.owed_head = (self.owed_head + 1) & (self.owed_capacity - 1)
            self.owed_count -= 1
            if (entry.outcome == STORED and entry.count and not self.failed
                    and self.state != STATE_GONE):
                buf_reserve(&self.output, 10 * entry.count)
                for i in range(entry.count):
                    memcpy(self.output.data + self.output.length, OK_FRAME, 10)
                    self.output.length += 10
                self.urgent = True
                self.mark_output()
            elif entry.outcome == FAILED and not self.failed and self.state != STATE_GONE:
                self.failed = True
                self.halt((PUB_FAILED, self, entry.verb, tail))
            Py_DECREF(tail)
        if self.held:
            self.held = False
            self.mark_ready()
            self.mark_interest()
        if self.eof:
            self.mark_output()
        return 0

    @property
    def published(self):
        self.count_published()
        return self.published_counts

    @property
    def pending(self):
        cdef u32 i, total = 0
        for i in range(self.owed_count):
            total += self.owed_at(i).count
        return total

    cdef int count_published(self) except -1:
        if self.topic_count:
            before = self.published_counts.get(self.topic, 0)
            self.published_counts[self.topic] = before + self.topic_count
            self.topic_count = 0
        return 0
