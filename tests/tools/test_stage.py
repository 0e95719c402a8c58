"""`penstock stage` against a real daemon."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.daemon import Daemon
from penstock.kernel import encode_batch
from penstock.spark.brokerapi import BrokerApi, Owner
from penstock.tools.main import main


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with Daemon(tmp_path / "data", "--durability=os") as running:
        yield running


def test_what_is_staged_is_listed_and_given_up(
    daemon: Daemon, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_NSQD_HTTP_ADDRESS", f"127.0.0.1:{daemon.http_port}")
    with BrokerApi(f"http://127.0.0.1:{daemon.http_port}") as api:
        for number in range(3):
            name, owner = f"x-{number}", Owner("nightly", number // 2, "first")
            api.stage("orders", 0, name, encode_batch([b"a"], 0, 0, 0), owner)
    assert main(["stage", "list"]) == 0
    out = capsys.readouterr().out
    assert "3 stages" in out
    assert [line.split()[:4] for line in out.splitlines() if "nightly" in line] == [
        ["nightly", "0,", "1", "3"]
    ]
    assert main(["stage", "abort", "nightly"]) == 1  # nobody is there to ask
    assert main(["stage", "abort", "nightly", "--version=1", "--yes"]) == 0
    assert "1 stages of nightly given up" in capsys.readouterr().out
    assert main(["stage", "abort", "nightly", "--yes", "--json"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)["nodes"].values()
    assert answer == {"aborted": 2}
