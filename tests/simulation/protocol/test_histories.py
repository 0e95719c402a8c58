"""Replication in the protocol world: no history breaks a promise."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cases import seeds
from penstock.replication.leader import PartitionLeader
from sim.histories import Tally, play_block
from sim.main import sim_main
from sim.protocol.histories import PROTOCOL

HISTORIES = seeds(1_500, 200_000)


@pytest.mark.timeout(1800)
def test_no_history_breaks_a_promise() -> None:
    result = play_block(PROTOCOL, 0, len(HISTORIES))
    assert result.found == ()
    assert is_lively(result.tally)


def test_alarms_that_were_false_stay_away() -> None:
    """A follower stops where the log of a replaced leader is corrupt; a replaced leader commits a
    batch that rots on its own disk."""
    for seed in (30_321_674, 42_825_447):
        assert play_block(PROTOCOL, seed, 1).found == ()


def is_lively(tally: Tally) -> bool:
    """Did enough happen? Else the histories say nothing."""
    count = tally.histories
    return (
        tally.answered > 3 * count
        and tally.leaderships > count
        and tally.growths > count / 2
        and tally.shrinks > count / 8
        and tally.cuts > count / 30
    )


def test_a_seed_is_the_same_history_in_another_process() -> None:
    command = [sys.executable, "-m", "sim", "--seed", "4711"]
    environments = [{**os.environ, "PYTHONHASHSEED": hash_seed} for hash_seed in ("1", "2")]
    both = [subprocess.Popen(command, env=one, stdout=subprocess.PIPE) for one in environments]
    texts = [one.communicate()[0] for one in both]
    assert texts[0] == texts[1]
    assert texts[0].endswith(b"everything held\n")


# --- a history to read ---


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


def test_both_come_as_documents(capsys: pytest.CaptureFixture[str]) -> None:
    assert sim_main(["--histories", "20", "--processes", "1", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert (figures["histories"], figures["broken"]) == (20, [])
    assert sim_main(["--seed", "5", "--json"]) == 0
    history = json.loads(capsys.readouterr().out)
    assert (history["seed"], history["breach"]) == (5, "")
    assert history["moments"][0]["event"] == "the beginning"
