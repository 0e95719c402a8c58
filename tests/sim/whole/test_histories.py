"""A walk through three nodes of real logs, roles and kernels, and what must hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock import limits
from penstock.log.sync import SyncJob
from penstock.sim.main import sim_main
from penstock.sim.timeline import as_text
from penstock.sim.whole.histories import WholeTally, play, play_some
from penstock.sim.whole.timeline import timeline

BLOCK = 50
CANARY_SEEDS = 60  # one message in a thousand is lost
measured_already = pytest.mark.no_cover  # in the first of the histories


@pytest.mark.parametrize("first", range(0, 1500, BLOCK))
def test_no_history_breaks_a_promise(first: int) -> None:
    tally, found = play_some(first, BLOCK)
    assert found == []
    assert tally.answered > 15 * BLOCK, tally  # else nothing has happened
    assert tally.offices > 1.5 * BLOCK, tally
    assert tally.cuts > 0, tally
    assert tally.growths > BLOCK, tally


@measured_already
@pytest.mark.parametrize("seed", [7, 44])
def test_the_same_seed_gives_the_same_bytes(seed: int) -> None:
    assert play(seed) == play(seed)


@pytest.mark.parametrize(
    "seed",
    [
        44,  # a frame for a leader comes when that has become a follower
        105,  # an office ends while the sync of what its log had before is under way
        536,  # a follower is elected while a sync thread has its log's files
        617,  # a learner that is nearly level drops rows while its disk is full
        598,  # a follower is elected while its last row waits for room
    ],
)
def test_what_was_found_stays_found(seed: int) -> None:
    assert play(seed).tally.histories == 1


@measured_already
def test_a_lost_message_is_found() -> None:
    found = play_some(0, CANARY_SEEDS, canary=True)[1]
    assert {one.invariant for one in found} == {"KEPT"}


@measured_already
def test_a_committed_batch_that_a_disk_lost_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Syncs that do nothing: the first loss of power shows it."""
    monkeypatch.setattr(SyncJob, "run", lambda _: None)
    found = play_some(0, 20)[1]
    assert {one.invariant for one in found} & {"I5", "I14", "I3", "I4", "KEPT"}


@measured_already
def test_the_command_plays_and_shows_histories(capsys: pytest.CaptureFixture[str]) -> None:
    assert sim_main(["--world", "walk", "--histories", "2"]) == 0
    assert "broken promises: 0" in capsys.readouterr().out
    assert sim_main(["--world", "walk", "--seed", "1"]) == 0
    text = capsys.readouterr().out
    assert "everything held" in text
    assert "Leading" in text


@measured_already
def test_figures_of_many_processes_as_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert sim_main(["--world", "walk", "--histories", "60", "--processes", "2", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert (figures["histories"], figures["broken"]) == (60, [])
    assert figures["answered"] == play_some(0, 60)[0].answered


@measured_already
def test_a_history_as_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "history.html"
    assert sim_main(["--world", "walk", "--seed", "1", "--html", str(page)]) == 0
    text = page.read_text()
    assert text.count("<th>node ") == 3
    assert "Acknowledge(" in text
    assert capsys.readouterr().out == f"{page}: seed 1, everything held\n"


def test_a_broken_promise_is_the_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SyncJob, "run", lambda _: None)
    seed = play_some(0, 20)[1][0].seed
    assert as_text(timeline(seed)).splitlines()[-1].startswith("BROKEN ")


def test_no_rule_is_taken_away_there(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        sim_main(["--world", "walk", "--seed", "1", "--without", "crc_compared"])
    assert "--without is for the protocol world" in capsys.readouterr().err


def test_tallies_add_up() -> None:
    assert WholeTally(1, 2, 3, 4, 5, 6).plus(WholeTally(1, 1, 1, 1, 1, 1)) == (2, 3, 4, 5, 6, 7)


@pytest.mark.parametrize("piece_bytes", [40, 250])
def test_rows_in_pieces_break_no_promise(monkeypatch: pytest.MonkeyPatch, piece_bytes: int) -> None:
    """Links break between two pieces, and what was on its way comes late."""
    monkeypatch.setattr(limits, "REPLICA_PIECE_BYTES", piece_bytes)
    tally, found = play_some(700_000 + piece_bytes, BLOCK)
    assert found == []
    assert tally.answered > 15 * BLOCK, tally
    assert tally.growths > BLOCK, tally
