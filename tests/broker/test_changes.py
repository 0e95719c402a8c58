"""Changes of topics and channels: made here for a topic of this node, asked of the cluster for one
that it places, refused by whoever would make them here all the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import pytest

from penstock.broker import changes
from penstock.broker.channels.channel import Channel
from penstock.broker.channels.skips import ANY, Skipped
from penstock.broker.topics.topic import Topic
from penstock.errors import PenstockError, Refused

from .replicas.cluster_world import Cluster
from .world import World

Change = Callable[[Topic, Channel, Any], None]


class Answers:
    """What `done` hears."""

    def __init__(self) -> None:
        self.told: list[PenstockError | None] = []

    def __call__(self, error: PenstockError | None) -> None:
        self.told.append(error)


class Metadata:
    """Notes what it is asked for, and answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.waiting: list[Any] = []

    def make_channel(self, topic: str, channel: str, done: Any) -> None:
        self._note(done, "make", topic, channel)

    def delete_channel(self, topic: str, channel: str, done: Any) -> None:
        self._note(done, "delete", topic, channel)

    def change_channel(
        self, topic: str, channel: str, changes: Mapping[str, Any], done: Any
    ) -> None:
        self._note(done, "channel", topic, channel, dict(changes))

    def grow_topic(self, topic: str, partitions: int, done: Any) -> None:
        self._note(done, "grow", topic, partitions)

    def delete_topic(self, topic: str, done: Any) -> None:
        self._note(done, "delete topic", topic)

    def skip(self, topic: str, channel: str, act: Any, done: Any) -> None:
        self._note(done, "skip", topic, channel, act)

    def change_topic(self, topic: str, changes: Mapping[str, Any], done: Any) -> None:
        self._note(done, "topic", topic, dict(changes))

    def _note(self, done: Any, *asked: Any) -> None:
        self.asked.append(asked)
        self.waiting.append(done)


def skips_tests(before: Skipped) -> Skipped:
    return before._replace(tests=True)


def skips_all(before: Skipped) -> Skipped:
    return before.begun(ANY, 1)


CHANGES: list[tuple[Change, tuple[Any, ...]]] = [
    (
        lambda topic, channel, done: changes.pause_topic(topic, done),
        ("topic", "orders", {"paused": True}),
    ),
    (
        lambda topic, channel, done: changes.unpause_topic(topic, done),
        ("topic", "orders", {"paused": False}),
    ),
    (
        lambda topic, channel, done: changes.configure_topic(topic, {"max_depth": 7}, done),
        ("topic", "orders", {"max_depth": 7}),
    ),
    (
        lambda topic, channel, done: changes.extend_topic(topic, done),
        ("topic", "orders", {"extended": True}),
    ),
    (
        lambda topic, channel, done: changes.pause_channel(channel, done),
        ("channel", "orders", "billing", {"paused": True}),
    ),
    (
        lambda topic, channel, done: changes.unpause_channel(channel, done),
        ("channel", "orders", "billing", {"paused": False}),
    ),
    (
        lambda topic, channel, done: changes.configure_channel(channel, {"max_attempts": 4}, done),
        ("channel", "orders", "billing", {"max_attempts": 4}),
    ),
    (
        lambda topic, channel, done: changes.skip(channel, skips_tests, done),
        ("skip", "orders", "billing", skips_tests),
    ),
    (
        lambda topic, channel, done: changes.skip(channel, skips_all, done),
        ("skip", "orders", "billing", skips_all),
    ),
    (
        lambda topic, channel, done: changes.ask_for_channel(topic, "new", done),
        ("make", "orders", "new"),
    ),
    (
        lambda topic, channel, done: changes.delete_channel(topic, "billing", done),
        ("delete", "orders", "billing"),
    ),
]
NAMES = [
    "pause topic", "unpause topic", "configure topic", "extend topic", "pause channel",
    "unpause channel", "configure channel", "skip tests", "skip", "make", "delete",
]  # fmt: skip
UNPAUSE_TOPIC, UNPAUSE_CHANNEL = NAMES.index("unpause topic"), NAMES.index("unpause channel")
OF_CHANNELS_MADE = NAMES.index("make")


@pytest.fixture
def own(start: Any) -> World:
    world: World = start()
    world.broker.topic("orders").channel("billing")
    return world


@pytest.fixture
def cluster(kernel: ModuleType) -> Cluster:
    cluster = Cluster(kernel)
    cluster.place([0])
    return cluster


def topic_and_channel(world: World) -> tuple[Topic, Channel]:
    topic = world.broker.find_topic("orders")
    return topic, topic.find_channel("billing")


def state(topic: Topic, channel: Channel) -> tuple[Any, ...]:
    return (
        topic.paused, topic.settings.max_depth, topic.extended, channel.paused,
        channel.settings.max_attempts, channel.skips.tests, channel.skips.on,
        sorted(topic.channels),
    )  # fmt: skip


@pytest.mark.parametrize(
    "change", [change for change, _ in CHANGES[:OF_CHANNELS_MADE]], ids=NAMES[:OF_CHANNELS_MADE]
)
def test_a_topic_of_this_node_has_changed_when_the_function_returns(
    own: World, change: Change
) -> None:
    topic, channel = topic_and_channel(own)
    if change is CHANGES[UNPAUSE_TOPIC][0]:
        topic.pause()
    if change is CHANGES[UNPAUSE_CHANNEL][0]:
        channel.pause()
    before = state(topic, channel)
    answers = Answers()
    change(topic, channel, answers)
    assert answers.told == [None]
    assert state(topic, channel) != before


def test_a_channel_of_this_node_needs_nobodys_leave_and_is_deleted_at_once(own: World) -> None:
    topic, _ = topic_and_channel(own)
    answers = Answers()
    changes.ask_for_channel(topic, "new", answers)
    changes.delete_channel(topic, "billing", answers)
    assert answers.told == [None, None]
    assert sorted(topic.channels) == []
    changes.delete_channel(topic, "billing", answers)
    assert str(answers.told[-1]) == "no such channel: billing"


@pytest.mark.parametrize(("change", "asked"), CHANGES, ids=NAMES)
def test_a_topic_of_a_cluster_changes_through_the_metadata_alone(
    cluster: Cluster, change: Change, asked: tuple[Any, ...]
) -> None:
    node = cluster.nodes[0]
    metadata = node.replica_host.metadata = Metadata()
    topic, channel = topic_and_channel(node)
    before = state(topic, channel)
    answers = Answers()
    change(topic, channel, answers)
    assert metadata.asked == [asked]
    assert (answers.told, state(topic, channel)) == ([], before)
    refusal = Refused("the coordinator said no")
    metadata.waiting[0](refusal)
    assert answers.told == [refusal]


def test_a_topic_grows_and_goes_here_or_through_the_metadata(own: World, cluster: Cluster) -> None:
    answers = Answers()
    topic, _ = topic_and_channel(own)
    changes.grow_topic(own.broker, topic, 3, False, answers)
    assert topic.partition_count == 3
    changes.grow_topic(own.broker, topic, 2, False, answers)
    assert "a topic never gets fewer" in str(answers.told[1])
    changes.delete_topic(own.broker, topic, answers)
    assert answers.told[::2] == [None, None]
    assert own.broker.topics == {}

    node = cluster.nodes[0]
    metadata = node.replica_host.metadata = Metadata()
    changes.grow_topic(node.broker, node.topic, 3, False, answers)
    changes.delete_topic(node.broker, node.topic, answers)
    assert metadata.asked == [("grow", "orders", 3), ("delete topic", "orders")]
    assert len(answers.told) == 3
    changes.grow_topic(node.broker, node.topic, 3, True, answers)
    assert "are not rehashed yet" in str(answers.told[3])


def test_a_node_that_shuts_down_asks_for_no_new_channel(cluster: Cluster) -> None:
    node = cluster.nodes[0]
    metadata = node.replica_host.metadata = Metadata()
    node.broker.exiting = True
    answers = Answers()
    changes.ask_for_channel(node.topic, "new", answers)
    assert [str(error) for error in answers.told] == ["exiting"]
    assert metadata.asked == []


def test_one_node_alone_changes_nothing_of_a_clusters_topic(cluster: Cluster) -> None:
    topic, channel = topic_and_channel(cluster.nodes[0])
    before = state(topic, channel)
    alone: list[Callable[[], object]] = [
        topic.pause,
        lambda: topic.configure({"max_depth": 7}),
        topic.extend,
        channel.pause,
        lambda: channel.configure({"max_attempts": 4}),
        lambda: channel.skips.change(channel.skips.begun()),
    ]
    for change in alone:
        with pytest.raises(Refused, match="topic orders is changed by the cluster"):
            change()
    with pytest.raises(Refused, match="channels of topic orders are deleted by the cluster"):
        topic.delete_channel("billing")
    assert state(topic, channel) == before
