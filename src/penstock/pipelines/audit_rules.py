"""The rules of the audit, as SQL over lifecycles and events of one topic.

**Who is judged.** Only a message whose `published` is in the trace, and in a channel only from the
first message on that the channel's trace shows a first delivery of: what lies before it may have
been delivered before anybody traced. A message with a trace id is traced in every channel, so for
these all first deliveries of the channel count; the others are traced by switches, so for them
only first deliveries of such messages count (`floor`, `position`, and the same `_of_switched`).
Deliveries that are not the first, and delayed messages, say nothing about where a channel is.
Where tracing was switched, `audit_tracing` says what of it counts (`seen`, `whole`).

**Lost**: below the channel's position (the last message that it sent for the first time), older
than the settle time, no delivery, no end. **Stuck**: first delivered so long ago, and neither
finished nor ended nor in a wait that somebody asked for. **Doubled**: delivered again without
having been given back, or after it was finished; finished twice. **Out of order**: first
deliveries in another order than the log's.

Places where an order is broken are found without sorting the whole: rows are sorted in buckets;
of each bucket the first and last row and the broken places are kept, and only these few are
sorted together, so that the first row of a bucket meets the last of the bucket before.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.pipelines.audit_tracing import Tracing
from penstock.pipelines.lifecycles import AT, GIVEN_BACK, INDEX_BITS, WAITS, wait
from penstock.pipelines.views import Views

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OFFSET_BUCKET_BITS = 16
_BODY_BUCKET_BITS = 6  # bodies of `_trace`


class Rules(NamedTuple):
    """What is judged, and by which times."""

    since: datetime  # published at or after it
    until: datetime  # published before it
    as_of: datetime  # what is known up to then
    settle_s: float
    stuck_s: float  # since the first delivery
    tracing: Tracing = Tracing()

    @property
    def slot_us(self) -> int:
        span_us = round((self.until - self.since).total_seconds() * 1_000_000)
        return max(1, -(-span_us // SLOTS))

    def arguments(self, *names: str) -> dict[str, Any]:
        known = {
            "since": self.since,
            "until": self.until,
            "lost_before": _seconds_before(self.as_of, self.settle_s),
            "stuck_before": _seconds_before(self.as_of, self.stuck_s),
        }
        return {name: known[name] for name in names}


def _seconds_before(moment: datetime, seconds: float) -> datetime:
    return datetime.fromtimestamp(moment.timestamp() - seconds, moment.tzinfo)


_IN_SPAN = "published >= :since AND published < :until"
_FIRST_DELIVERY = "sends > 0 AND first_attempt <= 1 AND delays = 0 AND releases = 0"

_MARKS = f"""
SELECT channel AS of_channel, partition AS of_partition,
    min(offset) AS floor, max(offset) AS position,
    min(if(trace_id IS NULL, offset, NULL)) AS floor_of_switched,
    max(if(trace_id IS NULL, offset, NULL)) AS position_of_switched{{around}}
FROM {{lives}} WHERE {_FIRST_DELIVERY} AND channel IS NOT NULL
GROUP BY channel, partition
"""

_PLACED = """
    SELECT /*+ BROADCAST(marks) */ lives.*,
        (trace_id IS NOT NULL OR {seen}) AND NOT ({unsure}) AS seen,
        trace_id IS NOT NULL OR {whole} AS whole,
        coalesce(offset >= if(trace_id IS NULL, floor_of_switched, floor), false)
            AS past_floor,
        coalesce(offset < if(trace_id IS NULL, position_of_switched, position), false) AS passed
    FROM {lives} AS lives LEFT JOIN {marks} AS marks
        ON channel = of_channel AND partition = of_partition
    WHERE channel IS NOT NULL AND published >= :since AND published < :until
"""

_JUDGED = """
SELECT * EXCEPT (past_floor, seen, whole, passed),
    judged AND seen AND passed AND fate = 'unsent' AND delays = 0
        AND published <= :lost_before AS lost,
    judged AND whole AND sends > 0 AND fate IN ('out', 'back')
        AND first_sent <= :stuck_before AS stuck,
    judged AND whole AND (sends > 1 OR finishes > 1) AS repeated
FROM (
    SELECT *, past_floor AND (if(sends > 0, whole OR fate IN ('finished', 'ended'), seen)) AS judged
    FROM {placed})
"""

# Steps of messages that were delivered or finished more than once, each with the one before. After
# a start of the daemon messages come again that nobody gave back, and a finish that was not
# journalled yet, when it was killed, is one that never was.
_STEPS = f"""
SELECT *, CASE WHEN event = 'finished' THEN 'finished_twice'
               WHEN event_before = 'finished' THEN 'sent_after_finish'
               ELSE 'sent_again' END AS kind
FROM (
    SELECT channel, partition, offset, message_id, event, time, client, {AT} AS at,
        lag(event) OVER steps AS event_before, lag({AT}) OVER steps AS at_before
    FROM {{events}} JOIN (
        SELECT channel AS c, partition AS p, offset AS o, message_id AS m
        FROM {{judged}} WHERE repeated)
    ON channel = c AND partition = p AND offset = o AND message_id = m
    WHERE event IN ('sent', 'finished', {", ".join(f"'{name}'" for name in GIVEN_BACK)})
    WINDOW steps AS (PARTITION BY channel, partition, offset, message_id ORDER BY {AT}))
WHERE (event = 'sent' AND event_before IN ('sent', 'finished')
    OR event = 'finished' AND event_before = 'finished') AND NOT ({{restarted}})
"""

_DELIVERIES = f"""
SELECT channel, partition, sent_at AS place, offset, message_id AS id, first_sent AS time
FROM {{lives}}
WHERE channel IS NOT NULL AND {_IN_SPAN} AND {_FIRST_DELIVERY}
"""

_PUBLISHED = f"""
SELECT partition, offset AS place, offset, message_id AS id, time, {AT} AS at
FROM {{events}} WHERE event = 'published' AND time >= :since AND time < :until
"""

_BROKEN_PLACES = """
SELECT * EXCEPT (opens, closes)
FROM (
    SELECT * EXCEPT (offset_before, id_before, time_before),
        if(opens, lag(offset) OVER far, offset_before) AS offset_before,
        if(opens, lag(id) OVER far, id_before) AS id_before,
        if(opens, lag(time) OVER far, time_before) AS time_before
    FROM (
        SELECT {keys}, place, offset, id, time,
            lag(offset) OVER near AS offset_before, lag(id) OVER near AS id_before,
            lag(time) OVER near AS time_before,
            lag(place) OVER near IS NULL AS opens, lead(place) OVER near IS NULL AS closes
        FROM (SELECT *, place >> {bits} AS bucket FROM {{rows}})
        WINDOW near AS (PARTITION BY {keys}, bucket ORDER BY place))
    WHERE opens OR closes OR {broken}
    WINDOW far AS (PARTITION BY {keys} ORDER BY place))
WHERE offset_before IS NOT NULL AND ({broken})
"""

# Every body of `_trace` once, and every event of it once.
_HOLES = """
SELECT trace_partition AS partition,
    max(trace_offset) - min(trace_offset) + 1 - count(*) AS missing,
    sum(greatest(rows - events, 0)) AS doubled, sum(rows) AS rows
FROM (
    SELECT trace_partition, trace_offset, count(*) AS rows, max(trace_index) + 1 AS events
    FROM {events} GROUP BY trace_partition, trace_offset)
GROUP BY trace_partition
"""

_SAME_ID = """
SELECT first(partition) AS partition, max(offset) AS offset, min(offset) AS offset_before, id,
    max(time) AS time
FROM {rows} GROUP BY id HAVING min(offset) < max(offset)
"""

SLOTS = 60  # of the span, for what is shown over time
_COARSE = 1.2  # one bar of the histogram is so much slower than the one before
_FINE = 1.01  # percentiles are off by half a percent at most

_TALLIES = f"""
SELECT channel,
    least((unix_micros(published) - unix_micros(:since)) DIV :slot_us, {SLOTS - 1}) AS slot,
    CAST(floor(log({_COARSE}, {wait("total")} + 1)) AS int) AS bar,
    count(*) AS messages, count_if(judged) AS judged,
    count_if(fate = 'finished') AS finished, count_if(fate = 'ended') AS ended,
    count_if(fate = 'delayed') AS delayed, count_if(fate = 'out') AS out,
    count_if(fate = 'back') AS back, count_if(fate = 'unsent') AS unsent,
    count_if(lost) AS lost, count_if(stuck) AS stuck, count_if(repeated) AS repeated,
    sum(sends) AS sends, max({wait("first_sent")}) AS first_sent_max,
    max({wait("handling")}) AS handling_max, max({wait("total")}) AS total_max
FROM {{judged}} GROUP BY channel, slot, bar
"""

_WAITS = f"""
SELECT channel, wait, CAST(round(log({_FINE}, greatest(us, 0) + 1)) AS int) AS bar,
    count(*) AS messages
FROM (SELECT channel, stack({len(WAITS)}, {", ".join(f"'{n}', {wait(n)}" for n in WAITS)})
          AS (wait, us)
      FROM {{judged}})
WHERE us IS NOT NULL GROUP BY channel, wait, bar
"""


def bar_us(bar: int) -> float:
    """Where a bar of the histogram of `tallies` begins."""
    return _COARSE**bar - 1


def fine_us(bar: int) -> float:
    """What a bar of `waits` stands for."""
    return _FINE**bar - 1


def judged(views: Views, lives: DataFrame, rules: Rules) -> DataFrame:
    """The lifecycles of messages that were published in the span, with what the rules say."""
    tracing = rules.tracing
    around = _filled(_MARKS, around=tracing.around_starts_sql())
    marks = views.sql(around, lives=lives)
    text = _filled(
        _PLACED,
        seen=tracing.seen_sql(),
        whole=tracing.whole_sql(),
        unsure=tracing.unsure_sql(),
    )
    placed = views.sql(text, rules.arguments("since", "until"), lives=lives, marks=marks)
    return views.sql(_JUDGED, rules.arguments("lost_before", "stuck_before"), placed=placed)


def _filled(text: str, **parts: str) -> str:
    """With parts that are no frames."""
    for name, part in parts.items():
        text = text.replace(f"{{{name}}}", part.replace("{", "{{").replace("}", "}}"))
    return text


def repeats(views: Views, events: DataFrame, judged: DataFrame, rules: Rules) -> DataFrame:
    """Each delivery and finish too many: `kind` says which."""
    text = _filled(_STEPS, restarted=rules.tracing.restarted_sql("at_before", "at"))
    return views.sql(text, events=events, judged=judged)


def disorder(views: Views, lives: DataFrame, rules: Rules) -> DataFrame:
    """First deliveries of a lower offset than the one that the channel sent before it. Where the
    id has risen all the same, the topic was made anew: that is no disorder."""
    rows = views.sql(_DELIVERIES, rules.arguments("since", "until"), lives=lives)
    broken = "offset < offset_before AND id < id_before"
    return _broken(views, rows, ("channel", "partition"), INDEX_BITS + _BODY_BUCKET_BITS, broken)


def published(views: Views, events: DataFrame, rules: Rules) -> DataFrame:
    """The traced publishes of the span, for `falling`."""
    return views.sql(_PUBLISHED, rules.arguments("since", "until"), events=events)


def falling(views: Views, rows: DataFrame, dense: bool, times: bool) -> DataFrame:
    """Of rows (partition, place = offset, offset, id, time): neighbours that have the same offset,
    a hole between them (when offsets are `dense`), an id that does not rise, a time that falls."""
    broken = ["offset = offset_before", "id <= id_before"]
    broken += ["offset > offset_before + 1"] if dense else []
    broken += ["time < time_before"] if times else []
    return _broken(views, rows, ("partition",), _OFFSET_BUCKET_BITS, " OR ".join(broken))


def _broken(
    views: Views, rows: DataFrame, keys: tuple[str, ...], bits: int, broken: str
) -> DataFrame:
    text = _BROKEN_PLACES.format(keys=", ".join(keys), bits=bits, broken=broken)  # leaves {rows}
    return views.sql(text, rows=rows)


def holes(views: Views, events: DataFrame) -> DataFrame:
    """Bodies that the trace table lacks, and events that it has twice, by partition of `_trace`."""
    return views.sql(_HOLES, events=events)


def same_ids(views: Views, rows: DataFrame) -> DataFrame:
    """Ids that stand at more than one offset; of rows as `falling` takes them."""
    return views.sql(_SAME_ID, rows=rows)


def tallies(views: Views, judged: DataFrame, rules: Rules) -> DataFrame:
    """Counts by channel, slot of the span, and bar of the histogram of whole latencies."""
    arguments = {"since": rules.since, "slot_us": rules.slot_us}
    return views.sql(_TALLIES, arguments, judged=judged)


def waits(views: Views, judged: DataFrame) -> DataFrame:
    """How many messages waited how long, by channel and kind of wait."""
    return views.sql(_WAITS, judged=judged)
