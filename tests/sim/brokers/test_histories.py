"""Whole brokers in a cluster, with their clients: whatever goes wrong, the promises hold."""

from __future__ import annotations

import pytest

from penstock.cluster.joined import Joined
from penstock.sim.brokers.histories import BROKERS, play
from penstock.sim.brokers.timeline import brokers_timeline
from penstock.sim.brokers.trouble import TROUBLE
from penstock.sim.protocol.observer import Breach
from penstock.sim.timeline import as_html, as_text
from penstock.sim.whole.histories import WholeTally, play_some

BLOCKS, BLOCK = 4, 4
measured_already = pytest.mark.no_cover  # in the first of the histories


@pytest.mark.parametrize("block", range(BLOCKS))
def test_the_promises_hold(block: int) -> None:
    tally, found = play_some(block * BLOCK, BLOCK, kind=BROKERS)
    assert found == []
    assert tally.histories == BLOCK
    assert tally.answered > 50 * BLOCK  # else nothing has happened


@measured_already
def test_the_histories_have_in_them_what_they_are_about() -> None:
    tally = WholeTally()
    for seed in (4, 14, 23):
        tally = tally.plus(play(seed).tally)
    assert tally.offices >= 9
    assert min(tally.growths, tally.shrinks) >= 3


@measured_already
@pytest.mark.parametrize("seed", [1, 6])
def test_the_same_seed_is_the_same_history_in_both_kernels(seed: int) -> None:
    assert play(seed, "pure") == play(seed, "compiled")


@measured_already
def test_a_message_that_is_lost_is_noticed() -> None:
    with pytest.raises(Breach, match="I18"):
        play(0, canary=True)


@measured_already
def test_a_channel_that_is_confirmed_too_early_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """By leaders that do not know it yet."""
    monkeypatch.setattr(Joined, "_holds_start", lambda *_: True)
    with pytest.raises(Breach, match="I23"):
        play(33)


@measured_already
def test_a_timeline_tells_of_trouble_and_of_records() -> None:
    timeline = brokers_timeline(6)
    assert timeline.breach == ""
    text, page = as_text(timeline), as_html(timeline)
    troubles = [trouble.__name__.replace("_", " ") for trouble in TROUBLE]
    assert any(name in text for name in troubles)
    for word in ("a record changes", "leading"):
        assert word in text
        assert word in page
