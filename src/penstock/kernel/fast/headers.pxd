"""The JSON headers of PUB_EXT: an object of strings, whose few known members are taken out.

    {"key": "order-7", "##trace_id": "42", "zan_test": true, "any": "other"}

Only what every reader understands alike is let in: no depth, no numbers, UTF-8 throughout, no half
of a surrogate pair. The one member that may be a boolean is `zan_test`. A name may come twice: the
last one counts, as in the JSON of Go and of Python. The pure form has the rules in words of
regular expressions.
"""

from penstock.kernel.fast.buffer cimport buf_t
from penstock.kernel.fast.types cimport i64, u8, u64

cdef struct headers_t:
    size_t key_at, key_size  # in the buffer of keys, escapes resolved
    u64 trace_id
    u64 context_id  # of a `traceparent` whose caller records it (../traceparent.py); 0: none
    bint has_key
    bint has_trace
    bint has_others  # members that only an extended topic keeps

# -1: they are right; else the position of the first byte that cannot be.
cdef i64 headers_parse(const u8* data, size_t size, headers_t* out, buf_t* keys) except -2
