"""What is drawn for a message of a sampled consumer: pure/dice.py says how, and why."""

from penstock.kernel.fast.types cimport u32, u64

cdef enum:
    SAMPLE_DRAWS = 100


cdef inline u64 mix(u64 number) noexcept:
    number = (number ^ (number >> 30)) * <u64>0xBF58476D1CE4E5B9
    number = (number ^ (number >> 27)) * <u64>0x94D049BB133111EB
    return number ^ (number >> 31)


cdef inline u32 sample_draw(u64 seed, u32 serial, u64 id, u32 attempts) noexcept:
    cdef u64 stream = mix(seed + <u64>0x9E3779B97F4A7C15 * (((<u64>attempts) << 32) + serial))
    return <u32>(mix(stream ^ id) % SAMPLE_DRAWS)
