"""SQL functions that read ids: Spark's own expressions, so no Python runs for a row.

A message id is 16 hex digits (`ids/guid.py` has the layout), a unique id 32 with an IPv4 address in
it, or 56 with IPv6 (`ids/unique.py`). Each function is NULL for what is no such id.

A unique id has no month in it: `unique_time` takes the one of `as_of` (the message's own timestamp
is a good choice), or the one before when that would lie behind it, in the session's time zone,
which has to be the maker's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock import limits
from penstock.ids import guid

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_GUID = "regexp_like(id, '^[0-9a-fA-F]{16}$')"
_GUID_NUMBER = "cast(conv(id, 16, -10) as bigint)"  # the same 64 bits, signed
_UNIQUE = "regexp_like(id, '^([0-9a-fA-F]{32}|[0-9a-fA-F]{56})$')"
# Ids end alike whatever the address: pid 4, hash 8, time 8, counter 4 digits.
_IP_DIGITS = "length(id) - 24"
_SPAN_MS = "cast(conv(substr(id, -12, 8), 16, 10) as bigint)"
_MONTH = "date_trunc('MONTH', as_of)"

_TICK = f"(shiftrightunsigned({_GUID_NUMBER}, {guid.TICK_SHIFT}) + {guid.TICK_EPOCH}L)"
# A tick is 2**20 ns: times 16384, divided by 15.625, without a fraction in between.
_TICK_MICROS = f"({_TICK} * 131072L) div 125L"
_BYTES = (f"cast(conv(substr(id, {1 + 2 * n}, 2), 16, 10) as string)" for n in range(4))
_QUADS = f"concat_ws('.', {', '.join(_BYTES)})"
_HEX = (f"lower(substr(id, {1 + 4 * n}, 4))" for n in range(8))
_GROUPS = f"concat_ws(':', {', '.join(_HEX)})"


def _span_after(month: str) -> str:
    return f"timestampadd(MILLISECOND, {_SPAN_MS}, {month})"


# name: (parameters, type, which ids it is of, expression)
FUNCTIONS: dict[str, tuple[str, str, str, str]] = {
    "guid_time": ("id STRING", "TIMESTAMP", _GUID, f"timestamp_micros({_TICK_MICROS})"),
    "guid_node": (
        "id STRING", "INT", _GUID,
        f"cast(shiftright({_GUID_NUMBER}, {guid.SEQUENCE_BITS}) & {limits.NODE_ID_MAX} as int)",
    ),
    "guid_sequence": (
        "id STRING", "INT", _GUID, f"cast({_GUID_NUMBER} & {guid.SEQUENCES_PER_TICK - 1} as int)"
    ),
    "unique_time": (
        "id STRING, as_of TIMESTAMP", "TIMESTAMP", _UNIQUE,
        f"if({_span_after(_MONTH)} < as_of, {_span_after(_MONTH)}, "
        f"{_span_after(f'timestampadd(MONTH, -1, {_MONTH})')})",
    ),
    "unique_ip": ("id STRING", "STRING", _UNIQUE, f"if({_IP_DIGITS} = 8, {_QUADS}, {_GROUPS})"),
    "unique_pid": ("id STRING", "INT", _UNIQUE, "cast(conv(substr(id, -24, 4), 16, 10) as int)"),
}  # fmt: skip


def register_functions(spark: SparkSession) -> None:
    for name, (parameters, kind, is_id, expression) in FUNCTIONS.items():
        spark.sql(
            f"CREATE OR REPLACE TEMPORARY FUNCTION {name}({parameters}) RETURNS {kind} "
            f"RETURN CASE WHEN {is_id} THEN {expression} END"
        )
