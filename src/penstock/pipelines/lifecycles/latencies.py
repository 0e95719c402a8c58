"""Latencies and slow messages, out of the table of lifecycles (`table`)."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.pipelines.lifecycles.lives import PERCENTS, WAITS


def _us(name: str) -> str:
    since, until = WAITS[name]
    return f"epoch_us({until}) - epoch_us({since})"


def _percentiles() -> Iterator[str]:
    for name in WAITS:
        for percent, share in PERCENTS.items():
            yield f"quantile_disc({_us(name)}, {share}) AS {name}_{percent}_us"
    for name in WAITS:
        yield f"max({_us(name)}) AS {name}_max_us"


def latencies(since: str) -> str:
    """A query: percentiles by topic, channel and hour of the publish, in microseconds: from the
    publish to the first delivery, from there to the end of the handling, and both together."""
    return f"""SELECT topic, channel, date_trunc('hour', published) AS hour, count(*) AS messages,
        count(first_sent) AS sent, count(finished) AS finished, {", ".join(_percentiles())}
    FROM lives WHERE published IS NOT NULL AND channel IS NOT NULL AND {since}
    GROUP BY topic, channel, hour ORDER BY topic, channel, hour"""


def slowest(since: str, count: int) -> str:
    """A query: the messages that took longest from publish to finish."""
    waits = ", ".join(f"{_us(name)} AS {name}_us" for name in WAITS)
    return f"""SELECT topic, channel, partition, "offset", message_id, trace_id, published,
        first_sent, finished, sends, {waits}
    FROM lives WHERE published IS NOT NULL AND finished IS NOT NULL AND {since}
    ORDER BY total_us DESC, topic, channel, partition, "offset" LIMIT {count}"""
