"""How far a channel is behind, whether it catches up, and when it will have.

Values in, values out. The trend is what its depth has changed by over the last samples: the rates
of one look jump, and a depth that stays is neither good nor bad.

| pace     | it means                                                        |
|----------|-----------------------------------------------------------------|
| idle     | nothing waits and nothing comes                                 |
| keeps up | what waits is less than a few seconds bring                     |
| paused   | messages wait because somebody has paused it                    |
| unread   | messages wait and it has no consumer                            |
| stuck    | messages wait, it has consumers, and they finish nothing        |
| gains    | fewer wait than a while ago                                     |
| loses    | more wait than a while ago                                      |
| holds    | as many wait as a while ago                                     |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock import limits
from penstock.nsqadmin.history import FIELDS, Sample
from penstock.nsqadmin.snapshot import ChannelState

IDLE, KEEPS_UP, PAUSED, UNREAD = "idle", "keeps up", "paused", "unread"
STUCK, GAINS, LOSES, HOLDS = "stuck", "gains", "loses", "holds"
LATE = frozenset((PAUSED, UNREAD, STUCK, LOSES))  # those that somebody should look at

_DEPTH, _OUT = FIELDS.index("depth"), FIELDS.index("out_rate")


class Lag(NamedTuple):
    pace: str
    waits: int  # messages that no consumer has yet
    growth: float = 0.0  # of them, a second
    empty_s: float | None = None  # until none waits when it goes on like this; None: never, or now


def of_channel(channel: ChannelState, recent: Sequence[Sample]) -> Lag:
    waits, growth = channel.depth, trend(recent)
    if channel.paused and waits:
        return Lag(PAUSED, waits, growth)
    if waits + channel.in_flight == 0 and not channel.in_rate:
        return Lag(IDLE, 0)
    if not channel.clients and waits:
        return Lag(UNREAD, waits, growth)
    if waits and _finishes_nothing(channel, recent):
        return Lag(STUCK, waits, growth)
    if waits <= limits.ADMIN_KEEPS_UP_S * channel.in_rate:
        return Lag(KEEPS_UP, waits)
    steady = max(limits.ADMIN_STEADY_SHARE * max(channel.in_rate, channel.finish_rate), 0.05)
    if growth > steady:
        return Lag(LOSES, waits, growth)
    if growth < -steady:
        return Lag(GAINS, waits, growth, waits / -growth)
    return Lag(HOLDS, waits, growth)


def trend(recent: Sequence[Sample]) -> float:
    """Messages a second by which more wait; 0 when too little is known."""
    known = [one for one in recent if one.values is not None]
    span_s = known[-1].time_s - known[0].time_s if known else 0.0
    if span_s < limits.ADMIN_TREND_S:
        return 0.0
    first, last = known[0].values, known[-1].values
    return (last[_DEPTH] - first[_DEPTH]) / span_s if first and last else 0.0


def _finishes_nothing(channel: ChannelState, recent: Sequence[Sample]) -> bool:
    known = [one.values for one in recent if one.values is not None]
    long_enough = len(known) > 1 and recent[-1].time_s - recent[0].time_s >= limits.ADMIN_TREND_S
    return long_enough and not channel.finish_rate and not any(one[_OUT] for one in known)


def share(channel: ChannelState, all_of_topic: int) -> float:
    """Of what waits in its topic's channels, in percent."""
    return 100 * channel.depth / all_of_topic if all_of_topic else 0.0
