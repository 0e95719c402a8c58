"""What a leader of a cluster may do alone, and what it may not do before its set knows."""

from __future__ import annotations

from types import ModuleType

import pytest

from penstock import limits
from penstock.broker.placed import when_held
from penstock.broker.settings import TopicSettings
from penstock.errors import ChangeUnknown, Refused, SequenceGap
from penstock.replica.authority import NO_PERMITS, Permits

from .hostedworld import ORDERS, Cluster, target
from .test_hosted import finish
from .world import bodies

HOUR_NS = 3600 * limits.SECOND
QUIET = Permits(acts=False, delivers=False, publishes=True)


def small(kernel: ModuleType) -> Cluster:
    """Segments of a few messages, none of which is kept once it is consumed."""
    cluster = Cluster(kernel, retain_age_ns=HOUR_NS, segment_bytes_max=64 * 1024)
    cluster.place([0])
    return cluster


def permit(cluster: Cluster, permits: Permits) -> None:
    """As `tick` says it when the leader has heard from its set, or has not."""
    leader = cluster.nodes[0].leader()
    leader.office.line.permits = permits
    leader.office.moved()
    leader.permit(permits)
    cluster.run()


def consume_much(cluster: Cluster) -> None:
    consumer = cluster.nodes[0].consume()
    for _ in range(6):
        cluster.publish(0, b"x" * 30_000)
        consumer.finish(*consumer.take())
    cluster.run()
    for _ in range(3):
        cluster.pass_ns(limits.JOURNAL_SYNC_EVERY_NS)


def test_nothing_is_removed_before_every_member_knows_where_the_log_begins(
    kernel: ModuleType,
) -> None:
    cluster = small(kernel)
    consume_much(cluster)
    cluster.cut.add(2)
    cluster.pass_ns(2 * HOUR_NS)
    for _ in range(3):
        cluster.pass_ns(limits.JOURNAL_SYNC_EVERY_NS)
    leader = cluster.nodes[0].leader()
    assert leader.cursors is not None
    assert leader.cursors.start_offset > 0 == leader.log.start_offset
    assert starts(cluster) == [0, 0, 0]
    cluster.cut.clear()
    cluster.unlink(cluster.nodes[2])
    cluster.link(cluster.nodes[2])
    cluster.run()
    for _ in range(3):
        cluster.pass_ns(limits.JOURNAL_SYNC_EVERY_NS)
    found = starts(cluster)
    assert len(set(found)) == 1
    assert found[0] > 0


def starts(cluster: Cluster) -> list[int]:
    found = []
    for node in cluster.nodes:
        hosted = node.hosting.replica(target())
        assert hosted is not None
        found.append(hosted.replica.log.start_offset)
    return found


def test_without_authority_nothing_is_removed(kernel: ModuleType) -> None:
    cluster = small(kernel)
    consume_much(cluster)
    permit(cluster, QUIET)
    cluster.pass_ns(2 * HOUR_NS)
    leader = cluster.nodes[0].leader()
    assert leader.cursors is not None
    assert leader.cursors.start_offset == 0
    assert leader.clean(cluster.clock.wall_ns(), 0) == 0


def test_without_authority_nothing_is_delivered_and_publishing_goes_on(
    kernel: ModuleType,
) -> None:
    cluster = small(kernel)
    consumer = cluster.nodes[0].consume()
    permit(cluster, QUIET)
    cluster.publish(0, b"waits")
    assert consumer.take() == []
    permit(cluster, Permits(acts=True, delivers=True, publishes=True))
    assert bodies(consumer.take()) == [b"waits"]


def test_a_lone_leader_that_may_not_publish_says_why(kernel: ModuleType) -> None:
    cluster = small(kernel)
    permit(cluster, NO_PERMITS)
    with pytest.raises(Refused, match="it is not known whether this node still leads"):
        cluster.nodes[0].put(b"x")


def test_authority_is_by_the_clock_and_what_was_heard(kernel: ModuleType) -> None:
    cluster = small(kernel)
    node = cluster.nodes[0]
    for other in (1, 2):
        node.heard.answered(other, cluster.clock.mono_ns())
    node.hosting.tick(cluster.clock.mono_ns())
    assert node.leader().acts
    cluster.clock.pass_ns(3 * limits.SECOND)
    node.hosting.tick(cluster.clock.mono_ns())
    assert not node.leader().acts
    assert node.topic.silent == set()
    cluster.clock.pass_ns(20 * limits.SECOND)
    node.hosting.tick(cluster.clock.mono_ns())
    assert node.topic.silent == {0}


def test_without_authority_a_gap_is_none(kernel: ModuleType) -> None:
    """The process may have stood still, and nothing has looked at the time since."""
    cluster = small(kernel)
    node = cluster.nodes[0]
    for other in (1, 2):
        node.heard.answered(other, cluster.clock.mono_ns())
    node.hosting.tick(cluster.clock.mono_ns())
    with pytest.raises(SequenceGap):
        node.put_stamped(5, b"x")
    cluster.clock.pass_ns(3 * limits.SECOND)
    with pytest.raises(Refused, match="may have been replaced") as raised:
        node.put_stamped(5, b"x")
    assert not isinstance(raised.value, SequenceGap)


def test_messages_do_not_grow_too_old_without_authority(kernel: ModuleType) -> None:
    aging = ORDERS._replace(settings=TopicSettings(max_age_ns=HOUR_NS))
    cluster = Cluster(kernel, aging)
    cluster.place([0])
    cluster.publish(0, b"old")
    permit(cluster, QUIET)
    cluster.pass_ns(2 * HOUR_NS)
    channel = cluster.nodes[0].topic.find_channel("billing")
    assert channel.expired_count == 0
    permit(cluster, Permits(acts=True, delivers=True, publishes=True))
    cluster.pass_ns(2 * limits.SECOND)
    assert channel.expired_count == 1


def test_dead_letters_wait_for_authority(kernel: ModuleType) -> None:
    cluster = small(kernel)
    node = cluster.nodes[0]
    entry = cluster.channels[0].entry
    settings = type(entry.settings)(max_attempts=1)
    cluster.channels[0] = cluster.channels[0]._replace(
        entry=type(entry)(entry.name, entry.number, entry.created_ns, False, settings)
    )
    cluster.announce_channels()
    consumer = node.consume()
    cluster.publish(0, b"poison")
    (message,) = consumer.take()
    permit(cluster, QUIET)
    consumer.requeue(message)
    cluster.pass_ns(limits.SECOND)
    assert list(node.broker.topics) == ["orders"]
    permit(cluster, Permits(acts=True, delivers=True, publishes=True))
    cluster.pass_ns(limits.SECOND)
    assert "orders.billing.dead" in node.broker.topics


def test_what_must_survive_is_answered_when_the_set_has_it(kernel: ModuleType) -> None:
    cluster = small(kernel)
    cluster.publish(0, b"a", b"b")
    node = cluster.nodes[0]
    consumer = node.consume()
    consumer.take()
    finish(cluster, consumer, b"a", b"b")
    told: list[object] = []
    node.topic.find_channel("billing").seek(1)
    when_held(node.topic.leaders, told.append)
    node.turn()
    assert told == []
    cluster.run()
    assert told == [None]
    cluster.kill(0)
    cluster.elect(1, gone=[0])
    assert bodies(cluster.nodes[1].consume().take()) == [b"b"]


def test_an_office_that_ends_answers_that_it_is_not_known(kernel: ModuleType) -> None:
    cluster = small(kernel)
    node = cluster.nodes[0]
    told: list[object] = []
    cluster.cut.add(0)
    node.topic.find_channel("billing").empty()
    when_held(node.topic.leaders, told.append)
    cluster.run()
    assert told == []
    cluster.cut.clear()
    cluster.elect(2)
    (error,) = told
    assert isinstance(error, ChangeUnknown)
