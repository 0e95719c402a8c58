"""Changes of topics and channels: made here for a topic of this node, asked of the cluster for one
that it places, refused by whoever would make them here all the same."""

from collections.abc import Callable
from typing import Any

import pytest

from penstock.broker import changes
from penstock.broker.channels.channel import Channel
from penstock.broker.channels.skips import ANY, Skipped
from penstock.broker.topics.topic import Topic
from penstock.errors import Refused

from .replicas.cluster_world import Cluster
from .world import Outcome, World


class Metadata:
    """Notes what it is asked for, and answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.waiting: list[Any] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        def note(*asked: Any) -> None:
            self.asked.append((name, *asked[:-1]))
            self.waiting.append(asked[-1])

        return note


def skips_tests(before: Skipped) -> Skipped:
    return before._replace(tests=True)


def skips_all(before: Skipped) -> Skipped:
    return before.begun(ANY, 1)


def metadata_of(node: Any) -> Any:
    node.replica_host.metadata = Metadata()
    return node.replica_host.metadata


SEVEN, FOUR = {"max_depth": 7}, {"max_attempts": 4}
PAUSED, GOES_ON = {"paused": True}, {"paused": False}
# What is called, of what and with what; what the metadata are asked for, and with what.
CHANGES: dict[str, tuple[Callable[..., None], type, list[Any], str, Any]] = {
    "pause topic": (changes.pause_topic, Topic, [True], "change_topic", PAUSED),
    "unpause topic": (changes.pause_topic, Topic, [False], "change_topic", GOES_ON),
    "configure topic": (changes.configure_topic, Topic, [SEVEN], "change_topic", SEVEN),
    "extend topic": (changes.extend_topic, Topic, [], "change_topic", {"extended": True}),
    "pause channel": (changes.pause_channel, Channel, [True], "change_channel", PAUSED),
    "unpause channel": (
        changes.pause_channel,
        Channel,
        [False],
        "change_channel",
        {"paused": False},
    ),
    "configure channel": (changes.configure_channel, Channel, [FOUR], "change_channel", FOUR),
    "skip tests": (changes.skip, Channel, [skips_tests], "skip", skips_tests),
    "skip": (changes.skip, Channel, [skips_all], "skip", skips_all),
    "make": (changes.ask_for_channel, Topic, ["new"], "make_channel", "new"),
    "delete": (changes.delete_channel, Topic, ["billing"], "delete_channel", "billing"),
}


def make(change: str, world: World, answers: Outcome) -> None:
    function, kind, arguments, *_ = CHANGES[change]
    function(topic_and_channel(world)[kind is Channel], *arguments, answers)


@pytest.fixture
def own(start: Any) -> World:
    world: World = start()
    world.broker.topic("orders").channel("billing")
    return world


def topic_and_channel(world: World) -> tuple[Topic, Channel]:
    topic = world.broker.find_topic("orders")
    return topic, topic.find_channel("billing")


def state(topic: Topic, channel: Channel) -> tuple[Any, ...]:
    return (
        topic.paused, topic.settings.max_depth, topic.extended, channel.paused,
        channel.settings.max_attempts, channel.skips.state.tests, channel.skips.state.whole,
        sorted(topic.channels),
    )  # fmt: skip


@pytest.mark.parametrize("change", [one for one in CHANGES if one not in ("make", "delete")])
def test_a_topic_of_this_node_has_changed_when_the_function_returns(
    own: World, change: str
) -> None:
    topic, channel = topic_and_channel(own)
    if change == "unpause topic":
        topic.set_paused(True)
    if change == "unpause channel":
        channel.set_paused(True)
    before = state(topic, channel)
    answers = Outcome()
    make(change, own, answers)
    assert answers.answers == [None]
    assert state(topic, channel) != before


def test_a_channel_of_this_node_is_deleted_at_once(own: World) -> None:
    topic, _ = topic_and_channel(own)
    answers = Outcome()
    changes.ask_for_channel(topic, "new", answers)
    changes.delete_channel(topic, "billing", answers)
    assert answers.answers == [None, None]
    assert sorted(topic.channels) == []
    changes.delete_channel(topic, "billing", answers)
    assert str(answers.answers[-1]) == "no such channel: billing"


@pytest.mark.parametrize("change", CHANGES)
def test_a_topic_of_a_cluster_changes_through_the_metadata_alone(
    cluster: Cluster, change: str
) -> None:
    node = cluster.nodes[0]
    metadata = metadata_of(node)
    topic, channel = topic_and_channel(node)
    before = state(topic, channel)
    answers = Outcome()
    make(change, node, answers)
    _, kind, _, verb, text = CHANGES[change]
    names = ("orders", "billing") if kind is Channel else ("orders",)
    assert metadata.asked == [(verb, *names, text)]
    assert (answers.answers, state(topic, channel)) == ([], before)
    refusal = Refused("the coordinator said no")
    metadata.waiting[0](refusal)
    assert answers.answers == [refusal]


def test_topics_grow_and_are_deleted_locally_or_through_the_metadata(
    own: World, cluster: Cluster
) -> None:
    answers = Outcome()
    topic, _ = topic_and_channel(own)
    changes.grow_topic(own.broker, topic, 3, False, answers)
    assert topic.partition_count == 3
    changes.grow_topic(own.broker, topic, 2, False, answers)
    assert "a topic never gets fewer" in str(answers.answers[1])
    changes.delete_topic(own.broker, topic, answers)
    assert answers.answers[::2] == [None, None]
    assert own.broker.topics == {}

    node = cluster.nodes[0]
    metadata = metadata_of(node)
    changes.grow_topic(node.broker, node.topic, 3, False, answers)
    changes.grow_topic(node.broker, node.topic, 3, True, answers)
    changes.delete_topic(node.broker, node.topic, answers)
    assert [verb for verb, *_ in metadata.asked] == ["grow_topic", "rehash_topic", "delete_topic"]
    assert len(answers.answers) == 3


def test_a_node_that_shuts_down_asks_for_no_new_channel(cluster: Cluster) -> None:
    node = cluster.nodes[0]
    metadata = metadata_of(node)
    node.broker.refuse(exiting=True)
    answers = Outcome()
    changes.ask_for_channel(node.topic, "new", answers)
    assert [str(error) for error in answers.answers] == ["exiting"]
    assert metadata.asked == []


def test_one_node_alone_changes_nothing_of_a_clusters_topic(cluster: Cluster) -> None:
    topic, channel = topic_and_channel(cluster.nodes[0])
    before = state(topic, channel)
    alone: list[Callable[[], object]] = [
        lambda: topic.set_paused(True),
        lambda: topic.configure({"max_depth": 7}),
        topic.extend,
        lambda: channel.set_paused(True),
        lambda: channel.configure({"max_attempts": 4}),
        lambda: channel.skips.change(channel.skips.state.begun(ANY, 1)),
    ]
    for change in alone:
        with pytest.raises(Refused, match="topic orders is changed by the cluster"):
            change()
    with pytest.raises(Refused, match="channels of topic orders are deleted by the cluster"):
        topic.delete_channel("billing")
    assert state(topic, channel) == before
