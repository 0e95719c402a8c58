# Arrays and rings in C memory that are full.
#
# `capacity` counts items, and is 0 at first; then there is room for `least`. Where there is no
# memory everything stays as it is.


cdef void* grown(void* items, size_t item_bytes, u32* capacity, u32 least,
                 str what) except NULL:
    """An array with room for twice as many."""
    cdef u32 larger = max(2 * capacity[0], least)
    cdef void* found = realloc(items, larger * item_bytes)
    if found == NULL:
        raise MemoryError(f"no memory for {what}")
    capacity[0] = larger
    return found


cdef void* grown_ring(void* items, size_t item_bytes, u32* head, u32* capacity, u32 least,
                      str what) except NULL:
    """The same of a ring, whose first item then stands at its beginning."""
    cdef size_t before = head[0] * item_bytes, behind = capacity[0] * item_bytes - before
    cdef u32 larger = max(2 * capacity[0], least)
    cdef u8* found = <u8*>malloc(larger * item_bytes)
    if found == NULL:
        raise MemoryError(f"no memory for {what}")
    if capacity[0]:
        memcpy(found, <u8*>items + before, behind)
        memcpy(found + behind, items, before)
    free(items)
    head[0], capacity[0] = 0, larger
    return found
