# Several messages in one body, as /mpub brings them (`Pack` of types.py).
#
# Looked at twice: once to count and check, once to take. The second walk so needs no undo, and both
# together cost far less than one object per message.

cdef enum:
    PACK_FRAMED = 1
    PACK_LINES = 2
    BAD_COUNT = -1
    BAD_MESSAGE = -2


cdef i64 framed_count(const u8* data, size_t size, i64 count_max, i64 bytes_max) noexcept:
    cdef size_t position = 4
    cdef i64 count, length, i
    if size < 4:
        return BAD_COUNT
    count = <int>be32(data)
    if count <= 0 or count > count_max:
        return BAD_COUNT
    for i in range(count):
        if size - position < 4:
            return BAD_MESSAGE
        length = <int>be32(data + position)
        position += 4
        if length <= 0 or length > bytes_max or <size_t>length > size - position:
            return BAD_MESSAGE
        position += <size_t>length
    return count


cdef size_t line_end(const u8* data, size_t size, size_t position) noexcept:
    cdef const void* found = memchr(data + position, 10, size - position)
    return size if found == NULL else <size_t>(<const u8*>found - data)


cdef i64 line_count(const u8* data, size_t size, i64 bytes_max) noexcept:
    cdef size_t position = 0, end
    cdef i64 count = 0
    while position < size:
        end = line_end(data, size, position)
        if <i64>(end - position) > bytes_max:
            return BAD_MESSAGE
        if end > position:
            count += 1
        position = end + 1
    return count
