"""How long messages took from their timestamp to their FIN: counts in buckets, one set a channel.

Bucket 0 holds all below 1,024 ns. From there each power of two has 32 buckets of equal width, so
the middle of a bucket is off by 1.6 % at most. The last one, above some 50 days, has no end.
"""

from __future__ import annotations

_LOWEST_BITS = 10
_STEP_BITS = 5
BUCKETS = 42 * 32 + 1


def bucket_of(latency_ns: int) -> int:
    if latency_ns < 1 << _LOWEST_BITS:
        return 0
    bits = latency_ns.bit_length() - 1
    step = latency_ns >> (bits - _STEP_BITS) & (1 << _STEP_BITS) - 1
    return min((bits - _LOWEST_BITS << _STEP_BITS) + step + 1, BUCKETS - 1)
