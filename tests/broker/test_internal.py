"""Topics that Penstock keeps for itself: what they have in common, and what `_pipelines` has not
in common with `_trace`."""

from __future__ import annotations

from collections.abc import Callable

from penstock.broker.internal import PIPELINES, SETTINGS, TRACE, is_internal, settings_of
from penstock.broker.settings import TopicSettings

from .world import World

Start = Callable[..., World]


def test_which_they_are() -> None:
    assert [name for name in ("orders", TRACE, PIPELINES, "_mine") if is_internal(name)] == [
        TRACE,
        PIPELINES,
    ]
    assert settings_of("orders") == TopicSettings()


def test_anybody_may_report_and_nothing_gathers(start: Start) -> None:
    world = start(trace_rate=1.0)
    assert world.publish(PIPELINES, b"a").stored
    topic = world.broker.topics[PIPELINES]
    assert (topic.internal, topic.depth, topic.trace_rate) == (True, 0, 0.0)
    assert topic.settings == SETTINGS[PIPELINES]
    assert topic.leader().floor == topic.leader().tail.committed_end == 1
    assert TRACE not in world.broker.topics
    again = world.killed().broker.topics[PIPELINES]
    assert (again.depth, again.settings) == (0, SETTINGS[PIPELINES])
    assert again.channel("late").depth == 0


def test_its_settings_may_be_changed_and_stay(start: Start) -> None:
    world = start()
    world.publish(PIPELINES, b"a")
    world.broker.topics[PIPELINES].configure({"retain_bytes": 1})
    again = world.restart().broker.topics[PIPELINES]
    assert again.settings.retain_bytes == 1
    assert SETTINGS[PIPELINES].retain_bytes != 1
