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
                Py_DECREF(<object>self.owed[(self.owed_head + i) & (OWED_MAX - 1)].tail)
            free(self.owed)

    cdef bint owes_here(self, Tail tail, int verb) noexcept:
        cdef owed_t* last = &self.owed[(self.owed_head + self.owed_count - 1) & (OWED_MAX - 1)]
        return last.tail == <void*>tail and last.serial == tail.open_serial and last.verb == verb

    cdef int owe(self, Tail tail, int verb, u32 count) except -1:
        cdef owed_t* last
        if self.owed == NULL:
            self.owed = <owed_t*>calloc(OWED_MAX, sizeof(owed_t))
            if self.owed == NULL:
                raise MemoryError("no memory for unanswered publishes")
        if self.owed_count:
            last = &self.owed[(self.owed_head + self.owed_count - 1) & (OWED_MAX - 1)]
            if last.tail == <void*>tail and last.serial == tail.open_serial and last.verb == verb:
                last.count += count
                return 0
        if self.owed_count == OWED_MAX:
            raise RuntimeError("too many unanswered publishes on one connection")
        last = &self.owed[(self.owed_head + self.owed_count) & (OWED_MAX - 1)]
        Py_INCREF(tail)
        last.tail, last.serial, last.count, last.verb = <void*>tail, tail.open_serial, count, verb
        last.outcome = PENDING
        self.owed_count += 1
        tail.open_waiters.append(self)
        return 0

    def appended(self, Tail tail not None, int verb):
        """Python appended one publish of ours (DPUB). A full FIFO can't happen: DPUB is a LINE,
        and a LINE waits until nothing is owed."""
        self.published_counts[tail.topic] = self.published_counts.get(tail.topic, 0) + 1
        self.owe(tail, verb, 1)

    cdef int settle(self, Tail tail, u64 serial, bint stored) except -1:
        """A batch is through; answer what stands at the head of the FIFO."""
        cdef u32 i
        cdef owed_t* entry
        for i in range(self.owed_count):
            entry = &self.owed[(self.owed_head + i) & (OWED_MAX - 1)]
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
            self.owed_head = (self.owed_head + 1) & (OWED_MAX - 1)
            self.owed_count -= 1
            if entry.outcome == STORED and not self.failed and self.state != STATE_GONE:
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
            total += self.owed[(self.owed_head + i) & (OWED_MAX - 1)].count
        return total

    cdef int count_published(self) except -1:
        if self.topic_count:
            before = self.published_counts.get(self.topic, 0)
            self.published_counts[self.topic] = before + self.topic_count
            self.topic_count = 0
        return 0
