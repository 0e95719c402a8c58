"""The kernel: sockets, publishes, channels and delivery, compiled; and batches as values.

`engine` and `bulk` are compiled, and only nsqd needs them; their stubs say what they do.
The functions over batches, ids and hashes are those of `_codec` where it is installed and else of
`codec`, the same in plain Python: a client or a Spark worker needs no compiler. All other packages
import the names from here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.kernel.types import (
    BAD_COUNT,
    BAD_MESSAGE,
    TRACE_ALL,
    BadPub,
    BatchCheck,
    BatchHeader,
    BulkResult,
    BulkStatus,
    Cause,
    Columns,
    Cut,
    Event,
    Filter,
    Headers,
    Held,
    Locality,
    Order,
    Pack,
    Rule,
    Section,
    Source,
    Stray,
    StrayRecord,
    TraceKind,
    Values,
    Verb,
)

try:
    from penstock.kernel._codec import (
        blank,
        check_batch,
        check_batches,
        crc32c,
        decode_bodies,
        decode_columns,
        decode_header,
        decode_sections,
        encode_batch,
        encode_columns,
        expand_events,
        hex_to_id,
        id_above,
        id_at,
        id_index,
        id_to_hex,
        murmur3_32,
        parse_headers,
        pick_events,
    )
except ImportError:
    from penstock.kernel.codec import (
        blank,
        check_batch,
        check_batches,
        crc32c,
        decode_bodies,
        decode_columns,
        decode_header,
        decode_sections,
        encode_batch,
        encode_columns,
        expand_events,
        hex_to_id,
        id_above,
        id_at,
        id_index,
        id_to_hex,
        murmur3_32,
        parse_headers,
        pick_events,
    )

if TYPE_CHECKING:
    from penstock.kernel.bulk import Bulk
    from penstock.kernel.engine import Conn, Engine, LogEnd, Tail, Window

_COMPILED = {
    "Bulk": "bulk",
    "Conn": "engine",
    "Engine": "engine",
    "LogEnd": "engine",
    "Tail": "engine",
    "Window": "engine",
}


def __getattr__(name: str) -> Any:
    """The compiled classes when they are first asked for: a client loads no engine."""
    if name not in _COMPILED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"{__name__}.{_COMPILED[name]}")
    except ImportError as error:
        raise ImportError(
            f"the compiled kernel cannot be imported ({error}): install a wheel of penstock for "
            "this platform, or a C compiler and Python's headers, and install penstock again"
        ) from error
    globals()[name] = value = getattr(module, name)
    return value


__all__ = [
    "BAD_COUNT",
    "BAD_MESSAGE",
    "TRACE_ALL",
    "BadPub",
    "BatchCheck",
    "BatchHeader",
    "Bulk",
    "BulkResult",
    "BulkStatus",
    "Cause",
    "Columns",
    "Conn",
    "Cut",
    "Engine",
    "Event",
    "Filter",
    "Headers",
    "Held",
    "Locality",
    "LogEnd",
    "Order",
    "Pack",
    "Rule",
    "Section",
    "Source",
    "Stray",
    "StrayRecord",
    "Tail",
    "TraceKind",
    "Values",
    "Verb",
    "Window",
    "blank",
    "check_batch",
    "check_batches",
    "crc32c",
    "decode_bodies",
    "decode_columns",
    "decode_header",
    "decode_sections",
    "encode_batch",
    "encode_columns",
    "expand_events",
    "hex_to_id",
    "id_above",
    "id_at",
    "id_index",
    "id_to_hex",
    "murmur3_32",
    "parse_headers",
    "pick_events",
]
