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
