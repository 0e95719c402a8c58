"""The judge is judged: an innocent history passes, and each promise, once broken, is named."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .checker import Checker, HistoryInvalid, Promise, check, report
from .history import (
    ChannelGone,
    ChannelMade,
    Delivered,
    Event,
    FinishSent,
    PublishAcknowledged,
    PublishAttempted,
    PublishFailed,
    PublishUnknown,
    RequeueSent,
    SettleRefused,
    StoredAtEnd,
)
from .story import MS, TIMEOUT_NS, Story, id_of


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


def test_a_message_that_is_still_stored_is_not_lost(story: Story) -> None:
    story.publish(b"a")
    assert story.broken(ch=frozenset([b"a"])) == []


def test_every_channel_has_its_own_copy_to_lose(story: Story) -> None:
    story.made("other")
    story.publish(b"a")
    story.delivered(0, b"a")
    (case,) = story.verdict()
    assert (case.promise, case.channel) == (Promise.KEPT, "other")


def test_one_message_of_an_mpub_can_be_lost(story: Story) -> None:
    story.publish(b"a", b"b", b"c")
    story.delivered(0, b"a")
    story.delivered(2, b"c")
    assert (Promise.KEPT, b"b") in story.broken()


def test_a_publish_of_unknown_outcome_may_be_lost_or_not(story: Story) -> None:
    for body in (b"a", b"b"):
        story.add(PublishUnknown(story.now_ns, story.attempt(body)))
    story.attempt(b"c")  # never answered at all
    story.delivered(0, b"a")
    assert story.verdict() == []


def test_a_later_channel_is_owed_only_what_comes_after_it(story: Story) -> None:
    story.publish(b"early")
    under_way = story.attempt(b"meanwhile")
    story.made("later", gets_backlog=False)
    story.acknowledged(under_way)
    story.publish(b"late")
    for number, body in enumerate((b"early", b"meanwhile", b"late")):
        story.delivered(number, body)
    (case,) = story.verdict()
    assert (case.promise, case.channel, case.body) == (Promise.KEPT, "later", b"late")


def test_the_first_channel_is_owed_the_backlog() -> None:
    events: list[Event] = [
        PublishAttempted(1, 1, "p", (b"a",)),
        PublishAcknowledged(2, 1),
        ChannelMade(3, "first", True),
        StoredAtEnd(4, "first", frozenset()),
    ]
    assert [case.promise for case in check(events)] == [Promise.KEPT]


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


def test_a_body_that_was_changed_on_its_way_is_an_invention_and_a_loss(story: Story) -> None:
    story.publish(b"body")
    story.delivered(0, b"bodx")
    assert set(story.broken()) == {(Promise.TRUE, b"bodx"), (Promise.KEPT, b"body")}


def test_a_body_that_comes_before_it_is_published_is_an_invention(story: Story) -> None:
    story.delivered(0, b"a")
    story.publish(b"a")
    assert (Promise.TRUE, b"a") in story.broken()


def test_an_id_has_one_body(story: Story) -> None:
    story.publish(b"a")
    story.publish(b"b")
    story.delivered(0, b"a")
    story.delivered(0, b"b", attempts=2)
    assert (Promise.TRUE, b"b") in story.broken()


def test_a_body_has_one_id_in_all_channels(story: Story) -> None:
    story.made("other")
    story.publish(b"a")
    story.delivered(0, b"a")
    story.delivered(1, b"a", channel="other")
    assert story.broken() == [(Promise.TRUE, b"a")]


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


@pytest.mark.parametrize("cause", list(causes()))
def test_each_cause_calls_it_only_once(story: Story, cause: str) -> None:
    story.publish(b"a")
    story.delivered(0, b"a")
    causes()[cause](story)
    story.delivered(0, b"a", attempts=2)
    story.delivered(0, b"a", attempts=3)
    assert story.broken() == [(Promise.CALLED_FOR, b"a")]


def test_somebody_elses_disconnect_calls_nothing(story: Story) -> None:
    story.publish(b"a")
    story.delivered(0, b"a")
    story.disconnected("somebody else")
    story.delivered(0, b"a", attempts=2)
    assert story.broken() == [(Promise.CALLED_FOR, b"a")]


def test_a_finish_that_was_ignored_shows_as_an_uncalled_delivery(story: Story) -> None:
    story.publish(b"a")
    story.delivered(0, b"a")
    story.finish_sent(0)
    story.delivered(0, b"a", attempts=2)
    assert story.broken() == [(Promise.CALLED_FOR, b"a")]


def test_a_timeout_is_counted_from_when_it_may_have_been_sent(story: Story) -> None:
    story.publish(b"a")
    story.delivered(0, b"a", late_ms=500)
    story.wait(TIMEOUT_NS // MS - 400)
    story.delivered(0, b"a", attempts=2)
    assert story.verdict() == []


def test_sending_may_take_the_time_that_was_allowed(story: Story) -> None:
    story.publish(b"a")
    story.delivered(0, b"a")
    story.wait(TIMEOUT_NS // MS - 10)
    story.delivered(0, b"a", attempts=2)
    events = [*story.events, StoredAtEnd(story.now_ns, "ch", frozenset())]
    assert check(events, send_slack_ns=10 * MS) == []
    assert [case.promise for case in check(events, send_slack_ns=5 * MS)] == [Promise.CALLED_FOR]


def test_an_answer_under_way_calls_the_delivery_after_the_one_it_crossed(story: Story) -> None:
    """The first attempt timed out before it was read. Both answers, to it and to the second, are
    sent; the daemon takes one, delivers, and then takes the other, however long that takes."""
    story.publish(b"a")
    story.wait(2 * TIMEOUT_NS // MS)
    story.delivered(0, b"a", late_ms=2 * TIMEOUT_NS // MS)
    story.requeued(0)
    story.delivered(0, b"a", attempts=2, late_ms=2 * TIMEOUT_NS // MS)
    story.requeued(0)
    story.wait(TIMEOUT_NS // MS // 2)
    story.delivered(0, b"a", attempts=3)
    story.delivered(0, b"a", attempts=4)
    story.delivered(0, b"a", attempts=5)  # the third may have been another timeout
    assert story.verdict() == []
    story.delivered(0, b"a", attempts=6)
    assert story.broken() == [(Promise.CALLED_FOR, b"a")]


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


def test_deliveries_that_nobody_saw_count_too(story: Story) -> None:
    story.publish(b"a")
    story.disconnected()
    story.delivered(0, b"a", attempts=4)
    assert story.verdict() == []


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


def test_after_an_orderly_stop_the_last_count_does_not_come_twice(story: Story) -> None:
    story.publish(b"a")
    story.delivered(0, b"a")
    story.stopped()
    story.delivered(0, b"a")
    assert story.broken() == [(Promise.ATTEMPTS, b"a")]


def test_a_crash_before_it_was_published_excuses_no_count(story: Story) -> None:
    story.crashed()
    story.publish(b"a")
    story.delivered(0, b"a", attempts=2)
    assert story.broken() == [(Promise.ATTEMPTS, b"a")]


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


def test_after_a_crash_too_two_sockets_may_be_read_in_the_wrong_order(story: Story) -> None:
    story.publish(b"a")
    story.crashed()
    story.wait(2 * TIMEOUT_NS // MS)
    story.delivered(0, b"a", attempts=2, consumer="one")
    story.delivered(0, b"a", attempts=1, consumer="two", late_ms=2000)
    assert story.verdict() == []
    story.delivered(0, b"a", attempts=1, consumer="two", late_ms=2000)
    assert (Promise.ATTEMPTS, b"a") in story.broken()


def test_only_two_consumers_can_be_read_in_the_wrong_order(story: Story) -> None:
    story.publish(b"a")
    story.wait(2 * TIMEOUT_NS // MS)
    story.delivered(0, b"a", attempts=2, late_ms=2000)
    story.delivered(0, b"a", attempts=1, late_ms=2000)
    assert (Promise.ATTEMPTS, b"a") in story.broken()


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


def test_channels_finish_apart(story: Story) -> None:
    story.made("other")
    story.publish(b"a")
    story.delivered(0, b"a")
    story.delivered(0, b"a", channel="other")
    story.finished(0)
    story.crashed()
    story.delivered(0, b"a", attempts=2, channel="other")
    assert story.verdict() == []


# --- ON_TIME ---


def test_a_delayed_message_that_comes_early(story: Story) -> None:
    story.publish(b"a", delay_ms=500)
    story.wait(450)
    story.delivered(0, b"a")
    assert story.broken() == [(Promise.ON_TIME, b"a")]


def test_a_delayed_message_keeps_its_time_across_a_crash(story: Story) -> None:
    story.publish(b"early", delay_ms=500)
    story.publish(b"on time", delay_ms=500)
    story.crashed()
    story.delivered(0, b"early")
    story.wait(500)
    story.delivered(1, b"on time")
    assert story.broken() == [(Promise.ON_TIME, b"early")]


def test_a_requeue_with_a_delay_that_comes_early(story: Story) -> None:
    story.publish(b"a")
    story.delivered(0, b"a")
    story.requeued(0, delay_ms=300)
    story.wait(200)
    story.delivered(0, b"a", attempts=2)
    assert story.broken() == [(Promise.ON_TIME, b"a")]


def test_a_crash_may_forget_a_requeue_and_a_refused_one_never_was(story: Story) -> None:
    story.publish(b"a")
    story.publish(b"b")
    story.delivered(0, b"a")
    story.delivered(1, b"b")
    story.requeued(0, delay_ms=300)
    story.add(SettleRefused(story.now_ns, "ch", id_of(0)))
    story.delivered(0, b"a", attempts=2)
    story.requeued(1, delay_ms=300)
    story.crashed()
    story.delivered(1, b"b", attempts=2)
    assert story.verdict() == []


def test_the_clocks_may_differ_by_what_was_allowed(story: Story) -> None:
    story.publish(b"a", delay_ms=500)
    story.wait(490)
    story.delivered(0, b"a")
    events = [*story.events, StoredAtEnd(story.now_ns, "ch", frozenset())]
    assert check(events, clock_slack_ns=10 * MS) == []
    assert [case.promise for case in check(events, clock_slack_ns=5 * MS)] == [Promise.ON_TIME]


# --- RISING ---


def test_ids_rise_along_a_publisher(story: Story) -> None:
    first, second = story.attempt(b"a"), story.attempt(b"b")
    story.acknowledged(first)
    story.acknowledged(second)
    story.delivered(2, b"a")
    story.delivered(1, b"b")
    assert story.broken() == [(Promise.RISING, b"b")]


def test_ids_rise_within_an_mpub(story: Story) -> None:
    story.publish(b"a", b"b")
    story.delivered(2, b"a")
    story.delivered(1, b"b")
    assert story.broken() == [(Promise.RISING, b"b")]


def test_ids_rise_from_what_was_acknowledged_to_what_came_after(story: Story) -> None:
    story.publish(b"a", publisher="p")
    story.crashed()
    story.publish(b"b", publisher="q")
    story.delivered(2, b"a")
    story.delivered(1, b"b")
    assert story.broken() == [(Promise.RISING, b"b")]


def test_publishes_at_the_same_time_have_no_order(story: Story) -> None:
    first = story.attempt(b"a", publisher="p")
    second = story.attempt(b"b", publisher="q")
    story.acknowledged(first)
    story.acknowledged(second)
    story.delivered(2, b"a")
    story.delivered(1, b"b")
    assert story.verdict() == []


# --- the report, and histories that make no sense ---


def test_the_report_tells_the_life_of_the_message(story: Story) -> None:
    story.publish(b"first")
    story.publish(b"lost")
    story.delivered(0, b"first")
    story.crashed()
    broken = story.verdict()
    text = report(broken)
    assert Promise.KEPT.value in text
    assert "PublishAcknowledged(publish=2)" in text
    assert "Crashed" in text
    assert "first" not in text
    assert report([]) == "no promise is broken"


def test_the_report_of_many_losses_stays_short(story: Story) -> None:
    for number in range(100):
        story.publish(b"body %d" % number)
    text = report(story.verdict())
    assert "BROKEN 100 times" in text
    assert text.count("neither delivered nor stored") == 5


def test_a_history_without_its_end_cannot_be_judged(story: Story) -> None:
    checker = Checker()
    for event in story.events:
        checker.take(event)
    with pytest.raises(HistoryInvalid, match="channel ch"):
        checker.verdict()


@pytest.mark.parametrize(
    "events",
    [
        [PublishAttempted(1, 1, "p", (b"a",)), PublishAttempted(2, 1, "p", (b"b",))],
        [PublishAttempted(1, 1, "p", (b"a",)), PublishAttempted(2, 2, "p", (b"a",))],
        [PublishAcknowledged(1, 1)],
        [
            PublishAttempted(1, 1, "p", (b"a",)),
            PublishAcknowledged(2, 1),
            PublishFailed(3, 1),
        ],
        [Delivered(1, "unknown", "c", id_of(0), 1, b"a", 0, 0)],
        [ChannelMade(1, "ch", True), FinishSent(2, "ch", id_of(0))],
        [ChannelMade(1, "ch", True), RequeueSent(2, "ch", id_of(0), 0)],
    ],
)
def test_contradictions_are_faults_of_the_test(events: list[Event]) -> None:
    with pytest.raises(HistoryInvalid):
        check(events)
