"""The table of lifecycles: one row for each message and channel, as columns and back again.

A row holds all that is known of a life, so it can be read, more events added, and written again
(`brought_up`): whatever comes late finds its row. Nothing in it depends on how the events were cut
into batches.

A row begins with the first event of the message in the channel; or, unsent, with the publish, when
the trace had an event of the channel before. A message that was published before anything is known
of any channel has one row without a channel, until there is a better one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.pipelines.lifecycles.events import Names, Numbers, coded, ids_of, numbers_of
from penstock.pipelines.lifecycles.fates import FATES, fates
from penstock.pipelines.lifecycles.lives import (
    COUNTS,
    LEASTS,
    LIFE,
    MOSTS,
    NEVER,
    NO_ATTEMPT,
    NO_TRACE,
    begins_of,
    merged,
    message_numbers,
)
from penstock.pipelines.lifecycles.ranges import within
from penstock.pipelines.trace_table import hex_ids
from penstock.spark.lake import Shape

_TIME = pa.timestamp("us", tz="UTC")
_TIMES = ("published", "first_sent", "finished", "last")
_NONE = {"first_attempt": NO_ATTEMPT, "trace_id": NO_TRACE, "last_step": -1}
_NONE |= {name: NEVER for name, _ in LEASTS if name not in _NONE}
_NUMBERS = tuple(
    (name, pa.int64() if kind == "<i8" else pa.int32())
    for name, kind in (*LEASTS, *MOSTS, *COUNTS)
    if name not in _TIMES
)
COLUMNS = pa.schema(
    [
        ("topic", pa.string()),
        ("channel", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("message_id", pa.string()),
        ("fate", pa.string()),
        *((name, _TIME) for name in _TIMES),
        *_NUMBERS,
    ]
)
SHAPE = Shape(COLUMNS, ("topic",), ("offset", "published"))


def rows_of(topic: str, names: Sequence[str], lives: Numbers, ranges: Numbers) -> pa.RecordBatch:
    """`ranges`: as `islands` gives them, with the numbers of these names."""
    fate = fates(lives, _in_ranges(lives, ranges))
    channel = lives["channel"]
    columns = {
        "topic": pa.repeat(pa.scalar(topic), len(lives)),
        "channel": pa.array(["", *names], pa.string()).take(pa.array(channel, mask=channel == 0)),
        "partition": pa.array(lives["partition"]),
        "offset": pa.array(lives["offset"]),
        "message_id": hex_ids(lives["message_id"]),
        "fate": pa.array(FATES).take(pa.array(fate)),
    }
    for name in _TIMES:
        columns[name] = _masked(lives, name, pa.int64()).cast(_TIME)
    for name, kind in _NUMBERS:
        columns[name] = _masked(lives, name, kind)
    return pa.RecordBatch.from_arrays([columns[name] for name in COLUMNS.names], schema=COLUMNS)


def _masked(lives: Numbers, name: str, kind: pa.DataType) -> pa.Array:
    column = np.ascontiguousarray(lives[name])
    return pa.array(column, kind, mask=column == _NONE[name] if name in _NONE else None)


def _in_ranges(lives: Numbers, ranges: Numbers) -> Numbers:
    found = np.zeros(len(lives), bool)
    for number in np.unique(ranges["channel"]):
        mine = np.flatnonzero(lives["channel"] == number)
        found[mine] = within(ranges, number, lives["partition"][mine], lives["offset"][mine])
    return found


def lives_in(batch: pa.RecordBatch, names: Names) -> Numbers:
    """`rows_of`, backwards. The topic is not in the files."""
    found = np.empty(batch.num_rows, LIFE)
    channels, code = coded(batch.column("channel"))
    found["channel"] = names.numbers(channels)[code]
    found["message_id"] = ids_of(batch.column("message_id"))
    for name in ("partition", "offset"):
        found[name] = numbers_of(batch.column(name))
    for name in _TIMES:
        found[name] = _filled(batch.column(name).cast(pa.int64()), name)
    for name, _ in _NUMBERS:
        found[name] = _filled(batch.column(name), name)
    return found


def _filled(column: pa.Array, name: str) -> Numbers:
    found = numbers_of(column)
    if not column.null_count:
        return found
    missing = column.is_null().to_numpy(zero_copy_only=False)
    return np.asarray(np.where(missing, _NONE[name], found))


# --- more events ---


def brought_up(old: Numbers, new: Numbers, firsts: Mapping[int, int]) -> Numbers:
    """All lives of the messages, after more events: `new` are the lives of these (`lives_of`).
    `firsts`: for each channel the place in `_trace` of its first event."""
    lives = _filled_in(merged(np.concatenate([old, new])))
    heads = lives[(lives["channel"] == 0) & (lives["published_at"] != NEVER)]
    made = []
    for channel, place in firsts.items():
        unsent = heads[heads["published_at"] >= place].copy()
        unsent["channel"] = channel
        made.append(unsent)
    lives = _filled_in(merged(np.concatenate([lives, *made])))
    message = message_numbers(lives)
    alone = np.bincount(message)[message] == 1 if len(message) else np.empty(0, bool)
    found: Numbers = lives[(lives["channel"] != 0) | alone]
    return found


def _filled_in(lives: Numbers) -> Numbers:
    """What is known of a message stands in each of its rows."""
    if not len(lives):
        return lives
    message, begins = message_numbers(lives), begins_of(lives)
    acts: dict[str, Any] = {"published": np.minimum, "published_at": np.minimum}
    for name, act in {**acts, "trace_id": np.maximum}.items():
        lives[name] = act.reduceat(lives[name], begins)[message]
    known = lives["published"] != NEVER
    lives["last"][known] = np.maximum(lives["last"], lives["published"])[known]
    return lives


def by_offset(lives: Numbers) -> Numbers:
    """As the files have them: each file has all rows of its span of offsets."""
    keys = ("channel", "message_id", "partition", "offset")
    found: Numbers = lives[np.lexsort([lives[name] for name in keys])]
    return found


def cut(lives: Numbers, rows_max: int) -> list[Numbers]:
    """Into files: about so many rows, all of an offset in one."""
    parts = []
    while len(lives) > rows_max:
        at = int(np.searchsorted(lives["offset"], lives["offset"][rows_max], "left"))
        at = at or int(np.searchsorted(lives["offset"], lives["offset"][rows_max], "right"))
        parts.append(lives[:at])
        lives = lives[at:]
    return [*parts, lives] if len(lives) else parts
