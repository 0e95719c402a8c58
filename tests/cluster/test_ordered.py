"""A strictly ordered channel of three brokers, whose leader dies between two messages."""

from __future__ import annotations

import pytest

from broker.world import bodies
from penstock import kernel
from penstock.sim.brokers.cluster import JoinedCluster

STEPS = range(0, 8)  # of 50 ms, after which the leader dies


@pytest.mark.parametrize("steps", STEPS)
def test_no_earlier_message_comes_after_a_later_one(steps: int) -> None:
    cluster = JoinedCluster(kernel)
    try:
        cluster.make("orders")
        cluster.make_channel("orders", "billing", order="strict")
        cluster.publish("orders", *(b"%02d" % number for number in range(40)))
        before = cluster.led_by("orders")
        seen = consume(cluster, steps)
        cluster.kill(before.number)
        cluster.until(lambda: cluster.leader("orders"))
        after = consume(cluster, 60)
        assert after == sorted(after)
        assert after[-1] == b"39"
        assert not seen or after[0] >= seen[-1], (seen, after)
    finally:
        cluster.close()


def consume(cluster: JoinedCluster, steps: int) -> list[bytes]:
    """Each message is finished as it comes: the last FIN is on its way at the end."""
    consumer, done = cluster.led_by("orders").consume("orders", "billing"), 0
    for _ in range(steps):
        cluster.step()
        consumer.take()
        done, unfinished = len(consumer.received), consumer.received[done:]
        consumer.finish(*unfinished)
    consumer.take()
    return bodies(consumer.received)
