from libc.string cimport memcmp

# Short names for the numbers of fixed width that formats and offsets are made of.

ctypedef unsigned char u8
ctypedef unsigned short u16
ctypedef unsigned int u32
ctypedef unsigned long long u64
ctypedef long long i64


# Numbers at any address. A batch may stand anywhere in a buffer, and a plain pointer cast would
# promise the compiler an alignment that is not there; a copy of known size costs nothing.

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    static inline uint32_t ps_load_u32(const unsigned char *p) {
        uint32_t v; memcpy(&v, p, 4); return v;
    }
    static inline uint64_t ps_load_u64(const unsigned char *p) {
        uint64_t v; memcpy(&v, p, 8); return v;
    }
    static inline void ps_store_u32(unsigned char *p, uint32_t v) { memcpy(p, &v, 4); }
    static inline void ps_store_u64(unsigned char *p, uint64_t v) { memcpy(p, &v, 8); }
    """
    unsigned int load_u32 "ps_load_u32"(const unsigned char* at) noexcept nogil
    unsigned long long load_u64 "ps_load_u64"(const unsigned char* at) noexcept nogil
    void store_u32 "ps_store_u32"(unsigned char* at, unsigned int value) noexcept nogil
    void store_u64 "ps_store_u64"(unsigned char* at, unsigned long long value) noexcept nogil


# Growable byte buffers, Python's bytes for C, and a piece of C memory for Python.
#
# `buf_t` is the only container of bytes in the kernel. Live bytes are `data[start:length]`; `start`
# moves forward as bytes are taken from the front, and `buf_compact` brings the rest to the front
# again.

cdef struct buf_t:
    u8* data
    size_t start
    size_t length
    size_t capacity

cdef void buf_init(buf_t* buf) noexcept
cdef void buf_free(buf_t* buf) noexcept
cdef int buf_reserve(buf_t* buf, size_t extra) except -1
cdef int buf_append(buf_t* buf, const void* data, size_t size) except -1
cdef void buf_compact(buf_t* buf) noexcept
cdef void buf_take(buf_t* buf, size_t size) noexcept

# Bytes that Python lent: they stay where they are while this lives.
cdef class Lent:
    cdef Py_buffer buffer
    cdef const u8* data  # an address even where there are no bytes
    cdef size_t size

cdef Lent lent_by(object owner)

cdef class Span:
    cdef u8* data
    cdef Py_ssize_t size
    cdef object keeper

cdef Span span_of(u8* data, Py_ssize_t size, object keeper)


# crc32c (Castagnoli, reflected); hashes.pxi has it.
#
# `value` and the result are finished checksums: crc32c_update(crc(a), b) == crc(a + b), and the
# checksum of nothing is 0.

cdef unsigned int crc32c_update(
    unsigned int value, const unsigned char* data, size_t length
) noexcept nogil


# MurmurHash3, the x86 variant with 32 bits.

cdef u32 murmur3_32_c(const u8* data, size_t size, u32 seed) noexcept nogil


# Message ids as 16 hex digits.

# Writes 16 lower-case digits.
cdef void id_encode(unsigned long long id, unsigned char* out16) noexcept nogil

# Reads 16 digits of either case. False, and `id` untouched, when one of them is no hex digit.
cdef bint id_decode(const unsigned char* in16, unsigned long long* id) noexcept nogil


# The trailer of a batch: typed sections, each a small table by message index.
#
#     type u16 | flags u16 | length u32 | payload           one after another
#     integers (types below 64)   n u32 | n indexes u32, rising | n values of 8 bytes
#     bytes (types from 64)       n u32 | n indexes u32, rising | n lengths u32 | the bytes

cdef enum:
    SECTION_TIMESTAMP = 1
    SECTION_ID = 2
    SECTION_DUE = 3
    SECTION_ATTEMPTS = 4
    SECTION_TRACE = 5
    SECTION_KEY = 64
    SECTION_HEADERS = 65

cdef enum:
    SECTION_HEADER_BYTES = 8
    SECTION_BYTES_TYPE_MIN = 64

# One section of a known type, checked. Pointers go into the batch; no alignment is promised.
cdef struct section_t:
    unsigned int type
    unsigned int entries
    const unsigned char* indexes  # u32 each, rising, below the batch's count
    const unsigned char* values  # integers: 8 bytes each; bytes: lengths, u32 each
    const unsigned char* blob  # bytes: the values end to end

# Walks a trailer from `position[0]` (0 at first). 1: `section` is the next one of a known type;
# 0: the end; -1: malformed.
cdef int section_next(
    const unsigned char* trailer,
    size_t trailer_bytes,
    unsigned int count,
    size_t* position,
    section_t* section,
) noexcept nogil

# The integer that a section has for message `index`, if it has one.
cdef bint section_value(section_t* section, unsigned int index, long long* value) noexcept


# The batch: what one group commit wrote. See docs/formats.md.
#
#     header 72 | lengths u32 x count | bodies | trailer | zeros up to a multiple of 8
#
# The layout is columnar, so a whole batch is built and read with a few copies: lengths and bodies
# are Arrow's own binary column. The crc covers bytes 8 to the end. All numbers are little-endian,
# and so is every machine this module is built for; it refuses to load on another. A batch may stand
# at any address: read lengths with `load_u32`, and the header through the packed struct.

cdef packed struct batch_header_t:
    unsigned int magic
    unsigned int crc
    unsigned int length  # the whole batch, header and padding included
    unsigned short flags
    unsigned short producer_epoch
    unsigned long long base_offset
    unsigned long long base_id
    long long timestamp_ns
    unsigned long long synced_end
    unsigned long long producer_id
    unsigned int first_sequence
    unsigned int leader_epoch
    unsigned int count
    unsigned int bodies_length

cdef enum:
    HEADER_BYTES = 72

# Of one message; its base offset, base id and timestamp stand where they do in the other one.
cdef packed struct short_header_t:
    unsigned int magic
    unsigned int crc
    unsigned int body_length
    unsigned short leader_epoch
    unsigned short unsynced
    unsigned long long base_offset
    unsigned long long base_id
    long long timestamp_ns

cdef enum:
    SHORT_HEADER_BYTES = 40

# A batch of either form, in the words of the long one.
cdef struct parts_t:
    batch_header_t header
    size_t header_bytes
    const unsigned char* lengths
    const unsigned char* bodies

cdef enum:
    BATCH_MAGIC = 0x31425350  # "PSB1"
    SHORT_MAGIC = 0x31535350  # "PSS1"
    BATCH_CRC_FROM = 8
    BATCH_ALIGNMENT_BYTES = 8
    BATCH_FLAG_TRAILER = 1

# The values of types.BatchCheck.
cdef enum:
    CHECK_INTACT = 0
    CHECK_SHORT = 1
    CHECK_NO_MAGIC = 2
    CHECK_BAD_FIELDS = 3
    CHECK_BAD_CRC = 4

cpdef unsigned long long id_above(
    unsigned long long last_id, unsigned int node_id, long long wall_ns
) noexcept nogil
# The id of message `index`; and back, -1 when `id` is not one of the batch's.
cpdef unsigned long long id_at(
    unsigned long long base_id, unsigned long long index
) noexcept nogil
cpdef long long id_index(
    unsigned long long base_id, unsigned int count, unsigned long long id
) noexcept nogil

# What stands at `data`: a CHECK_ value. Reads nothing outside `available` bytes, whatever they are.
# `length` is the batch's own claim, 0 when unknown.
cdef int check_batch_c(
    const unsigned char* data, size_t available, unsigned int* length
) noexcept nogil

# The same without the crc and the trailer: enough to decode a batch that is known to be intact.
cdef bint batch_fits_c(const unsigned char* data, size_t available) noexcept nogil

# The bytes of the header that begins at `data`, if all of them are there; else 0.
cdef size_t header_bytes_c(const unsigned char* data, size_t available) noexcept nogil

# Of a header that is all there, its numbers not checked.
cdef void batch_parts_c(const unsigned char* data, parts_t* parts) noexcept nogil


# The JSON headers of PUB_EXT: an object of strings, whose few known members are taken out.
#
#     {"key": "order-7", "##trace_id": "42", "zan_test": true, "any": "other"}
#
# Only what every reader understands alike is let in: no depth, no numbers, UTF-8 throughout, no
# half of a surrogate pair. The one member that may be a boolean is `zan_test`. A name may come
# twice: the last one counts, as in the JSON of Go and of Python. `codec/headers.py` has the rules
# in words of regular expressions.

cdef enum:
    QUOTE = 34
    BACKSLASH = 92

cdef struct text_t:  # a string of it
    const u8* data  # between the quotes
    size_t size
    bint escaped

# Of one that is escaped: does it say `wanted`?
cdef bint resolved_is(const text_t* text, const u8* wanted, size_t size) noexcept nogil

cdef inline bint text_is(const text_t* text, const u8* wanted, size_t size) noexcept nogil:
    if text.escaped:
        return resolved_is(text, wanted, size)
    return text.size == size and memcmp(text.data, wanted, size) == 0

cdef struct headers_t:
    size_t key_at, key_size  # in the buffer of keys, escapes resolved
    u64 trace_id
    u64 context_id  # of a `traceparent` whose caller records it (../traceparent.py); 0: none
    bint has_key
    bint has_trace
    bint has_others  # members that only an extended topic keeps

# -1: they are right; else the position of the first byte that cannot be.
cdef i64 headers_parse(const u8* data, size_t size, headers_t* out, buf_t* keys) except -2


# An event about a traced message, as it lies in a message of the topic `_trace` (docs/formats.md).

cdef packed struct event_t:
    i64 time_ns
    u64 message_id
    i64 offset
    u64 trace_id
    u32 count
    u16 topic
    u16 channel
    u16 client
    u16 attempts
    u16 partition
    u8 kind
    u8 zero
