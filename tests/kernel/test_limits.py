"""The constants of the C code that mirror a limit say the same as `limits.py`.

They are constants there for the compiler to see; nothing but this test ties them together.
"""

import re
from pathlib import Path

from cases import each
from penstock import kernel, limits

KERNEL = Path(kernel.__file__).parent
CONSTANT = re.compile(r"^ {4}([A-Z][A-Z0-9_]+) = ([0-9x<A-F ]+)", re.MULTILINE)
MIRRORS = [
    ("publisher.pxi", "NAME_BYTES_MAX", limits.NAME_BYTES_MAX),
    ("publisher.pxi", "OWED_MAX", limits.OWED_MAX),
    ("ring.pxi", "RING_SPAN_MAX", limits.RING_SPAN_MAX),
    ("framing.pxi", "CHUNK_BYTES", limits.CHUNK_BYTES),
    ("ring.pxi", "PARKED_MAX", limits.PARKED_MAX),
    ("filters.pxi", "TAG_BYTES_MAX", limits.TAG_BYTES_MAX),
    ("turns.pxi", "TAG_ASIDE_MAX", limits.TAG_ASIDE_MAX),
    ("delivery.pxi", "REFILL_NS", limits.REFILL_NS),
    ("keyorder.pxi", "ASIDE_MAX", limits.ASIDE_MAX),
    ("turns.pxi", "HYSTERESIS_RDY_MIN", limits.HYSTERESIS_RDY_MIN),
    ("turns.pxi", "WHOLE_ROOM_MIN", limits.WHOLE_ROOM_MIN),
    ("memory.pxi", "KEPT_BATCH_BYTES", limits.KEPT_BATCH_BYTES),
    ("engine.pyx", "DRAIN_BYTES_MAX", limits.DRAIN_BYTES_MAX),
    ("poller.pxi", "RECV_BYTES", limits.RECEIVE_BYTES),
]


def constants(file: str) -> dict[str, int]:
    """What the enums of a module say, shifts worked out."""
    found = {}
    for name, text in CONSTANT.findall((KERNEL / file).read_text()):
        value, _, shift = text.partition("<<")
        found[name] = int(value, 0) << int(shift or 0)
    return found


@each(("file", "name", "limit"), MIRRORS)
def test_a_constant_is_its_limit(file: str, name: str, limit: int) -> None:
    assert constants(file)[name] == limit
