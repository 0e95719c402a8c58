# Message ids as text: 16 hex digits, most significant first, lower case; read in either case.
#
# Every delivery writes one and every FIN reads one, so both are done on all 16 digits at once where
# the processor can (SSSE3, seen when the module is loaded), and by small tables elsewhere.

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    static const char ps_hex_digits[17] = "0123456789abcdef";
    static unsigned char ps_hex_values[256];  /* 255: not a hex digit */

    static void ps_hex_encode_portable(unsigned long long id, unsigned char *out) {
        for (int i = 15; i >= 0; i--, id >>= 4)
            out[i] = (unsigned char)ps_hex_digits[id & 15];
    }

    static int ps_hex_decode_portable(const unsigned char *in, unsigned long long *id) {
        unsigned long long value = 0;
        unsigned char seen = 0;
        for (int i = 0; i < 16; i++) {
            unsigned char digit = ps_hex_values[in[i]];
            seen |= digit;
            value = value << 4 | (digit & 15);
        }
        if (seen > 15)
            return 0;
        *id = value;
        return 1;
    }

    static void ps_hex_fill_table(void) {
        memset(ps_hex_values, 255, sizeof ps_hex_values);
        for (int i = 0; i < 16; i++) {
            ps_hex_values[(unsigned char)ps_hex_digits[i]] = (unsigned char)i;
            if (i >= 10)
                ps_hex_values['A' + i - 10] = (unsigned char)i;
        }
    }

    static void (*ps_hex_encode_chosen)(unsigned long long, unsigned char *) =
        ps_hex_encode_portable;
    static int (*ps_hex_decode_chosen)(const unsigned char *, unsigned long long *) =
        ps_hex_decode_portable;

    #if defined(__x86_64__) && defined(__GNUC__)
    #include <cpuid.h>
    #include <immintrin.h>

    __attribute__((target("ssse3")))
    static void ps_hex_encode_ssse3(unsigned long long id, unsigned char *out) {
        __m128i bytes = _mm_cvtsi64_si128((long long)__builtin_bswap64(id));
        __m128i nibble = _mm_set1_epi8(15);
        __m128i low = _mm_and_si128(bytes, nibble);
        __m128i high = _mm_and_si128(_mm_srli_epi16(bytes, 4), nibble);
        __m128i digits = _mm_loadu_si128((const __m128i *)ps_hex_digits);
        _mm_storeu_si128(
            (__m128i *)out, _mm_shuffle_epi8(digits, _mm_unpacklo_epi8(high, low)));
    }

    /* A byte is within [0, bound] when the unsigned minimum with the bound leaves it as it is. */
    __attribute__((target("ssse3")))
    static inline __m128i ps_hex_at_most(__m128i bytes, char bound) {
        return _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(bound)), bytes);
    }

    __attribute__((target("ssse3")))
    static int ps_hex_decode_ssse3(const unsigned char *in, unsigned long long *id) {
        __m128i text = _mm_loadu_si128((const __m128i *)in);
        __m128i digit = _mm_sub_epi8(text, _mm_set1_epi8('0'));
        __m128i letter = _mm_sub_epi8(
            _mm_or_si128(text, _mm_set1_epi8(0x20)), _mm_set1_epi8('a'));
        __m128i is_digit = ps_hex_at_most(digit, 9);
        __m128i is_letter = ps_hex_at_most(letter, 5);
        if (_mm_movemask_epi8(_mm_or_si128(is_digit, is_letter)) != 0xFFFF)
            return 0;
        __m128i nibbles = _mm_or_si128(
            _mm_and_si128(is_digit, digit),
            _mm_and_si128(is_letter, _mm_add_epi8(letter, _mm_set1_epi8(10))));
        /* pairs: first * 16 + second, in 16 bits each, then packed to 8 bytes */
        __m128i pairs = _mm_maddubs_epi16(nibbles, _mm_set1_epi16(0x0110));
        __m128i packed = _mm_packus_epi16(pairs, pairs);
        *id = __builtin_bswap64((unsigned long long)_mm_cvtsi128_si64(packed));
        return 1;
    }

    static int ps_hex_choose(void) {
        unsigned int eax, ebx, ecx, edx;
        if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & bit_SSSE3))
            return 0;
        ps_hex_encode_chosen = ps_hex_encode_ssse3;
        ps_hex_decode_chosen = ps_hex_decode_ssse3;
        return 1;
    }
    #else
    static int ps_hex_choose(void) { return 0; }
    #endif

    static inline void ps_hex_encode(unsigned long long id, unsigned char *out) {
        ps_hex_encode_chosen(id, out);
    }
    static inline int ps_hex_decode(const unsigned char *in, unsigned long long *id) {
        return ps_hex_decode_chosen(in, id);
    }
    """
    void ps_hex_fill_table() noexcept nogil
    bint ps_hex_choose() noexcept nogil
    void ps_hex_encode(unsigned long long, unsigned char*) noexcept nogil
    bint ps_hex_decode(const unsigned char*, unsigned long long*) noexcept nogil
    void ps_hex_encode_portable(unsigned long long, unsigned char*) noexcept nogil
    bint ps_hex_decode_portable(const unsigned char*, unsigned long long*) noexcept nogil

ps_hex_fill_table()
ps_hex_choose()


cdef void id_encode(unsigned long long id, unsigned char* out16) noexcept nogil:
    ps_hex_encode(id, out16)


cdef bint id_decode(const unsigned char* in16, unsigned long long* id) noexcept nogil:
    return ps_hex_decode(in16, id)


def id_to_hex(unsigned long long id):
    cdef unsigned char text[16]
    ps_hex_encode(id, text)
    return (<char*>text)[:16]


def hex_to_id(bytes text not None):
    """The id, or -1 when `text` is not 16 hex digits."""
    cdef unsigned long long value
    if len(text) != 16 or not ps_hex_decode(<const unsigned char*><char*>text, &value):
        return -1
    return value


def id_to_hex_portable(unsigned long long id):
    """The path of machines without SSSE3, so that it can be tested on those that have it."""
    cdef unsigned char text[16]
    ps_hex_encode_portable(id, text)
    return (<char*>text)[:16]


def hex_to_id_portable(bytes text not None):
    cdef unsigned long long value
    if len(text) != 16 or not ps_hex_decode_portable(<const unsigned char*><char*>text, &value):
        return -1
    return value
