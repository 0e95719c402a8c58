import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from cases import examples
from e2e.answering import served
from nsqd.world import Running as Nsqd
from nsqd.world import eventually
from penstock.nsqlookupd.registry import RegisteredProducer, Registry

from .running import Running
from .world import World, peer


def found(registry: Registry, topic: str) -> list[str]:
    return [producer.peer.broadcast_address for producer in registry.producers_of(topic)]


def test_a_partition_has_at_most_one_node() -> None:
    registry = World().registry
    one, two = registry.join(peer(1)), registry.join(peer(2))
    for partition in (0, 2):
        registry.register(one, "t", "", partition)
    registry.register(two, "t", "", 1)
    assert registry.partitions_of("t") == {0: one, 1: two, 2: one}
    assert [registry.producers_of("t", n) for n in range(4)] == [[one], [two], [one], []]
    assert registry.meta_of("t").partition_num == 3
    registry.register(two, "t", "", 2)
    assert registry.partitions_of("t") == {}  # two that know nothing of each other
    assert registry.producers_of("t", 2) == [one, two]
    registry.unregister(one, "t", "", 2)
    registry.tombstone("t", two.peer.node)
    assert registry.partitions_of("t") == {0: one}
    registry.unregister(one, "t", "", 0)
    assert one not in registry.topics["t"]
    registry.validate()


def test_a_channel_goes_with_the_last_partition_that_named_it() -> None:
    registry = World().registry
    one = registry.join(peer(1))
    for partition in (0, 1):
        registry.register(one, "t", "c#ephemeral", partition)
    registry.unregister(one, "t", "c#ephemeral", 0)
    assert registry.channel_names("t") == ["c#ephemeral"]
    registry.unregister(one, "t", "c#ephemeral", 1)
    assert registry.channel_names("t") == []
    registry.validate()


def test_a_topic_that_goes_costs_nothing_of_the_others() -> None:
    registry = World().registry
    one = registry.join(peer(1))
    for number in range(20_000):
        registry.register(one, f"t{number}", "c")
    began_s = time.process_time()
    for number in range(20_000):
        registry.unregister(one, f"t{number}")
    assert time.process_time() - began_s < 1
    assert not one.channels
    registry.validate()


def test_the_check_finds_breaches() -> None:
    def stray(registry: Registry, producer: RegisteredProducer) -> None:
        del registry.producers[producer]

    def miscounted(registry: Registry, producer: RegisteredProducer) -> None:
        registry.channel_count += 1

    def hollow(registry: Registry, producer: RegisteredProducer) -> None:
        registry.channels["u"] = {}

    for spoil in (
        stray, miscounted, hollow,
        lambda _, producer: producer.topics.clear(),
        lambda _, producer: producer.topics.add("u"),
        lambda _, producer: producer.channels.add(("t", "d")),
    ):  # fmt: skip
        registry = World().registry
        producer = registry.join(peer())
        registry.register(producer, "t", "c")
        registry.validate()
        spoil(registry, producer)
        with pytest.raises(RuntimeError):
            registry.validate()


TOPICS = st.sampled_from(["t", "u", "e#ephemeral"])
CHANNELS = st.sampled_from(["", "c", "d", "e#ephemeral"])


class Model(RuleBasedStateMachine):
    """The registry against plain sets: who has which names, and which names are known."""

    def __init__(self) -> None:
        super().__init__()
        self.registry = World().registry
        self.has: dict[RegisteredProducer, set[tuple[str, str]]] = {}
        self.known: set[tuple[str, str]] = set()

    def _some(self, number: int) -> RegisteredProducer | None:
        producers = list(self.has)
        return producers[number % len(producers)] if producers else None

    def _forget_ephemeral(self, lost: set[tuple[str, str]]) -> None:
        """Ephemeral names among those that somebody let go of, and that nobody has now."""
        held = set[tuple[str, str]]().union(*self.has.values())
        self.known -= {
            (topic, channel)
            for topic, channel in lost - held
            if (channel or topic).endswith("#ephemeral")
        }

    @rule()
    def join(self) -> None:
        self.has[self.registry.join(peer(len(self.has)))] = set()

    @rule(number=st.integers(0, 9), topic=TOPICS, channel=CHANNELS)
    def register(self, number: int, topic: str, channel: str) -> None:
        producer = self._some(number)
        if producer is not None:
            self.registry.register(producer, topic, channel)
            names = {(topic, ""), (topic, channel)}
            self.has[producer] |= names
            self.known |= names

    @rule(number=st.integers(0, 9), topic=TOPICS, channel=CHANNELS)
    def unregister(self, number: int, topic: str, channel: str) -> None:
        producer = self._some(number)
        if producer is not None:
            self.registry.unregister(producer, topic, channel)
            names = self.has[producer]
            lost = {n for n in names if n[0] == topic and channel in ("", n[1])}
            names -= lost
            self._forget_ephemeral(lost | {(topic, channel)})

    @rule(number=st.integers(0, 9))
    def leave(self, number: int) -> None:
        producer = self._some(number)
        if producer is not None:
            self.registry.leave(producer)
            self._forget_ephemeral(self.has.pop(producer))

    @rule(topic=TOPICS, channel=CHANNELS)
    def create(self, topic: str, channel: str) -> None:
        if channel:
            self.registry.create_channel(topic, channel)
        else:
            self.registry.create_topic(topic)
        self.known |= {(topic, ""), (topic, channel)}

    @rule(topic=TOPICS, channel=CHANNELS)
    def delete_channel(self, topic: str, channel: str) -> None:
        if channel:
            assert self.registry.delete_channel(topic, channel) == ((topic, channel) in self.known)
            for names in (self.known, *self.has.values()):
                names.discard((topic, channel))

    @rule(topic=TOPICS)
    def delete(self, topic: str) -> None:
        self.registry.delete_topic(topic)
        self.known = {n for n in self.known if n[0] != topic}
        for names in self.has.values():
            names -= {n for n in names if n[0] == topic}

    @invariant()
    def agrees(self) -> None:
        self.registry.validate()
        topics = {topic for topic, channel in self.known if not channel}
        assert set(self.registry.topic_names()) == topics
        for topic in ("t", "u", "e#ephemeral"):
            channels = {c for t, c in self.known if t == topic and c}
            assert set(self.registry.channel_names(topic)) == channels
            producers = {p for p, names in self.has.items() if (topic, "") in names}
            assert set(self.registry.producers_of(topic)) == producers


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)


# --- where partitions are: a real nsqlookupd, and nsqds that name them ---


lookupd = served(Running)


def test_a_lookup_names_partitions_and_the_shape_of_the_topic(lookupd: Running) -> None:
    with lookupd.nsqd("t 0", "t 1 7", "t 2", "one 0", partitions=True) as nsqd:
        assert nsqd.ask(b"META t partition_num=3 extend_support=true\n") == b"OK"
        document = lookupd.get("/lookup?topic=t&metainfo=true")
        (producer,) = document["producers"]
        assert document["partitions"] == {"0": producer, "1": producer, "2": producer}
        assert document["meta"] == {
            "partition_num": 3,
            "replica": 1,
            "extend_support": True,
            "ordered": False,
            "multi_part": True,
            "disable_channel_auto_create": False,
        }
        alone = lookupd.get("/lookup?topic=one&metainfo=true")
        assert (list(alone["partitions"]), alone["meta"]["multi_part"]) == (["0"], False)
        nsqd.ask(b"UNREGISTER t\n")
        left = lookupd.get("/lookup?topic=t")
        assert (left["producers"], "partitions" in left) == ([], False)
        assert left["channels"] == ["7"]  # as in NSQ: consumers may still wait for it


def test_the_shape_of_a_topic_follows_its_settings(lookupd: Running, tmp_path: Path) -> None:
    flags = [f"--lookupd-tcp-address={lookupd.daemon.tcp_address}", "--broadcast-address=127.0.0.1"]
    with Nsqd(tmp_path / "data", *flags) as nsqd:
        nsqd.request("POST", "/topic/create?topic=closed&disable_channel_auto_create=true")
        nsqd.request("POST", "/topic/create?topic=plain")

        def closed() -> dict[str, Any]:
            rows = lookupd.get("/topics?metaInfo=true")["meta_info"]
            return next((row for row in rows if row["topic_name"] == "closed"), {})

        eventually(lambda: closed().get("disable_channel_auto_create"))
        nsqd.request("POST", "/topic/config?topic=closed&ordered=true&disable_channel_auto_create=")
        eventually(lambda: closed()["ordered"])
        plain = {"partition_num": 1, "replica": 1, "extend_support": False, "multi_part": False}
        assert closed() == plain | {
            "topic_name": "closed", "ordered": True, "disable_channel_auto_create": False,
        }  # fmt: skip
        nsqd.request("POST", "/topic/meta/update?topic=closed&upgradeext=true")
        eventually(lambda: closed()["extend_support"])
        nsqd.request("POST", "/topic/config?topic=closed&ordered=")
        eventually(lambda: not closed()["ordered"])
        document = lookupd.get("/topics")
        assert document == {"topics": ["closed", "plain"]}


def test_readers_find_tombstoned_nodes(lookupd: Running) -> None:
    with (
        lookupd.nsqd("t 0", partitions=True, broadcast_address="a"),
        lookupd.nsqd("t 1", partitions=True, broadcast_address="b"),
    ):
        node = lookupd.get("/lookup?topic=t")["producers"][0]
        lookupd.post(f"/topic/tombstone?topic=t&node=a:{node['http_port']}")

        def found(query: str) -> tuple[list[str], list[str]]:
            document = lookupd.get(f"/lookup?topic=t{query}")
            hosts = [row["broadcast_address"] for row in document["producers"]]
            return hosts, list(document["partitions"])

        assert found("&access=r") == (["a", "b"], ["0", "1"])
        assert found("&access=w") == found("") == (["b"], ["1"])
        refused = {"message": "INVALID_ACCESS_MODE 'x': it is r or w"}
        assert lookupd.ask("GET", "/lookup?topic=t&access=x") == (400, refused)


def test_others_do_not_wait_for_the_registrations_of_an_nsqd_with_many_topics() -> None:
    with Running() as lookupd, lookupd.nsqd() as nsqd:
        nsqd.socket.sendall(b"".join(b"REGISTER t%d\n" % number for number in range(20_000)))
        assert len(lookupd.get("/topics")["topics"]) < 10_000


def test_the_lookup_list_includes_self() -> None:
    with Running("--broadcast-address=here") as lookupd:
        daemon = lookupd.daemon
        row = {
            "ID": f"here:{daemon.tcp_address.port}",
            "NodeIP": "here",
            "TcpPort": str(daemon.tcp_address.port),
            "HttpPort": str(daemon.http_address.port),
            "RpcPort": "",
            "Epoch": 0,
        }
        assert lookupd.get("/listlookup") == {"lookupdnodes": [row], "lookupdleader": row}


def test_a_partition_is_looked_up(lookupd: Running) -> None:
    with (
        lookupd.nsqd("t 0", "t 2", partitions=True, broadcast_address="a"),
        lookupd.nsqd("t 1", distributed_id="x", broadcast_address="b"),
    ):

        def hosts(query: str) -> list[str]:
            rows = lookupd.get(f"/lookup?topic=t{query}")["producers"]
            return [row["broadcast_address"] for row in rows]

        assert (hosts(""), hosts("&partition=1"), hosts("&partition=*")) == (
            ["a", "b"], ["b"], ["a", "b"],
        )  # fmt: skip
        assert list(lookupd.get("/lookup?topic=t&partition=1")["partitions"]) == ["1"]
        status, document = lookupd.ask("GET", "/lookup?topic=t&partition=x")
        assert (status, document["message"][:27]) == (400, "INVALID_ARG_TOPIC_PARTITION")
