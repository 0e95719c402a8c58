"""Which consumers a message is for, where some have a tag (declared in tags.pxd)."""

from libc.stdlib cimport free, qsort, realloc
from libc.string cimport memcmp, memcpy, memset

from penstock.kernel.fast.buffer cimport buf_append, buf_compact, buf_free, buf_take
from penstock.kernel.fast.member cimport find_member, text_is, text_t
from penstock.kernel.fast.sections cimport SECTION_HEADERS
from penstock.kernel.fast.strays cimport Strays, turn_t
from penstock.kernel.fast.trailer cimport Trailer
from penstock.kernel.fast.types cimport u8, u32

cdef enum:
    CLASSES_MIN = 4
    NAME_BYTES = 21

cdef const u8* NAME = b"##client_dispatch_tag"


cdef int by_turn(const void* one, const void* other) noexcept nogil:
    cdef const turn_t* a = <const turn_t*>one
    cdef const turn_t* b = <const turn_t*>other
    return (a.turn > b.turn) - (a.turn < b.turn)


cdef class Tags:
    def __cinit__(self):
        self.add(NULL, 0)

    def __dealloc__(self):
        self.clear()
        free(self.classes)

    cdef int add(self, const u8* tag, u32 size) except -1:
        cdef u32 capacity
        cdef class_t* grown
        cdef class_t* place
        if self.count == self.capacity:
            capacity = self.capacity * 2 if self.capacity else CLASSES_MIN
            grown = <class_t*>realloc(self.classes, capacity * sizeof(class_t))
            if grown == NULL:
                raise MemoryError("no memory for the tags of consumers")
            self.classes, self.capacity = grown, capacity
        place = &self.classes[self.count]
        memset(place, 0, sizeof(class_t))
        if size:
            memcpy(place.tag, tag, size)
        place.tag_bytes = size
        self.count += 1
        return 0

    cdef u32 find(self, const u8* tag, u32 size) noexcept:
        cdef u32 i
        for i in range(1, self.count):
            if (self.classes[i].tag_bytes == size
                    and memcmp(self.classes[i].tag, tag, size) == 0):
                return i
        return NO_TAG

    cdef u32 class_of(self, Trailer trailer, u32 index) noexcept:
        """Of a message."""
        cdef u32 i, size = 0
        cdef const u8* headers
        cdef text_t named
        if trailer is None:
            return NO_TAG
        headers = trailer.bytes_of(SECTION_HEADERS, index, &size)
        if headers == NULL or not find_member(headers, size, NAME, NAME_BYTES, &named):
            return NO_TAG
        for i in range(1, self.count):
            if text_is(&named, self.classes[i].tag, self.classes[i].tag_bytes):
                return i
        return NO_TAG

    # --- consumers come and go ---

    cdef int join(self, Strays strays, const u8* tag, u32 size) except -1:
        cdef u32 place = self.find(tag, size)
        if place == NO_TAG:
            self.gather(strays)
            place = self.count
            self.add(tag, size)
        self.classes[place].consumers += 1
        return 0

    cdef bint leave(self, Strays strays, const u8* tag, u32 size) except -1:
        cdef u32 place = self.find(tag, size)
        self.classes[place].consumers -= 1
        if self.classes[place].consumers == 0:
            self.gather(strays)
            self.count -= 1
            self.classes[place] = self.classes[self.count]  # its queue is empty, too
        return self.count > 1

    # --- queues ---

    cdef int gather(self, Strays strays) except -1:
        cdef u32 i
        cdef size_t size
        cdef class_t* place
        for i in range(self.count):
            place = &self.classes[i]
            size = place.waiting.length - place.waiting.start
            if size:
                buf_append(&strays.waiting, place.waiting.data + place.waiting.start, size)
            buf_free(&place.waiting)
        size = strays.waiting.length - strays.waiting.start
        if size:
            qsort(strays.waiting.data + strays.waiting.start, size // sizeof(turn_t),
                  sizeof(turn_t), by_turn)
        return 0

    cdef int sort_out(self, Strays strays, u32 place) except -1:
        """The first in the queue of all belongs to this class."""
        cdef turn_t moved = (<turn_t*>(strays.waiting.data + strays.waiting.start))[0]
        if self.classes[place].waiting.start > 4096:
            buf_compact(&self.classes[place].waiting)
        buf_append(&self.classes[place].waiting, &moved, sizeof(turn_t))
        buf_take(&strays.waiting, sizeof(turn_t))
        return 0

    cdef void clear(self) noexcept:
        cdef u32 i
        for i in range(self.count):
            buf_free(&self.classes[i].waiting)
