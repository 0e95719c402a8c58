"""Clients and operators change topics and channels of a cluster, by SUB and verbs of HTTP."""

import asyncio
import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from penstock import kernel
from penstock.broker.channels.channel import Channel
from penstock.broker.stats import channel_parts, topic_parts
from penstock.cluster.creation import creation
from penstock.cluster.keys import PartitionName
from penstock.errors import Refused
from penstock.net.exchange import Response
from penstock.nsqd.consuming import Consuming
from penstock.nsqd.topics import Found
from penstock.nsqd.waits import Waits
from penstock.wire.errors import WireFault
from penstock.wire.states import State
from sim.brokers.cluster import JoinedCluster
from sim.brokers.node import JoinedNode

from .asked import BILLING, OPTIONS, ask, topic_maker


@pytest.fixture
def cluster() -> Iterator[JoinedCluster]:
    made = JoinedCluster(kernel)
    made.make("orders", partitions=2)
    yield made
    made.close()


class Client:
    """A V2 client of one node, as far as its commands go."""

    def __init__(self, node: JoinedNode) -> None:
        self.errors: list[str] = []
        self.conn = node.engine.open_detached()
        self.conn.feed(b"  V2")
        self.channel: Any = None
        self.state = State.INIT
        self.remote = "client"
        self.waits, self.gone, self.awaits, self.grant = False, False, None, None
        self.settings = SimpleNamespace(
            heartbeat_ns=1, sample_rate=0, extend_support=False, envelope=False, desired_tag=""
        )
        self.filter = None
        topics: Any = SimpleNamespace(
            topic=lambda name, done: done(node.broker.topics.get(name)),
            partitions_if_new=lambda name: 0,
        )
        auth: Any = SimpleNamespace(required=False)
        waits = Waits(topics, auth, self._guard)
        self._commands = Consuming(OPTIONS, node.clock, waits).commands

    def _guard(self, session: Any, act: Callable[..., None], *arguments: Any) -> None:
        try:
            act(session, *arguments)
        except WireFault as error:
            self.errors.append(str(error))

    def command(self, *params: bytes) -> None:
        session: Any = self
        self._guard(session, self._commands[params[0]], list(params))

    @property
    def answered(self) -> bytes:
        return self.conn.take_output()


# --- SUB ---


def test_sub_creates_the_channel_before_it_is_answered(cluster: JoinedCluster) -> None:
    node = cluster.nodes[0]
    client = Client(node)
    client.command(b"SUB", b"orders", b"billing")
    assert client.waits
    assert client.answered == b""
    cluster.until(lambda: not client.waits)
    assert client.errors == []
    assert b"OK" in client.answered
    assert client.state is State.SUBSCRIBED
    for other in cluster.nodes:
        cluster.until(lambda other=other: cluster.has_channel(other, "orders", "billing"))


def test_sub_goes_on_without_the_partitions_that_have_no_leader(cluster: JoinedCluster) -> None:
    cluster.kill(1)
    cluster.kill(2)
    client = Client(cluster.nodes[0])
    client.command(b"SUB", b"orders", b"billing")
    cluster.until(lambda: not client.waits, seconds=6)
    assert client.errors == []
    assert b"OK" in client.answered


def test_sub_fails_when_the_coordinator_cannot_be_asked(cluster: JoinedCluster) -> None:
    cluster.away.add(0)
    client = Client(cluster.nodes[0])
    client.command(b"SUB", b"orders", b"billing")
    cluster.until(lambda: not client.waits, seconds=6)
    (error,) = client.errors
    assert "ask again" in error
    assert client.state is State.INIT


def test_registered_channels_only(cluster: JoinedCluster) -> None:
    cluster.make("fixed", disable_channel_auto_create=True)
    client = Client(cluster.led_by("fixed"))
    client.command(b"SUB", b"fixed", b"billing")
    assert not client.waits
    assert len(client.errors) == 1


# --- HTTP ---


def test_create_does_not_care_who_leads_when_all_have_confirmed(cluster: JoinedCluster) -> None:
    """A new topic is often handed to its preferred leader at once."""
    leader = cluster.led_by("orders")
    answers = ask(leader, "/channel/create")
    other = next(node.number for node in cluster.nodes if node is not leader)
    assert leader.cluster_node.participant.proposals.hand_over(PartitionName("orders", 0), other)
    cluster.until(lambda: answers)
    assert answers[0].status == 200
    assert cluster.led_by("orders") is not leader


def test_create_names_the_partitions_that_have_not_confirmed(cluster: JoinedCluster) -> None:
    cluster.kill(1)
    cluster.kill(2)
    answers = ask(cluster.nodes[0], "/channel/create")
    cluster.until(lambda: answers, seconds=6)
    document = json.loads(answers[0].body)
    assert answers[0].status == 503
    assert document["unconfirmed"] == [0, 1]
    assert "partitions 0, 1 did not confirm it" in document["message"]


def test_delete_is_answered_once_the_channel_is_removed(cluster: JoinedCluster) -> None:
    node = cluster.nodes[0]
    client = Client(node)
    client.command(b"SUB", b"orders", b"billing")
    cluster.until(lambda: not client.waits)
    answers = ask(node, "/channel/delete")
    cluster.until(lambda: answers)
    assert answers[0].status == 200
    assert "billing" not in node.broker.topics["orders"].channels
    assert ask(node, "/channel/delete")[0].status == 404


def test_a_deletion_whose_outcome_is_not_known(cluster: JoinedCluster) -> None:
    cluster.make_channel("orders", "billing")
    cluster.away.add(0)
    answers = ask(cluster.nodes[0], "/channel/delete")
    cluster.until(lambda: answers, seconds=6)
    assert answers[0].status == 503
    assert json.loads(answers[0].body)["changed"] == "unknown"


# --- pauses, settings, skips ---

Seen = Callable[[Channel], object]
CHANGES: dict[str, tuple[str, str, Seen]] = {
    "pause": ("/channel/pause", "", lambda channel: channel.paused),
    "order": ("/channel/config", "&order=key", lambda channel: channel.settings.order == "key"),
    "strict": ("/channel/setorder", "&order=true", lambda one: one.settings.order == "strict"),
    "attempts": ("/channel/config", "&max_attempts=7", lambda one: one.settings.max_attempts == 7),
    "skip": ("/channel/skip", "", lambda channel: channel.skips.state.whole),
    "skip one": ("/channel/skip", "&partition=1", lambda one: one.skips.state.chosen == {1}),
    "skip tests": ("/channel/skipZanTest", "", lambda channel: channel.skips.state.tests),
    "trace": ("/message/trace/enable", "&rate=0.5", lambda one: one.settings.trace_rate == 0.5),
    "pause topic": ("/topic/pause", "", lambda channel: channel.topic.paused),
    "depth": ("/topic/config", "&max_depth=9", lambda one: one.topic.settings.max_depth == 9),
    "headers": ("/topic/meta/update", "&upgradeext=true", lambda channel: channel.topic.extended),
    "replicas": ("/topic/config", "&replicas=2", lambda one: replicas(one) == 2),
    "replicator": ("/topic/meta/update", "&replicator=1", lambda one: replicas(one) == 1),
}
UNDONE = {
    "pause": ("/channel/unpause", ""),
    "order": ("/channel/config", "&order=none"),
    "strict": ("/channel/setorder", "&order=false"),
    "attempts": ("/channel/config", "&max_attempts=0"),
    "skip": ("/channel/unskip", ""),
    "skip one": ("/channel/unskip", "&partition=1"),
    "skip tests": ("/channel/unskipZanTest", ""),
    "trace": ("/channel/config", "&trace_rate="),
    "pause topic": ("/topic/unpause", ""),
    "depth": ("/topic/config", "&max_depth="),
    "replicas": ("/topic/config", "&replicas=3"),
}


def replicas(channel: Channel) -> int:
    """The number that the topic wants; a controller makes it so."""
    shape = channel.topic.metadata.shape("orders") if channel.topic.metadata is not None else None
    return shape.replicas if shape is not None else 0


def everywhere(cluster: JoinedCluster, seen: Seen) -> list[bool]:
    topics = [node.broker.topics["orders"] for node in cluster.up()]
    return [bool(seen(topic.channels["billing"])) for topic in topics]


def asked(cluster: JoinedCluster, number: int, path: str, query: str) -> Response:
    answers = ask(cluster.nodes[number], path, query)
    cluster.until(lambda: answers)
    (answer,) = answers
    return answer


def change(cluster: JoinedCluster, number: int, path: str, more: str) -> Response:
    query = BILLING if path.startswith(("/channel", "/message")) else "topic=orders"
    return asked(cluster, number, path, query + more)


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_answered_when_it_is_in_force_and_reaches_all(
    cluster: JoinedCluster, name: str
) -> None:
    cluster.make_channel("orders", "billing")
    path, more, seen = CHANGES[name]
    assert everywhere(cluster, seen) == [False, False, False]
    assert change(cluster, 1, path, more).status == 200
    assert seen(cluster.nodes[1].broker.topics["orders"].channels["billing"])
    cluster.until(lambda: all(everywhere(cluster, seen)), seconds=1)
    cluster.kill(0, power=True)
    cluster.start(0)
    cluster.run(3)
    assert everywhere(cluster, seen) == [True, True, True]
    if name in UNDONE:
        assert change(cluster, 2, *UNDONE[name]).status == 200
        cluster.until(lambda: not any(everywhere(cluster, seen)), seconds=1)


def test_two_nodes_are_asked_for_different_changes_at_once(cluster: JoinedCluster) -> None:
    cluster.make_channel("orders", "billing")
    queries = [f"{BILLING}&max_attempts=3", f"{BILLING}&order=key", f"{BILLING}&poison=hold"]
    asked = [
        ask(node, "/channel/config", query)
        for node, query in zip(cluster.nodes, queries, strict=True)
    ]
    cluster.until(lambda: all(asked))
    assert [answers[0].status for answers in asked] == [200, 200, 200]
    cluster.run(1)
    for node in cluster.nodes:
        settings = node.broker.topics["orders"].channels["billing"].settings
        assert (settings.max_attempts, settings.order, settings.poison) == (3, "key", "hold")


def test_a_bad_value_changes_nothing(cluster: JoinedCluster) -> None:
    cluster.make_channel("orders", "billing")
    for query in ("&max_attempts=-1", "&dead_letter_topic=orders", "&nothing=1"):
        (answer,) = ask(cluster.nodes[0], "/channel/config", BILLING + query)
        assert answer.status == 400
    (found,) = ask(cluster.nodes[0], "/channel/config", method="GET")
    assert json.loads(found.body)["own"] == []


def test_a_change_of_a_deleted_channel(cluster: JoinedCluster) -> None:
    cluster.make_channel("orders", "billing")
    deleted = ask(cluster.nodes[0], "/channel/delete")
    changed = ask(cluster.nodes[1], "/channel/config", f"{BILLING}&order=key")
    cluster.until(lambda: deleted and changed)
    assert (deleted[0].status, changed[0].status) == (200, 404)


def test_sub_ordered_has_the_metadata_say_so(cluster: JoinedCluster) -> None:
    node = cluster.led_by("orders", 0)
    client = Client(node)
    client.command(b"SUB_ORDERED", b"orders", b"billing", b"0")
    cluster.until(lambda: client.state is State.SUBSCRIBED or client.errors)
    assert client.errors == []
    cluster.until(lambda: all(everywhere(cluster, lambda one: one.settings.order == "strict")))


# --- operators make, grow and delete topics of a cluster by the verbs of HTTP, at any node ---


@pytest.fixture
def four() -> Iterator[JoinedCluster]:
    made = JoinedCluster(kernel, nodes=4)
    yield made
    made.close()


def test_a_topic_is_created_grown_and_deleted(four: JoinedCluster) -> None:
    answer = asked(four, 0, "/topic/create", "topic=t&partition_num=2&extend=true")
    assert answer.status == 200
    leader = four.led_by("t")
    assert leader.broker.topics["t"].extended
    number = leader.number
    assert asked(four, number, "/topic/partition/expand", "topic=t&partition_num=3").status == 200
    assert four.leader("t", 2) is not None
    assert asked(four, number, "/topic/delete", "topic=t").status == 200
    assert "t" not in leader.broker.topics


def test_each_partition_is_in_the_stats_of_its_leader(four: JoinedCluster) -> None:
    assert asked(four, 0, "/topic/create", "topic=t&partition_num=3").status == 200
    assert asked(four, four.led_by("t").number, "/channel/create", "topic=t&channel=c")
    topics = [node.broker.topics["t"] for node in four.up() if "t" in node.broker.topics]
    for reply in (
        [row for topic in topics for row in topic_parts(topic)],
        [row for topic in topics for row in channel_parts(topic.channels["c"])],
    ):
        assert sorted(row["partition"] for row in reply) == [0, 1, 2]


def test_a_node_without_replicas_creates_the_channel_too(four: JoinedCluster) -> None:
    """There are three replicas, and four nodes."""
    for number in range(4):
        assert asked(four, number, "/topic/create", f"topic=t{number}").status == 200
    without = [
        node for node in four.nodes for number in range(4)
        if f"t{number}" not in node.broker.topics
    ]  # fmt: skip
    assert len(without) == 4  # each topic is missing on one node
    for number in range(4):
        for node in range(4):
            assert asked(four, node, "/topic/create", f"topic=t{number}").status == 200
            differs = asked(four, node, "/topic/create", f"topic=t{number}&partition_num=2")
            assert (differs.status, b"has 1; more come" in differs.body) == (409, True)
            headed = asked(four, node, "/topic/create", f"topic=t{number}&extend=true")
            assert (headed.status, b"NOT_EXTENDED" in headed.body) == (409, True)


def test_a_topic_that_is_not_wholly_made_is_finished_by_whoever_asks(
    four: JoinedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asked first had no time for all the transactions that it takes."""
    monkeypatch.setattr("penstock.cluster.creation.TRANSACTION_KEYS_MAX", 4)
    view = four.nodes[0].view
    four.do(creation(view, "t", four.wanted(5), four.placement_nodes, four.new_replica))
    four.until(lambda: four.leader("t", 1))
    assert four.leader("t", 2) is None
    assert asked(four, 0, "/topic/create", "topic=t&partition_num=5").status == 200
    assert all(four.leader("t", number) for number in range(5))
    fewer = asked(four, 0, "/topic/create", "topic=t&partition_num=2")
    assert (fewer.status, b"has 5; more come" in fewer.body) == (409, True)


def test_a_node_that_shuts_down_lets_nobody_wait_for_the_cluster(four: JoinedCluster) -> None:
    four.away.add(1)
    maker = topic_maker(four.nodes[1])
    found: list[Found] = []
    maker.topic("t", found.append)
    assert found == []
    asyncio.run(maker.stop())
    (refused,) = found
    assert isinstance(refused, Refused)
    four.run(10)  # the metadata gives up, too: it is not answered again
    assert len(found) == 1


def test_a_topic_has_as_many_copies_as_were_asked_for(four: JoinedCluster) -> None:
    assert asked(four, 0, "/topic/create", "topic=t&replicator=2").status == 200
    assert len(four.record("t", 0).members) == 2
    (reply,) = ask(four.led_by("t"), "/topic/config", "topic=t", "GET")
    assert json.loads(reply.body)["replicas"] == 2
    for node in range(4):  # also one that has none of them
        assert asked(four, node, "/topic/create", "topic=t&replicator=2").status == 200
        differs = asked(four, node, "/topic/create", "topic=t&replicator=3")
        assert (differs.status, b"topic t has 2 copies" in differs.body) == (409, True)
    for query, text in (
        ("topic=u&replicator=17", b"'17': a whole number, 1 to 16"),
        ("topic=u&replicator=0", b"'0': a whole number, 1 to 16"),
        ("topic=u%23ephemeral&replicator=2", b"'2': a node by itself, and an ephemeral topic"),
    ):
        refused = asked(four, 0, "/topic/create", query)
        assert (refused.status, text in refused.body) == (400, True)
