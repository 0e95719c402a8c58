"""What the kernel computes, in plain words: buckets of latencies, and the traced sample."""

from penstock.kernel import TRACE_ALL

_LOWEST_BITS = 10
_STEP_BITS = 5
BUCKETS = 42 * 32 + 1

_U64 = (1 << 64) - 1


def bucket_of(latency_ns: int) -> int:
    """Bucket 0 is all below 1,024 ns; then each power of two has 32 buckets of equal width."""
    if latency_ns < 1 << _LOWEST_BITS:
        return 0
    bits = latency_ns.bit_length() - 1
    step = latency_ns >> (bits - _STEP_BITS) & (1 << _STEP_BITS) - 1
    return min((bits - _LOWEST_BITS << _STEP_BITS) + step + 1, BUCKETS - 1)


def in_sample(id: int, below: int) -> bool:
    """Is the message traced? By the end of splitmix64 over its id."""
    number = (id ^ id >> 30) * 0xBF58476D1CE4E5B9 & _U64
    number = (number ^ number >> 27) * 0x94D049BB133111EB & _U64
    return below == TRACE_ALL or number ^ number >> 31 < below
