# crc32c: the Castagnoli checksum, reflected, as in iSCSI, ext4 and Kafka.
#
# On x86-64 one instruction takes 8 bytes a cycle but answers after three, so three parts of the
# data run side by side. Their remainders are joined by moving the first two forward: a move by n
# bytes is a multiplication by x^(8n), done by a carry-less multiply with a constant. Reflected
# operands put one factor x into the product and the crc instruction that reduces it puts in x^32,
# hence constants of x^(8n - 33). Which path runs is decided when the module is loaded; the portable
# one takes 8 bytes by 8 tables, and is right on any byte order because it composes its words from
# bytes.

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>

    #define PS_CRC_POLYNOMIAL 0x82F63B78u  /* bit 31 is x^0 */

    static uint32_t ps_crc_tables[8][256];

    static void ps_crc_fill_tables(void) {
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t r = byte;
            for (int bit = 0; bit < 8; bit++)
                r = (r >> 1) ^ (PS_CRC_POLYNOMIAL & (0u - (r & 1u)));
            ps_crc_tables[0][byte] = r;
        }
        for (int slice = 1; slice < 8; slice++)
            for (int byte = 0; byte < 256; byte++) {
                uint32_t r = ps_crc_tables[slice - 1][byte];
                ps_crc_tables[slice][byte] = (r >> 8) ^ ps_crc_tables[0][r & 255];
            }
    }

    static inline uint32_t ps_crc_word(const unsigned char *p) {
        return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    }

    static uint32_t ps_crc_portable(uint32_t value, const unsigned char *p, size_t length) {
        uint32_t r = ~value;
        for (; length >= 8; p += 8, length -= 8) {
            uint32_t low = r ^ ps_crc_word(p), high = ps_crc_word(p + 4);
            r = ps_crc_tables[7][low & 255] ^ ps_crc_tables[6][(low >> 8) & 255]
              ^ ps_crc_tables[5][(low >> 16) & 255] ^ ps_crc_tables[4][low >> 24]
              ^ ps_crc_tables[3][high & 255] ^ ps_crc_tables[2][(high >> 8) & 255]
              ^ ps_crc_tables[1][(high >> 16) & 255] ^ ps_crc_tables[0][high >> 24];
        }
        for (; length; p++, length--)
            r = (r >> 8) ^ ps_crc_tables[0][(r ^ *p) & 255];
        return ~r;
    }

    typedef uint32_t (*ps_crc_path)(uint32_t, const unsigned char *, size_t);
    static ps_crc_path ps_crc_chosen = ps_crc_portable;

    #if defined(__x86_64__) && defined(__GNUC__)
    #include <cpuid.h>
    #include <immintrin.h>

    #ifdef __clang__  /* which has it beside SSE 4.2; an older gcc has no name for it alone */
    #define PS_CRC_TARGET __attribute__((target("sse4.2,crc32,pclmul")))
    #else
    #define PS_CRC_TARGET __attribute__((target("sse4.2,pclmul")))
    #endif

    /* Long parts for batches, short ones so that a single message gains too. */
    #define PS_CRC_LONG 1024
    #define PS_CRC_SHORT 64

    static uint64_t ps_crc_long_by_one, ps_crc_long_by_two;
    static uint64_t ps_crc_short_by_one, ps_crc_short_by_two;

    static uint64_t ps_crc_power(size_t exponent) {
        uint32_t r = 0x80000000u;  /* x^0 */
        for (; exponent; exponent--)
            r = (r >> 1) ^ (PS_CRC_POLYNOMIAL & (0u - (r & 1u)));
        return r;
    }

    static inline uint64_t ps_crc_load(const unsigned char *p) {
        uint64_t word;
        memcpy(&word, p, 8);
        return word;
    }

    PS_CRC_TARGET
    static inline uint64_t ps_crc_join(
        uint64_t a, uint64_t b, uint64_t c, uint64_t by_two, uint64_t by_one) {
        __m128i moved_a = _mm_clmulepi64_si128(
            _mm_cvtsi64_si128((long long)a), _mm_cvtsi64_si128((long long)by_two), 0);
        __m128i moved_b = _mm_clmulepi64_si128(
            _mm_cvtsi64_si128((long long)b), _mm_cvtsi64_si128((long long)by_one), 0);
        uint64_t sum = (uint64_t)_mm_cvtsi128_si64(_mm_xor_si128(moved_a, moved_b));
        return _mm_crc32_u64(0, sum) ^ c;
    }

    PS_CRC_TARGET
    static inline uint64_t ps_crc_three(
        uint64_t r, const unsigned char *p, size_t part, uint64_t by_two, uint64_t by_one) {
        uint64_t b = 0, c = 0;
        for (size_t i = 0; i < part; i += 8) {
            r = _mm_crc32_u64(r, ps_crc_load(p + i));
            b = _mm_crc32_u64(b, ps_crc_load(p + part + i));
            c = _mm_crc32_u64(c, ps_crc_load(p + 2 * part + i));
        }
        return ps_crc_join(r, b, c, by_two, by_one);
    }

    PS_CRC_TARGET
    static uint32_t ps_crc_sse42(uint32_t value, const unsigned char *p, size_t length) {
        uint64_t r = (uint32_t)~value;
        for (; length >= 3 * PS_CRC_LONG; p += 3 * PS_CRC_LONG, length -= 3 * PS_CRC_LONG)
            r = ps_crc_three(r, p, PS_CRC_LONG, ps_crc_long_by_two, ps_crc_long_by_one);
        for (; length >= 3 * PS_CRC_SHORT; p += 3 * PS_CRC_SHORT, length -= 3 * PS_CRC_SHORT)
            r = ps_crc_three(r, p, PS_CRC_SHORT, ps_crc_short_by_two, ps_crc_short_by_one);
        for (; length >= 8; p += 8, length -= 8)
            r = _mm_crc32_u64(r, ps_crc_load(p));
        for (; length; p++, length--)
            r = _mm_crc32_u8((uint32_t)r, *p);
        return ~(uint32_t)r;
    }

    static int ps_crc_choose(void) {
        ps_crc_long_by_one = ps_crc_power(8 * PS_CRC_LONG - 33);
        ps_crc_long_by_two = ps_crc_power(16 * PS_CRC_LONG - 33);
        ps_crc_short_by_one = ps_crc_power(8 * PS_CRC_SHORT - 33);
        ps_crc_short_by_two = ps_crc_power(16 * PS_CRC_SHORT - 33);
        /* asked of the processor itself: not every compiler's runtime knows what it can */
        unsigned int eax, ebx, ecx, edx;
        if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & bit_SSE4_2) || !(ecx & bit_PCLMUL))
            return 0;
        ps_crc_chosen = ps_crc_sse42;
        return 1;
    }
    #else
    static int ps_crc_choose(void) { return 0; }
    #endif

    static inline uint32_t ps_crc_update(uint32_t v, const unsigned char *p, size_t length) {
        return ps_crc_chosen(v, p, length);
    }
    """
    void ps_crc_fill_tables() noexcept nogil
    bint ps_crc_choose() noexcept nogil
    unsigned int ps_crc_update(unsigned int, const unsigned char*, size_t) noexcept nogil
    unsigned int ps_crc_portable(unsigned int, const unsigned char*, size_t) noexcept nogil

cdef enum:
    LONG_BYTES = 32768  # from here other threads may run meanwhile

ps_crc_fill_tables()
ps_crc_choose()


cdef unsigned int crc32c_update(
    unsigned int value, const unsigned char* data, size_t length
) noexcept nogil:
    return ps_crc_update(value, data, length)


def crc32c(data, unsigned int value=0):
    """The checksum of what `value` covers, followed by `data`."""
    cdef Lent lent = lent_by(data)
    if lent.size < LONG_BYTES:
        return ps_crc_update(value, lent.data, lent.size)
    with nogil:
        value = ps_crc_update(value, lent.data, lent.size)
    return value


def crc32c_portable(data, unsigned int value=0):
    """The path of machines without the instruction, so that it is tested on those with it."""
    cdef Lent lent = lent_by(data)
    return ps_crc_portable(value, lent.data, lent.size)


# MurmurHash3, the x86 variant with 32 bits: which partition a key belongs to.
#
# Clients that choose a partition for themselves compute the same hash, so its value is part of the
# protocol and not only of this process: words are little-endian whatever the machine is.

cdef inline u32 _turned(u32 word, int bits) noexcept nogil:
    return (word << bits) | (word >> (32 - bits))


cdef inline u32 _mixed(u32 word) noexcept nogil:
    return _turned(word * <u32>0xcc9e2d51, 15) * <u32>0x1b873593


cdef u32 murmur3_32_c(const u8* data, size_t size, u32 seed) noexcept nogil:
    cdef u32 value = seed, word
    cdef size_t at = 0, i
    while size - at >= 4:
        word = (data[at] | (<u32>data[at + 1] << 8) | (<u32>data[at + 2] << 16)
                | (<u32>data[at + 3] << 24))
        value = _turned(value ^ _mixed(word), 13) * 5 + <u32>0xe6546b64
        at += 4
    if at < size:
        word = 0
        for i in range(size - at):
            word |= <u32>data[at + i] << (8 * <u32>i)
        value ^= _mixed(word)
    value ^= <u32>size
    value = (value ^ (value >> 16)) * <u32>0x85ebca6b
    value = (value ^ (value >> 13)) * <u32>0xc2b2ae35
    return value ^ (value >> 16)


def murmur3_32(data, u32 seed=0):
    cdef Lent lent = lent_by(data)
    return murmur3_32_c(lent.data, lent.size, seed)
