"""The producers of topics and channels: the memory of one nsqlookupd, without I/O.

A *producer* is one connection of an nsqd that has said who it is. It registers topics and channels;
topics and channels can also be made by an operator, and then have no producer. What a producer had
registered loses it when the connection ends, but the names stay listed, because consumers may still
wait for them; only ephemeral names go with their last producer.

Two things hide a producer from lookups. It is *inactive* when it has not been heard for longer than
the timeout: its connection may hang. It is *tombstoned* for a topic when an operator is about to
delete that topic there: consumers must not find it for a while, or they would make it again. A
tombstone ends by its lifetime, or when the producer registers the topic anew after unregistering.

A producer may name the partitions that it has of a topic, and say what the topic is like. Each
partition of a cluster has one place; but nsqds that know nothing of each other, as NSQ's, all have
partitions of the same numbers. Then no map from partitions to producers would be right, and there
is none: clients take the producers, each with all that it has.

**A topic of a cluster** is replaced as a whole (`set_cluster_topic`), by the cluster's metadata.
What nsqds register of it counts for nothing then, and a node of the cluster that registers, too,
stands in answers once.

Ages are measured by the monotonic clock, so a step of the wall clock hides nobody; the wall clock
gives only the times that are shown.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock import limits
from penstock.clock import Clock
from penstock.errors import Refused
from penstock.wire.names import is_ephemeral


@dataclass(frozen=True, slots=True)
class Peer:
    """An nsqd's description of itself, and its remote address."""

    remote_address: str
    broadcast_address: str
    hostname: str
    tcp_port: int
    http_port: int
    version: str
    topology_zone: str = ""
    topology_region: str = ""
    names_partitions: bool = False

    @property
    def tcp_address(self) -> tuple[str, int]:
        return self.broadcast_address, self.tcp_port

    @property
    def node(self) -> str:
        """The name that operators know it by: its HTTP address."""
        host = self.broadcast_address
        return f"[{host}]:{self.http_port}" if ":" in host else f"{host}:{self.http_port}"


class Meta(NamedTuple):
    partition_num: int = 1
    extended: bool = False
    ordered: bool = False
    registered: bool = False  # consumers may make no channels
    replicas: int = 1


_PLAIN = Meta()


@dataclass(eq=False, slots=True)
class RegisteredProducer:
    peer: Peer
    seen_mono_ns: int
    seen_wall_ns: int
    of_cluster: bool = False  # a node of the cluster, which lives as its metadata says
    incarnation: int = 0  # of such a node's process
    topics: set[str] = field(default_factory=set)
    channels: set[tuple[str, str]] = field(default_factory=set)


@dataclass(slots=True)
class Registration:
    """One producer's entry under one name."""

    tombstoned_mono_ns: int = 0
    tombstoned_wall_ns: int = 0
    tombstoned: bool = False  # stays true when the tombstone has ended: it is shown so
    partitions: frozenset[int] = frozenset()  # those that it has named
    meta: Meta = _PLAIN  # of a topic

    def is_hidden(self, mono_ns: int, lifetime_ns: int) -> bool:
        return self.tombstoned and mono_ns - self.tombstoned_mono_ns < lifetime_ns


Entries = dict[RegisteredProducer, Registration]


class ClusterTopicEntry(NamedTuple):
    """A topic of a cluster, from its metadata."""

    # Partitions by the live node that leads them; none: it is to lead some soon.
    led: Mapping[RegisteredProducer, frozenset[int]]
    channels: frozenset[str]
    meta: Meta


class Registry:
    def __init__(self, clock: Clock, inactive_timeout_ns: int, tombstone_lifetime_ns: int) -> None:
        self.producers: dict[RegisteredProducer, None] = {}
        self.topics: dict[str, Entries] = {}
        self.channels: dict[str, dict[str, Entries]] = {}  # by topic, then by channel
        self.cluster_topics: dict[str, Meta] = {}  # topics of the cluster
        self._unled: dict[str, dict[int, int]] = {}  # partitions without a leader: since when
        self._clock = clock
        self._inactive_timeout_ns = inactive_timeout_ns
        self._tombstone_lifetime_ns = tombstone_lifetime_ns
        self.channel_count = 0

    # --- producers ---

    def join(self, peer: Peer, of_cluster: bool = False) -> RegisteredProducer:
        producer = RegisteredProducer(
            peer, self._clock.mono_ns(), self._clock.wall_ns(), of_cluster
        )
        self.producers[producer] = None
        return producer

    def seen(self, producer: RegisteredProducer) -> int:
        """It is alive. Returns the time since it was last seen, in nanoseconds."""
        mono_ns = self._clock.mono_ns()
        silent_ns = mono_ns - producer.seen_mono_ns
        producer.seen_mono_ns = mono_ns
        producer.seen_wall_ns = self._clock.wall_ns()
        return silent_ns

    def leave(self, producer: RegisteredProducer) -> None:
        for topic, channel in sorted(producer.channels):
            self._remove_channel_entry(producer, topic, channel)
        for topic in sorted(producer.topics):
            self._remove_topic_entry(producer, topic)
        self.producers.pop(producer, None)
        if not producer.of_cluster:
            self._suspect(producer.peer.tcp_address)

    def _suspect(self, tcp_address: tuple[str, int]) -> None:
        """The connection of a node of the cluster has ended: its process may have, and others are
        about to lead. go-nsq looks in that instant, before the metadata has it, and then not for a
        minute."""
        for producer in self.producers:
            if producer.of_cluster and producer.peer.tcp_address == tcp_address:
                for topic in producer.topics:
                    partitions = self.topics[topic][producer].partitions
                    lost = dict.fromkeys(partitions, self._clock.mono_ns())
                    self._unled[topic] = self._unled.get(topic, {}) | lost

    def register(
        self,
        producer: RegisteredProducer,
        topic: str,
        channel: str = "",
        partition: int | None = None,
    ) -> None:
        """`partition`: that it names, if it names any. Raises Refused when there are too many
        names."""
        named = frozenset(() if partition is None else (partition,))
        if channel:
            entries = self.create_channel(topic, channel)
            entries.setdefault(producer, Registration()).partitions |= named
            producer.channels.add((topic, channel))
        self.create_topic(topic).setdefault(producer, Registration()).partitions |= named
        producer.topics.add(topic)

    def describe(self, producer: RegisteredProducer, topic: str, meta: Meta) -> None:
        """The shape of a topic that the producer has registered."""
        entry = self.topics.get(topic, {}).get(producer)
        if entry is not None:
            entry.meta = meta

    def create_topic(self, topic: str) -> Entries:
        entries = self.topics.get(topic)
        if entries is None:
            self._check_room()
            entries = self.topics[topic] = {}
        return entries

    def create_channel(self, topic: str, channel: str) -> Entries:
        """With its topic."""
        entries = self.channels.get(topic, {}).get(channel)
        if entries is None:
            self._check_room()
            self.channel_count += 1
            entries = self.channels.setdefault(topic, {})[channel] = {}
        self.create_topic(topic)
        return entries

    def _check_room(self) -> None:
        if len(self.topics) + self.channel_count >= limits.LOOKUP_NAMES_MAX:
            raise Refused("too many topics and channels")

    def unregister(
        self,
        producer: RegisteredProducer,
        topic: str,
        channel: str = "",
        partition: int | None = None,
    ) -> None:
        """Without a channel: the topic, and all its channels of the producer. Of one partition:
        only when it was the last named one."""
        entries = self.channels.get(topic, {}).get(channel) if channel else self.topics.get(topic)
        entry = (entries or {}).get(producer)
        if partition is not None and entry is not None:
            entry.partitions -= {partition}
            if entry.partitions:
                return
        if channel:
            self._remove_channel_entry(producer, topic, channel)
            return
        by_channel = self.channels.get(topic, {})
        for name in [name for name, known in by_channel.items() if producer in known]:
            self._remove_channel_entry(producer, topic, name)
        self._remove_topic_entry(producer, topic)

    def _remove_topic_entry(self, producer: RegisteredProducer, topic: str) -> None:
        producer.topics.discard(topic)
        entries = self.topics.get(topic)
        if entries is None:
            return
        entries.pop(producer, None)
        if not entries and is_ephemeral(topic):
            del self.topics[topic]

    def _remove_channel_entry(self, producer: RegisteredProducer, topic: str, channel: str) -> None:
        producer.channels.discard((topic, channel))
        by_channel = self.channels.get(topic, {})
        entries = by_channel.get(channel)
        if entries is None:
            return
        entries.pop(producer, None)
        if not entries and is_ephemeral(channel):
            self._drop_channel(topic, channel)

    # --- metadata of a cluster ---

    def set_cluster_topic(self, topic: str, found: ClusterTopicEntry | None) -> None:
        """The whole topic at once; None: it is gone."""
        before, unled = self.topics.get(topic, {}), self._unled.pop(topic, {})
        self.delete_topic(topic)
        self.cluster_topics.pop(topic, None)
        if found is None:
            return
        self.cluster_topics[topic] = found.meta
        led, mono_ns = frozenset[int]().union(*found.led.values()), self._clock.mono_ns()
        missing = (one for one in range(found.meta.partition_num) if one not in led)
        self._unled[topic] = {number: unled.get(number, mono_ns) for number in missing}
        entries = self.topics[topic] = {}
        for producer, partitions in found.led.items():
            entry = entries[producer] = before.get(producer, Registration())  # tombstones stay
            entry.partitions = partitions
            producer.topics.add(topic)
            if partitions:
                producer.channels |= {(topic, channel) for channel in found.channels}
        for channel in found.channels:  # it goes with the first partition, as nsqd names it
            self.channels.setdefault(topic, {})[channel] = {
                producer: Registration(partitions=frozenset((min(partitions),)))
                for producer, partitions in found.led.items()
                if partitions
            }
        self.channel_count += len(found.channels)

    def unled_ns(self, topic: str, partition: int | None = None) -> int | None:
        """When this partition of a cluster's topic lost its leader, or the last of all without one.
        None: it has a leader; topics outside the cluster have none to lose."""
        found = self._unled.get(topic, {})
        return max(found.values(), default=None) if partition is None else found.get(partition)

    # --- operators ---

    def delete_topic(self, topic: str) -> None:
        for channel in list(self.channels.get(topic, {})):
            self.delete_channel(topic, channel)
        for producer in self.topics.pop(topic, {}):
            producer.topics.discard(topic)

    def delete_channel(self, topic: str, channel: str) -> bool:
        """Whether it was there."""
        entries = self.channels.get(topic, {}).get(channel)
        if entries is None:
            return False
        for producer in entries:
            producer.channels.discard((topic, channel))
        self._drop_channel(topic, channel)
        return True

    def _drop_channel(self, topic: str, channel: str) -> None:
        by_channel = self.channels[topic]
        del by_channel[channel]
        self.channel_count -= 1
        if not by_channel:
            del self.channels[topic]

    def tombstone(self, topic: str, node: str) -> list[RegisteredProducer]:
        """Hide the producers of `topic` that `node` names. Returns them."""
        hidden = []
        for producer, entry in self.topics.get(topic, {}).items():
            if producer.peer.node == node:
                entry.tombstoned = True
                entry.tombstoned_mono_ns = self._clock.mono_ns()
                entry.tombstoned_wall_ns = self._clock.wall_ns()
                hidden.append(producer)
        return hidden

    # --- lookups: sorted, so that an answer is the same each time ---

    def topic_names(self) -> list[str]:
        return sorted(self.topics)

    def channel_names(self, topic: str) -> list[str]:
        return sorted(self.channels.get(topic, ()))

    def producers_of(
        self, topic: str, partition: int | None = None, buried: bool = False
    ) -> list[RegisteredProducer]:
        """The nodes that clients should connect to; those that have the partition, or name none.
        `buried`: tombstoned ones, too."""
        mono_ns, of_cluster = self._clock.mono_ns(), topic in self.cluster_topics
        return in_order(
            producer
            for producer, entry in self.topics.get(topic, {}).items()
            if self._is_active(producer, mono_ns)
            and (buried or not entry.is_hidden(mono_ns, self._tombstone_lifetime_ns))
            and (
                partition is None
                or partition in entry.partitions
                or not (entry.partitions or of_cluster)
            )
        )

    def partitions_of(self, topic: str, buried: bool = False) -> dict[int, RegisteredProducer]:
        """The node of each partition; empty where two have the same, or nobody names any."""
        found: dict[int, RegisteredProducer] = {}
        entries = self.topics.get(topic, {})
        for producer in self.producers_of(topic, buried=buried):
            partitions = entries[producer].partitions
            if not partitions.isdisjoint(found):
                return {}
            found |= dict.fromkeys(partitions, producer)
        return dict(sorted(found.items()))

    def meta_of(self, topic: str) -> Meta:
        """As far as its producers report."""
        if topic in self.cluster_topics:
            return self.cluster_topics[topic]
        entries = self.topics.get(topic, {}).values()
        counts = [max(entry.partitions, default=0) + 1 for entry in entries]
        numbers = [entry.meta.partition_num for entry in entries]
        return Meta(
            max([*counts, *numbers], default=1),
            any(entry.meta.extended for entry in entries),
            any(entry.meta.ordered for entry in entries),
            any(entry.meta.registered for entry in entries),
        )

    def nodes(self) -> list[RegisteredProducer]:
        mono_ns = self._clock.mono_ns()
        active = [one for one in self.producers if self._is_active(one, mono_ns)]
        of_cluster = {one.peer.tcp_address for one in active if one.of_cluster}
        return in_order(
            one for one in active if one.of_cluster or one.peer.tcp_address not in of_cluster
        )

    def topics_of(self, producer: RegisteredProducer) -> list[tuple[str, bool]]:
        """Its topics, and whether it is tombstoned for each. A node of the cluster may have some of
        its own, which it has registered."""
        mono_ns, lifetime_ns = self._clock.mono_ns(), self._tombstone_lifetime_ns
        same = [producer]
        if producer.of_cluster:
            same = [
                one for one in self.producers if one.peer.tcp_address == producer.peer.tcp_address
            ]
        return sorted(
            (topic, self.topics[topic][one].is_hidden(mono_ns, lifetime_ns))
            for one in same
            for topic in sorted(one.topics)  # in an order that memory likes: a third of the time
        )

    def _is_active(self, producer: RegisteredProducer, mono_ns: int) -> bool:
        silent_ns = mono_ns - producer.seen_mono_ns
        return producer.of_cluster or silent_ns <= self._inactive_timeout_ns

    def entries(self) -> Iterator[tuple[str, str, str, Entries]]:
        """(category, key, subkey, producers) of everything, for debugging."""
        for topic, by_channel in self.channels.items():
            for channel, entries in by_channel.items():
                yield "channel", topic, channel, entries
        yield "client", "", "", {producer: Registration() for producer in self.producers}
        for topic, entries in self.topics.items():
            yield "topic", topic, "", entries

    def validate(self) -> None:
        for producer in self.producers:
            if any(producer not in self.topics.get(topic, ()) for topic in producer.topics):
                raise RuntimeError(f"{producer.peer.remote_address}: a topic does not know it")
            for topic, channel in producer.channels:
                if producer not in self.channels.get(topic, {}).get(channel, ()):
                    raise RuntimeError(f"{producer.peer.remote_address}: a channel does not")
        for category, key, subkey, entries in self.entries():
            for producer in entries:
                if producer not in self.producers:
                    raise RuntimeError(f"{category}:{key}:{subkey}: its producer has left")
                known = {
                    "topic": key in producer.topics,
                    "channel": (key, subkey) in producer.channels,
                    "client": True,
                }
                if not known[category]:
                    raise RuntimeError(f"{category}:{key}:{subkey}: its producer denies it")
        if self.channel_count != sum(map(len, self.channels.values())):
            raise RuntimeError("the channels are miscounted")
        if not all(self.channels.values()):
            raise RuntimeError("a topic without channels is kept among the channels")


def in_order(producers: Iterable[RegisteredProducer]) -> list[RegisteredProducer]:
    def key(producer: RegisteredProducer) -> tuple[str, int, str]:
        peer = producer.peer
        return peer.broadcast_address, peer.tcp_port, peer.remote_address

    return sorted(producers, key=key)
