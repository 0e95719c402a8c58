"""The rules of the audit once more: event by event, with dictionaries, slowly and plainly.

docs/spark/audit.md in code, without a look at how the pipeline does it."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple

from kernel.figures import in_sample
from penstock.trace.events import RATE_ALL, Event, Kind

GIVEN_BACK = {Kind.REQUEUED, Kind.TIMED_OUT, Kind.DISCONNECTED}
ENDED = {Kind.DEAD_LETTERED, Kind.SKIPPED, Kind.FILTERED, Kind.EMPTIED, Kind.CORRUPT}


class Placed(NamedTuple):
    position: tuple[int, int]
    event: Event

    @property
    def us(self) -> int:
        return self.event.time_ns // 1000


class Life(NamedTuple):
    published: Placed
    steps: list[Placed]  # of the channel, in order
    in_range: bool
    is_corrupt: bool  # stepped over

    def of(self, *kinds: Kind) -> list[Placed]:
        return [step for step in self.steps if step.event.kind in kinds]

    @property
    def fate(self) -> str:
        if self.of(Kind.FINISHED):
            return "finished"
        if self.in_range or self.of(*ENDED):
            return "ended"
        last = [s for s in self.steps if s.event.kind in NAMED]
        return NAMED[last[-1].event.kind] if last else "unsent"

    @property
    def is_first_delivery(self) -> bool:
        sent = self.of(Kind.SENT)
        new = sent and min(s.event.attempts for s in sent) <= 1
        return bool(new) and not self.of(Kind.DELAYED, Kind.RELEASED)


NAMED = {Kind.SENT: "out", Kind.TOUCHED: "out", Kind.DELAYED: "delayed", Kind.RELEASED: "back"}
NAMED |= dict.fromkeys(GIVEN_BACK, "back")


class Oracle:
    """`events` of one topic; switches: (time in us, channel or None, rate)."""

    def __init__(
        self,
        events: Iterable[Placed],
        since_us: int,
        until_us: int,
        lost_before_us: int,
        stuck_before_us: int,
        switches: list[tuple[int, str | None, int]],
        starts: list[tuple[int, int]],
    ) -> None:
        self.events = sorted(events, key=lambda one: one.position)
        self.span = (since_us, until_us)
        self.lost_before_us, self.stuck_before_us = lost_before_us, stuck_before_us
        self.switches, self.starts = switches, starts
        self.channels = sorted({e.event.channel for e in self.events if e.event.channel})
        self.trace_ids = {self.key(e): e.event.trace_id for e in self.events if e.event.trace_id}
        self.publishes = {}
        for one in reversed(self.events):
            if one.event.kind == Kind.PUBLISHED:
                self.publishes[self.key(one)] = one

    @staticmethod
    def key(one: Placed) -> tuple[int, int, int]:
        return one.event.partition, one.event.offset, one.event.message_id

    def lives(self, channel: str) -> dict[tuple[int, int, int], Life]:
        """Also of messages whose publish is not known (None)."""
        steps: dict[Any, list[Placed]] = defaultdict(list)
        ranges = []
        for one in self.events:
            if one.event.channel == channel and one.event.message_id:
                steps[self.key(one)].append(one)
            elif one.event.channel == channel and one.event.kind in ENDED:
                ranges.append(one.event)
        found = {}
        for key in {*steps, *self.publishes}:
            inside = any(r.partition == key[0] and r.offset <= key[1] < r.offset + r.count
                         for r in ranges)  # fmt: skip
            corrupt = any(
                e.event.kind == Kind.CORRUPT and e.event.channel == channel
                and e.event.partition == key[0]
                and e.event.offset <= key[1] < e.event.offset + e.event.count
                for e in self.events
            )  # fmt: skip
            published = self.publishes.get(key)
            found[key] = Life(published, steps[key], inside, corrupt)  # type: ignore[arg-type]
        return found

    # --- what was traced ---

    def rates(self, channel: str) -> list[tuple[int, int, int]]:
        of_topic, own, found = RATE_ALL, None, [(-(1 << 62), RATE_ALL, RATE_ALL)]
        for us, name, rate in self.switches:
            if name is None:
                of_topic = rate
            elif name == channel:
                own = rate
            else:
                continue
            found.append((us, of_topic, of_topic if own is None else own))
        return found

    def known(self, channel: str, us: int, message_id: int, of: int) -> bool:
        """Whether the channel's rates since then are no lower than the topic's (1), or its own (2)
        at that time, or have the message all the same."""
        rates = self.rates(channel)
        at = max(position for position, step in enumerate(rates) if step[0] <= us)
        least = min(step[2] for step in rates[at:])
        below = max(least - 1, 0) * (1 << 64) // RATE_ALL
        return least >= rates[at][of] or in_sample(message_id, below)

    # --- the judgement ---

    def counts(self) -> Counter[tuple[str, str]]:
        found: Counter[tuple[str, str]] = Counter()
        for channel in self.channels:
            lives = self.lives(channel)
            for key, life in lives.items():
                if life.published and self.span[0] <= life.published.us < self.span[1]:
                    for kind in self.of_one(channel, key, life, lives):
                        found[kind, channel] += 1
            found["out_of_order", channel] += self.disorder(lives)
        return +found

    def of_one(self, channel: str, key: Any, life: Life, lives: Any) -> Iterable[str]:
        with_id = key in self.trace_ids
        first = {k: v for k, v in lives.items() if v.is_first_delivery and k[0] == key[0]}
        like = [k[1] for k in first if with_id or k not in self.trace_ids]
        seen = with_id or self.known(channel, life.published.us, key[2], 1)
        seen = seen and not self.unsure(key, first)
        sent = life.of(Kind.SENT)
        begun = self.first_us(life) if sent else life.published.us
        whole = with_id or self.known(channel, begun, key[2], 2)
        done = life.fate in ("finished", "ended")
        judged = bool(like) and key[1] >= min(like) and ((whole or done) if sent else seen)
        yield "messages"
        yield life.fate
        if life.is_corrupt and life.fate == "ended":
            judged = True
            yield "corrupt"
        if not judged:
            return
        yield "judged"
        if life.fate == "unsent" and seen and key[1] < max(like) and not life.of(Kind.DELAYED) \
                and life.published.us <= self.lost_before_us:  # fmt: skip
            yield "lost"
        if whole and sent and life.fate in ("out", "back") \
                and self.first_us(life) <= self.stuck_before_us:  # fmt: skip
            yield "stuck"
        if whole and (len(sent) > 1 or len(life.of(Kind.FINISHED)) > 1):
            yield from self.repeats(life)

    @staticmethod
    def first_us(life: Life) -> int:
        return min(step.us for step in life.of(Kind.SENT))

    def unsure(self, key: Any, first: Any) -> bool:
        for start in self.starts:
            pairs = [
                (k[1], min(s.position for s in life.of(Kind.SENT))) for k, life in first.items()
            ]
            before = max((offset for offset, position in pairs if position < start), default=-1)
            after = min((offset for offset, position in pairs if position > start), default=None)
            if after is not None and before < key[1] < after:
                return True
        return False

    def repeats(self, life: Life) -> Iterable[str]:
        steps = life.of(Kind.SENT, Kind.FINISHED, *GIVEN_BACK)
        for before, step in pairwise(steps):
            if any(before.position < start < step.position for start in self.starts):
                continue
            kinds = (before.event.kind, step.event.kind)
            if kinds == (Kind.SENT, Kind.SENT):
                yield "sent_again"
            elif kinds == (Kind.FINISHED, Kind.SENT):
                yield "sent_after_finish"
            elif kinds == (Kind.FINISHED, Kind.FINISHED):
                yield "finished_twice"

    def disorder(self, lives: Any) -> int:
        sends: dict[int, list[tuple[tuple[int, int], int, int]]] = defaultdict(list)
        for key, life in lives.items():
            in_span = life.published and self.span[0] <= life.published.us < self.span[1]
            if in_span and life.is_first_delivery:
                position = min(s.position for s in life.of(Kind.SENT))
                sends[key[0]].append((position, key[1], key[2]))
        return sum(
            one[1] < before[1] and one[2] < before[2]
            for rows in map(sorted, sends.values())
            for before, one in pairwise(rows)
        )

    def of_log(self) -> Counter[str]:
        """Breaks between neighbours of the traced publishes. Offsets that stand twice are left
        out where their order in the trace is not that of their ids."""
        found: Counter[str] = Counter()
        by_partition: dict[int, list[Placed]] = defaultdict(list)
        for one in self.events:
            if one.event.kind == Kind.PUBLISHED and self.span[0] <= one.us < self.span[1]:
                by_partition[one.event.partition].append(one)
        for rows in by_partition.values():
            rows.sort(key=lambda one: (one.event.offset, one.event.message_id, one.position))
            for before, one in pairwise(rows):
                if one.event.offset == before.event.offset:
                    found["repeated_offset"] += 1
                    continue
                found["id_falls"] += one.event.message_id < before.event.message_id
                found["time_falls"] += one.us < before.us
        return +found
