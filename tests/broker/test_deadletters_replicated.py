"""A dead letter whose message is corrupt on a leader of several replicas: it waits for a repair."""

from __future__ import annotations

from types import ModuleType

from penstock import limits
from penstock.broker.channel import Channel
from penstock.broker.settings import ChannelSettings

from .hostedworld import Cluster


def test_it_is_sent_when_the_message_was_repaired(kernel: ModuleType) -> None:
    cluster = Cluster(kernel)
    cluster.place([0])
    node = cluster.nodes[0]
    channel: Channel = node.topic.find_channel("billing")
    channel.adopt(ChannelSettings(max_attempts=1, dead_letter_topic="dead"))
    cluster.publish(0, b"poison")
    cluster.pass_ns(limits.SECOND)
    consumer = node.consume()
    (message,) = consumer.take()
    segment = node.topic.replicas[0].log.segments[0].path
    node.disk.flip(segment, node.disk.content(segment).index(b"poison"), 0)
    cluster.cut.update((1, 2))
    consumer.requeue(message)
    for _ in range(2):
        cluster.pass_ns(limits.SECOND)
    assert (channel.windows[0].exhausted, channel.dead_letter_count) == (1, 0)
    assert "corrupt" in node.broker.health
    cluster.cut.clear()
    for _ in range(2 * limits.REPAIR_PAUSE):
        cluster.pass_ns(limits.SECOND)
    assert (channel.windows[0].exhausted, channel.dead_letter_count) == (0, 1)
    assert node.broker.health == "OK"
