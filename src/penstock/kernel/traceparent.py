"""The W3C trace context's `traceparent`: version, trace id, parent id and flags, in hex.

    00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01

A version that is not known yet may say more behind another dash. The flag 01 says that the caller
records this trace. Then the message is traced too, and its trace id is the last 64 bits of the
trace's 128: those are the random ones, and systems with shorter ids put theirs there.

The compiled kernel has the same rule in `headers.pxi`.
"""

import re
from typing import NamedTuple

MEMBER = "traceparent"  # of a message's headers, and the header of a request
_SAMPLED = 1
_form = re.compile(
    rb"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-([0-9a-f]{2})(-.*)?",
    re.DOTALL,
).fullmatch


class Traceparent(NamedTuple):
    trace_id: bytes  # 32 hex digits
    is_sampled: bool

    @property
    def context_id(self) -> int:
        """The trace id of a message with it; 0: none."""
        return int(self.trace_id[16:], 16) if self.is_sampled else 0


def parse_traceparent(value: bytes) -> Traceparent | None:
    """None: it is none, and means nothing."""
    found = _form(value)
    if found is None or (found[4] is not None and found[1] == b"00"):
        return None
    return Traceparent(found[2], bool(int(found[3], 16) & _SAMPLED))
