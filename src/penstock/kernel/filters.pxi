# One member of a message's headers, which are a JSON object.
#
# Headers are looked at, not checked: what publishes let in is checked by then, and dead letters and
# other writers may have members that are no strings. Such a one has no value here. When a name
# comes twice the last one counts. Where the text is no JSON object, as far as it has to be read to
# say so, there are no members.
#
# Nothing is copied: a text is what stands between its quotes, and its escapes are resolved while it
# is compared.

cdef enum:
    NOWHERE = -1


cdef inline bint is_blank(u8 c) noexcept nogil:
    return c == 32 or c == 9 or c == 10 or c == 13


cdef inline size_t after_blanks(const u8* p, size_t size, size_t at) noexcept nogil:
    while at < size and is_blank(p[at]):
        at += 1
    return at


cdef i64 expect(const u8* p, size_t size, size_t at, u8 wanted) noexcept nogil:
    """Behind `wanted`, which has to stand there."""
    at = after_blanks(p, size, at)
    return <i64>at + 1 if at < size and p[at] == wanted else NOWHERE


cdef i64 string_end(const u8* p, size_t size, size_t at) noexcept nogil:
    """Behind the closing quote of the string at `at`."""
    if at >= size or p[at] != QUOTE:
        return NOWHERE
    at += 1
    while at < size:
        if p[at] == QUOTE:
            return at + 1
        at += 2 if p[at] == BACKSLASH else 1
    return NOWHERE


cdef text_t text_between(const u8* p, size_t at, size_t end) noexcept nogil:
    """The string that begins at `at` and ends before `end`."""
    cdef text_t text
    text.data, text.size = p + at + 1, end - at - 2
    text.escaped = memchr(text.data, BACKSLASH, text.size) != NULL
    return text


cdef inline bint is_bracket(u8 c) noexcept nogil:
    return c == c'{' or c == c'}' or c == c'[' or c == c']'


cdef inline bint ends_scalar(u8 c) noexcept nogil:
    return is_blank(c) or is_bracket(c) or c == c',' or c == c':' or c == QUOTE


cdef i64 value_end(const u8* p, size_t size, i64 start) noexcept nogil:
    """Behind a value that is no string."""
    cdef size_t depth = 0
    cdef i64 at = start
    while at >= 0 and <size_t>at < size:
        if p[at] == c'{' or p[at] == c'[':
            depth += 1
            at += 1
        elif depth and (p[at] == c'}' or p[at] == c']'):
            depth -= 1
            at += 1
        elif p[at] == QUOTE:
            at = string_end(p, size, at)
        elif depth:
            at += 1
        else:
            while <size_t>at < size and not ends_scalar(p[at]):
                at += 1
            return at if at > start else NOWHERE
        if depth == 0:
            return at
    return NOWHERE


cdef bint find_member(const u8* headers, size_t size, const u8* name, size_t name_bytes,
                      text_t* out) noexcept nogil:
    """The last member of that name, if it is a string."""
    cdef bint is_string
    return find_last(headers, size, name, name_bytes, out, &is_string) and is_string


cdef bint is_true(const u8* headers, size_t size, const u8* name, size_t name_bytes) noexcept nogil:
    """Is this member the boolean `true`, or the text "true"?"""
    cdef text_t found
    cdef bint is_string
    if not find_last(headers, size, name, name_bytes, &found, &is_string):
        return False
    if is_string:
        return text_is(&found, b"true", 4)
    return found.size == 4 and memcmp(found.data, b"true", 4) == 0


cdef bint find_last(const u8* headers, size_t size, const u8* name, size_t name_bytes, text_t* out,
                    bint* is_string) noexcept nogil:
    """The last member of that name: what its value says, and whether that is a string."""
    cdef i64 at = expect(headers, size, 0, c'{'), end
    cdef text_t found
    cdef bint is_it, has_it = False
    if at < 0:
        return False
    if expect(headers, size, at, c'}') >= 0:
        return False
    while True:
        at = after_blanks(headers, size, at)
        end = string_end(headers, size, at)
        if end < 0:
            return False
        found = text_between(headers, at, end)
        is_it = text_is(&found, name, name_bytes)
        at = expect(headers, size, end, c':')
        if at < 0:
            return False
        at = after_blanks(headers, size, at)
        if <size_t>at < size and headers[at] == QUOTE:
            end = string_end(headers, size, at)
            if is_it and end >= 0:
                has_it, is_string[0] = True, True
                out[0] = text_between(headers, at, end)
        else:
            end = value_end(headers, size, at)
            if is_it and end >= 0:
                has_it, is_string[0] = True, False
                out.data, out.size = headers + at, end - at
        if end < 0:
            return False
        if expect(headers, size, end, c'}') >= 0:
            return has_it
        at = expect(headers, size, end, c',')
        if at < 0:
            return False


def member_of(bytes headers not None, bytes name not None):
    """The value as it stands between its quotes; None: there is none."""
    cdef text_t found
    cdef const u8* data = <const u8*>headers
    cdef const u8* wanted = <const u8*>name
    if find_member(data, len(headers), wanted, len(name), &found):
        return found.data[:found.size]
    return None


def is_true_in(bytes headers not None, bytes name not None):
    return is_true(<const u8*>headers, len(headers), <const u8*>name, len(name))


# Which consumers a message is for, where some have a tag.
#
# A message names its tag in the header `##client_dispatch_tag`. While a consumer of the channel has
# that tag, only such consumers get the message; else it is for those without a tag, as are messages
# that name none. So the consumers fall into *classes*, one for each tag and the first for those
# without, and a message belongs to one of them.
#
# What a consumer's turn comes upon and belongs to another class is put aside: it is a waiting stray
# (not finished: it counts, it is journalled, retention keeps it) in the queue of its class. What is
# in the queue of all (`Strays.waiting`) has not been looked at; the first consumer that comes upon
# one of those moves it to its class, unless it is its own. When a class comes or goes, a message
# may belong to another: then all queues are one again, in the order in which they began to wait.

cdef enum:
    NO_TAG = 0  # the first class
    TAG_BYTES_MAX = 100

cdef struct class_t:
    u8 tag[TAG_BYTES_MAX]
    u32 tag_bytes
    u32 consumers  # of one with a tag
    buf_t waiting  # turn_t

cdef enum:
    CLASSES_MIN = 4
    NAME_BYTES = 21

cdef const u8* NAME = b"##client_dispatch_tag"


cdef int by_turn(const void* one, const void* other) noexcept nogil:
    cdef const turn_t* a = <const turn_t*>one
    cdef const turn_t* b = <const turn_t*>other
    return (a.turn > b.turn) - (a.turn < b.turn)


cdef class Tags:
    cdef class_t* classes
    cdef u32 count, capacity


    def __cinit__(self):
        self.add(NULL, 0)

    def __dealloc__(self):
        self.clear()
        free(self.classes)

    cdef int add(self, const u8* tag, u32 size) except -1:
        cdef class_t* entry
        if self.count == self.capacity:
            self.classes = <class_t*>grown(
                self.classes, sizeof(class_t), &self.capacity, CLASSES_MIN,
                "the tags of consumers")
        entry = &self.classes[self.count]
        memset(entry, 0, sizeof(class_t))
        if size:
            memcpy(entry.tag, tag, size)
        entry.tag_bytes = size
        self.count += 1
        return 0

    cdef u32 find(self, const u8* tag, u32 size) noexcept:
        """NO_TAG when no consumer has it."""
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
        cdef u32 index = self.find(tag, size)
        if index == NO_TAG:
            self.gather(strays)
            index = self.count
            self.add(tag, size)
        self.classes[index].consumers += 1
        return 0

    cdef bint leave(self, Strays strays, const u8* tag, u32 size) except -1:
        """Is a tag left?"""
        cdef u32 index = self.find(tag, size)
        self.classes[index].consumers -= 1
        if self.classes[index].consumers == 0:
            self.gather(strays)
            self.count -= 1
            self.classes[index] = self.classes[self.count]  # its queue is empty, too
        return self.count > 1

    # --- queues ---

    cdef int gather(self, Strays strays) except -1:
        cdef u32 i
        cdef size_t size
        cdef class_t* entry
        for i in range(self.count):
            entry = &self.classes[i]
            size = entry.waiting.length - entry.waiting.start
            if size:
                buf_append(&strays.waiting, entry.waiting.data + entry.waiting.start, size)
            buf_free(&entry.waiting)
        size = strays.waiting.length - strays.waiting.start
        if size:
            qsort(strays.waiting.data + strays.waiting.start, size // sizeof(turn_t),
                  sizeof(turn_t), by_turn)
        return 0

    cdef int sort_out(self, Strays strays, u32 index) except -1:
        """The first in the queue of all belongs to this class."""
        cdef turn_t moved = (<turn_t*>(strays.waiting.data + strays.waiting.start))[0]
        if self.classes[index].waiting.start > 4096:
            buf_compact(&self.classes[index].waiting)
        buf_append(&self.classes[index].waiting, &moved, sizeof(turn_t))
        buf_take(&strays.waiting, sizeof(turn_t))
        return 0

    cdef void clear(self) noexcept:
        cdef u32 i
        for i in range(self.count):
            buf_free(&self.classes[i].waiting)


# What a consumer wants to see of a topic with headers (`Filter` in types.py has the rules).

cdef struct rule_t:
    const u8* name
    size_t name_bytes
    const u8* value
    size_t value_bytes
    bint is_pattern
    bint matches_empty  # a pattern: the value of a header that is not there

cdef const u8* TEST = b"zan_test"
cdef enum:
    TEST_BYTES = 8


cdef bint is_test(Trailer trailer, u32 index) except -1:
    cdef u32 size = 0
    cdef const u8* headers = NULL
    if trailer is not None:
        headers = trailer.bytes_of(SECTION_HEADERS, index, &size)
    return headers != NULL and is_true(headers, size, TEST, TEST_BYTES)


cdef str text_of(bytes raw):
    """What a string of the headers says, for a pattern; what cannot be read says nothing."""
    try:
        text = loads('"' + raw.decode("utf-8", "replace") + '"', strict=False)
        text.encode()  # half of a surrogate pair is no text
    except ValueError:
        return ""
    return text


cdef class Sieve:
    cdef rule_t* rules
    cdef u32 count
    cdef bint every, inverse
    cdef object keeper  # the Filter: the bytes that the rules point into, and the patterns

    def __cinit__(self, object filter not None):
        cdef bytes name, value
        self.keeper = filter
        self.every, self.inverse = filter.every, filter.inverse
        self.rules = <rule_t*>calloc(max(len(filter.rules), 1), sizeof(rule_t))
        if self.rules == NULL:
            raise MemoryError("no memory for a filter")
        for name, value, matches in filter.rules:
            self.rules[self.count].name, self.rules[self.count].name_bytes = name, len(name)
            self.rules[self.count].value, self.rules[self.count].value_bytes = value, len(value)
            self.rules[self.count].is_pattern = matches is not None
            self.rules[self.count].matches_empty = matches is not None and matches("")
            self.count += 1

    def __dealloc__(self):
        free(self.rules)

    cdef bint passes(self, Trailer trailer, u32 index) except -1:
        cdef u32 i, size = 0
        cdef const u8* headers = NULL
        if trailer is not None:
            headers = trailer.bytes_of(SECTION_HEADERS, index, &size)
        if headers == NULL or size == 0:
            return self.inverse
        for i in range(self.count):
            if self.matches(i, headers, size) != self.every:
                return self.every == self.inverse
        return self.every != self.inverse

    cdef bint matches(self, u32 index, const u8* headers, u32 size) except -1:
        cdef rule_t* rule = &self.rules[index]
        cdef text_t value
        if not find_member(headers, size, rule.name, rule.name_bytes, &value):
            return rule.matches_empty
        if not rule.is_pattern:
            return text_is(&value, rule.value, rule.value_bytes)
        return self.keeper.rules[index].matches(text_of(value.data[:value.size]))
