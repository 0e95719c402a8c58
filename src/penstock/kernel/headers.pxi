# The JSON headers of PUB_EXT.

cdef enum:
    RIGHT = -1
    ESCAPE_BYTES = 6  # \uXXXX
    TRACE_DIGITS_MAX = 20
    TRACEPARENT_BYTES = 55
    TRACE_AT = 3
    PARENT_AT = 36
    FLAGS_AT = 53

cdef u64 TRACE_ID_MAX = 0xFFFFFFFFFFFFFFFF

cdef struct scan_t:
    const u8* data
    size_t size
    size_t at  # where something is wrong, after a step that says so

cdef inline bint is_continued(const u8* p, size_t left, size_t count) noexcept nogil:
    cdef size_t i
    if left <= count:
        return False
    for i in range(1, count + 1):
        if p[i] & 0xC0 != 0x80:
            return False
    return True


cdef size_t utf8_size(const u8* p, size_t left) noexcept nogil:
    """Of the character at `p`, which is not ASCII; 0: it is none."""
    cdef u8 first = p[0]
    if 0xC2 <= first <= 0xDF:
        return 2 if is_continued(p, left, 1) else 0
    if 0xE0 <= first <= 0xEF:
        if not is_continued(p, left, 2) or (first == 0xE0 and p[1] < 0xA0):
            return 0
        return 0 if first == 0xED and p[1] > 0x9F else 3  # a half of a surrogate pair
    if 0xF0 <= first <= 0xF4:
        if not is_continued(p, left, 3) or (first == 0xF0 and p[1] < 0x90):
            return 0
        return 0 if first == 0xF4 and p[1] > 0x8F else 4
    return 0


cdef int hex_unit(const u8* p, size_t left) noexcept nogil:
    r"""The number of \uXXXX at `p`; -1: that does not stand there."""
    cdef int value = 0
    cdef size_t i
    cdef u8 c
    if left < ESCAPE_BYTES or p[0] != BACKSLASH or p[1] != c'u':
        return -1
    for i in range(2, ESCAPE_BYTES):
        c = p[i]
        if c'0' <= c <= c'9':
            value = value * 16 + c - c'0'
        elif c'a' <= (c | 32) <= c'f':
            value = value * 16 + (c | 32) - c'a' + 10
        else:
            return -1
    return value


cdef size_t escape_size(const u8* p, size_t left) noexcept nogil:
    """Of the escape at `p`, both halves of a surrogate pair together; 0: it is none."""
    cdef int unit
    if left < 2:
        return 0
    if p[1] != c'u':
        return 2 if p[1] in (QUOTE, BACKSLASH, c'/', c'b', c'f', c'n', c'r', c't') else 0
    unit = hex_unit(p, left)
    if unit < 0 or 0xDC00 <= unit <= 0xDFFF:
        return 0
    if 0xD800 <= unit <= 0xDBFF:
        unit = hex_unit(p + ESCAPE_BYTES, left - ESCAPE_BYTES)
        return 2 * ESCAPE_BYTES if 0xDC00 <= unit <= 0xDFFF else 0
    return ESCAPE_BYTES


cdef bint read_text(scan_t* scan, text_t* out) noexcept nogil:
    """A string, from its opening quote to behind the closing one."""
    cdef const u8* data = scan.data
    cdef size_t size = scan.size, at = scan.at, step
    cdef u8 c
    if at == size or data[at] != QUOTE:
        return False
    at += 1
    out.data, out.escaped = data + at, False
    while at < size:
        c = data[at]
        if c == QUOTE:
            out.size = (data + at) - out.data
            scan.at = at + 1
            return True
        if c == BACKSLASH:
            step = escape_size(data + at, size - at)
            out.escaped = True
        elif c < 0x80:
            step = 1 if c >= 0x20 else 0
        else:
            step = utf8_size(data + at, size - at)
        if step == 0:
            break
        at += step
    scan.at = at
    return False


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


cdef u32 point_of(const u8* p, size_t size) noexcept nogil:
    """The character that an escape of this size stands for."""
    cdef u8 c = p[1]
    if size == 2:
        if c == c'b':
            return 8
        if c == c'f':
            return 12
        if c == c'n':
            return 10
        if c == c'r':
            return 13
        return 9 if c == c't' else c
    if size == ESCAPE_BYTES:
        return hex_unit(p, size)
    return (0x10000 + ((hex_unit(p, ESCAPE_BYTES) - 0xD800) << 10)
            + hex_unit(p + ESCAPE_BYTES, ESCAPE_BYTES) - 0xDC00)


cdef size_t resolve_one(const u8* p, size_t left, u8* out, size_t* size) noexcept nogil:
    """What a string says at `p`, as UTF-8. Returns the bytes that say it; 0: a wrong escape."""
    cdef size_t step = 1
    if p[0] != BACKSLASH:
        out[0], size[0] = p[0], 1
    else:
        step = escape_size(p, left)
        if step:
            size[0] = encode_utf8(point_of(p, step), out)
    return step


cdef int resolve(const text_t* text, buf_t* out) except -1:
    """Append what a string says."""
    cdef size_t at = 0, size = 0
    cdef u8 encoded[4]
    if not text.escaped:
        return buf_append(out, text.data, text.size) if text.size else 0
    while at < text.size:
        at += resolve_one(text.data + at, text.size - at, encoded, &size)
        buf_append(out, encoded, size)
    return 0


cdef bint resolved_is(const text_t* text, const u8* wanted, size_t size) noexcept nogil:
    cdef size_t at = 0, matched = 0, step, encoded_bytes = 0
    cdef u8 encoded[4]
    while at < text.size:
        step = resolve_one(text.data + at, text.size - at, encoded, &encoded_bytes)
        if (step == 0 or size - matched < encoded_bytes
                or memcmp(encoded, wanted + matched, encoded_bytes) != 0):
            return False
        at += step
        matched += encoded_bytes
    return matched == size


cdef int read_trace_id(const text_t* text, u64* trace_id, buf_t* scratch) except -1:
    """A decimal number of 64 bits. 0: it is none."""
    cdef size_t start = scratch.length, i, size
    cdef u64 value = 0, digit
    cdef bint right
    resolve(text, scratch)
    size = scratch.length - start
    right = 0 < size <= TRACE_DIGITS_MAX
    for i in range(size if right else 0):
        digit = <u64>scratch.data[start + i] - c'0'
        if digit > 9 or value > (TRACE_ID_MAX - digit) // 10:
            right = False
            break
        value = value * 10 + digit
    scratch.length = start
    trace_id[0] = value
    return right


cdef bint read_hex(const u8* p, size_t size, u64* value) noexcept nogil:
    """A number in lower case; of more than 16 digits the last 64 bits. False: it is none, or 0."""
    cdef bint some = False
    cdef size_t i
    cdef u8 c
    value[0] = 0
    for i in range(size):
        c = p[i]
        if c'0' <= c <= c'9':
            c -= c'0'
        elif c'a' <= c <= c'f':
            c -= c'a' - 10
        else:
            return False
        some |= c != 0
        value[0] = value[0] << 4 | c
    return some


cdef u64 context_of(const u8* p, size_t size) noexcept nogil:
    cdef u64 version, trace_id, parent_id, flags
    if size < TRACEPARENT_BYTES or p[2] != c'-' or p[35] != c'-' or p[52] != c'-':
        return 0
    if not read_hex(p, 2, &version):
        if p[0] != c'0' or p[1] != c'0' or size != TRACEPARENT_BYTES:
            return 0
    elif version == 0xFF or (size > TRACEPARENT_BYTES and p[TRACEPARENT_BYTES] != c'-'):
        return 0
    if not read_hex(p + TRACE_AT, 32, &trace_id) or not read_hex(p + PARENT_AT, 16, &parent_id):
        return 0
    return trace_id if read_hex(p + FLAGS_AT, 2, &flags) and flags & 1 else 0


cdef u64 read_context(const text_t* text, buf_t* scratch) except? 0:
    cdef size_t start = scratch.length
    cdef u64 found
    resolve(text, scratch)
    found = context_of(scratch.data + start, scratch.length - start)
    scratch.length = start
    return found


cdef inline void skip_blanks(scan_t* scan) noexcept nogil:
    while scan.at < scan.size and scan.data[scan.at] in (32, 9, 10, 13):
        scan.at += 1


cdef inline bint take(scan_t* scan, u8 wanted) noexcept nogil:
    skip_blanks(scan)
    if scan.at == scan.size or scan.data[scan.at] != wanted:
        return False
    scan.at += 1
    return True


cdef bint take_boolean(scan_t* scan) noexcept nogil:
    cdef size_t left = scan.size - scan.at
    if left >= 4 and memcmp(scan.data + scan.at, b"true", 4) == 0:
        scan.at += 4
        return True
    if left >= 5 and memcmp(scan.data + scan.at, b"false", 5) == 0:
        scan.at += 5
        return True
    return False


cdef bint read_member(scan_t* scan, headers_t* out, buf_t* keys) except -1:
    cdef text_t name, value
    cdef size_t value_at
    skip_blanks(scan)
    if not read_text(scan, &name) or not take(scan, c':'):
        return False
    skip_blanks(scan)
    value_at = scan.at
    if value_at < scan.size and scan.data[value_at] != QUOTE:
        out.has_others = True
        return text_is(&name, b"zan_test", 8) and take_boolean(scan)
    if not read_text(scan, &value):
        return False
    if text_is(&name, b"key", 3):
        keys.length = out.key_at
        resolve(&value, keys)
        out.key_size = keys.length - out.key_at
        out.has_key = True
    elif text_is(&name, b"##trace_id", 10):
        if not read_trace_id(&value, &out.trace_id, keys):
            scan.at = value_at
            return False
        out.has_trace = True
    else:
        out.has_others = True
        if text_is(&name, b"traceparent", 11):
            out.context_id = read_context(&value, keys)
    return True


cdef i64 headers_parse(const u8* data, size_t size, headers_t* out, buf_t* keys) except -2:
    cdef scan_t scan
    scan.data, scan.size, scan.at = data, size, 0
    memset(out, 0, sizeof(headers_t))
    out.key_at = keys.length
    if not take(&scan, c'{'):
        return scan.at
    if not take(&scan, c'}'):
        while True:
            if not read_member(&scan, out, keys):
                return scan.at
            if take(&scan, c'}'):
                break
            if not take(&scan, c','):
                return scan.at
    skip_blanks(&scan)
    return RIGHT if scan.at == size else <i64>scan.at


def parse_headers(data):
    cdef Lent lent = lent_by(data)
    cdef headers_t parsed
    cdef buf_t keys
    cdef i64 wrong_at
    buf_init(&keys)
    try:
        wrong_at = headers_parse(lent.data, lent.size, &parsed, &keys)
        if wrong_at >= 0:
            return Headers(wrong_at, None, None, False)
        key = (keys.data + parsed.key_at)[:parsed.key_size] if parsed.key_size else b""
        return Headers(
            RIGHT,
            key if parsed.has_key else None,
            parsed.trace_id if parsed.has_trace else None,
            bool(parsed.has_others),
            parsed.context_id,
        )
    finally:
        buf_free(&keys)
