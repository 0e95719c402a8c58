"""A start with a clock far ahead of all that is stored: it is reported, and costs no message."""

from __future__ import annotations

from collections.abc import Callable

from penstock import limits

from .world import World

Start = Callable[..., World]
SECOND = limits.SECOND
YEAR_NS = limits.CLOCK_LEAP_NS


def left(world: World) -> tuple[int, int]:
    """Messages of the channel, and those that were dropped by their age."""
    world.pass_ns(SECOND)
    channel = world.broker.find_topic("news").find_channel("a")
    return channel.depth, channel.expired_count


def aging(start: Start) -> World:
    world = start(max_age_ns=3600 * SECOND)
    world.broker.topic("news").channel("a")
    assert world.publish("news", b"1", b"2").stored
    return world


def test_messages_outlast_a_restart_with_a_wrong_clock(start: Start) -> None:
    world = aging(start)
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


def test_a_clock_that_is_set_ahead_meanwhile_is_reported_while_it_lasts(start: Start) -> None:
    world = start()
    world.pass_ns(SECOND)
    world.clock.wall_step_ns = YEAR_NS
    world.pass_ns(SECOND)
    assert "the clock has gone 365 days ahead since nsqd started" in world.broker.health
    assert world.broker.clock_leap.ahead_ns == YEAR_NS
    world.clock.wall_step_ns = 0
    world.pass_ns(SECOND)
    assert world.broker.clock_leap.ahead_ns == 0
    assert "since nsqd started" not in world.broker.health


def test_after_a_day_ages_count_again(start: Start) -> None:
    world = aging(start)
    world.clock.wall_step_ns = 2 * YEAR_NS
    world = world.restart()
    world.clock.pass_ns(limits.CLOCK_LEAP_GRACE_NS - 2 * SECOND)
    assert left(world) == (2, 0)
    assert left(world) == (0, 2)
    assert world.broker.health == "OK"


def test_what_is_younger_than_a_year_gets_too_old_as_ever(start: Start) -> None:
    world = aging(start)
    world.clock.wall_step_ns = YEAR_NS
    world = world.restart()
    assert world.broker.health == "OK"
    assert left(world) == (0, 2)
