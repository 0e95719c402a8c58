"""The generator behind a relay: what reaches the daemon is encoded, the counts are the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.daemon import Daemon, penstock
from bench.passes import run
from bench.scenarios import BY_NAME
from bench.secure import FORMS, encoded

from .test_bench import TinyPlan


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
