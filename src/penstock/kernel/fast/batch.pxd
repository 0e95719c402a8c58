# The batch: what one group commit wrote. See batch.pyx and docs/formats.md.
#
#     header 72 | lengths u32 x count | bodies | trailer | zeros up to a multiple of 8
#
# The layout is columnar, so a whole batch is built and read with a few copies: lengths and bodies
# are Arrow's own binary column. The crc covers bytes 8 to the end. All numbers are little-endian,
# and so is every machine this module is built for; it refuses to load on another. A batch may
# stand at any address: read lengths with `unaligned.load_u32`, and the header through the packed
# struct.

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

cdef enum:
    BATCH_MAGIC = 0x31425350  # "PSB1"
    BATCH_CRC_FROM = 8
    BATCH_ALIGNMENT_BYTES = 8
    BATCH_FLAG_TRAILER = 1

# The values of interface.BatchCheck.
cdef enum:
    CHECK_SOUND = 0
    CHECK_SHORT = 1
    CHECK_NO_MAGIC = 2
    CHECK_BAD_FIELDS = 3
    CHECK_BAD_CRC = 4

# The id of message `index`; and back, -1 when `id` is not one of the batch's.
cdef unsigned long long id_at_c(
    unsigned long long base_id, unsigned long long index
) noexcept nogil
cdef long long id_index_c(
    unsigned long long base_id, unsigned int count, unsigned long long id
) noexcept nogil

# What stands at `data`: a CHECK_ value. Reads nothing outside `available` bytes, whatever they are.
# `length` is the batch's own claim, 0 when unknown.
cdef int check_batch_c(
    const unsigned char* data, size_t available, unsigned int* length
) noexcept nogil

# The same without the crc and the trailer: enough to decode a batch that is known to be sound.
cdef bint batch_fits_c(const unsigned char* data, size_t available) noexcept nogil

# Where the trailer of a checked batch begins, and its bytes (0 without one).
cdef const unsigned char* batch_trailer_c(
    const unsigned char* data, size_t* trailer_bytes
) noexcept nogil
