"""The generator counts what a daemon really did."""

import json
import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from bench import machine
from bench.daemon import Daemon, penstock
from bench.dialect import Dialect
from bench.load import Load
from bench.main import bench_main
from bench.passes import Measure, Publishers, join_consumer, percentiles, run
from bench.report import Row, document
from bench.scenarios import BY_NAME, SCENARIOS, Kind, Plan, Scenario
from bench.secure import FORMS, encoded

PLAN = Plan(body_bytes=100, quick=True, restart_mb=1)
E2E = replace(BY_NAME["e2e"], channels=1)
COUNT = 40_000
HOW = Publishers("t", COUNT, batch=200, window=8, stamped=True)


def loaded(stack: ExitStack, dialect: Dialect, how: Publishers, channels: int) -> Load:
    load = Load()
    names = [f"c{number}" for number in range(channels)]
    dialect.prepare(how.topic, names)
    for name in names:
        join_consumer(load, stack, dialect, E2E, PLAN, how.topic, name)
    how.join(load, stack, dialect, PLAN.body_bytes)
    return load


def test_every_message_is_published_acknowledged_and_received(tmp_path: Path) -> None:
    with Daemon(penstock("os"), tmp_path / "data") as daemon, ExitStack() as stack:
        load = loaded(stack, daemon.dialect, HOW, channels=2)
        seconds = load.go(10.0, lag_max=6_000)
        assert load.acked == COUNT
        assert load.received == 2 * COUNT
        assert 0 < seconds < 10
        latencies = load.latencies()
        assert len(latencies) == 2 * COUNT  # each delivery carries the time it was sent
        assert 0 < min(latencies) <= max(latencies) < 10**10
        assert daemon.dialect.stored("t") == 0


# --- medians, ratios and remarks of a report ---


def rows() -> list[Row]:
    own = Row(BY_NAME["mpub"], 200, "penstock-os")
    own.measures = [Measure(1000, s, 200_000, {"p50": s}, 4_000, 2_000) for s in (1.0, 4.0, 2.0)]
    peer = Row(BY_NAME["mpub"], 200, "nsqd", [Measure(1000, 8.0, 1_000_000, {}, 9_000, 8_000)])
    return [own, peer, Row(BY_NAME["mpub"], 200, "nats-os"), Row(BY_NAME["mpub"], 200, "odd")]


def test_the_median_round_counts_and_the_first_daemon_is_the_measure() -> None:
    own, peer, _, _ = document(rows(), {})["results"]
    assert own["messages_per_second"] == 500
    assert own["cpu_seconds_per_million"] == 0.2
    assert own["latency_us"] == {"p50": 2.0}
    assert own["all_rates"] == [1000, 250, 500]
    assert peer["rate_ratio"] == 0.25
    assert peer["cpu_ratio"] == 5


def test_percentiles_are_taken_by_rank() -> None:
    latencies = [microsecond * 1000 for microsecond in range(1000, 0, -1)]
    assert percentiles(latencies) == {"p50": 501.0, "p99": 991.0, "p99.9": 1000.0}
    assert percentiles([]) == {}


# --- every scenario, tiny; and the whole command ---


TINY = 8_000


class TinyPlan(Plan):
    """A few thousand messages, enough to cross buffers, few enough for a test."""

    def messages(self, scenario: Scenario) -> int:
        share = scenario.batch * scenario.connections
        slow = scenario.rate or scenario.window == 1  # paced, or an fdatasync per message
        count = 400 if slow else TINY // max(1, scenario.channels)
        return max(1, count // share) * share


@pytest.mark.parametrize("durability", ["os", "disk"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_scenario_against_the_daemon(scenario: Scenario, durability: str, tmp_path: Path) -> None:
    plan = TinyPlan(body_bytes=200, quick=True, restart_mb=1)
    measure = run(scenario, plan, penstock(durability), tmp_path / "data")
    assert measure is not None
    assert measure.rss_kb > 0
    assert measure.cpu_ns > 0
    if scenario.kind is Kind.RESTART:
        assert measure.extra["lost"] == 0
        return
    assert measure.messages == plan.messages(scenario) * max(1, scenario.channels)
    if scenario.kind in (Kind.PUBLISH, Kind.BOTH):
        assert measure.latency_us["p50"] <= measure.latency_us["p99"]


def test_the_command_writes_table_and_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    affinity = os.sched_getaffinity(0)
    out = tmp_path / "figures.json"
    asked = ["--scenario", "e2e", "--size", "100", "--rounds", "2", "--quick"]
    assert bench_main([*asked, f"--json={out}"]) == 0
    (result,) = json.loads(out.read_text())["results"]
    assert (result["daemon"], result["rounds"]) == ("penstock-os", 2)
    assert "messages/s" in capsys.readouterr().out
    assert os.sched_getaffinity(0) == affinity


def test_the_daemon_keeps_its_own_core_while_the_generator_is_pinned() -> None:
    before = machine.cores()
    with machine.pinned(before[1]):
        assert machine.cores() == before
        assert not before[2] or before[0].isdisjoint(os.sched_getaffinity(0))


# --- the generator behind a relay ---


@pytest.mark.parametrize("scenario", ["mpub", "consume", "e2e"])
@pytest.mark.parametrize("form", FORMS)
def test_scenarios_over_tls_and_compression(scenario: str, form: str, tmp_path: Path) -> None:
    plan = TinyPlan(body_bytes=200, quick=True, restart_mb=1)
    measure = run(BY_NAME[scenario], plan, encoded(penstock("os"), form, tmp_path), tmp_path / "d")
    assert measure is not None
    assert measure.messages == plan.messages(BY_NAME[scenario])


def test_the_relay_really_encodes(tmp_path: Path) -> None:
    contender = encoded(penstock("os"), "tls+snappy", tmp_path)
    with Daemon(contender, tmp_path / "data") as daemon:
        sock, _ = daemon.dialect.consumer("t", "c", 1)
        with sock:
            answer = daemon.dialect._ask("GET", "/stats?format=json")  # type: ignore[attr-defined]
            stats = json.loads(answer)
        (client,) = stats["topics"][0]["channels"][0]["clients"]
    assert (client["tls"], client["snappy"], client["deflate"]) == (True, True, False)
