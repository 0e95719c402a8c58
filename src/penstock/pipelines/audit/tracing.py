"""What was traced when: out of the trace's own notes of starts and of switched rates.

What a channel does while it is not traced looks like nothing done. But a sample is no accident: a
message is in the sample of a rate when the hash of its id says so, and whoever is in the sample of
a rate is in that of each higher one. So, of a message that has no trace id (one that has is always
traced):

- That nothing was done with it counts when its channel has been traced, since the publish, at least
  as much as the topic was at the publish, or when it is in the sample of the channel's lowest rate
  since then. Of the others nobody knows.
- What happened to it after its first delivery is known when the channel's rate has not been lowered
  since then, or when the message is in the sample of the lowest rate since then.

Rates that nobody has noted are the daemon's own option: those count as all, and a channel without a
note of its own follows its topic. So a rate that is not known excuses nothing by itself.

And a kill loses the events that were not written yet: between the last first delivery before a
start and the next one after it, messages may have been delivered and finished unseen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from penstock.pipelines.lifecycles.events import Numbers
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


@dataclass(frozen=True)
class Tracing:
    """`steps` by channel; None: of a channel without notes of its own. `starts` are places in
    `_trace`."""

    steps: Mapping[str | None, tuple[Step, ...]] = field(default_factory=dict)
    starts: tuple[int, ...] = ()

    def seen(self, channel: str, published_us: Numbers, ids: Numbers) -> Numbers:
        """Of messages without a trace id that show nothing: whether that means that nothing was
        done with them."""
        steps = self._of(channel)
        return _known(steps, [step.of_topic for step in steps], published_us, ids)

    def whole(self, channel: str, first_sent_us: Numbers, ids: Numbers) -> Numbers:
        """Whether all that was done with them since then is known."""
        steps = self._of(channel)
        return _known(steps, [step.of_channel for step in steps], first_sent_us, ids)

    def _of(self, channel: str) -> tuple[Step, ...]:
        return self.steps.get(channel, self.steps.get(None, ()))


def tracing(switches: Iterable[Switch], starts: Iterable[int]) -> Tracing:
    """`switches` of one topic, in order."""
    notes = list(switches)
    channels = {None, *(note.channel for note in notes)}
    return Tracing({channel: _steps(notes, channel) for channel in channels}, tuple(sorted(starts)))


def _steps(notes: list[Switch], channel: str | None) -> tuple[Step, ...]:
    found: list[Step] = []
    least = RATE_ALL
    for since_us, of_topic, of_channel in reversed(_rates(notes, channel)):
        least = min(least, of_channel)
        found.append(Step(since_us, of_topic, of_channel, least))
    return tuple(reversed(found))


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


def _known(steps: tuple[Step, ...], traced: list[int], times_us: Numbers, ids: Numbers) -> Numbers:
    """Whether the least rate since each time is not below what was traced then, or has the id."""
    if all(step.least >= rate for step, rate in zip(steps, traced, strict=True)):
        return np.ones(len(times_us), bool)
    at = np.searchsorted([step.since_us for step in steps], times_us, "right") - 1
    least = np.array([step.least for step in steps])[at]
    return (least >= np.array(traced)[at]) | _in_sample(ids, least)


def _in_sample(ids: Numbers, rates: Numbers) -> Numbers:
    """As the kernel does it (`in_sample`). Rates are noted in billionths: what lies in the last one
    of them counts as not in it."""
    below = [max(rate - 1, 0) * (1 << 64) // RATE_ALL for rate in np.unique(rates).tolist()]
    bounds = np.array(below, np.uint64)[np.searchsorted(np.unique(rates), rates)]
    mixed = (ids ^ (ids >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    found: Numbers = (mixed ^ (mixed >> np.uint64(31))) < bounds
    return found
