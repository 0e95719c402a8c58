"""Lifecycles: of the events of the trace table, one row for each message and channel.

One pass: an event of the topic itself (`published`) is counted once for each channel of the topic
that the trace knows, and then all events are grouped by channel and message. All that is kept of
a group has a fixed width, so Spark groups in hash tables and sorts nothing.

`sent_at` is the place of the first delivery in `_trace` as one number: events of one microsecond
still have an order there. `fate` says what became of the message:

    finished    a consumer has done it
    ended       dead-lettered, skipped, filtered, emptied: it will not be sent any more
    delayed     it waits until its time comes
    out         a consumer has it
    back        it was given back, and waits to be sent again
    unsent      it was not sent yet

Ranges (one event about many offsets) are few: they are merged, and joined by offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.pipelines.views import Views

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GIVEN_BACK = ("requeued", "timed_out", "disconnected")
ENDED = ("dead_lettered", "skipped", "filtered", "emptied")
INDEX_BITS = 20  # a body has fewer events than that: a message has at most some megabytes


def _texts(names: tuple[str, ...]) -> str:
    return ", ".join(f"'{name}'" for name in names)


AT = f"(trace_offset * {1 << INDEX_BITS} + trace_index)"

_RANGES = f"""
SELECT topic, channel, partition, min(first) AS first, max(end) AS end
FROM (
    SELECT *, count_if(before IS NULL OR before < first)
        OVER (PARTITION BY topic, channel, partition ORDER BY first) AS island
    FROM (
        SELECT topic, channel, partition, offset AS first, offset + messages AS end,
            max(offset + messages) OVER (PARTITION BY topic, channel, partition ORDER BY offset
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
        FROM {{events}}
        WHERE channel IS NOT NULL AND message_id IS NULL AND event IN ({_texts(ENDED)})))
GROUP BY topic, channel, partition, island
"""

_CHANNELS = """
SELECT topic AS of_topic, collect_set(channel) AS channels
FROM {events} WHERE channel IS NOT NULL AND event <> 'switched' GROUP BY topic
"""

_SPREAD = f"""
SELECT /*+ BROADCAST(c) */ topic, partition, offset, message_id, trace_id, event, time,
    attempts, {AT} AS at,
    explode_outer(if(channel IS NULL, c.channels, array(channel))) AS channel
FROM {{events}} LEFT JOIN {{channels}} AS c ON topic = of_topic
WHERE message_id IS NOT NULL
"""

_GROUPED = f"""
SELECT topic, channel, partition, offset, message_id,
    max(trace_id) AS trace_id,
    min(if(event = 'published', time, NULL)) AS published,
    min(if(event = 'sent', time, NULL)) AS first_sent,
    min(if(event = 'finished', time, NULL)) AS finished,
    max(time) AS last,
    count_if(event = 'sent') AS sends,
    count_if(event = 'finished') AS finishes,
    count_if(event IN ({_texts(GIVEN_BACK)})) AS given_back,
    count_if(event IN ({_texts(ENDED)})) AS endings,
    count_if(event = 'delayed') AS delays,
    count_if(event = 'released') AS releases,
    max(attempts) AS attempts,
    min(if(event = 'sent', attempts, NULL)) AS first_attempt,
    min(if(event = 'sent', at, NULL)) AS sent_at,
    max(CASE WHEN event IN ('sent', 'touched') THEN at * 4 + 1
             WHEN event = 'delayed' THEN at * 4 + 2
             WHEN event IN ({_texts((*GIVEN_BACK, "released"))}) THEN at * 4 + 3 END) AS last_step
FROM {{spread}} GROUP BY topic, channel, partition, offset, message_id
"""

_FATES = """
SELECT /*+ BROADCAST(ranges) */ lives.* EXCEPT (last_step),
    CASE WHEN finishes > 0 THEN 'finished'
         WHEN endings > 0 OR ranges.first IS NOT NULL THEN 'ended'
         WHEN last_step % 4 = 2 THEN 'delayed'
         WHEN last_step % 4 = 1 THEN 'out'
         WHEN last_step % 4 = 3 THEN 'back'
         ELSE 'unsent' END AS fate
FROM {lives} AS lives LEFT JOIN {ranges} AS ranges
ON lives.topic = ranges.topic AND lives.channel = ranges.channel
    AND lives.partition = ranges.partition
    AND lives.offset >= ranges.first AND lives.offset < ranges.end
"""

_MICROSECONDS = "unix_micros({until}) - unix_micros({since})"
PERCENTS = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
WAITS = {
    "first_sent": ("published", "first_sent"),
    "handling": ("first_sent", "finished"),
    "total": ("published", "finished"),
}


def wait(name: str) -> str:
    since, until = WAITS[name]
    return _MICROSECONDS.format(since=since, until=until)


def percentile_columns() -> str:
    """Aggregates, all percentiles of a wait in one sketch: `total` is a list of numbers."""
    percents = ", ".join(map(str, PERCENTS.values()))
    return ", ".join(
        f"percentile_approx({wait(name)}, array({percents})) AS {name}, "
        f"max({wait(name)}) AS {name}_max_us"
        for name in WAITS
    )


def _unfolded() -> str:
    return ", ".join(
        f"{name}[{place}] AS {name}_{percent}_us"
        for name in WAITS
        for place, percent in enumerate(PERCENTS)
    )


_LATENCIES = f"""
SELECT topic, channel, hour, messages, sent, finished, {_unfolded()},
    first_sent_max_us, handling_max_us, total_max_us
FROM (
    SELECT topic, channel, date_trunc('HOUR', published) AS hour,
        count(*) AS messages, count(first_sent) AS sent, count(finished) AS finished,
        {percentile_columns()}
    FROM {{lives}} WHERE published IS NOT NULL AND channel IS NOT NULL
    GROUP BY topic, channel, date_trunc('HOUR', published))
"""

_SLOWEST = f"""
SELECT topic, channel, partition, offset, message_id, trace_id, published, first_sent, finished,
    sends, {wait("first_sent")} AS first_sent_us, {wait("handling")} AS handling_us,
    {wait("total")} AS total_us
FROM {{lives}} WHERE published IS NOT NULL AND finished IS NOT NULL
ORDER BY total_us DESC, topic, channel, partition, offset LIMIT :count
"""


# Nowhere a WITH: Spark moves the inner ones of a text to its top, and then does not recognise what
# was kept in memory any more.


def lifecycles(views: Views, events: DataFrame) -> DataFrame:
    """A row for each message and channel; `channel` is NULL where the trace knows no channel."""
    channels = views.sql(_CHANNELS, events=events)
    spread = views.sql(_SPREAD, events=events, channels=channels)
    lives = views.sql(_GROUPED, spread=spread)
    ranges = views.sql(_RANGES, events=events)
    return views.sql(_FATES, lives=lives, ranges=ranges)


def latencies(views: Views, lives: DataFrame) -> DataFrame:
    """Percentiles by topic, channel and hour of the publish, in microseconds: from the publish to
    the first delivery, from there to the end of the handling, and both together."""
    return views.sql(_LATENCIES, lives=lives)


def slowest(views: Views, lives: DataFrame, count: int) -> DataFrame:
    """The messages that took longest from publish to finish."""
    return views.sql(_SLOWEST, {"count": count}, lives=lives)
