# The numbers of the wire, most significant byte first.

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    static inline void ps_put_head(unsigned char *p, uint32_t size, uint64_t ts,
                                   uint16_t attempts) {
        uint32_t s = __builtin_bswap32(size), t = __builtin_bswap32(2);
        uint64_t b = __builtin_bswap64(ts);
        uint16_t a = __builtin_bswap16(attempts);
        memcpy(p, &s, 4); memcpy(p + 4, &t, 4); memcpy(p + 8, &b, 8); memcpy(p + 16, &a, 2);
    }
    static inline void ps_put_be16(unsigned char *p, uint16_t v) {
        v = __builtin_bswap16(v); memcpy(p, &v, 2);
    }
    static inline void ps_put_be32(unsigned char *p, uint32_t v) {
        v = __builtin_bswap32(v); memcpy(p, &v, 4);
    }
    static inline void ps_put_be64(unsigned char *p, uint64_t v) {
        v = __builtin_bswap64(v); memcpy(p, &v, 8);
    }
    """
    void put_head "ps_put_head"(unsigned char* p, unsigned int size, unsigned long long ts,
                                unsigned short attempts) noexcept nogil
    void put_be16 "ps_put_be16"(unsigned char* p, unsigned short value) noexcept nogil
    void put_be32 "ps_put_be32"(unsigned char* p, unsigned int value) noexcept nogil
    void put_be64 "ps_put_be64"(unsigned char* p, unsigned long long value) noexcept nogil


cdef inline u32 be16(const u8* p) noexcept:
    return (<u32>p[0] << 8) | p[1]


cdef inline u32 be32(const u8* p) noexcept:
    return (<u32>p[0] << 24) | (<u32>p[1] << 16) | (<u32>p[2] << 8) | p[3]
