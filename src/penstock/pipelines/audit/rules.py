"""The rules of the audit, over lives of one topic.

**Who is judged.** Only a message whose `published` is in the trace, and in a channel only from the
channel's floor on (`marks`). Where tracing was switched, `tracing` says of which messages a
silence means something (`seen`), and of which all is known (`whole`).

**Lost**: below the channel's position, older than the settle time, no delivery, no end; or not
finished and stepped over, because its bytes in the log are corrupt. **Stuck**:
first delivered so long ago, and neither finished nor ended nor in a wait that somebody asked for.
**Doubled**: delivered again without having been given back, or after it was finished; finished
twice. **Out of order**: first deliveries in another order than the log's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np

from penstock.pipelines.audit.marks import around_dtype, marked
from penstock.pipelines.audit.tracing import Tracing
from penstock.pipelines.lifecycles import lives as lives_
from penstock.pipelines.lifecycles.events import RANGE, Numbers
from penstock.pipelines.lifecycles.fates import (
    BACK,
    ENDED,
    FATES,
    FINISHED,
    OUT,
    UNSENT,
    WAITS,
    fates,
)
from penstock.pipelines.lifecycles.lives import NEVER
from penstock.pipelines.lifecycles.ranges import within

SLOTS = 60  # of the span, for what is shown over time


class Rules(NamedTuple):
    """What is judged, and by which times."""

    since: datetime  # published at or after it
    until: datetime  # published before it
    as_of: datetime  # what is known up to then
    settle_s: float
    stuck_s: float  # since the first delivery
    tracing: Tracing = Tracing()

    @property
    def since_us(self) -> int:
        return micros(self.since)

    @property
    def until_us(self) -> int:
        return micros(self.until)

    @property
    def lost_before_us(self) -> int:
        return micros(self.as_of) - round(self.settle_s * 1_000_000)

    @property
    def stuck_before_us(self) -> int:
        return micros(self.as_of) - round(self.stuck_s * 1_000_000)

    @property
    def slot_us(self) -> int:
        return max(1, -(-(self.until_us - self.since_us) // SLOTS))


def micros(moment: datetime) -> int:
    """Since 1970. A datetime's own numbers, for `timestamp()` is a float."""
    days = moment.toordinal() - _EPOCH_DAY
    offset = moment.utcoffset()
    seconds = days * 86_400 + moment.hour * 3600 + moment.minute * 60 + moment.second
    seconds -= round(offset.total_seconds()) if offset is not None else 0
    return seconds * 1_000_000 + moment.microsecond


_EPOCH_DAY = datetime(1970, 1, 1).toordinal()


@dataclass(frozen=True)
class Known:
    """What is known of the channels of the topic: numbers, of all arrays of it, by `names`."""

    names: tuple[str, ...] = ()
    marks: Numbers = field(default_factory=lambda: np.empty(0, around_dtype(0)))
    ranges: Numbers = field(default_factory=lambda: np.empty(0, RANGE))  # islands
    corrupt: Numbers = field(default_factory=lambda: np.empty(0, RANGE))  # islands, too


class Judged(NamedTuple):
    """One channel: a row for each message that was published in the span."""

    channel: str
    lives: Numbers  # `SEEN`, with `published` and the trace id of the message
    place: Numbers  # in the lives that were judged, -1 where there is none of this channel
    fate: Numbers
    judged: Numbers
    lost: Numbers
    stuck: Numbers
    repeated: Numbers

    def waits(self, name: str) -> Numbers:
        """Microseconds, of those that have both ends."""
        since, until = (self.lives[end] for end in WAITS[name])
        both = (since != NEVER) & (until != NEVER)
        found: Numbers = until[both] - since[both]
        return found


# What is needed of a life to judge it: half of what is known of it.
SEEN = np.dtype(
    [
        ("partition", "<i4"),
        ("channel", "<i4"),
        ("offset", "<i8"),
        ("message_id", "<u8"),
        ("trace_id", "<i8"),
        ("published", "<i8"),
        ("first_sent", "<i8"),
        ("finished", "<i8"),
        ("sends", "<i4"),
        ("fate", "u1"),  # without regard to ranges
        ("finishes", "u1"),  # 2 at most
        ("delays", "u1"),  # 1 at most
    ]
)
_AS_THEY_ARE = (
    "partition", "channel", "offset", "message_id", "trace_id", "published", "first_sent",
    "finished", "sends",
)  # fmt: skip


def seen_of(lives: Numbers) -> Numbers:
    found = np.empty(len(lives), SEEN)
    for name in _AS_THEY_ARE:
        found[name] = lives[name]
    found["fate"] = fates(lives, np.zeros(len(lives), bool))
    found["finishes"] = np.minimum(lives["finishes"], 2)
    found["delays"] = np.minimum(lives["delays"], 1)
    return found


def judge(lives: Numbers, known: Known, rules: Rules) -> Iterator[Judged]:
    """`lives` as `seen_of` gives them, with the numbers of `known`; each channel by itself."""
    message = lives_.message_numbers(lives)
    of_topic = lives["channel"] == 0
    heads = lives[of_topic]
    in_span = (heads["published"] >= rules.since_us) & (heads["published"] < rules.until_us)
    row_of = np.full(int(message[-1]) + 1 if len(message) else 0, -1)
    row_of[message[of_topic][in_span]] = np.arange(int(in_span.sum()))
    trace_id = lives_.trace_ids(lives, message)[message[of_topic][in_span]]
    heads = heads[in_span]
    for number, name in enumerate(known.names, 1):
        place = np.full(len(heads), -1)
        mine = np.flatnonzero(lives["channel"] == number)
        rows = row_of[message[mine]]
        place[rows[rows >= 0]] = mine[rows >= 0]
        found = _of_channel(heads, lives, place)
        found["trace_id"], found["channel"] = trace_id, number
        yield _judged(name, number, found, place, known, rules)


def _of_channel(heads: Numbers, lives: Numbers, place: Numbers) -> Numbers:
    """The lives of a channel, with empty ones for messages that it shows nothing of."""
    there = place >= 0
    if there.all():
        found = lives[place]
    else:
        found = np.zeros(len(heads), SEEN)
        found["first_sent"] = found["finished"] = NEVER
        found["fate"] = UNSENT
        found[there] = lives[place[there]]
    for name in ("partition", "offset", "message_id", "published"):
        found[name] = heads[name]
    return found


def _judged(
    name: str, number: int, lives: Numbers, place: Numbers, known: Known, rules: Rules
) -> Judged:
    partition, offset = lives["partition"], lives["offset"]
    fate = lives["fate"].copy()
    fate[(fate != FINISHED) & within(known.ranges, number, partition, offset)] = ENDED
    marks = marked(known.marks, number, partition)
    with_id, sent = lives["trace_id"] != 0, lives["sends"] > 0
    seen = with_id | rules.tracing.seen(name, lives["published"], lives["message_id"])
    seen &= ~_unsure(offset, marks)
    begun = np.where(sent, lives["first_sent"], lives["published"])
    whole = with_id | rules.tracing.whole(name, begun, lives["message_id"])
    floor = np.where(with_id, marks["floor"], marks["floor_of_switched"])
    position = np.where(with_id, marks["position"], marks["position_of_switched"])
    done = (fate == FINISHED) | (fate == ENDED)
    judged = (offset >= floor) & np.where(sent, whole | done, seen)
    lost = judged & seen & (offset < position) & (fate == UNSENT) & (lives["delays"] == 0)
    lost &= lives["published"] <= rules.lost_before_us
    corrupt = (fate == ENDED) & within(known.corrupt, number, partition, offset)
    judged, lost = judged | corrupt, lost | corrupt
    stuck = judged & whole & sent & ((fate == OUT) | (fate == BACK))
    stuck &= lives["first_sent"] <= rules.stuck_before_us
    repeated = judged & whole & ((lives["sends"] > 1) | (lives["finishes"] > 1))
    return Judged(name, lives, place, fate, judged, lost, stuck, repeated)


def _unsure(offset: Numbers, marks: dict[str, Numbers]) -> Numbers:
    """Whether a message that shows no delivery may have been done just before a kill."""
    before, after = marks["before"], marks["after"]
    found = np.zeros(len(offset), bool)
    for number in range(before.shape[1]):
        went_on = after[:, number] != NEVER
        found |= went_on & (offset > before[:, number]) & (offset < after[:, number])
    return found


# --- sums ---

_COARSE = 1.2  # one bar of the histogram is so much slower than the one before
_FINE = 1.01  # percentiles are off by half a percent at most
_IN_SLOTS = ("messages", "finished", "lost", "stuck")


def bar_us(bar: int) -> float:
    """Where a bar of the histogram of latencies begins."""
    return _COARSE**bar - 1


def fine_us(bar: int) -> float:
    """What a bar of the waits stands for."""
    return _FINE**bar - 1


def tally(one: Judged, rules: Rules) -> dict[str, Any]:
    """Counts that add up: plain numbers, lists and dicts, for JSON."""
    slots = np.minimum((one.lives["published"] - rules.since_us) // rules.slot_us, SLOTS - 1)
    flags = {
        "messages": np.ones(len(one.fate), bool),
        "finished": one.fate == FINISHED,
        "lost": one.lost,
        "stuck": one.stuck,
    }
    return {
        "channel": one.channel,
        "judged": int(one.judged.sum()),
        "repeated": int(one.repeated.sum()),
        "sends": int(one.lives["sends"].sum()),
        "partitions": {
            name: counted(one.lives["partition"][mask])
            for name, mask in (
                ("corrupt", one.lost & (one.fate == ENDED)),
                ("lost", one.lost & (one.fate != ENDED)),
                ("stuck", one.stuck),
            )
        },
        "fates": np.bincount(one.fate, minlength=len(FATES)).tolist(),
        "slots": {n: np.bincount(slots[flags[n]], minlength=SLOTS).tolist() for n in _IN_SLOTS},
        "bars": _bars(one, slots),
        "waits": {name: counted(_fine(one.waits(name))) for name in WAITS},
    }


def _bars(one: Judged, slots: Numbers) -> list[list[int]]:
    """[slot, bar, messages] of whole latencies."""
    both = (one.lives["published"] != NEVER) & (one.lives["finished"] != NEVER)
    total, slots = one.waits("total"), slots[both]
    bars = np.floor(np.log(np.maximum(total, 0) + 1) / np.log(_COARSE)).astype(np.int64)
    found = counted(slots * _BARS_MAX + bars)
    return [[key // _BARS_MAX, key % _BARS_MAX, count] for key, count in found]


_BARS_MAX = 1024  # 1.2 ** 1024 microseconds is for ever


def _fine(us: Numbers) -> Numbers:
    bars = np.floor(np.log(np.maximum(us, 0) + 1) / np.log(_FINE) + 0.5)
    found: Numbers = bars.astype(np.int64)
    return found


def counted(numbers: Numbers) -> list[list[int]]:
    """[number, how often], of small numbers."""
    if not len(numbers):
        return []
    counts = np.bincount(numbers)
    there = np.flatnonzero(counts)
    return [[int(number), int(counts[number])] for number in there]
