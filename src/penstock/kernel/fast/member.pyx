"""One member of a message's headers (declared, and explained, in member.pxd)."""

from libc.string cimport memchr, memcmp

from penstock.kernel.fast.types cimport i64, u8, u32

cdef enum:
    QUOTE = 34
    BACKSLASH = 92
    UNIT_BYTES = 6  # \uXXXX
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
        found.data, found.size = headers + at + 1, end - at - 2
        is_it = text_is(&found, name, name_bytes)
        at = expect(headers, size, end, c':')
        if at < 0:
            return False
        at = after_blanks(headers, size, at)
        if <size_t>at < size and headers[at] == QUOTE:
            end = string_end(headers, size, at)
            if is_it and end >= 0:
                has_it, is_string[0] = True, True
                out.data, out.size = headers + at + 1, end - at - 2
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


# --- comparing ---

cdef i64 unit_at(const u8* p, size_t left) noexcept nogil:
    r"""The number of the \uXXXX at `p`, or NOWHERE."""
    cdef i64 value = 0
    cdef size_t i
    cdef u8 c
    if left < UNIT_BYTES or p[0] != BACKSLASH or p[1] != c'u':
        return NOWHERE
    for i in range(2, UNIT_BYTES):
        c = p[i]
        if c'0' <= c <= c'9':
            value = value * 16 + (c - c'0')
        elif c'a' <= (c | 32) <= c'f':
            value = value * 16 + ((c | 32) - c'a' + 10)
        else:
            return NOWHERE
    return value


cdef inline i64 short_of(u8 c) noexcept nogil:
    if c == QUOTE or c == BACKSLASH or c == c'/':
        return c
    if c == c'b':
        return 8
    if c == c'f':
        return 12
    if c == c'n':
        return 10
    if c == c'r':
        return 13
    return 9 if c == c't' else NOWHERE


cdef i64 character_at(const u8* p, size_t left, size_t* used) noexcept nogil:
    """What the escape at `p` stands for, or NOWHERE."""
    cdef i64 unit, low
    if left < 2:
        return NOWHERE
    used[0] = 2
    if p[1] != c'u':
        return short_of(p[1])
    used[0] = UNIT_BYTES
    unit = unit_at(p, left)
    if unit < 0xD800 or unit > 0xDFFF:
        return unit
    low = unit_at(p + UNIT_BYTES, left - UNIT_BYTES)
    if unit > 0xDBFF or low < 0xDC00 or low > 0xDFFF:
        return NOWHERE
    used[0] = 2 * UNIT_BYTES
    return 0x10000 + ((unit - 0xD800) << 10) + low - 0xDC00


cdef size_t encode_utf8(u32 point, u8* out) noexcept nogil:
    if point < 0x80:
        out[0] = <u8>point
        return 1
    if point < 0x800:
        out[0], out[1] = <u8>(0xC0 | point >> 6), <u8>(0x80 | point & 0x3F)
        return 2
    if point < 0x10000:
        out[0], out[1] = <u8>(0xE0 | point >> 12), <u8>(0x80 | point >> 6 & 0x3F)
        out[2] = <u8>(0x80 | point & 0x3F)
        return 3
    out[0], out[1] = <u8>(0xF0 | point >> 18), <u8>(0x80 | point >> 12 & 0x3F)
    out[2], out[3] = <u8>(0x80 | point >> 6 & 0x3F), <u8>(0x80 | point & 0x3F)
    return 4


cdef bint text_is(const text_t* text, const u8* wanted, size_t size) noexcept nogil:
    """Does it say `wanted`?"""
    cdef size_t at = 0, place = 0, used = 0, encoded_bytes
    cdef i64 point
    cdef u8 encoded[4]
    if memchr(text.data, BACKSLASH, text.size) == NULL:
        return text.size == size and memcmp(text.data, wanted, size) == 0
    while at < text.size:
        if text.data[at] == BACKSLASH:
            point = character_at(text.data + at, text.size - at, &used)
            if point < 0:
                return False
            encoded_bytes = encode_utf8(<u32>point, encoded)
        else:
            encoded[0], encoded_bytes, used = text.data[at], 1, 1
        if size - place < encoded_bytes or memcmp(encoded, wanted + place, encoded_bytes) != 0:
            return False
        at += used
        place += encoded_bytes
    return place == size


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


def says(bytes raw not None, bytes wanted not None):
    cdef text_t text
    text.data, text.size = <const u8*>raw, len(raw)
    return text_is(&text, <const u8*>wanted, len(wanted))
