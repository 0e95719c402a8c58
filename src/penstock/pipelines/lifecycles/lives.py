"""Lifecycles in SQL: from events, one row for each message and channel.

All that is kept of a life is a least, a greatest or a count, so it does not matter in which order
the events come. What happens to the topic itself (`published`) is the life whose channel is NULL.

`sent_at` is the position of the first delivery (`engine`), `last_step` the state that the last step
left: 1 out, 2 delayed, 3 back.

What became of a message in a channel is its fate:

finished    a consumer has done it
ended       dead-lettered, skipped, filtered, emptied, corrupt: it will not be sent any more
delayed     it waits until its time comes
out         a consumer has it
back        it was given back, and waits to be sent again
unsent      it was not sent yet
"""

import time
from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, WriterProperties, write_deltalake

from penstock import limits
from penstock.errors import ConfigError
from penstock.pipelines import topic_logs
from penstock.pipelines.delta_reader import LakeTable
from penstock.pipelines.lifecycles.engine import EVENT, Engine
from penstock.pipelines.maintenance import Beside, vacuum
from penstock.pipelines.progress import Progress
from penstock.pipelines.topic_logs import TopicLog
from penstock.spark.delta_table import Shape, TableLocation, check_fits
from penstock.trace.events import TOPIC, Kind

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
_LEFT_IN = f"""CASE WHEN {_among(Kind.SENT, Kind.TOUCHED)} THEN 1
    WHEN {_among(Kind.DELAYED)} THEN 2
    WHEN {_among(*_GIVEN_BACK, Kind.RELEASED)} THEN 3 END"""
_PUBLISHED, _SENT, _FINISHED = map(_among, (Kind.PUBLISHED, Kind.SENT, Kind.FINISHED))
# Column: what it is of the events, and its type in a table.
_COLUMNS = {
    "published": (f"min(us) FILTER ({_PUBLISHED})", "BIGINT"),
    "first_sent": (f"min(us) FILTER ({_SENT})", "BIGINT"),
    "finished": (f"min(us) FILTER ({_FINISHED})", "BIGINT"),
    "last": ("max(us)", "BIGINT"),
    "published_at": (f"min(position) FILTER ({_PUBLISHED})", "BIGINT"),
    "sent_at": (f"min(position) FILTER ({_SENT})", "BIGINT"),
    "first_attempt": (f"min(attempts) FILTER ({_SENT})", "INTEGER"),
    "trace_id": ("max(trace_id)", "BIGINT"),
    "last_step": (f"arg_max({_LEFT_IN}, position) FILTER (({_LEFT_IN}) > 0)", "INTEGER"),
    "attempts": ("max(attempts)", "INTEGER"),
    "sends": (f"count(*) FILTER ({_SENT})", "INTEGER"),
    "finishes": (f"count(*) FILTER ({_FINISHED})", "INTEGER"),
    "given_back": (f"count(*) FILTER ({_among(*_GIVEN_BACK)})", "INTEGER"),
    "endings": (f"count(*) FILTER ({ENDED})", "INTEGER"),
    "delays": (f"count(*) FILTER ({_among(Kind.DELAYED)})", "INTEGER"),
    "releases": (f"count(*) FILTER ({_among(Kind.RELEASED)})", "INTEGER"),
}
NAMES = tuple(_COLUMNS)
TIMES = ("published", "first_sent", "finished", "last")
NUMBERS = {name: kind for name, (_, kind) in _COLUMNS.items() if name not in TIMES}


def lives_of(events: str, names: Iterable[str] = NAMES, key: str = KEY) -> str:
    """A query for the lifecycles in a table of events, with these columns of the events."""
    columns = ", ".join(f"{_COLUMNS[name][0]} AS {name}" for name in names)
    return f"SELECT {key}, {columns} FROM {events} WHERE {OF_MESSAGES} GROUP BY {key}"


def fate_of(in_range: str) -> str:
    """`in_range` selects messages that ended together with many others."""
    return f"""CASE WHEN finishes > 0 THEN 'finished' WHEN endings > 0 OR {in_range} THEN 'ended'
        ELSE ['unsent', 'out', 'delayed', 'back'][1 + coalesce(last_step, 0)] END"""


# --- ranges of offsets that met one fate at once: a channel that was emptied, or set further on ---

# An event about a range has no message id, so it is in nobody's life.
RANGES = """SELECT topic, channel, partition, "offset" AS first, "offset" + messages AS "end"
    FROM events WHERE channel IS NOT NULL"""
ENDED_RANGES = f"{RANGES} AND message_id IS NULL AND {ENDED}"


def islands(ranges: str, key: str) -> str:
    """A query for these ranges, with those that touch or overlap as one. `key` says of what."""
    return f"""
    SELECT {key}, min(first) AS first, max("end") AS "end" FROM (
        SELECT *, count(*) FILTER (first > reached) OVER log AS number FROM (
            SELECT *, max("end") OVER (log ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
                AS reached
            FROM ({ranges}) WINDOW log AS (PARTITION BY {key} ORDER BY first, "end"))
        WINDOW log AS (PARTITION BY {key} ORDER BY first, "end"))
    GROUP BY {key}, number"""


def within(name: str, key: str) -> str:
    """Joins a `life` to the last island that begins before it."""
    same = " AND ".join(f"{name}.{one} = life.{one}" for one in key.split(", "))
    return f'ASOF LEFT JOIN {name} ON {same} AND {name}.first <= life."offset"'


# --- the table: one row for each message and channel ---
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

LOG = "topic, channel, partition"
_LIFE = f"topic, {KEY}"
_MESSAGE = 'topic, partition, "offset", message_id'
# What is known of a message stands in each of its rows; of an unsent one in a channel that is all.
_WHOLE = {
    "published": "message.published",
    "published_at": "message.published_at",
    "trace_id": "coalesce(fated.trace_id, message.trace_id)",
    "last": "greatest(fated.last, message.published)",
}
_VALUES = {name: _WHOLE.get(name, f"fated.{name}") for name in NAMES}
_ROW = ", ".join(
    f"make_timestamptz({value}) AS {name}" if name in TIMES else f"{value} AS {name}"
    for name, value in _VALUES.items()
)


def rows_of(has_ended: bool) -> str:
    """A query for all rows, out of the view `events` of a whole trace table, and of its `ended`
    ranges where it has any. What happened to the topic is the life without a channel."""
    in_range = 'coalesce(life."offset" < ended."end", false)' if has_ended else "false"
    return f"""
    WITH parts AS MATERIALIZED ({lives_of("events", key=_LIFE)}),
    message AS (SELECT * FROM parts WHERE channel IS NULL),
    firsts AS (
        SELECT topic, channel, min(position) AS position FROM events
        WHERE channel IS NOT NULL AND {OF_MESSAGES} GROUP BY ALL),
    life AS (
        SELECT * FROM parts
        UNION ALL BY NAME
        SELECT {_MESSAGE}, firsts.channel, 0 AS attempts, 0 AS sends, 0 AS finishes,
            0 AS given_back, 0 AS endings, 0 AS delays, 0 AS releases
        FROM message JOIN firsts USING (topic) ANTI JOIN parts ON parts.topic = message.topic
            AND parts.partition = message.partition AND parts."offset" = message."offset"
            AND parts.message_id = message.message_id AND parts.channel = firsts.channel
        WHERE published_at >= position),
    fated AS (
        SELECT life.*, {fate_of(in_range)} AS fate
        FROM life {within("ended", LOG) if has_ended else ""})
    SELECT {_MESSAGE}, fated.channel, fate, {_ROW}
    FROM fated LEFT JOIN message USING ({_MESSAGE})
    QUALIFY fated.channel IS NOT NULL OR count(*) OVER (PARTITION BY {_MESSAGE}) = 1
    ORDER BY topic, "offset", partition, message_id, fated.channel"""


# --- a table of them, level with a trace table ---
#
# Now and then it is made again, in one transaction, from all events. The transaction's version says
# which batches of the trace table the lifecycles have. Where there are no others nothing is done.
# Of a large table they are made the less often, so that it takes a small share of the time.


class LifeTable:
    def __init__(self, trace: str, path: str, options: Mapping[str, str] | None = None) -> None:
        self._trace = trace
        self.location = TableLocation(path, dict(options or {}))  # of both tables' store

    def update(self) -> int:
        """Take over new events. Returns the number of lifecycles; 0: there were no events."""
        trace = LakeTable(self._trace, self.location.options)
        app, end = f"penstock-lives-{trace.identity}", _end(trace)
        there = self.location.open()
        if there is not None:
            check_fits(self.location, there, SHAPE)
        self.location.create(SHAPE, {})

        def write(table: DeltaTable) -> int:
            version = table.transaction_version(app)
            if version is None and table.file_uris():
                rule = f"it has lifecycles of another trace table than {self._trace}: name another"
                raise ConfigError("lifecycles", self.location.uri, rule)
            return _made(trace, table, app, end) if (version or 0) < end else 0

        return self.location.change(write, "the lifecycles can't be written")


def _made(trace: LakeTable, table: DeltaTable, app: str, end: int) -> int:
    names = ", ".join(f'"{name}"' for name in COLUMNS.names)
    with Engine() as engine:
        engine.trace("trace", trace.dataset())
        engine.run(f"CREATE VIEW events AS SELECT {EVENT} FROM trace")
        engine.make("lives", rows_of(engine.make("ended", islands(ENDED_RANGES, LOG))))
        (row,) = engine.rows("SELECT count(*) AS made FROM lives")
        write_deltalake(
            table,
            engine.reader(f"SELECT {names} FROM lives").cast(COLUMNS),
            mode="overwrite",
            partition_by=list(SHAPE.partition_by),
            commit_properties=CommitProperties(app_transactions=[Transaction(app, end)]),
            target_file_size=limits.LAKE_LARGE_BYTES,
            writer_properties=WriterProperties(compression="ZSTD", compression_level=1),
        )
    return int(row["made"])


def _end(trace: LakeTable) -> int:
    """The number of batches in the table."""
    owner = topic_logs.known(trace.location).get(TOPIC, TopicLog()).owner
    last = trace.delta.transaction_version(owner)
    return 0 if last is None else last + 1


class LifeKeeper(Beside):
    """Updates now and then beside the query, and at its end, when a failure is an error."""

    def __init__(self, table: LifeTable, every_s: float, progress: Progress) -> None:
        super().__init__(progress, "the lifecycles were not brought up to date")
        self._table, self._every_s = table, every_s
        self._vacuumed_s = time.monotonic()
        self._next_s = self._vacuumed_s + every_s

    def _finish(self) -> None:
        made, path = self._table.update(), self._table.location.uri
        self._progress.say(
            f"{made:,} lifecycles are in {path}" if made else f"{path} has all events"
        )

    def _due(self, batches: int, now_s: float) -> Callable[[], None] | None:
        return self._work if batches and now_s >= self._next_s else None

    def _work(self) -> None:
        began_s = time.monotonic()
        try:
            self._table.update()
        finally:
            now_s = time.monotonic()
            self._next_s = now_s + max(self._every_s, limits.LIVES_RESTS * (now_s - began_s))
        if now_s - self._vacuumed_s >= limits.LIVES_VACUUM_S:
            self._vacuumed_s = now_s
            vacuum(self._table.location, limits.LIVES_RETAIN_S)


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
    waits = ", ".join(f"{us} AS {name}_us" for name, us in _US.items())
    return f"""SELECT topic, channel, partition, "offset", message_id, trace_id, published,
        first_sent, finished, sends, {waits}
    FROM lives WHERE published IS NOT NULL AND finished IS NOT NULL AND {since}
    ORDER BY total_us DESC, topic, channel, partition, "offset" LIMIT {count}"""
