"""Each figure, small, against a real daemon. What they say is looked at on a quiet machine."""

from __future__ import annotations

import json

import pytest

from penstock.bench.dialect import DaemonFailed
from penstock.bench.figures import FIGURES, QUICK, Figure, daemon, figures_main, line
from penstock.bench.web_load import Load, exchange, request


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure(name: str) -> None:
    figures = list(FIGURES[name](QUICK))
    assert figures
    assert all(figure.value > 0 for figure in figures)


def test_the_load_counts_every_answer() -> None:
    with daemon() as running:
        load = Load(running.ports.http, request("POST", "/pub?topic=t", b"x"), 7)
        try:
            assert load.run(100) > 0
        finally:
            load.close()
        shown = json.loads(exchange(running.ports.http, request("GET", "/stats?format=json")))
        assert shown["topics"][0]["message_count"] == 100


def test_an_error_is_not_a_figure() -> None:
    with daemon() as running:
        load = Load(running.ports.http, request("POST", "/pub?topic=bad%20name", b"x"), 1)
        try:
            with pytest.raises(DaemonFailed, match="400"):
                load.run(2)
        finally:
            load.close()
        with pytest.raises(DaemonFailed, match="404"):
            exchange(running.ports.http, request("GET", "/nowhere"))


def test_lines() -> None:
    assert line(Figure("x", 12_345.6, "/s", ">= 1", 2.5)) == (
        "x: 12,346 /s (target >= 1, 2.50 CPU us each)"
    )
    assert line(Figure("x", 12.34, "ms", "<= 20")) == "x: 12.3 ms (target <= 20)"


def test_an_unknown_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert figures_main(["speed"]) == 2
    assert "'speed' is none of pub, mpub" in capsys.readouterr().err
