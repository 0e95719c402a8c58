"""Every scenario, tiny, against the real daemon; and the whole command against a fake one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bench.daemon import Contender, Daemon, penstock
from bench.dialect import DaemonFailed
from bench.main import bench_main
from bench.passes import run
from bench.scenarios import SCENARIOS, Kind, Plan, Scenario

TINY = 8_000
Command = Callable[[str], str]
Fake = Callable[[str], Contender]


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
    fake_command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    affinity = os.sched_getaffinity(0)
    out = tmp_path / "figures.json"
    peers = ["--peer", f"one={fake_command('')}", "--peer", f"two={fake_command('')}"]
    asked = ["--scenario", "e2e", "--size", "100", "--rounds", "2", "--quick"]
    assert bench_main([*peers, *asked, "--no-penstock", f"--json={out}"]) == 0
    results = json.loads(out.read_text())["results"]
    assert [result["daemon"] for result in results] == ["one", "two"]
    assert all(result["rounds"] == 2 for result in results)
    captured = capsys.readouterr()
    assert "messages/s" in captured.out
    order = [line.split(", ")[2] for line in captured.err.splitlines() if "round" in line]
    assert order == ["one", "two", "two", "one"]  # there and back
    assert os.sched_getaffinity(0) == affinity


def test_a_failing_daemon_fails_the_command(
    fake_command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    peers = ["--peer", f"bad={fake_command('error')}", "--peer", f"good={fake_command('')}"]
    asked = ["--scenario", "mpub", "--size", "100", "--quick", "--no-penstock"]
    assert bench_main([*peers, *asked]) == 1
    captured = capsys.readouterr()
    assert "FAILED: the daemon answered with an error" in captured.out
    good = next(line for line in captured.out.splitlines() if " good " in line)
    assert "FAILED" not in good


@pytest.mark.parametrize("peer", ["nonsense", "x="])
def test_a_peer_needs_a_command(peer: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench_main(["--no-penstock", "--peer", peer]) == 1
    assert "NAME=COMMAND" in capsys.readouterr().err


def test_a_daemon_that_does_not_start_is_named(fake: Fake, tmp_path: Path) -> None:
    broken = replace(fake(""), name="broken", command=("python3", "-c", "raise SystemExit('no!')"))
    with pytest.raises(DaemonFailed, match=r"broken ended: no!"), Daemon(broken, tmp_path / "data"):
        pass
