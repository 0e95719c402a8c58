"""Whole brokers in a cluster, with their clients: whatever goes wrong, the promises hold."""

import pytest

from penstock.broker.channels.channel import Channel
from sim.brokers.clients import Message
from sim.brokers.histories import BROKERS, play
from sim.brokers.observer import Feed
from sim.brokers.timeline import brokers_timeline
from sim.brokers.trouble import TROUBLE
from sim.brokers.world import BrokersWorld
from sim.histories import Breach, find, play_block
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


class LooksAtTheEnd(BrokersWorld):
    def look_at_cursors(self) -> None:
        """Else a message that is lost is noticed before."""


@pytest.mark.long
def test_a_message_that_is_lost_is_noticed() -> None:
    with pytest.raises(Breach, match="I18"):
        play(0, canary=True, make=LooksAtTheEnd)


@pytest.mark.long
def test_a_cursor_that_passes_an_unfinished_message_is_noticed() -> None:
    with pytest.raises(Breach, match="I20: billing in orders"):
        play(0, canary=True)


class LosesLate(BrokersWorld):
    """Messages of channels that clients make."""

    def _is_lost(self, feed: Feed, message: Message) -> bool:
        return "#" in feed.channel and message.body.endswith(b"7")


@pytest.mark.long
def test_a_message_that_a_late_channel_loses_is_noticed() -> None:
    with pytest.raises(Breach, match="I23"):
        play(1, canary=True, make=LosesLate)


@pytest.mark.long
def test_consumers_get_partitions_that_come_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not so if the consumers that are there do not get the partitions that come later: in which
    history that shows depends on all that the product does."""
    follow = Channel.follow

    def follow_the_first(channel: Channel, partition: int) -> None:
        if channel.name != "log" or partition == 0:
            follow(channel, partition)

    monkeypatch.setattr(Channel, "follow", follow_the_first)
    found = find(play, 0, 16)
    assert found is not None
    assert "log never got" in found.text


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
