"""Messages with a maximum age: what is dropped, when, and that it stays away."""

import pytest

from penstock import limits
from penstock.errors import Refused

from ..world import Outcome, Start, World, bodies

SECOND = limits.SECOND


def test_each_message_expires_within_a_second(start: Start) -> None:
    world = start(max_age_ns=10 * SECOND)
    channel = world.broker.topic("t").channel("c")
    for _ in range(10):
        world.publish("t", b"x")
        world.pass_ns(SECOND)
    for left in range(9, 0, -1):
        world.pass_ns(SECOND)
        assert left - 1 <= channel.depth <= left
    world.pass_ns(SECOND)
    assert channel.depth == 0


def test_a_delay_that_outlasts_its_message_is_refused(start: Start) -> None:
    world = start(max_age_ns=10 * SECOND)
    topic = world.broker.topic("t")
    now_ns = world.clock.wall_ns()
    with pytest.raises(Refused, match="delay of 10s is not below the topic's maximum age of 10s"):
        topic.publish([b"x"], now_ns + 10 * SECOND, Outcome())
    assert world.publish("t", b"x", due_ns=now_ns + 9 * SECOND).stored


def test_many_topics_all_get_their_turn(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "AGE_LOOKS_MAX", 2)
    world = start(max_age_ns=10 * SECOND, durability="os")
    for number in range(6):
        world.publish(f"t{number}", b"x")
    world.pass_ns(11 * SECOND)
    topics = world.broker.topics.values()
    assert [topic.depth for topic in topics] == [0, 0, 1, 1, 1, 1]
    world.pass_ns(SECOND)
    world.pass_ns(SECOND)
    assert [topic.depth for topic in topics] == [0] * 6


YEAR = 365 * 86_400 * SECOND


def test_messages_get_too_old_after_a_clock_that_was_a_year_ahead(start: Start) -> None:
    world = start(max_age_ns=100 * SECOND)
    world.broker.topic("t").channel("c")
    world.publish("t", b"before")
    world.clock.wall_step_ns = YEAR
    world = world.killed(max_age_ns=100 * SECOND)
    assert world.broker.health == "OK"
    assert world.channel("t", "c").expired_count == 0
    world.publish("t", b"ahead")
    world.clock.wall_step_ns = 0
    world = world.killed(max_age_ns=100 * SECOND)
    channel = world.channel("t", "c")
    assert world.broker.health.startswith("OK - warning: message ids and timestamps are ahead of")
    assert "at 2027-05-" in world.broker.health
    for number in range(20):
        world.publish("t", b"behind %d" % number)
        world.pass_ns(10 * SECOND)
        if number == 5:  # what was seen before the restart counts
            world = world.killed(max_age_ns=100 * SECOND)
            channel = world.channel("t", "c")
    assert 10 <= channel.depth <= 12  # a mark every sixteenth of the age
    assert bodies(world.consumer("t", "c").take())[-10:] == [
        b"behind %d" % n for n in range(10, 20)
    ]
    world.clock.wall_step_ns = YEAR
    world.pass_ns(SECOND)
    assert "message ids and timestamps" not in world.broker.health
    world.broker.validate()


def test_expiry_continues_when_the_clock_steps_back(start: Start) -> None:
    world = start(max_age_ns=100 * SECOND)
    channel = world.broker.topic("t").channel("c")
    world.publish("t", b"x")
    world.pass_ns(SECOND)
    world.clock.wall_step_ns = -YEAR
    world.pass_ns(SECOND)
    world.pass_ns(99 * SECOND)
    assert channel.depth == 1
    world.pass_ns(10 * SECOND)
    assert channel.depth == 0


# --- A start with a clock far ahead of all that is stored ---


YEAR_NS = limits.CLOCK_LEAP_NS


def left(world: World) -> tuple[int, int]:
    """Messages of the channel, and those that were dropped by their age."""
    world.pass_ns(SECOND)
    channel = world.channel("news", "a")
    return channel.depth, channel.expired_count


def test_messages_outlast_a_restart_with_a_wrong_clock(start: Start) -> None:
    world = start(max_age_ns=3600 * SECOND)
    world.broker.topic("news").channel("a")
    assert world.publish("news", b"1", b"2").stored
    world.clock.wall_step_ns = 2 * YEAR_NS
    world = world.restart()
    assert world.broker.health.startswith(
        "OK - warning: the clock is 730 days ahead of the newest message. If it is wrong"
    )
    assert world.broker.healthy
    assert left(world) == (2, 0)
    world.clock.wall_step_ns = 0
    world = world.killed()
    assert world.broker.health == "OK"
    assert left(world) == (2, 0)
    world.clock.wall_step_ns = 2 * YEAR_NS
    world = world.restart()
    world.clock.pass_ns(limits.CLOCK_LEAP_GRACE_NS - 2 * SECOND)
    assert left(world) == (2, 0)
    assert left(world) == (0, 2)  # after a day ages count again
    assert world.broker.health == "OK"


def test_a_clock_that_is_set_ahead_meanwhile_is_reported_while_it_lasts(world: World) -> None:
    world.pass_ns(SECOND)
    world.clock.wall_step_ns = YEAR_NS
    world.pass_ns(SECOND)
    assert "the clock has gone 365 days ahead since nsqd started" in world.broker.health
    assert world.broker.clock_leap.ahead_ns == YEAR_NS
    world.clock.wall_step_ns = 0
    world.pass_ns(SECOND)
    assert world.broker.clock_leap.ahead_ns == 0
    assert "since nsqd started" not in world.broker.health
