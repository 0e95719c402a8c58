"""Rows of one nsqd only, where offsets have to mean something.

Each nsqd counts a topic's offsets by itself. In a table of several, those of one topic interleave:
put into the order of the offsets they come in an order that never was, and every offset looks as if
it were there twice. Rows from before the table had the column `broker` have null there. They are of
the nsqd with which the table began, so another name may go on behind them, but not beside them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BROKER = "broker"


def require_one_broker(path: str, frame: DataFrame) -> None:
    """ConfigError when the rows of some topic and partition are of several nsqds."""
    from pyspark.sql import functions as F

    if BROKER not in frame.columns:
        return
    spans = frame.groupBy("topic", "partition", BROKER).agg(
        F.min("offset").alias("least"), F.max("offset").alias("most")
    )
    found: dict[tuple[str, int], list[Any]] = {}
    for row in spans.collect():
        found.setdefault((row.topic, row.partition), []).append(row)
    for (topic, _), rows in sorted(found.items()):
        if not _is_one(rows):
            raise ConfigError(BROKER, "", _rule(path, topic, rows))


def _is_one(rows: list[Any]) -> bool:
    named = [row for row in rows if row.broker is not None]
    unnamed = [row for row in rows if row.broker is None]
    if not named or not unnamed:
        return len(named) <= 1
    return len(named) == 1 and unnamed[0].most < named[0].least


def _rule(path: str, topic: str, rows: list[Any]) -> str:
    names = sorted(row.broker for row in rows if row.broker is not None)
    older = "; older ones are of an nsqd without a name" if len(names) < len(rows) else ""
    return (
        f"{path} has messages of {topic} of several nsqds, whose offsets interleave: name one of "
        f"{', '.join(names)} (--broker){older}"
    )
