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

import pyarrow as pa

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
    """`steps` by channel; None: of a channel without notes of its own. `starts` are places in
    `_trace`."""

    steps: Mapping[str | None, tuple[Step, ...]] = field(default_factory=dict)
    starts: tuple[int, ...] = ()

    def rates(self, channels: Iterable[str]) -> pa.Table:
        """A row for each channel."""
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
    found: list[Step] = []
    least = RATE_ALL
    for since_us, of_topic, of_channel in reversed(_rates(notes, channel)):
        least = min(least, of_channel)
        below = max(least - 1, 0) * (1 << 64) // RATE_ALL
        found.append(Step(since_us, of_topic, of_channel, least, below))
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


# As the kernel mixes an id (`in_sample`).
MACROS = """
CREATE MACRO times(a, b) AS ((a::UHUGEINT * b::UHUGEINT) & 18446744073709551615::UHUGEINT)::UBIGINT;
CREATE MACRO shaken(id, bits) AS xor(id, id >> bits);
CREATE MACRO mixed(id) AS shaken(times(shaken(times(
    shaken(('0x' || id)::UBIGINT, 30), 13787848793156543929), 27), 10723151780598845931), 31);
CREATE MACRO step_at(steps, us) AS list_filter(steps, lambda step: step.since_us <= us)[-1];
CREATE MACRO known(step, rate, id) AS step.least >= rate OR mixed(id) < step.below;
"""


def seen(published: str) -> str:
    """Of messages without a trace id that show nothing: whether that means that nothing was done
    with them."""
    return _known(published, "of_topic")


def whole(first_sent: str) -> str:
    """Whether all that was done with them since then is known."""
    return _known(first_sent, "of_channel")


def _known(us: str, rate: str) -> str:
    step = f"step_at(steps, {us})"
    return f"CASE WHEN steps IS NULL THEN true ELSE known({step}, {step}.{rate}, message_id) END"
