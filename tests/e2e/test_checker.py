"""The judge is judged: an innocent history passes, and each promise, once broken, is named."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .checker import Promise
from .history import ChannelGone, ChannelMade, PublishFailed, PublishUnknown
from .story import MS, TIMEOUT_NS, Story


@pytest.fixture
def story() -> Story:
    return Story()


def test_an_ordinary_life_breaks_nothing(story: Story) -> None:
    story.made("other", gets_backlog=False)
    story.publish(b"a")
    story.publish(b"b", b"c", publisher="q")
    for channel in ("ch", "other"):
        for number, body in enumerate((b"a", b"b", b"c")):
            story.delivered(number, body, channel=channel)
            story.finished(number, channel)
    assert story.verdict() == []


# --- KEPT ---


def test_an_acknowledged_message_that_nobody_got_is_lost(story: Story) -> None:
    story.publish(b"a")
    story.publish(b"b")
    story.delivered(0, b"a")
    assert story.broken() == [(Promise.KEPT, b"b")]


def test_a_publish_of_unknown_outcome_may_be_lost_or_not(story: Story) -> None:
    for body in (b"a", b"b"):
        story.add(PublishUnknown(story.now_ns, story.attempt(body)))
    story.attempt(b"c")  # never answered at all
    story.delivered(0, b"a")
    assert story.verdict() == []


def test_a_deleted_channel_is_owed_nothing_and_a_new_one_of_its_name_is(story: Story) -> None:
    story.publish(b"a")
    story.add(ChannelGone(story.now_ns, "ch"))
    story.publish(b"b")
    story.add(ChannelMade(story.now_ns, "ch", False))
    story.publish(b"c")
    assert story.broken() == [(Promise.KEPT, b"c")]


# --- TRUE ---


def test_a_body_that_nobody_published_is_an_invention(story: Story) -> None:
    story.delivered(0, b"from nowhere")
    assert story.broken() == [(Promise.TRUE, b"from nowhere")]


def test_an_id_has_one_body(story: Story) -> None:
    story.publish(b"a")
    story.publish(b"b")
    story.delivered(0, b"a")
    story.delivered(0, b"b", attempts=2)
    assert (Promise.TRUE, b"b") in story.broken()


@pytest.mark.parametrize("answer_first", [True, False])
def test_a_refused_message_is_not_delivered(story: Story, answer_first: bool) -> None:
    refused = story.attempt(b"a")
    if answer_first:
        story.add(PublishFailed(story.now_ns, refused))
    story.delivered(0, b"a")
    if not answer_first:
        story.add(PublishFailed(story.now_ns, refused))
    assert story.broken() == [(Promise.TRUE, b"a")]


def test_a_refused_message_is_not_stored(story: Story) -> None:
    story.add(PublishFailed(story.now_ns, story.attempt(b"a")))
    assert story.broken() == []
    assert story.broken(ch=frozenset([b"a"])) == [(Promise.TRUE, b"a")]


# --- WHOLE ---


def test_half_an_mpub_is_broken_whatever_its_outcome(story: Story) -> None:
    story.add(PublishUnknown(story.now_ns, story.attempt(b"a", b"b", b"c")))
    story.delivered(0, b"a")
    assert story.broken() == [(Promise.WHOLE, b"b")]
    assert story.broken(ch=frozenset([b"b", b"c"])) == []


# --- CALLED_FOR ---


def test_a_message_that_comes_again_uncalled(story: Story) -> None:
    story.publish(b"a")
    story.delivered(0, b"a")
    story.wait(TIMEOUT_NS // MS - 10)
    story.delivered(0, b"a", attempts=2)
    assert story.broken() == [(Promise.CALLED_FOR, b"a")]


def causes() -> dict[str, Callable[[Story], None]]:
    return {
        "requeue": lambda story: story.requeued(0),
        "timeout": lambda story: story.wait(TIMEOUT_NS // MS),
        "disconnect": lambda story: story.disconnected(),
        "crash": lambda story: story.crashed(),
        "stop": lambda story: story.stopped(),
    }


@pytest.mark.parametrize("cause", list(causes()))
def test_each_cause_calls_a_message_again(story: Story, cause: str) -> None:
    story.publish(b"a")
    story.delivered(0, b"a")
    causes()[cause](story)
    story.delivered(0, b"a", attempts=2)
    assert story.verdict() == []


def test_a_crash_ends_what_was_under_way(story: Story) -> None:
    story.publish(b"a")
    story.delivered(0, b"a")
    story.requeued(0)
    story.crashed()
    story.delivered(0, b"a", attempts=2)
    story.delivered(0, b"a", attempts=3)
    assert story.broken() == [(Promise.CALLED_FOR, b"a")]


# --- ATTEMPTS ---


@pytest.mark.parametrize("attempts", [0, 2, 3, 5])
def test_the_first_delivery_is_attempt_one(story: Story, attempts: int) -> None:
    story.publish(b"a")
    story.delivered(0, b"a", attempts=attempts)
    assert story.broken() == [(Promise.ATTEMPTS, b"a")]


@pytest.mark.parametrize("attempts", [1, 2, 4])
def test_each_delivery_counts_one_more(story: Story, attempts: int) -> None:
    story.publish(b"a")
    story.delivered(0, b"a")
    story.requeued(0)
    story.delivered(0, b"a", attempts=2)
    story.requeued(0)
    story.delivered(0, b"a", attempts=attempts)
    assert story.broken() == [(Promise.ATTEMPTS, b"a")]


@pytest.mark.parametrize(("attempts", "innocent"), [(1, False), (2, True), (3, True), (4, True)])
def test_after_a_crash_the_last_count_may_come_twice(
    story: Story, attempts: int, innocent: bool
) -> None:
    story.publish(b"a")
    story.delivered(0, b"a")
    story.requeued(0)
    story.delivered(0, b"a", attempts=2)
    story.crashed()
    story.delivered(0, b"a", attempts=attempts)
    assert story.broken() == ([] if innocent else [(Promise.ATTEMPTS, b"a")])


@pytest.mark.parametrize(("late_ms", "innocent"), [(2000, True), (0, False)])
def test_two_sockets_may_be_read_in_the_wrong_order(
    story: Story, late_ms: int, innocent: bool
) -> None:
    story.publish(b"a")
    story.delivered(0, b"a", consumer="one")
    story.wait(2 * TIMEOUT_NS // MS)
    story.delivered(0, b"a", attempts=3, consumer="one")
    story.delivered(0, b"a", attempts=2, consumer="two", late_ms=late_ms)
    assert ((Promise.ATTEMPTS, b"a") in story.broken()) is not innocent


# --- FINISHED ---


@pytest.mark.parametrize("cause", list(causes()))
def test_a_confirmed_finish_is_for_ever(story: Story, cause: str) -> None:
    story.publish(b"a")
    story.delivered(0, b"a")
    story.finished(0)
    causes()[cause](story)
    story.delivered(0, b"a", attempts=2)
    assert story.broken() == [(Promise.FINISHED, b"a")]


def test_an_unconfirmed_finish_may_be_forgotten_by_a_crash(story: Story) -> None:
    story.publish(b"a")
    story.delivered(0, b"a")
    story.finish_sent(0)
    story.crashed()
    story.delivered(0, b"a", attempts=2)
    assert story.verdict() == []


# --- ON_TIME ---


def test_a_delayed_message_that_comes_early(story: Story) -> None:
    story.publish(b"a", delay_ms=500)
    story.wait(450)
    story.delivered(0, b"a")
    assert story.broken() == [(Promise.ON_TIME, b"a")]


def test_a_requeue_with_a_delay_that_comes_early(story: Story) -> None:
    story.publish(b"a")
    story.delivered(0, b"a")
    story.requeued(0, delay_ms=300)
    story.wait(200)
    story.delivered(0, b"a", attempts=2)
    assert story.broken() == [(Promise.ON_TIME, b"a")]


# --- RISING ---


def test_ids_rise_along_a_publisher(story: Story) -> None:
    first, second = story.attempt(b"a"), story.attempt(b"b")
    story.acknowledged(first)
    story.acknowledged(second)
    story.delivered(2, b"a")
    story.delivered(1, b"b")
    assert story.broken() == [(Promise.RISING, b"b")]
