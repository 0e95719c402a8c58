"""Which channels hold dead letters, and whose: so that nobody is advised to consume them.

nsqd moves what a channel gives up to its dead-letter topic, `<topic>.<channel>.dead` unless another
one is set, and keeps it there in a channel `redrive` until it is sent back. That channel is
Penstock's own: it has no consumer, and one would drain the dead letters. How many it holds is how
many there are now; the count that a channel has itself is of all since its nsqd started.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

REDRIVE = "redrive"

Name = tuple[str, str]  # of a topic and its channel


def holders(channels: Iterable[tuple[str, str, str]]) -> dict[Name, list[Name]]:
    """The channels with dead letters, each with those that they came from. `channels`: topic, name,
    and the dead-letter topic that the channel says it has, or ""."""
    all_ = list(channels)
    there = {topic for topic, name, _ in all_ if name == REDRIVE}
    found: dict[Name, list[Name]] = defaultdict(list)
    if not there:
        return found
    for topic, name, told in all_:
        dead = told or f"{topic}.{name}.dead"
        if dead in there and dead != topic:
            found[dead, REDRIVE].append((topic, name))
    return found
