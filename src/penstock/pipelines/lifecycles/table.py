"""The table of lifecycles: one row for each message and channel, and more events put into it.

A row holds all that is known of a life, so it can be read, more events added, and written again
(`brought_up`): whatever comes late finds its row. Nothing in it depends on how the events were cut
into batches.

A row begins with the first event of the message in the channel; or, unsent, with the publish, when
the trace had an event of the channel before. A message that was published before anything is known
of any channel has one row without a channel, until there is a better one.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from penstock.pipelines.lifecycles.lives import KEY, NAMES, NUMBERS, TIMES, fate_of, merged, within
from penstock.spark.delta_table import Shape

_TIME = pa.timestamp("us", tz="UTC")
COLUMNS = pa.schema(
    [
        ("topic", pa.string()),
        ("channel", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("message_id", pa.string()),
        ("fate", pa.string()),
        *((name, _TIME) for name in TIMES),
        *((n, pa.int64() if kind == "BIGINT" else pa.int32()) for n, kind in NUMBERS.items()),
    ]
)
SHAPE = Shape(COLUMNS, ("topic",), ("offset", "published"))

_MESSAGE = 'partition, "offset", message_id'
_AS_MICROS = ", ".join([*(f"epoch_us({name}) AS {name}" for name in TIMES), *NUMBERS])
# What is known of a message stands in each of its rows; of an unsent one in a channel that is all.
_WHOLE = {
    "published": "message.published",
    "published_at": "message.published_at",
    "trace_id": "message.trace_id",
    "last": "greatest(last, message.published)",
}


def _column(name: str) -> str:
    value = _WHOLE.get(name, name)
    if name in TIMES:
        return f"make_timestamptz({value}) AS {name}"
    return f"{value} AS {name}"


def brought_up(first: float, end: float) -> str:
    """A query for all rows of the offsets [first, end), after more events. `fresh` are the lives of
    these, `old` the rows that were there, `firsts` says for each channel the place in `_trace` of
    its first event, `ended` which offsets met one fate at once."""
    return f"""
    WITH parts AS (
        SELECT {KEY}, {", ".join(NAMES)} FROM fresh
        WHERE "offset" >= {first}::DOUBLE AND "offset" < {end}::DOUBLE
        UNION ALL BY NAME SELECT {KEY}, {_AS_MICROS} FROM old),
    message AS (
        SELECT {_MESSAGE}, min(published) AS published, min(published_at) AS published_at,
            max(trace_id) AS trace_id
        FROM parts GROUP BY ALL),
    begun AS (
        SELECT * FROM parts
        UNION ALL BY NAME
        SELECT channel, {_MESSAGE}, 0 AS attempts, 0 AS sends, 0 AS finishes, 0 AS given_back,
            0 AS endings, 0 AS delays, 0 AS releases
        FROM message JOIN firsts ON published_at >= place),
    life AS ({merged("begun")}),
    fated AS (
        SELECT life.*, {fate_of('coalesce(life."offset" < ended."end", false)')} AS fate
        FROM life {within("ended")})
    SELECT {KEY}, fate, {", ".join(map(_column, NAMES))}
    FROM fated JOIN message USING ({_MESSAGE})
    QUALIFY channel IS NOT NULL OR count(*) OVER (PARTITION BY {_MESSAGE}) = 1
    ORDER BY "offset", partition, message_id, channel"""


def rows_of(topic: str, found: pa.Table) -> pa.Table:
    """What that query has found, as the table has it."""
    found = found.append_column("topic", pa.repeat(pa.scalar(topic), found.num_rows))
    return found.select(COLUMNS.names).cast(COLUMNS)


def cut(rows: pa.Table, rows_max: int) -> Iterator[pa.Table]:
    """Into files: about so many rows, all of an offset in one."""
    offset, at = rows.column("offset").to_numpy(), 0
    while len(offset) - at > rows_max:
        end = int(np.searchsorted(offset, offset[at + rows_max], "left"))
        if end <= at:
            end = int(np.searchsorted(offset, offset[at], "right"))
        yield rows.slice(at, end - at)
        at = end
    if at < len(offset):
        yield rows.slice(at)
