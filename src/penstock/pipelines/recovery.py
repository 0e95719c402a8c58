"""Where an archive of several nsqds goes on when its checkpoint is lost: by what its table has.

A row is known by broker, topic, partition and offset, and the table notes which log the rows of a
broker are from (`lakelogs`). An nsqd that moved has another name and the same logs; a topic that
was made again has the same name and another log. So names lead from a row to its log, and the log's
identity to the nsqd that has it now. Where they do not lead to exactly one, an offset would be a
guess, which skips messages or brings them twice: that is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from penstock.errors import DataLost
from penstock.pipelines.lakelogs import AGAIN, NOT_SAID, TopicLog
from penstock.spark.offsets import Log

Reached = Mapping[tuple[str, str, int], int]  # by topic, broker ("": none named) and partition


def following(
    reached: Reached, known: Mapping[str, TopicLog], present: Collection[Log], gone: Collection[str]
) -> dict[Log, int]:
    """Of the logs that are present, those that the table has messages of, each with the offset
    behind its last one. `gone` are nsqds that are given up. DataLost where it is not certain."""
    by_identity = {(log.topic, log.identity, log.partition): log for log in present}
    places = {(log.topic, log.broker) for log in present}
    found: dict[Log, int] = {}
    for (topic, broker, partition), offset in sorted(reached.items()):
        noted = known.get(topic, TopicLog())
        identity = _identity(noted, topic, broker, (topic, "", partition) in reached)
        log = by_identity.get((topic, identity, partition))
        if log is not None:
            found[log] = max(offset + 1, found.get(log, 0))
        elif not {broker, *noted.brokers(identity)} & set(gone):
            is_back = (topic, broker) in places
            away = f"nsqd {broker or 'from before'} has messages of it in the table, and its log"
            raise DataLost(topic, partition, AGAIN if is_back else f"{away} is nowhere now")
    return found


def _identity(noted: TopicLog, topic: str, broker: str, has_unnamed: bool) -> str:
    """Of the only log that these rows can be from. A log that no broker is noted for may be one
    from before brokers were noted, unless there are rows without a broker, which are of it."""
    named = {each.partition("@")[0] for each in noted.noted if "@" in each}
    stray = noted.of("") - named
    identities = noted.of(broker)
    if len(identities) != 1 or (stray and not has_unnamed):
        raise DataLost(topic, 0, NOT_SAID)
    return identities.pop()
