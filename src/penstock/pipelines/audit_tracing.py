"""What was traced when: out of the trace's own notes of starts and of switched rates.

What a channel does while it is not traced looks like nothing done. So, of a message that has no
trace id (one that has is always traced):

- That nothing was done with it counts only when its channel has been traced, since the publish, at
  least as much as the topic was at the publish: then the sample that has the publish has the rest.
- What happened to it after its first delivery is known only when the channel's rate has not been
  lowered since then.

Rates that nobody has noted are the daemon's own option: those count as all, and a channel without a
note of its own follows its topic. So a rate that is not known excuses nothing by itself.

And a kill loses the events that were not written yet: between the last first delivery before a
start and the next one after it, messages may have been delivered and finished unseen.

Both rules about rates give spans of time in which nothing can be said, a few at most, so they go
into the queries as they are, and cost nothing where a rate was never changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.log.traceevents import RATE_ALL

_EVER_US = 1 << 62
Spans = tuple[tuple[int, int], ...]  # microseconds since 1970, [first, end)
ByChannel = Mapping[str | None, Spans]  # None: a channel without notes of its own


class Switch(NamedTuple):
    time_us: int
    channel: str | None  # None: the topic
    rate: int  # of RATE_ALL


@dataclass(frozen=True)
class Tracing:
    """`unseen`: published then, a message may have been delivered unseen. `cut`: first delivered
    then, its further life may be unseen. `starts` are places in `_trace`."""

    unseen: ByChannel = field(default_factory=dict)
    cut: ByChannel = field(default_factory=dict)
    starts: tuple[int, ...] = ()

    def seen_sql(self, time: str = "published") -> str:
        return _outside(self.unseen, time)

    def whole_sql(self, time: str = "first_sent") -> str:
        return _outside(self.cut, time)

    def restarted_sql(self, before: str, at: str) -> str:
        """Whether the daemon began between two places."""
        between = [f"({before} < {start} AND {start} < {at})" for start in self.starts]
        return " OR ".join(between) or "false"

    def around_starts_sql(self) -> str:
        """Of first deliveries: how far they were before each start, and where they went on."""
        return "".join(
            f", max(if(sent_at < {start}, offset, NULL)) AS before_{number},"
            f" min(if(sent_at > {start}, offset, NULL)) AS after_{number}"
            for number, start in enumerate(self.starts)
        )

    def unsure_sql(self) -> str:
        """Whether a message that shows no delivery may have been done just before a kill."""
        gaps = [
            f"(offset > coalesce(before_{number}, -1) AND offset < after_{number})"
            for number in range(len(self.starts))
        ]
        return f"coalesce({' OR '.join(gaps)}, false)" if gaps else "false"


def tracing(switches: Iterable[Switch], starts: Iterable[int]) -> Tracing:
    """`switches` of one topic, in order."""
    notes = list(switches)
    unseen: dict[str | None, Spans] = {}
    cut: dict[str | None, Spans] = {}
    for channel in {None, *(note.channel for note in notes)}:
        unseen[channel], cut[channel] = _blind(notes, channel)
    return Tracing(unseen, cut, tuple(sorted(starts)))


def _blind(notes: list[Switch], channel: str | None) -> tuple[Spans, Spans]:
    steps = _rates(notes, channel)
    unseen: list[tuple[int, int]] = []
    cut: list[tuple[int, int]] = []
    least, end_us = RATE_ALL, _EVER_US
    for first_us, of_topic, of_channel in reversed(steps):
        least = min(least, of_channel)
        if least < of_topic:
            unseen.append((first_us, end_us))
        if least < of_channel:
            cut.append((first_us, end_us))
        end_us = first_us
    return _joined(unseen), _joined(cut)


def _rates(notes: list[Switch], channel: str | None) -> list[tuple[int, int, int]]:
    """(since when, the topic's rate, the channel's), in order."""
    of_topic, own = RATE_ALL, None
    steps = [(-_EVER_US, of_topic, of_topic)]
    for note in notes:
        if note.channel is None:
            of_topic = note.rate
        elif note.channel == channel:
            own = note.rate
        else:
            continue
        steps.append((note.time_us, of_topic, of_topic if own is None else own))
    return steps


def _joined(spans: list[tuple[int, int]]) -> Spans:
    """Of spans from the last to the first: neighbours become one."""
    found: list[tuple[int, int]] = []
    for first_us, end_us in reversed(spans):
        if found and found[-1][1] == first_us:
            first_us = found.pop()[0]
        if first_us < end_us:
            found.append((first_us, end_us))
    return tuple(found)


def _outside(spans: ByChannel, time: str) -> str:
    """SQL: a row's time is in no span of its channel."""
    if not any(spans.values()):
        return "true"
    cases = [
        f"WHEN {_quoted(channel)} THEN {_none_of(found, time)}"
        for channel, found in sorted(spans.items(), key=lambda entry: entry[0] or "")
        if channel is not None
    ]
    default = _none_of(spans.get(None, ()), time)
    return f"CASE channel {' '.join(cases)} ELSE {default} END" if cases else default


def _none_of(spans: Spans, time: str) -> str:
    within = [f"unix_micros({time}) >= {first} AND unix_micros({time}) < {end}"
              for first, end in spans]  # fmt: skip
    return f"NOT ({' OR '.join(within)})" if within else "true"


def _quoted(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
