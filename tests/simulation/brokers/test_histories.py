"""Whole brokers in a cluster, with their clients: whatever goes wrong, the promises hold."""

import pytest

from sim.brokers.histories import BROKERS, play
from sim.brokers.timeline import brokers_timeline
from sim.brokers.trouble import TROUBLE
from sim.histories import Breach, play_block
from sim.timeline import as_html, as_text

HISTORIES_LONG = 30


def test_the_promises_hold() -> None:
    tally = play(11).tally
    assert tally.answered > 100  # else nothing has happened
    assert tally.leaderships >= 6
    assert min(tally.growths, tally.shrinks) >= 1


@pytest.mark.long
def test_the_same_seed_is_the_same_history() -> None:
    assert play(6) == play(6)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_promises_hold_in_many() -> None:
    result = play_block(BROKERS, 0, HISTORIES_LONG)
    assert result.found == ()
    assert result.tally.answered > 50 * HISTORIES_LONG


@pytest.mark.long
def test_a_cursor_that_passes_an_unfinished_message_is_noticed() -> None:
    with pytest.raises(Breach, match="I20: billing in orders"):
        play(0, canary=True)


@pytest.mark.long
def test_a_timeline_tells_of_trouble_and_of_records() -> None:
    timeline = brokers_timeline(6)
    assert timeline.breach == ""
    text, page = as_text(timeline), as_html(timeline)
    troubles = [trouble.__name__.replace("_", " ") for trouble in TROUBLE]
    assert any(name in text for name in troubles)
    for word in ("a record changes", "leading"):
        assert word in text
        assert word in page
