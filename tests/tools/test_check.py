from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from e2e.daemon import Daemon
from penstock.tools import check
from penstock.tools.main import main
from penstock.tools.stats import Look

ROW = {
    "depth": 5,
    "in_flight_count": 3,
    "deferred_count": 2,
    "message_count": 9,
    "requeue_count": 0,
    "timeout_count": 0,
    "client_count": 1,
    "paused": False,
}


def document(**topic: Any) -> dict[str, Any]:
    channel = {**ROW, "channel_name": "c"}
    row = {**ROW, "topic_name": "t", "channels": [channel], **topic}
    return {"health": "OK", "version": "1", "start_time": 0, "topics": [row]}


Found = Callable[..., list[tuple[str, str]]]


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Found:
    def call(state: Look, *words: str) -> list[tuple[str, str]]:
        monkeypatch.setattr(check, "look", lambda *_: state)
        main(["check", *words, "--json"])
        findings = json.loads(capsys.readouterr().out)["findings"]
        return [(one["level"], one["text"]) for one in findings]

    return call


def test_all_is_well(found: Found) -> None:
    assert found(Look({"n": document()}, {})) == []


def test_bounds_of_a_channel(found: Found) -> None:
    state = Look({"a": document(), "b": document()}, {})  # sums over nodes
    above = "t/c: 10 waiting, above 9"
    assert found(state, "--depth-warn=9") == [("WARNING", above)]
    assert found(state, "--depth-warn=1", "--depth-crit=9") == [("CRITICAL", above)]
    assert found(state, "--depth-warn=10", "--in-flight-crit=6", "--delayed-crit=4") == []
    assert found(state, "--in-flight-warn=5") == [("WARNING", "t/c: 6 in flight, above 5")]
    assert found(state, "--consumers=3") == [("CRITICAL", "t/c: 2 consumers, below 3")]


def test_what_is_always_critical(found: Found) -> None:
    sick = document(refusal="disk space", damaged=[{"from": 1}]) | {"health": "NOK - broken"}
    findings = found(Look({"n": sick}, {"m": "no answer"}))
    assert findings == [("CRITICAL", text) for text in (
        "m: no answer",
        "n: NOK - broken",
        "n: topic t refuses publishes: disk space",
        "n: topic t has damaged data",
    )]  # fmt: skip


def test_a_topic_that_is_not_there(found: Found) -> None:
    empty = {**document(), "topics": None}
    assert found(Look({"n": empty}, {}), "t", "c") == [("CRITICAL", "no topic t c")]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("check") / "data") as running:
        yield running


def test_a_real_daemon(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    here = f"--nsqd-http-address=127.0.0.1:{daemon.http_port}"
    assert main(["check", here]) == 0
    assert capsys.readouterr().out == "PENSTOCK OK\n"
    assert main(["check", here, "--nsqd-http-address=127.0.0.1:1", "--json"]) == 2
    answer = json.loads(capsys.readouterr().out)
    assert answer["status"] == "CRITICAL"
    assert len(answer["findings"]) == 1


@pytest.mark.parametrize("flags", [["--fly"], ["--depth-warn=-1"], ["--depth-warn=x"]])
def test_wrong_use_is_unknown(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *flags]) == 3
    assert "Usage" in capsys.readouterr().err
