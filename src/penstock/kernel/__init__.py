"""The kernel: sockets, publishes, channels and delivery, compiled; and batches as values.

`engine` and `bulk` are compiled, and only nsqd needs them; their stubs say what they do.
The functions over batches, ids and hashes are those of `_codec` where it is installed and else of
`codec`, the same in plain Python: a client or a Spark worker needs no compiler. All other packages
import the names from here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.kernel.types import BAD_COUNT as BAD_COUNT
from penstock.kernel.types import BAD_MESSAGE as BAD_MESSAGE
from penstock.kernel.types import TRACE_ALL as TRACE_ALL
from penstock.kernel.types import BadPub as BadPub
from penstock.kernel.types import BatchCheck as BatchCheck
from penstock.kernel.types import BatchHeader as BatchHeader
from penstock.kernel.types import BulkResult as BulkResult
from penstock.kernel.types import BulkStatus as BulkStatus
from penstock.kernel.types import Cause as Cause
from penstock.kernel.types import Columns as Columns
from penstock.kernel.types import Cut as Cut
from penstock.kernel.types import Event as Event
from penstock.kernel.types import Filter as Filter
from penstock.kernel.types import Headers as Headers
from penstock.kernel.types import Held as Held
from penstock.kernel.types import Locality as Locality
from penstock.kernel.types import Order as Order
from penstock.kernel.types import Pack as Pack
from penstock.kernel.types import Rule as Rule
from penstock.kernel.types import Section as Section
from penstock.kernel.types import Source as Source
from penstock.kernel.types import Stray as Stray
from penstock.kernel.types import StrayRecord as StrayRecord
from penstock.kernel.types import TraceKind as TraceKind
from penstock.kernel.types import Values as Values
from penstock.kernel.types import Verb as Verb

try:
    from penstock.kernel import _codec as _functions
except ImportError:
    from penstock.kernel import codec as _functions  # type: ignore[no-redef]

blank = _functions.blank
check_batch = _functions.check_batch
check_batches = _functions.check_batches
crc32c = _functions.crc32c
decode_bodies = _functions.decode_bodies
decode_columns = _functions.decode_columns
decode_header = _functions.decode_header
decode_sections = _functions.decode_sections
encode_batch = _functions.encode_batch
encode_columns = _functions.encode_columns
expand_events = _functions.expand_events
hex_to_id = _functions.hex_to_id
id_above = _functions.id_above
id_at = _functions.id_at
id_index = _functions.id_index
id_to_hex = _functions.id_to_hex
murmur3_32 = _functions.murmur3_32
parse_headers = _functions.parse_headers
pick_events = _functions.pick_events

if TYPE_CHECKING:
    from penstock.kernel.bulk import Bulk as Bulk
    from penstock.kernel.engine import Conn as Conn
    from penstock.kernel.engine import Engine as Engine
    from penstock.kernel.engine import LogEnd as LogEnd
    from penstock.kernel.engine import Tail as Tail
    from penstock.kernel.engine import Window as Window

_COMPILED = {"Bulk": "bulk"} | dict.fromkeys(
    ("Conn", "Engine", "LogEnd", "Tail", "Window"), "engine"
)


def __getattr__(name: str) -> Any:
    """The compiled classes on first use: a client loads no engine."""
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
