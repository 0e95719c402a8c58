"""Lifecycles in SQL: from events, one row for each message and channel; rows of the same lifecycle
add up to one.

All that is kept of a life is a least, a greatest or a count, so it does not matter how the events
were cut into parts, nor in which order the parts come. What happens to the topic itself
(`published`) is the life whose channel is NULL.

`sent_at` is the position of the first delivery in `_trace` as one number: events of one microsecond
still have an order there. `last_step` is the position of the last step, and what it left the
message in.

What became of a message in a channel is its fate:

finished    a consumer has done it
ended       dead-lettered, skipped, filtered, emptied, corrupt: it will not be sent any more
delayed     it waits until its time comes
out         a consumer has it
back        it was given back, and waits to be sent again
unsent      it was not sent yet
"""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from penstock.pipelines.lifecycles.engine import Engine
from penstock.spark.delta_table import Shape
from penstock.trace.events import Kind

FATES = ("finished", "ended", "delayed", "out", "back", "unsent")
WAITS = {
    "first_sent": ("published", "first_sent"),
    "handling": ("first_sent", "finished"),
    "total": ("published", "finished"),
}
PERCENTS = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
KEY = 'channel, partition, "offset", message_id'


def _among(*kinds: Kind) -> str:
    return f"event IN ({', '.join(repr(kind.label) for kind in kinds)})"


_GIVEN_BACK = (Kind.REQUEUED, Kind.TIMED_OUT, Kind.DISCONNECTED)
STEPS = _among(Kind.SENT, Kind.FINISHED, *_GIVEN_BACK)
ENDED = _among(Kind.DEAD_LETTERED, Kind.SKIPPED, Kind.FILTERED, Kind.EMPTIED, Kind.CORRUPT)
ABOUT_MESSAGES = f"NOT {_among(Kind.STARTED, Kind.SWITCHED)}"
OF_MESSAGES = f"message_id IS NOT NULL AND {ABOUT_MESSAGES}"
# The last step with what it left a message in: 1 out, 2 delayed, 3 back.
_LEFT_IN = f"""CASE WHEN {_among(Kind.SENT, Kind.TOUCHED)} THEN 1
    WHEN {_among(Kind.DELAYED)} THEN 2
    WHEN {_among(*_GIVEN_BACK, Kind.RELEASED)} THEN 3 END"""
_PUBLISHED, _SENT, _FINISHED = map(_among, (Kind.PUBLISHED, Kind.SENT, Kind.FINISHED))
# Column: what it is of the events, how those of parts add up, and its type in a table.
_COLUMNS = {
    "published": (f"min(us) FILTER ({_PUBLISHED})", "min", "BIGINT"),
    "first_sent": (f"min(us) FILTER ({_SENT})", "min", "BIGINT"),
    "finished": (f"min(us) FILTER ({_FINISHED})", "min", "BIGINT"),
    "last": ("max(us)", "max", "BIGINT"),
    "published_at": (f"min(position) FILTER ({_PUBLISHED})", "min", "BIGINT"),
    "sent_at": (f"min(position) FILTER ({_SENT})", "min", "BIGINT"),
    "first_attempt": (f"min(attempts) FILTER ({_SENT})", "min", "INTEGER"),
    "trace_id": ("max(trace_id)", "max", "BIGINT"),
    "last_step": (f"max((position << 2) | ({_LEFT_IN}))", "max", "BIGINT"),
    "attempts": ("max(attempts)", "max", "INTEGER"),
    "sends": (f"count(*) FILTER ({_SENT})", "sum", "INTEGER"),
    "finishes": (f"count(*) FILTER ({_FINISHED})", "sum", "INTEGER"),
    "given_back": (f"count(*) FILTER ({_among(*_GIVEN_BACK)})", "sum", "INTEGER"),
    "endings": (f"count(*) FILTER ({ENDED})", "sum", "INTEGER"),
    "delays": (f"count(*) FILTER ({_among(Kind.DELAYED)})", "sum", "INTEGER"),
    "releases": (f"count(*) FILTER ({_among(Kind.RELEASED)})", "sum", "INTEGER"),
}
NAMES = tuple(_COLUMNS)
TIMES = ("published", "first_sent", "finished", "last")
NUMBERS = {name: kind for name, (_, _, kind) in _COLUMNS.items() if name not in TIMES}


def lives_of(events: str, names: Iterable[str] = NAMES) -> str:
    """A query for the lifecycles in a table of events, with these columns of the events."""
    columns = ", ".join(f"{_COLUMNS[name][0]} AS {name}" for name in names)
    return f"SELECT {KEY}, {columns} FROM {events} WHERE {OF_MESSAGES} GROUP BY {KEY}"


def fate_of(in_range: str) -> str:
    """`in_range` selects messages that ended together with many others."""
    return f"""CASE WHEN finishes > 0 THEN 'finished' WHEN endings > 0 OR {in_range} THEN 'ended'
        ELSE ['unsent', 'out', 'delayed', 'back'][1 + coalesce(last_step & 3, 0)] END"""


# --- ranges of offsets that met one fate at once: a channel that was emptied, or set further on ---

Range = tuple[str, int, int, int]  # channel, partition, offsets [first, end)
# An event about a range has no message id, so it is in nobody's life.
RANGES = """SELECT channel, partition, "offset" AS first, "offset" + messages AS "end"
    FROM events WHERE channel IS NOT NULL"""
ENDED_RANGES = f"{RANGES} AND message_id IS NULL AND {ENDED}"


def islands(ranges: Iterable[Range]) -> list[Range]:
    """Ranges that touch or overlap as one; sorted by channel, partition and offset."""
    found: list[Range] = []
    for channel, partition, first, end in sorted(ranges):
        if found and found[-1][:2] == (channel, partition) and first <= found[-1][3]:
            found[-1] = (channel, partition, found[-1][2], max(end, found[-1][3]))
        else:
            found.append((channel, partition, first, end))
    return found


def view_islands(engine: Engine, name: str, ranges: Iterable[Range]) -> bool:
    """Whether there are any: to look them up for each message is not cheap."""
    rows = islands(ranges)
    columns = zip(*rows, strict=True) if rows else ((), (), (), ())
    kinds = (pa.string(), pa.int32(), pa.int64(), pa.int64())
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    engine.view(name, pa.table(arrays, names=["channel", "partition", "first", "end"]))
    return bool(rows)


def within(name: str) -> str:
    """Joins a `life` to the last island that begins before it."""
    return f"""ASOF LEFT JOIN {name} ON {name}.channel = life.channel
        AND {name}.partition = life.partition AND {name}.first <= life."offset" """


# --- the table: one row for each message and channel, and more events put into it ---
#
# A row holds all that is known of a life, so it can be read, more events added, and written again
# (`brought_up`): whatever comes late finds its row. Nothing in it depends on how the events were
# cut into batches.
#
# A row begins with the first event of the message in the channel; or, unsent, with the publish,
# when the trace had an event of the channel before. A message that was published before anything is
# known of any channel has one row without a channel, until there is a better one.

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


_VALUES = {name: _WHOLE.get(name, name) for name in NAMES}
_ROW = ", ".join(
    f"make_timestamptz({value}) AS {name}" if name in TIMES else f"{value} AS {name}"
    for name, value in _VALUES.items()
)


def brought_up(first: float, end: float) -> str:
    """A query for all rows of the offsets [first, end), after more events. `fresh` are the
    lifecycles of these, `old` the existing rows, `firsts` has the position in `_trace` of each
    channel's first event, `ended` the offsets that ended together."""
    sums = ", ".join(f"{how}({n})::{kind} AS {n}" for n, (_, how, kind) in _COLUMNS.items())
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
        FROM message JOIN firsts ON published_at >= position),
    life AS (SELECT {KEY}, {sums} FROM begun GROUP BY {KEY}),
    fated AS (
        SELECT life.*, {fate_of('coalesce(life."offset" < ended."end", false)')} AS fate
        FROM life {within("ended")})
    SELECT {KEY}, fate, {_ROW}
    FROM fated JOIN message USING ({_MESSAGE})
    QUALIFY channel IS NOT NULL OR count(*) OVER (PARTITION BY {_MESSAGE}) = 1
    ORDER BY "offset", partition, message_id, channel"""


def rows_of(topic: str, found: pa.Table) -> pa.Table:
    """The result of that query, in the form of the table."""
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


# --- latencies and slow messages, out of the table of lifecycles ---


_US = {name: f"epoch_us({until}) - epoch_us({since})" for name, (since, until) in WAITS.items()}


def latencies(since: str) -> str:
    """A query: percentiles by topic, channel and hour of the publish, in microseconds: from the
    publish to the first delivery, from there to the end of the handling, and both together."""
    figures = [
        f"quantile_disc({us}, {share}) AS {name}_{percent}_us"
        for name, us in _US.items()
        for percent, share in PERCENTS.items()
    ]
    figures += [f"max({us}) AS {name}_max_us" for name, us in _US.items()]
    return f"""SELECT topic, channel, date_trunc('hour', published) AS hour, count(*) AS messages,
        count(first_sent) AS sent, count(finished) AS finished, {", ".join(figures)}
    FROM lives WHERE published IS NOT NULL AND channel IS NOT NULL AND {since}
    GROUP BY topic, channel, hour ORDER BY topic, channel, hour"""


def slowest(since: str, count: int) -> str:
    """A query: the messages with the longest time from publish to finish."""
    waits = ", ".join(f"{us} AS {name}_us" for name, us in _US.items())
    return f"""SELECT topic, channel, partition, "offset", message_id, trace_id, published,
        first_sent, finished, sends, {waits}
    FROM lives WHERE published IS NOT NULL AND finished IS NOT NULL AND {since}
    ORDER BY total_us DESC, topic, channel, partition, "offset" LIMIT {count}"""
