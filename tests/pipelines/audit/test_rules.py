"""Random histories, judged twice: by the pipeline's SQL and event by event. No Spark here."""

import random
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cases import each, seeds
from kernel.figures import in_sample
from penstock.pipelines import trace_table
from penstock.pipelines.audit import rules as samples
from penstock.pipelines.audit.findings import Audit, Tables
from penstock.pipelines.audit.report import Report
from penstock.pipelines.audit.rules import Rules, Switch, tracing
from penstock.pipelines.lifecycles.engine import INDEX_BITS, Engine
from penstock.times import micros
from penstock.trace.events import RATE_ALL, Event, Kind, encode

from ..tracetable import healthy
from .oracle import ENDED, GIVEN_BACK, Oracle, Placed

T0_US = 1_790_000_000_000_000
STRIDE = 3000  # offsets that are traced, so that histories reach over several stripes
CHANNELS = ("mail", "billing", "it's")
IN_CHANNEL = [Kind.SENT, Kind.FINISHED, Kind.TOUCHED, Kind.DELAYED, Kind.RELEASED, *GIVEN_BACK,
              *ENDED]  # fmt: skip


def moment(us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)


class History:
    def __init__(self, seed: int) -> None:
        self.dice = dice = random.Random(seed)
        self.messages = [
            (dice.choice([0, 0, 0, 1]), n * STRIDE + dice.randrange(3), (n + 1) << 22)
            for n in range(dice.randrange(2, 40))
        ]
        if dice.random() < 0.3:  # the topic was made anew: other ids for the same offsets
            self.messages += [(p, o, i + (1 << 40)) for p, o, i in self.messages[:5]]
        self.trace_ids = {m[2]: dice.choice([0, 0, 0, 7, -5]) for m in self.messages}
        self.channels = CHANNELS[: dice.randrange(1, 4)]
        self.events = list(self._events())
        self._place()
        self.switches = self._switches()

    def _events(self) -> Any:
        for index, message in enumerate(self.messages):
            at = index * 1000
            if self.dice.random() < 0.9:
                yield self._event(Kind.PUBLISHED, at, message, None, 0)
            for channel in self.channels:
                yield from self._of_channel(message, channel, at + 500)
        for channel in self.channels:
            for _ in range(self.dice.randrange(3)):
                first = self.dice.randrange(40) * STRIDE
                about = (0, first, 0)
                at = self.dice.randrange(60_000)
                kind = self.dice.choice([Kind.EMPTIED, Kind.SKIPPED, Kind.CORRUPT])
                event = self._event(kind, at, about, channel, 0)
                yield event._replace(count=self.dice.randrange(1, 6) * STRIDE)

    def _of_channel(self, message: tuple[int, int, int], channel: str, at: int) -> Any:
        what = self.dice.random()
        if what < 0.5:
            kinds = [Kind.SENT, Kind.FINISHED]
        elif what < 0.8:
            kinds = self.dice.choices(IN_CHANNEL, k=self.dice.randrange(1, 7))
        else:
            return
        attempts = 0 if self.dice.random() < 0.9 else 2
        for number, kind in enumerate(kinds):
            attempts += kind == Kind.SENT
            late = self.dice.randrange(0, 3000 if self.dice.random() < 0.2 else 10)
            yield self._event(kind, at + 50 * number + late, message, channel, attempts)

    def _event(self, kind: Kind, at: int, message: Any, channel: str | None, tries: int) -> Event:
        partition, offset, id = message
        trace_id = self.trace_ids.get(id, 0) % (1 << 64)
        return Event(kind, (T0_US + at) * 1000, "orders", channel, partition, offset, id, tries,
                     None, trace_id)  # fmt: skip

    def _place(self) -> None:
        """Into bodies, about in the order of time, and some events of another topic."""
        dice = self.dice
        order = sorted(self.events, key=lambda e: e.time_ns + dice.randrange(400_000))
        bodies = []
        while order:
            count = dice.randrange(1, 30)
            bodies.append([*order[:count], order[0]._replace(topic="other")])
            order = order[count:]
        self.placed = [
            Placed((number, index), event)
            for number, body in enumerate(bodies)
            for index, event in enumerate(body)
            if event.topic == "orders"
        ]
        self.table = pa.Table.from_batches(
            trace_table.events([trace_table.decode(encode(body), 0, number)])
            for number, body in enumerate(bodies)
        )
        self.starts = [(dice.randrange(len(bodies)), 40) for _ in range(dice.choice([0, 0, 1, 2]))]
        self.noted = tuple((body << INDEX_BITS) + index for body, index in self.starts)

    def _switches(self) -> list[Switch]:
        dice = self.dice
        rates = [0, RATE_ALL // 4, RATE_ALL // 2, RATE_ALL]
        count = dice.choice([0, 0, 1, 3])
        times = sorted(T0_US + dice.randrange(-1000, 50_000) for _ in range(count))
        return [Switch(us, dice.choice([None, *self.channels]), dice.choice(rates))
                for us in times]  # fmt: skip

    def rules(self) -> Rules:
        since, until = (
            T0_US + self.dice.choice([0, 5000]),
            T0_US + self.dice.choice([20_000, 10**6]),
        )
        as_of = T0_US + 70_000
        settle_s, stuck_s = self.dice.choice([0.0, 0.05]), self.dice.choice([0.001, 0.04])
        return Rules(moment(since), moment(until), moment(as_of), settle_s, stuck_s,
                     tracing(self.switches, self.noted))  # fmt: skip

    def oracle(self, rules: Rules) -> Oracle:
        return Oracle(
            self.placed,
            micros(rules.since),
            micros(rules.until),
            rules.lost_before_us,
            rules.stuck_before_us,
            [tuple(switch) for switch in self.switches],
            self.starts,
        )


class ClusterHistory(History):
    """Of three nodes, each with a `_trace`; now and then another one leads a partition, which the
    pipeline sees by itself."""

    def _place(self) -> None:
        bodies: dict[int, list[list[Event]]] = {node: [[]] for node in (1, 2, 3)}
        leaders: dict[int, int] = {}
        last_us: dict[int, int] = {}  # by partition: a leader is another than one that is known
        self.placed, self.starts, self.noted = [], [], ()
        for event in sorted(self.events, key=lambda event: event.time_ns):
            us, leader = event.time_ns // 1000, leaders.get(event.partition, 1)
            if event.message_id:
                if last_us.get(event.partition, us) < us and self.dice.random() < 0.1:
                    leaders[event.partition] = self.dice.choice([1, 2, 3])
                last_us[event.partition] = us
            of_node = bodies[leaders.get(event.partition, 1)]
            is_changed = leaders.get(event.partition, 1) != leader
            if is_changed or len(of_node[-1]) > self.dice.randrange(30):
                of_node.append([])
            position = us, len(of_node[-1])
            of_node[-1].append(event)
            self.placed.append(Placed(position, event))
            if is_changed:
                self.starts.append((position[0], position[1] - 1))
        self.table = pa.Table.from_batches(
            trace_table.events([trace_table.decode(encode(body), node, number)])
            for node in bodies
            for number, body in enumerate(filter(None, bodies[node]))
        )


def audited(table: pa.Table, rules: Rules) -> Report:
    """Rows in any order."""
    dice = np.random.default_rng(1)
    with Engine() as engine:
        engine.trace("trace", table.take(dice.permutation(table.num_rows)))
        return Audit(Tables(engine), rules, "orders", 1000).run()


def counted(report: Report) -> dict[tuple[str, str], int]:
    found = {
        (finding.kind, finding.channel): finding.count
        for finding in report.findings
        if finding.channel
    }
    for channel in report.channels:
        found["messages", channel.name] = channel.messages
        found["judged", channel.name] = channel.judged
        found |= {(fate, channel.name): count for fate, count in channel.fates.items()}
    return {key: count for key, count in found.items() if count}


@each("block", seeds(1, 6))
@pytest.mark.parametrize("kind", [History, ClusterHistory])
def test_random_histories_are_judged_alike(kind: type[History], block: int) -> None:
    faults, numbers = 0, range(25 * block, 25 * block + 25)
    for seed in numbers:
        history = kind(seed)
        rules = history.rules()
        oracle, report = history.oracle(rules), audited(history.table, rules)
        assert counted(report) == oracle.counts(), f"seed {seed}"
        of_log = {f.kind: f.count for f in report.findings if f.channel is None}
        assert of_log == oracle.of_log(), f"seed {seed}"
        unknown = sum(channel.judged < channel.messages for channel in report.channels)
        assert sum("nobody knows" in note for note in report.notes) == unknown
        faults += len(report.findings)
    assert faults > len(numbers)  # else nothing was compared


def test_the_sample_is_the_kernels() -> None:
    dice = random.Random(5)
    ids = [dice.randrange(1, 1 << 64) for _ in range(2000)]
    rates = tracing([Switch(10, "mail", RATE_ALL // 3)], ()).rates(["mail"])
    with Engine() as engine:
        engine.run(samples.MACROS)
        engine.view("rates", rates)
        engine.view("ids", pa.table({"id": [f"{id:016x}" for id in ids]}))
        query = f"SELECT id AS message_id, {samples.known('0', 'of_topic')} AS seen FROM ids, rates"
        seen = {row["message_id"]: row["seen"] for row in engine.rows(query)}
    below = (RATE_ALL // 3 - 1) * (1 << 64) // RATE_ALL
    assert seen == {f"{id:016x}": in_sample(id, below) for id in ids}
    assert 500 < sum(seen.values()) < 800


def test_thousands_of_holes_cost_little_more_than_none() -> None:
    """Each is a start, and there are as many of these as a busy cluster has changes of leaders."""
    table = healthy(20_000).table()
    place = np.arange(table.num_rows)
    span = moment(0), moment(T0_US + 10**9), moment(T0_US + 10**12)
    costs = []
    for step in (1, 2):  # from body to body
        bodies = pa.array(place // 8 * step)
        holed = table.set_column(13, "trace_offset", bodies)
        holed = holed.set_column(14, "trace_index", pa.array(place % 8, pa.int32()))
        began_s = time.process_time()
        report = audited(holed, Rules(*span, 60, 300, tracing((), ())))
        costs.append(time.process_time() - began_s)
    (hole,) = report.findings
    assert (hole.kind, hole.count) == ("trace_hole", bodies[-1].as_py() // 2)
    assert costs[1] < 5 * costs[0]
