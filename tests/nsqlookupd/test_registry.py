from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from cases import examples
from penstock.errors import Refused
from penstock.nsqlookupd.registry import Producer, Registry

from .world import INACTIVE_NS, TOMBSTONE_NS, World, peer


def found(registry: Registry, topic: str) -> list[str]:
    return [producer.peer.broadcast_address for producer in registry.producers_of(topic)]


def test_partitions_have_one_place_each_or_none() -> None:
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


def test_a_silent_producer_is_inactive_until_it_is_heard() -> None:
    world = World()
    registry = world.registry
    producer = registry.join(peer())
    registry.register(producer, "t")
    world.clock.pass_ns(INACTIVE_NS)
    assert found(registry, "t") == ["node0"]
    world.clock.pass_ns(1)
    assert registry.producers_of("t") == registry.nodes() == []
    assert registry.heard(producer) == INACTIVE_NS + 1
    assert found(registry, "t") == ["node0"]


def test_a_tombstone_hides_for_its_lifetime_and_on_that_topic_only() -> None:
    world = World()
    registry = world.registry
    producer = registry.join(peer())
    registry.register(producer, "t")
    registry.register(producer, "u")
    assert registry.tombstone("t", "node0:4150") == []
    assert registry.tombstone("none", "node0:4151") == []
    assert registry.tombstone("t", "node0:4151") == [producer]
    registry.register(producer, "t")  # does not clear it
    assert (found(registry, "t"), found(registry, "u")) == ([], ["node0"])
    assert registry.topics_of(producer) == [("t", True), ("u", False)]
    assert registry.nodes() == [producer]
    world.clock.pass_ns(TOMBSTONE_NS)
    assert found(registry, "t") == ["node0"]
    assert registry.topics["t"][producer].tombstoned
    registry.tombstone("t", "node0:4151")
    registry.unregister(producer, "t")
    registry.register(producer, "t")
    assert found(registry, "t") == ["node0"]


def test_operators_make_and_delete_names() -> None:
    registry = World().registry
    producer = registry.join(peer())
    registry.register(producer, "t", "c")
    registry.create_topic("made")
    registry.create_channel("other", "c")
    assert registry.topic_names() == ["made", "other", "t"]
    assert registry.delete_channel("t", "c")
    assert not registry.delete_channel("t", "c")
    assert not registry.delete_channel("none", "c")
    registry.delete_topic("t")
    registry.delete_topic("other")
    registry.delete_topic("none")
    assert (registry.topic_names(), registry.channel_names("other")) == (["made"], [])
    registry.leave(producer)
    registry.validate()


def test_names_have_a_bound() -> None:
    registry = World(names_max=3).registry
    producer = registry.join(peer())
    registry.register(producer, "t", "c")
    registry.create_topic("u")
    registry.register(producer, "t", "c")
    for refused in (lambda: registry.create_topic("v"), lambda: registry.register(producer, "v")):
        with pytest.raises(Refused):
            refused()
    registry.validate()
    registry.delete_topic("t")
    registry.create_channel("w", "c")


def test_ipv6_nodes_are_named_with_brackets() -> None:
    from dataclasses import replace

    assert replace(peer(), broadcast_address="::1").node == "[::1]:4151"


def test_the_check_finds_breaches() -> None:
    def stray(registry: Registry, producer: Producer) -> None:
        del registry.producers[producer]

    def forgotten(registry: Registry, producer: Producer) -> None:
        producer.topics.clear()

    def unknown(registry: Registry, producer: Producer) -> None:
        producer.topics.add("u")

    def unknown_channel(registry: Registry, producer: Producer) -> None:
        producer.channels.add(("t", "d"))

    def miscounted(registry: Registry, producer: Producer) -> None:
        registry.channel_count += 1

    def hollow(registry: Registry, producer: Producer) -> None:
        registry.channels["u"] = {}

    for spoil in (stray, forgotten, unknown, unknown_channel, miscounted, hollow):
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
        self.has: dict[Producer, set[tuple[str, str]]] = {}
        self.known: set[tuple[str, str]] = set()

    def _some(self, number: int) -> Producer | None:
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
            self._forget_ephemeral(lost if channel else lost | {(topic, "")})

    @rule(number=st.integers(0, 9))
    def leave(self, number: int) -> None:
        producer = self._some(number)
        if producer is not None:
            self.registry.leave(producer)
            self._forget_ephemeral(self.has.pop(producer))

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
