"""Whole brokers in a cluster, with their clients: whatever goes wrong, the promises hold."""

from __future__ import annotations

import pytest

from penstock.broker.channel import Channel
from penstock.sim.brokers.clients import Message
from penstock.sim.brokers.histories import BROKERS, play
from penstock.sim.brokers.observer import Feed
from penstock.sim.brokers.timeline import brokers_timeline
from penstock.sim.brokers.trouble import TROUBLE
from penstock.sim.brokers.world import BrokersWorld
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
def test_the_same_seed_is_the_same_history(seed: int) -> None:
    assert play(seed) == play(seed)


class LooksAtTheEnd(BrokersWorld):
    def look_at_cursors(self) -> None:
        """Else a message that is lost is noticed before."""


@measured_already
def test_a_message_that_is_lost_is_noticed() -> None:
    with pytest.raises(Breach, match="I18"):
        play(0, canary=True, make=LooksAtTheEnd)


@measured_already
def test_a_cursor_that_passes_an_unfinished_message_is_noticed() -> None:
    with pytest.raises(Breach, match="I20: billing in orders"):
        play(0, canary=True)


class LosesLate(BrokersWorld):
    """Messages of channels that clients make."""

    def _is_lost(self, feed: Feed, message: Message) -> bool:
        return "#" in feed.channel and message.body.endswith(b"7")


@measured_already
def test_a_message_that_a_late_channel_loses_is_noticed() -> None:
    with pytest.raises(Breach, match="I23"):
        play(1, canary=True, make=LosesLate)


@measured_already
def test_consumers_get_partitions_that_come_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not so if the consumers that are there do not get the partitions that come later."""
    assert play(11).tally.histories == 1
    follow = Channel.follow

    def follow_the_first(channel: Channel, partition: int) -> None:
        if channel.name != "log" or partition == 0:
            follow(channel, partition)

    monkeypatch.setattr(Channel, "follow", follow_the_first)
    with pytest.raises(Breach, match="log never got"):
        play(11)


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
