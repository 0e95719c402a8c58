"""What tracing costs, on and off.

Passes over fresh topics of one daemon, in turn: never traced, traced whole, and traced once but
switched off again. The daemon's CPU time for each message is compared within a round, so all see
the same machine; what counts is the median of the rounds, and the spread says what it is worth.
A backlog is filled untraced: what its consumer costs is two events a message, sent and finished.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from statistics import median
from typing import NamedTuple

from penstock.bench.daemon import Daemon
from penstock.bench.load import Load
from penstock.bench.passes import Measure, channel_names, fill, join_consumer, measured, publish
from penstock.bench.scenarios import BY_NAME, Kind, Plan, Scenario
from penstock.bench.web_load import exchange, request

NEVER, TRACED, SWITCHED_OFF = "never traced", "traced", "switched off"
STATES = (NEVER, TRACED, SWITCHED_OFF)
SETTINGS = {  # as many requests for each, so that all begin alike
    NEVER: ("max_depth=0", "max_depth=0"),
    TRACED: ("max_depth=0", "trace_rate=1"),
    SWITCHED_OFF: ("trace_rate=1", "trace_rate=0"),
}


class Rounds(NamedTuple):
    rounds: int
    messages: int  # of a pass


FULL = Rounds(7, 600_000)
QUICK = Rounds(2, 20_000)


class Cost(NamedTuple):
    """Throughput a CPU second, as a share of that of a topic that was never traced."""

    state: str
    cpu_ns: float  # a message
    ratio: float
    least: float
    most: float


class Bench:
    def __init__(self, daemon: Daemon, rounds: Rounds, body_bytes: int) -> None:
        self._daemon = daemon
        self._rounds = rounds
        self._plan = Plan(body_bytes, False, 0)
        self._serial = 0

    def costs(self, name: str) -> list[Cost]:
        """Of one scenario: of a traced topic, and of one that is not traced any more."""
        scenario = replace(BY_NAME[name], messages=self._rounds.messages)
        for state in STATES:
            self._pass(scenario, state)
        seen: dict[str, list[float]] = {state: [] for state in STATES}
        for number in range(self._rounds.rounds):
            for place in range(len(STATES)):
                state = STATES[(number + place) % len(STATES)]
                measure = self._pass(scenario, state)
                seen[state].append(measure.cpu_ns / measure.messages)
        return [_cost(state, seen) for state in STATES[1:]]

    def _pass(self, scenario: Scenario, state: str) -> Measure:
        self._serial += 1
        topic, count = f"t{self._serial}", scenario.messages
        self._post(f"/topic/create?topic={topic}")
        if scenario.kind is Kind.CONSUME:
            fill(self._plan, self._daemon, count, topic, channel_names(scenario))
        for setting in SETTINGS[state]:
            self._post(f"/topic/config?topic={topic}&{setting}")
        if scenario.kind is Kind.CONSUME:
            measure = self._consume(scenario, count, topic)
        else:
            measure = publish(scenario, self._plan, self._daemon, count, topic)
        self._post(f"/topic/delete?topic={topic}")
        return measure

    def _consume(self, scenario: Scenario, count: int, topic: str) -> Measure:
        (channel,) = channel_names(scenario)
        with ExitStack() as stack:
            load = Load(samples_max=1)
            daemon, plan = self._daemon, self._plan
            join_consumer(load, stack, daemon.dialect, scenario, plan, topic, channel)
            return measured(daemon, load, lambda: load.go(plan.seconds_max, expected=count))

    def _post(self, target: str) -> None:
        exchange(self._daemon.ports.http, request("POST", target))


def _cost(state: str, seen: dict[str, list[float]]) -> Cost:
    ratios = [never / own for never, own in zip(seen[NEVER], seen[state], strict=True)]
    return Cost(state, median(seen[state]), median(ratios), min(ratios), max(ratios))
