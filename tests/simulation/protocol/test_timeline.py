"""A history to read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.replication.leader import PartitionLeader
from sim.main import sim_main
from sim.protocol.timeline import timeline
from sim.timeline import as_html, as_text


def test_it_says_what_happened_to_whom() -> None:
    text = as_text(timeline(5))
    assert text.startswith("seed 5: 3 nodes, durability os, ")
    assert "leads, members" in text
    assert text.endswith("everything held")


def test_a_page_has_a_column_for_each_node() -> None:
    page = as_html(timeline(5))
    assert page.count("<th>node ") == 3
    assert "everything held" in page


def test_a_broken_promise_is_the_last_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PartitionLeader, "_counted", lambda line, member: line.end)
    assert any(sim_main(["--seed", str(seed)]) for seed in range(20))
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("BROKEN I") for line in lines)


def test_a_page_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "history.html"
    assert sim_main(["--seed", "5", "--html", str(page)]) == 0
    assert page.read_text().startswith("<!doctype html>")
    assert capsys.readouterr().out == f"{page}: seed 5, everything held\n"


def test_many_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert sim_main(["--histories", "50", "--processes", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("50 histories in ")
    assert lines[-1] == "broken promises: 0"


def test_both_come_as_documents(capsys: pytest.CaptureFixture[str]) -> None:
    assert sim_main(["--histories", "20", "--processes", "1", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert (figures["histories"], figures["broken"]) == (20, [])
    assert sim_main(["--seed", "5", "--json"]) == 0
    history = json.loads(capsys.readouterr().out)
    assert (history["seed"], history["breach"]) == (5, "")
    assert history["moments"][0]["event"] == "the beginning"


def test_a_page_of_many_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        sim_main(["--histories", "5", "--html", "x.html"])
    assert "needs --seed" in capsys.readouterr().err
