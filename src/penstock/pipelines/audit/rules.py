"""The rules of the audit, as SQL over the events of one topic: `events`, a view of DuckDB.

**Who is judged.** Only a message whose `published` is in the trace, and in a channel only from the
channel's floor on. Where tracing was switched, the notes of that say of which messages a silence
means something (`seen`), and of which all is known (`whole`).

**Lost**: below the channel's position, older than the settle time, no delivery, no end; or not
finished and stepped over, because its bytes in the log are corrupt. **Stuck**:
first delivered so long ago, and neither finished nor ended nor in a wait that somebody asked for.
**Doubled**: delivered again without having been given back, or after it was finished; finished
twice. **Out of order**: first deliveries in another order than the log's.

**Marks.** `floor` and `position` are the lowest and the highest offset that the channel's trace
shows a first delivery of. What lies below the floor may have been delivered before anybody traced;
what lies above the position was not come to yet. Messages with a trace id are traced in every
channel, so they count for themselves only (`switched` is of all others). Deliveries that are not
the first, and delayed messages, say nothing about where a channel is.

Around each start of the daemon there may be deliveries whose events were lost: between the last
first delivery before it and the first one after it (`around`). After a start messages come again
that nobody gave back, and a finish that was not journalled yet when it was killed is one that never
was.

**What was traced when** is in the trace's own notes of starts and of switched rates. What a channel
does while it is not traced looks like nothing done. But a sample is no accident: a message is in
the sample of a rate when the hash of its id says so, and whoever is in the sample of a rate is in
that of each higher one. So, of a message that has no trace id (one that has is always traced):

- That nothing was done with it counts when its channel has been traced, since the publish, at least
  as much as the topic was at the publish, or when it is in the sample of the channel's lowest rate
  since then. Of the others nobody knows.
- What happened to it after its first delivery is known when the channel's rate has not been lowered
  since then, or when the message is in the sample of the lowest rate since then.

Rates that nobody has noted are the daemon's own option: those count as all, and a channel without a
note of its own follows its topic. So a rate that is not known excuses nothing by itself.

And a kill loses the events that were not written yet: between the last first delivery before a
start and the next one after it, messages may have been delivered and finished unseen. A change of
a partition's leader counts as a start: the new one sends what the old one had out, and may not know
of its last finishes. So does a hole of the trace, whose events are unknown.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

import pyarrow as pa

from penstock.pipelines.lifecycles.engine import EVENT, POSITION, Engine, text
from penstock.pipelines.lifecycles.lives import (
    ABOUT_MESSAGES,
    ENDED_RANGES,
    RANGES,
    STEPS,
    WAITS,
    fate_of,
    islands,
    lives_of,
    within,
)
from penstock.times import micros
from penstock.trace.events import RATE_ALL

_EVER_US = 1 << 62


class Switch(NamedTuple):
    time_us: int
    channel: str | None  # None: the topic
    rate: int  # of RATE_ALL


class Step(NamedTuple):
    """From one change of a rate to the next."""

    since_us: int
    of_topic: int
    of_channel: int
    least: int  # of the channel, from here to the end
    below: int  # mixed ids in the sample of that; what is in its last billionth counts as not in it


@dataclass(frozen=True)
class Tracing:
    """`steps` by channel; None: of a channel without notes of its own. `starts` are positions in
    `_trace`."""

    steps: Mapping[str | None, tuple[Step, ...]] = field(default_factory=dict)
    starts: tuple[int, ...] = ()

    def rates(self, channels: Iterable[str]) -> pa.Table:
        rows = []
        for name in channels:
            steps = self.steps.get(name, self.steps.get(None))
            named = None if steps is None else [step._asdict() for step in steps]
            rows.append({"channel": name, "steps": named})
        return pa.Table.from_pylist(rows, schema=_RATES)


_STEP = pa.struct([(n, pa.uint64() if n == "below" else pa.int64()) for n in Step._fields])
_RATES = pa.schema([("channel", pa.string()), ("steps", pa.list_(_STEP))])


def tracing(switches: Iterable[Switch], starts: Iterable[int]) -> Tracing:
    """`switches` of one topic, in order."""
    notes = list(switches)
    channels = {None, *(note.channel for note in notes)} if notes else set()
    return Tracing({channel: _steps(notes, channel) for channel in channels}, tuple(sorted(starts)))


def _steps(notes: list[Switch], channel: str | None) -> tuple[Step, ...]:
    of_topic, own = RATE_ALL, None
    rates = [(-_EVER_US, of_topic, of_topic)]
    for note in notes:
        if note.channel is None:
            of_topic = note.rate
        elif note.channel == channel:
            own = note.rate
        else:
            continue
        rates.append((note.time_us, of_topic, of_topic if own is None else own))
    found: list[Step] = []
    least = RATE_ALL
    for since_us, of_topic, of_channel in reversed(rates):
        least = min(least, of_channel)
        below = max(least - 1, 0) * (1 << 64) // RATE_ALL
        found.append(Step(since_us, of_topic, of_channel, least, below))
    return tuple(reversed(found))


# As the kernel mixes an id (`in_sample`).
MACROS = """
CREATE MACRO times(a, b) AS ((a::UHUGEINT * b::UHUGEINT) & 18446744073709551615::UHUGEINT)::UBIGINT;
CREATE MACRO shaken(id, bits) AS xor(id, id >> bits);
CREATE MACRO mixed(id) AS shaken(times(shaken(times(
    shaken(('0x' || id)::UBIGINT, 30), 13787848793156543929), 27), 10723151780598845931), 31);
CREATE MACRO step_at(steps, us) AS list_filter(steps, lambda step: step.since_us <= us)[-1];
CREATE MACRO known(step, rate, id) AS step.least >= rate OR mixed(id) < step.below;
"""


def known(us: str, rate: str) -> str:
    """For messages without a trace id, by the rates at a time. `of_topic`: does the absence of
    events mean that nothing happened? `of_channel`: are all later events known?"""
    step = f"step_at(steps, {us})"
    return f"CASE WHEN steps IS NULL THEN true ELSE known({step}, {step}.{rate}, message_id) END"


class Rules(NamedTuple):
    since: datetime  # published at or after it
    until: datetime  # published before it
    as_of: datetime  # what is known up to then
    settle_s: float
    stuck_s: float  # since the first delivery
    tracing: Tracing = Tracing()

    @property
    def traced(self) -> tuple[int, int]:
        """Somewhat earlier events show where a channel was when the span began."""
        before_us = round(max(self.settle_s, 60) * 1_000_000)
        return micros(self.since) - before_us, micros(self.as_of) + 1

    @property
    def lost_before_us(self) -> int:
        return micros(self.as_of) - round(self.settle_s * 1_000_000)

    @property
    def stuck_before_us(self) -> int:
        return micros(self.as_of) - round(self.stuck_s * 1_000_000)


_MESSAGE = 'partition, "offset", message_id'
_LOG = "channel, partition"
_LIFE = f"channel, {_MESSAGE}"
# What is needed of a life to judge it.
_SEEN = ("first_sent", "finished", "sent_at", "first_attempt", "last_step", "sends", "finishes",
    "endings", "delays", "releases")  # fmt: skip


def gather(engine: Engine, rules: Rules, topic: str, channels: Iterable[str]) -> None:
    """`trace`: the table. Makes its `bodies`, the `events` of the topic, and their `lives`."""
    first, end = (f"make_timestamptz({us}::BIGINT)" for us in rules.traced)
    span = f"time >= {first} AND time < {end}"
    names = ", ".join(map(text, channels))
    chosen = f"AND (channel IS NULL OR channel IN ({names}))" if names else ""
    engine.run(
        f"""{MACROS}
        CREATE TEMP TABLE bodies AS
        SELECT trace_partition AS partition, trace_offset AS "offset", count(*) AS events,
            max(trace_index) + 1 AS length, max({POSITION}) AS last
        FROM trace WHERE {span} GROUP BY ALL;
        CREATE VIEW leaders AS
        SELECT partition, trace_partition AS node, min({POSITION}) AS first FROM trace
        WHERE topic = {text(topic)} AND {span} AND message_id IS NOT NULL
        GROUP BY partition, trace_partition, trace_offset;
        CREATE VIEW events AS
        SELECT {EVENT} FROM trace WHERE topic = {text(topic)} AND {span} {chosen};
        CREATE VIEW publishes AS
        SELECT partition, "offset" AS position, message_id AS id, us
        FROM events WHERE event = 'published' AND {_in_span("us", rules)};
        CREATE TEMP TABLE lives AS {lives_of("(FROM events WHERE channel IS NOT NULL)", _SEEN)};
        CREATE TEMP TABLE traced AS
        SELECT DISTINCT {_MESSAGE} FROM events WHERE trace_id IS NOT NULL;"""
    )


def judge(engine: Engine, rules: Rules) -> None:
    """Makes `judged`, a row for each message of the span and channel, and `cases`, one for each
    message that is lost, stuck, out of order, or has an excess event."""
    names = engine.rows(
        f"SELECT DISTINCT channel FROM events WHERE channel IS NOT NULL AND {ABOUT_MESSAGES}"
    )
    engine.view("rates", rules.tracing.rates(sorted(row["channel"] for row in names)))
    engine.run(f"CREATE TEMP TABLE starts AS {_starts(rules.tracing.starts)}")
    engine.run(f"CREATE TEMP TABLE firsts AS {_FIRSTS}")
    around = {  # to look them up for each message is not cheap
        name: engine.make(name, islands(ranges, _LOG))
        for name, ranges in (
            ("ended", ENDED_RANGES),
            ("corrupt", f"{RANGES} AND event = 'corrupt'"),
            ("unsure", _UNSURE),
        )
    }
    engine.run(f"CREATE TEMP TABLE judged AS {_judged(rules, around)}")
    engine.run(f"CREATE TEMP TABLE cases AS {_CASES}")


def _in_span(us: str, rules: Rules) -> str:
    return f"{us} >= {micros(rules.since)} AND {us} < {micros(rules.until)}"


_FIRST = "sends > 0 AND first_attempt <= 1 AND delays = 0 AND releases = 0"


def _starts(noted: Iterable[int]) -> str:
    """Positions: those of nsqd's own, behind the last event before a hole of the trace, and right
    before the first event of a partition at its new leader."""
    return f"""
    SELECT unnest([{", ".join(map(str, noted))}]::BIGINT[]) AS position
    UNION SELECT lag(last) OVER log + 1 FROM bodies
        WINDOW log AS (PARTITION BY partition ORDER BY "offset")
        QUALIFY "offset" > lag("offset") OVER log + 1
    UNION SELECT first - 1 FROM leaders
        QUALIFY node <> lag(node) OVER (PARTITION BY partition ORDER BY first)"""


# By channel and partition, and by the last start before them.
_FIRSTS = f"""
    SELECT channel, lives.partition, traced.message_id IS NULL AS switched,
        starts.position AS start, min("offset") AS least, max("offset") AS most
    FROM lives LEFT JOIN traced USING ({_MESSAGE})
        ASOF LEFT JOIN starts ON starts.position < sent_at
    WHERE {_FIRST} GROUP BY ALL"""
# Ranges of offsets around starts: from the first deliveries before to those after them.
_UNSURE = """SELECT * FROM (
        SELECT channel, partition, start, 1 + coalesce(max(most) OVER (
                log GROUPS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), -1) AS first,
            min(least) OVER (log GROUPS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS "end"
        FROM firsts WINDOW log AS (PARTITION BY channel, partition ORDER BY start NULLS FIRST))
    WHERE start IS NOT NULL AND "end" > first"""
_MARKS = """SELECT channel, partition, min(least) AS floor, max(most) AS position,
        min(least) FILTER (switched) AS floor_of_switched,
        max(most) FILTER (switched) AS position_of_switched
    FROM firsts GROUP BY channel, partition"""


def _judged(rules: Rules, around: Mapping[str, bool]) -> str:
    """`around`: tables of ranges of offsets, and whether they have any. A column can use the names
    of the columns before it."""
    inside = {
        name: f'coalesce(life."offset" < {name}."end", false)' if found else "false"
        for name, found in around.items()
    }
    joins = " ".join(within(name, _LOG) for name, found in around.items() if found)
    return f"""
    WITH heads AS (
        SELECT {_MESSAGE}, min(us) AS published, any_value(traced.message_id) IS NOT NULL AS with_id
        FROM events LEFT JOIN traced USING ({_MESSAGE})
        WHERE event = 'published' AND message_id IS NOT NULL
        GROUP BY {_MESSAGE} HAVING {_in_span("published", rules)}),
    pairs AS (SELECT * FROM heads CROSS JOIN rates),
    life AS (
        SELECT {_LIFE}, pairs.published, with_id, steps, first_sent, finished, sent_at, last_step,
            coalesce(sends, 0) AS sends, coalesce(finishes, 0) AS finishes,
            coalesce(endings, 0) AS endings, coalesce(delays, 0) AS delays,
            coalesce({_FIRST}, false) AS is_first
        FROM pairs LEFT JOIN lives USING ({_LIFE})),
    fated AS (
        SELECT life.*, {fate_of(inside["ended"])} AS fate, {inside["corrupt"]} AS in_corrupt,
            {inside["unsure"]} AS unsure
        FROM life {joins}),
    known AS (
        SELECT *, with_id OR {known("published", "of_topic")} AS looked,
            with_id OR {known("coalesce(first_sent, published)", "of_channel")} AS whole,
            CASE WHEN with_id THEN floor ELSE floor_of_switched END AS least,
            CASE WHEN with_id THEN position ELSE position_of_switched END AS most
        FROM fated LEFT JOIN ({_MARKS}) USING (channel, partition)),
    fair AS (
        SELECT *, looked AND NOT unsure AS seen, fate = 'ended' AND in_corrupt AS stepped_over,
            coalesce("offset" >= least, false) AND CASE WHEN sends > 0
                THEN whole OR fate IN ('finished', 'ended') ELSE seen END AS fair
        FROM known)
    SELECT {_LIFE}, published, first_sent, finished, sent_at, sends, is_first, fate,
        fair OR stepped_over AS judged,
        stepped_over OR (fair AND seen AND fate = 'unsent' AND delays = 0 AND "offset" < most
            AND published <= {rules.lost_before_us}) AS lost,
        judged AND whole AND sends > 0 AND fate IN ('out', 'back')
            AND first_sent <= {rules.stuck_before_us} AS stuck,
        judged AND whole AND (sends > 1 OR finishes > 1) AS repeated
    FROM fair"""


_CASES = f"""
    SELECT CASE fate WHEN 'ended' THEN 'corrupt' ELSE 'lost' END AS kind, {_LIFE},
        published AS us, sends, 0 AS position, '' AS about FROM judged WHERE lost
    UNION ALL
    SELECT 'stuck', {_LIFE}, first_sent, sends, 0,
        CASE fate WHEN 'out' THEN 'a consumer has it' ELSE 'it waits to be sent again' END
    FROM judged WHERE stuck
    UNION ALL
    SELECT CASE WHEN event = 'finished' THEN 'finished_twice'
            WHEN before = 'finished' THEN 'sent_after_finish' ELSE 'sent_again' END,
        {_LIFE}, us, sends, again.position, coalesce(' to ' || client, '')
    FROM (
        SELECT events.*, sends, lag(event) OVER life AS before,
            lag(position) OVER life AS position_before
        FROM events JOIN judged USING ({_LIFE}) WHERE repeated AND {STEPS}
        WINDOW life AS (PARTITION BY {_LIFE} ORDER BY position)) AS again
        ASOF LEFT JOIN starts ON starts.position < again.position
    WHERE event IN ('sent', 'finished') AND (before = 'finished' OR before = event)
        AND coalesce(starts.position <= position_before, true)
    UNION ALL
    SELECT 'out_of_order', {_LIFE}, first_sent, sends, 0,
        before || strftime(make_timestamp(us_before), ' (at %Y-%m-%dT%H:%M:%S.%fZ)')
    FROM (
        SELECT {_LIFE}, first_sent, sends, lag("offset") OVER log AS before,
            lag(message_id) OVER log AS id_before, lag(first_sent) OVER log AS us_before
        FROM judged WHERE is_first
        WINDOW log AS (PARTITION BY channel, partition ORDER BY sent_at))
    WHERE "offset" < before AND message_id < id_before"""


# --- sums ---

_FINE = 1.01  # percentiles of the waits are off by half a percent at most


def bar_us(bar: int) -> float:
    """The value of a bar in the histogram of waits."""
    return _FINE**bar - 1


# Of each channel; times are counted in bars, so that memory is bounded.
_WAITS = (
    f"histogram(floor(ln(greatest({u} - {s}, 0) + 1) / ln({_FINE}) + 0.5)::INTEGER) AS {n}"
    for n, (s, u) in WAITS.items()
)
SUMS = f"""SELECT channel AS name, count(*) AS messages, count(*) FILTER (judged) AS judged,
    sum(sends)::BIGINT AS sends, count(*) FILTER (lost) AS lost, count(*) FILTER (stuck) AS stuck,
    count(*) FILTER (repeated) AS repeated, histogram(fate) AS fates, {", ".join(_WAITS)}
    FROM judged GROUP BY channel ORDER BY channel"""


def first_cases(shown: int) -> str:
    """By kind and channel, in the order of the log."""
    return f"""SELECT * FROM cases QUALIFY row_number() OVER (
        PARTITION BY kind, channel ORDER BY partition, "offset", message_id, position) <= {shown}
        ORDER BY kind, channel, partition, "offset", message_id, position"""


CASE_COUNTS = """SELECT kind, channel, partition, count(*) AS amount FROM cases
    GROUP BY ALL ORDER BY ALL"""
