"""The metadata of a cluster, as the registry has it.

| in the metadata | in the registry |
|---|---|
| a node whose key is there | a producer; until its absence counts, also one whose key is gone |
| a partition whose leader's process lives | a registration of its topic there, with its number |
| a live member that is to lead it next | a registration of its topic there, without a number |
| a channel | one of each node that leads a partition of its topic |
| a deleted topic | nothing |

A topic is replaced as a whole when something of it has changed, so that no answer has half of a
transaction, and all nsqlookupds of a cluster give the same answers.

**An absence** counts when the coordinator has been followed without a gap for a lease's time
and ABSENCE_GRACE_NS, as it does for nodes. After an outage of it all keys are gone at first, and
the leaders lead on: who dropped them then would answer that nobody has anything.

**The next leader** is listed before it leads (SUCCESSOR_LISTED_NS): NSQ's consumers look once in a
minute, and would not be connected to it when the leadership moves.
"""

from collections.abc import Iterable

from penstock.cluster import keys
from penstock.cluster.documents import NodeDocument, Topic
from penstock.cluster.view import View, ViewChange
from penstock.nsqlookupd.registry import ClusterTopicEntry, Meta, Peer, RegisteredProducer, Registry
from penstock.replication.record import PartitionRecord, successor

# Names among the settings of a topic's document.
_EXTENDED, _ORDERED, _REGISTERED = "extended", "ordered", "disable_channel_auto_create"


class Feed:
    def __init__(self, view: View, registry: Registry) -> None:
        self._view = view
        self._registry = registry
        self._known: dict[int, RegisteredProducer] = {}  # live nodes, as far as known

    def take(self, changes: Iterable[ViewChange], absence_counts: bool) -> None:
        found = [key for key, _, _ in changes]
        topics = set(filter(None, map(keys.topic_of, found)))
        nodes = {keys.node_of(key) for key in found if key.startswith(keys.NODES)}
        gone = self._known.keys() - self._view.nodes.keys()
        nodes = nodes | gone if absence_counts else nodes - gone
        for node in nodes:
            self._meet(node)
        if not (topics or nodes):
            return
        for name, held in self._view.partitions.items():
            record = held.document
            leader = record.leader.node if record.leader is not None else None
            if leader in nodes or successor(record, record.wanted) in nodes:
                topics.add(name.topic)
        for topic in topics:
            there = self._view.topic(topic)
            entry = self._entry(topic, there.document) if there is not None else None
            self._registry.set_cluster_topic(topic, entry)

    def _meet(self, node: int) -> None:
        held, producer = self._view.nodes.get(node), self._known.pop(node, None)
        peer = peer_of(held.document) if held is not None else None
        if producer is not None and producer.peer != peer:
            self._registry.leave(producer)
            producer = None
        if held is not None and peer is not None:
            producer = producer or self._registry.join(peer, of_cluster=True)
            producer.incarnation = held.document.incarnation
            self._known[node] = producer

    def _entry(self, name: str, topic: Topic) -> ClusterTopicEntry:
        led: dict[RegisteredProducer, frozenset[int]] = {}
        records = self._view.records_of(name)
        for (_, number), record in records:
            node = self._leader(record.document)
            if node is not None:
                led[node] = led.get(node, frozenset()) | {number}
            following = successor(record.document, self._known)
            if following is not None:
                led.setdefault(self._known[following], frozenset())
        channels = frozenset(one.channel for one, _ in self._view.channels_of(name))
        return ClusterTopicEntry(led, channels, _meta(topic, len(records)))

    def _leader(self, record: PartitionRecord) -> RegisteredProducer | None:
        """A restarted process leads none of the partitions of its earlier incarnation."""
        leader = record.leader
        node = self._known.get(leader.node) if leader is not None else None
        is_it = leader is not None and node is not None and node.incarnation == leader.incarnation
        return node if is_it else None


def peer_of(node: NodeDocument) -> Peer:
    return Peer(
        remote_address=f"{node.host}:{node.tcp_port}",
        broadcast_address=node.host,
        hostname=node.host,
        tcp_port=node.tcp_port,
        http_port=node.http_port,
        version=node.version,
        topology_zone=node.zone,
        names_partitions=True,
    )


def _meta(topic: Topic, partitions: int) -> Meta:
    settings = dict(topic.settings)
    return Meta(
        max(partitions, topic.hash_partitions),  # growing, it has fewer for a moment
        settings.get(_EXTENDED) is True,
        settings.get(_ORDERED) is True,
        settings.get(_REGISTERED) is True,
        topic.replicas,
    )
