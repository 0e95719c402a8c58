"""Topics of a cluster: their replicas play the roles that records say, while clients go on."""

import errno
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from penstock import limits
from penstock.broker.ports import Led
from penstock.broker.replicas.clustered_topic import when_held
from penstock.broker.replicas.forwarding import ForwardAnswer, Forwarding
from penstock.broker.replicas.outbox import Outbox
from penstock.broker.topics.settings import ChannelOrder, ChannelSettings, TopicSettings
from penstock.errors import PublishUnknown, Refused, SequenceGap, StorageError
from penstock.kernel import Source
from penstock.log.damage import LostRange, write_lost
from penstock.replication.authority import NO_PERMITS, Permits
from penstock.replication.record import LeaderId, elected, regrouped
from penstock.replication.side_frames import Ending
from sim.disk import Fault

from ..world import Consumer, Outcome, bodies
from .cluster_world import ORDERS, Cluster, replica_on, target


def finish(cluster: Cluster, consumer: Consumer, *wanted: bytes) -> None:
    consumer.finish(*[message for message in consumer.received if message.body in wanted])
    cluster.run()


def test_a_follower_has_no_window_and_an_outbox_for_publishes(cluster: Cluster) -> None:
    follower = cluster.nodes[1]
    channel = follower.topic.find_channel("billing")
    assert (channel.windows, follower.topic.leaders, channel.depth) == ({}, [], 0)
    outbox = follower.topic.route()
    assert isinstance(outbox, Outbox)
    assert follower.broker.stay(outbox.tail) == []
    outcome = Outcome()
    follower.topic.publish([b"x"], 0, outcome)
    follower.turn()
    follower.broker.replica_host.tick(cluster.clock.mono_ns())
    cluster.clock.pass_ns(limits.FORWARD_WAIT_NS)
    follower.broker.replica_host.tick(cluster.clock.mono_ns())
    (refused,) = outcome.answers
    assert "no leader of partition 0 was reached for 5 s" in str(refused)


def test_a_replica_whose_files_are_in_doubt_leads_no_more_and_follows_nobody(
    cluster: Cluster,
) -> None:
    nodes = cluster.nodes[:2]
    for node in nodes:
        assignment = node.replica_host.replica(target()).assignment
        assignment.assign(0, cluster.known[target()].record)  # an older one changes nothing
        assignment.stop("a file beside it is corrupt")
    cluster.run()
    cluster.elect(2)
    for node in nodes:
        assert node.replica_host.replica(target()).assignment.is_stopped
        assert node.topic.leaders == []
        assert "a file beside it is corrupt" in node.broker.health


def test_leaders_that_give_a_publish_back_do_so_for_a_while(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each keeps it until its leadership ends, since nothing can be committed."""
    follower, outcome = cluster.nodes[1], Outcome()
    monkeypatch.setattr(Forwarding, "leader_of", lambda *_: Led(0, target(1)))
    answers: list[Callable[[ForwardAnswer], None]] = []
    monkeypatch.setattr(Forwarding, "send", lambda *given: answers.append(given[3]))
    follower.topic.publish([b"x"], 0, outcome)
    for _ in range(2):
        follower.turn()
        follower.broker.replica_host.tick(cluster.clock.mono_ns())
        assert outcome.answers == []
        cluster.clock.pass_ns(2 * limits.FORWARD_WAIT_NS)
        answers.pop()(ForwardAnswer(Ending.NOT_LED, reason="nothing could be committed"))
    (refused,) = outcome.answers
    assert "nothing could be committed" in str(refused)


def test_a_channel_may_arrive_before_its_partitions(cluster: Cluster) -> None:
    """Its rate stays for the partitions that this node will lead."""
    rate = cluster.nodes[1].topic.find_channel("billing").rate
    rate.set(1000, cluster.clock.mono_ns())
    rate.refill(cluster.clock.mono_ns() + limits.RATE_REFILL_NS)
    cluster.elect(1)
    rate.refill(cluster.clock.mono_ns() + 2 * limits.RATE_REFILL_NS)
    (window,) = cluster.nodes[1].topic.find_channel("billing").windows.values()
    assert window.allowance <= 1000 * limits.RATE_BURST


def test_a_publish_that_is_committed_as_the_leadership_ends_is_known_to_the_next(
    cluster: Cluster,
) -> None:
    """Its publisher hears that the outcome is not known, and sends it again."""
    node = cluster.nodes[0]
    answers = node.put_stamped(0, b"once")
    leader = node.leader()
    leadership = leader.leadership
    leader.group.leave("it resigned")
    leadership.leave("it resigned")
    # As by an acknowledgement in the same moment.
    leadership.machine.committed = leadership.machine.end
    cluster.run()
    assert isinstance(answers[0], PublishUnknown)
    cluster.elect(0)
    answers = node.put_stamped(0, b"once")
    cluster.run()
    assert answers == [None]
    assert node.bodies().count(b"once") == 1


def test_a_leadership_that_ends_leaves_its_consumers_and_publishers(cluster: Cluster) -> None:
    """The leader is replaced while it lives: in flight are an append and a message."""
    leader = cluster.nodes[0]
    consumer = leader.consume()
    cluster.publish(0, b"given")
    given = consumer.take()
    assert bodies(given) == [b"given"]
    cluster.pass_ns(limits.JOURNAL_GATHER_NS)  # the others hear of the attempt
    flying = leader.put(b"flies")
    gathers = leader.put(b"gathers")
    cluster.sent.clear()
    cluster.elect(1)
    (unknown,) = flying.answers
    assert isinstance(unknown, PublishUnknown)
    assert gathers.answers == []  # it is for the next leader
    assert leader.role() == "follower"
    assert leader.topic.find_channel("billing").windows == {}
    assert consumer.conn.find(int(given[0].id, 16)) is None  # so its FIN fails
    again = cluster.nodes[1].consume()
    assert [(one.body, one.attempts) for one in again.take()] == [(b"given", 2)]
    consumer.leave()


def test_a_leadership_that_has_ended_writes_no_journal(cluster: Cluster) -> None:
    """A change was under way, whose client waits for the journal."""
    node, path = cluster.nodes[0], "/data/topics/orders/0/channels.2"
    cluster.pass_ns(limits.SECOND)
    leaders = [*node.topic.leaders]
    cluster.publish(0, b"1")
    cluster.elect(1)
    journal = node.disk.content(path)
    when_held(leaders, lambda _: None)
    assert node.disk.content(path) == journal


def test_a_failing_write_of_a_followers_mark_is_shown_until_it_succeeds(cluster: Cluster) -> None:
    follower = cluster.nodes[1]
    cluster.publish(0, b"1")
    fault = follower.disk.inject(Fault("write", errno.EIO, "/mark", times=0))
    cluster.pass_seconds(10)
    assert "the write failed" in follower.broker.health
    assert follower.role() == "follower"
    cluster.publish(0, b"2")
    assert "the write failed" in follower.broker.health  # this heals nothing
    follower.disk.faults.remove(fault)
    cluster.pass_seconds(10)
    assert follower.broker.health == "OK"


@pytest.mark.parametrize("next_leader", [0, 1])
def test_a_failed_write_of_a_leader_is_shown_until_there_is_room(
    cluster: Cluster, next_leader: int
) -> None:
    """It ends the leadership. Whoever leads next, no publish need come."""
    node = cluster.nodes[0]
    fault = node.disk.inject(Fault("write", errno.ENOSPC, ".log", times=0))
    node.put(b"1")
    cluster.run()
    cluster.elect(next_leader)
    cluster.pass_seconds(10)
    assert "No space" in node.broker.health
    node.disk.faults.remove(fault)
    cluster.pass_seconds(10)
    assert node.broker.health == "OK"


def test_a_log_that_could_not_be_read_is_no_trouble_of_a_follower(cluster: Cluster) -> None:
    cluster.publish(0, b"1", b"2")
    cluster.elect(1)
    node = cluster.nodes[1]
    node.disk.inject(Fault("read", errno.EIO, ".log", times=0))
    node.consume()
    cluster.run()
    assert "cannot be read" in node.broker.health
    cluster.elect(0)
    assert node.broker.health == "OK"


def test_windows_of_a_leadership_that_ends_within_a_turn_accept_nothing(cluster: Cluster) -> None:
    """They stay until the end of the turn, and their tail is the outbox's by then."""
    leader = cluster.nodes[0]
    consumer = leader.consume()
    cluster.publish(0, b"given")
    (given,) = consumer.take()
    (window,) = leader.topic.find_channel("billing").windows.values()
    window.finish(consumer.conn.serial, int(given.id, 16))
    assert window.journal_dirty
    leader.put(b"flies")
    leader.put(b"gathers")
    leader.leader().group.leave("it resigned")
    assert isinstance(window.tail.owner, Outbox)
    leader.broker.load(window, Source.FORWARD, window.next)
    leader.broker.journal([window])


@pytest.mark.parametrize("order", ["none", "strict"])
def test_several_turns_share_a_journal_record(cluster: Cluster, order: str) -> None:
    """But in strict order, where the next message waits for it."""
    node = cluster.nodes[0]
    cluster.publish(0, b"a", b"b", b"c")
    node.topic.find_channel("billing").adopt(ChannelSettings(order=ChannelOrder(order)))
    consumer = node.consume()
    cluster.pass_ns(limits.SECOND)
    cursors = node.leader().cursors
    assert cursors is not None
    before, given = cursors.files.written.sequence, []
    for _ in range(3):
        given += consumer.take()
        finish(cluster, consumer, given.pop(0).body)
    assert (cursors.files.written.sequence == before) == (order == "none")
    cluster.clock.pass_ns(limits.JOURNAL_GATHER_NS)
    cluster.run()
    assert (cursors.files.written.sequence == before + 1) == (order == "none")


def test_revisions_begin_again_when_the_metadata_is_restored(cluster: Cluster) -> None:
    before, node = cluster.known[target()].record, cluster.nodes[1]
    record = elected(before, LeaderId(1, node.incarnation, replica_on(1)), ())
    node.replica_host.assign(target(), 3, record)
    cluster.run()
    assert node.role() == "follower"  # an older revision says nothing
    node.replica_host.assign(target(), 3, record, restorations=1)
    cluster.run()
    assert node.role() == "leading"
    node.replica_host.assign(target(), 1000, before)
    assert node.role() == "leading"  # of before the restoration


def test_a_learner_completes_the_quorum_of_an_elected_leader(cluster: Cluster) -> None:
    """It has an append of which it does not know that it is committed, so it cannot serve; a
    learner needs its channel journal before it counts."""
    record = cluster.known[target()].record
    learner = record.members[2]
    cluster.nodes[0].leader().leadership.machine.held_off.add(2)
    cluster.write(target(), regrouped(record, gone=(learner,)))
    cluster.nodes[0].put(b"one")
    cluster.run()
    cluster.kill(0)
    cluster.elect(1)
    assert cluster.nodes[1].role() == "elected"
    assert learner not in cluster.known[target()].record.members
    cluster.nodes[1].replica_host.tick(cluster.clock.mono_ns())
    cluster.run()
    assert learner in cluster.known[target()].record.members


def test_a_range_lost_everywhere_does_not_block_other_repairs(cluster: Cluster) -> None:
    words = (b"one", b"two", b"three", b"four")
    for word in words:
        cluster.publish(0, word)
    cluster.kill(0)
    node, other = cluster.nodes[1:]
    for corrupt, word in ((node, b"one"), (other, b"one"), (node, b"three")):
        corrupt.rot(word)
    cluster.elect(1, gone=[0])
    log = node.topic.replicas[0].log
    for offset in (0, 2):
        with pytest.raises(StorageError):
            log.read(offset, 1)
    cluster.pass_seconds(3 * limits.REPAIR_PATIENCE)
    assert [damage[:2] for damage in log.damaged] == [(0, 1)]


# --- what a leader of a cluster may do alone, and what it may not do before its set knows ---


HOUR_NS = 3600 * limits.SECOND
QUIET = Permits(acts=False, delivers=False, publishes=True)


@pytest.fixture
def small() -> Cluster:
    """Segments of a few messages, none of which is kept once it is consumed."""
    cluster = Cluster(retain_age_ns=HOUR_NS, segment_bytes_max=64 * 1024)
    cluster.place([0])
    return cluster


def hear_from_others(cluster: Cluster) -> None:
    for other in (1, 2):
        cluster.nodes[0].evidence.answered(other, cluster.clock.mono_ns())


def tick(cluster: Cluster) -> None:
    cluster.nodes[0].replica_host.tick(cluster.clock.mono_ns())


def permit(cluster: Cluster, permits: Permits) -> None:
    """As `tick` says it when the leader has evidence from its set, or has not."""
    leader = cluster.nodes[0].leader()
    leader.leadership.machine.permits = permits
    leader.leadership.moved()
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


def test_nothing_is_removed_before_every_member_knows_where_the_log_begins(small: Cluster) -> None:
    consume_much(small)
    small.cut.add(2)
    small.pass_ns(2 * HOUR_NS)
    for _ in range(3):
        small.pass_ns(limits.JOURNAL_SYNC_EVERY_NS)
    leader = small.nodes[0].leader()
    assert leader.cursors is not None
    assert leader.cursors.start_offset > 0 == leader.log.start_offset
    assert starts(small) == [0, 0, 0]
    small.cut.clear()
    small.unlink(small.nodes[2])
    small.link(small.nodes[2])
    small.run()
    for _ in range(3):
        small.pass_ns(limits.JOURNAL_SYNC_EVERY_NS)
    found = starts(small)
    assert len(set(found)) == 1
    assert found[0] > 0


def starts(cluster: Cluster) -> list[int]:
    found = []
    for node in cluster.nodes:
        replicated = node.replica_host.replica(target())
        assert replicated is not None
        found.append(replicated.replica.log.start_offset)
    return found


def test_without_authority_nothing_is_removed(small: Cluster) -> None:
    consume_much(small)
    permit(small, QUIET)
    small.pass_ns(2 * HOUR_NS)
    leader = small.nodes[0].leader()
    assert leader.cursors is not None
    assert leader.cursors.start_offset == 0
    assert leader.clean(small.clock.wall_ns(), 0) == 0


def test_without_authority_publishing_continues_and_delivery_stops(small: Cluster) -> None:
    consumer = small.nodes[0].consume()
    permit(small, QUIET)
    small.publish(0, b"waits")
    assert consumer.take() == []
    permit(small, Permits(acts=True, delivers=True, publishes=True))
    assert bodies(consumer.take()) == [b"waits"]


def test_a_lone_leader_that_may_not_publish_says_why(small: Cluster) -> None:
    permit(small, NO_PERMITS)
    with pytest.raises(Refused, match="it is not known whether this node still leads"):
        small.nodes[0].put(b"x")


def test_authority_follows_the_clock_and_the_answers(small: Cluster) -> None:
    node = small.nodes[0]
    hear_from_others(small)
    tick(small)
    assert node.leader().acts
    small.clock.pass_ns(3 * limits.SECOND)
    tick(small)
    assert not node.leader().acts
    assert node.topic.silent == set()
    small.clock.pass_ns(20 * limits.SECOND)
    tick(small)
    assert node.topic.silent == {0}


def test_authority_regained_by_a_publish_takes_effect(small: Cluster) -> None:
    node = small.nodes[0]
    small.clock.pass_ns(3 * limits.SECOND)
    tick(small)
    assert not node.leader().acts
    hear_from_others(small)
    node.leader().leadership.machine.tick(small.clock.mono_ns())
    for _ in range(10):
        tick(small)
    assert node.leader().acts


def test_housekeeping_keeps_topics_with_appends_in_flight(small: Cluster) -> None:
    """By that the small finds leaderships that commit nothing."""
    node = small.nodes[0]
    for other in small.nodes[1:]:
        small.unlink(other)
    outcome = node.put(b"waits")
    small.pass_ns(limits.SYNC_TIMEOUT_NS)
    assert node.leader().log.synced_end == 1
    small.pass_ns(limits.SECOND)
    assert (outcome.answers, node.topic in node.broker.context.touched) == ([], True)
    for other in small.nodes[1:]:
        small.link(other)
    small.run()
    small.pass_seconds(5)
    assert (outcome.answers, node.topic in node.broker.context.touched) == ([None], False)


def test_without_authority_a_gap_is_not_reported(small: Cluster) -> None:
    """The process may have stood still, and nothing has looked at the time since."""
    node = small.nodes[0]
    hear_from_others(small)
    tick(small)
    with pytest.raises(SequenceGap):
        node.put_stamped(5, b"x")
    small.clock.pass_ns(3 * limits.SECOND)
    with pytest.raises(Refused, match="may have been replaced") as raised:
        node.put_stamped(5, b"x")
    assert not isinstance(raised.value, SequenceGap)


def test_messages_do_not_grow_too_old_without_authority() -> None:
    aging = replace(ORDERS, settings=TopicSettings(max_age_ns=HOUR_NS))
    cluster = Cluster(aging)
    cluster.place([0])
    cluster.publish(0, b"old")
    permit(cluster, QUIET)
    cluster.pass_ns(2 * HOUR_NS)
    channel = cluster.nodes[0].topic.find_channel("billing")
    assert channel.expired_count == 0
    permit(cluster, Permits(acts=True, delivers=True, publishes=True))
    cluster.pass_ns(2 * limits.SECOND)
    assert channel.expired_count == 1


def test_dead_letters_wait_for_authority(small: Cluster) -> None:
    node = small.nodes[0]
    entry = small.channels[0].entry
    settings = type(entry.settings)(max_attempts=1)
    small.channels[0] = small.channels[0]._replace(
        entry=type(entry)(entry.name, entry.number, entry.created_ns, False, settings)
    )
    small.announce_channels()
    consumer = node.consume()
    small.publish(0, b"poison")
    (message,) = consumer.take()
    permit(small, QUIET)
    consumer.requeue(message)
    small.pass_ns(limits.SECOND)
    assert list(node.broker.topics) == ["orders"]
    permit(small, Permits(acts=True, delivers=True, publishes=True))
    small.pass_ns(limits.SECOND)
    assert "orders.billing.dead" in node.broker.topics


def test_a_seek_is_answered_once_the_in_sync_set_has_it(small: Cluster) -> None:
    small.publish(0, b"a", b"b")
    node = small.nodes[0]
    consumer = node.consume()
    consumer.take()
    finish(small, consumer, b"a", b"b")
    answers: list[object] = []
    node.topic.find_channel("billing").seek({0: 1})
    when_held(node.topic.leaders, answers.append)
    node.turn()
    assert answers == []
    small.run()
    assert answers == [None]
    small.kill(0)
    small.elect(1, gone=[0])
    assert bodies(small.nodes[1].consume().take()) == [b"b"]


# --- what an operator gave up: others may have it; where none has, the readers step over it ---


@pytest.fixture
def corrupt(cluster: Cluster) -> Cluster:
    """Of three messages the first is corrupt on every disk."""
    for word in (b"one", b"two", b"three"):
        cluster.publish(0, word)
    cluster.pass_ns(5 * limits.SECOND)
    for node in cluster.nodes:
        node.rot(b"one")
    return cluster


def pass_rounds(cluster: Cluster, consumer: Consumer) -> list[bytes]:
    got: list[bytes] = []
    for _ in range(limits.REPAIR_PAUSE + 4 * limits.REPAIR_PATIENCE):
        cluster.pass_ns(limits.SECOND)
        messages = consumer.take()
        got += bodies(messages)
        consumer.finish(*messages)
    cluster.run()
    return got


def test_a_skipped_range_stays_skipped_under_the_next_leader(corrupt: Cluster) -> None:
    path = corrupt.nodes[1].topic.replicas[0].log.path
    corrupt.kill(1)  # and `penstock log repair` gives up what is corrupt
    write_lost(corrupt.nodes[1].disk, path, [LostRange(0, 1, "corrupt", 1)])
    corrupt.start(1)
    corrupt.elect(1)
    consumer = corrupt.nodes[1].consume()
    assert pass_rounds(corrupt, consumer) == [b"two", b"three"]
    consumer.leave()
    corrupt.elect(2)
    assert "no replica has" not in corrupt.nodes[1].broker.health
    (window,) = corrupt.nodes[2].topic.find_channel("billing").windows.values()
    assert (window.low, window.depth) == (3, 0)


def test_conceding_the_damage_ends_the_wait(corrupt: Cluster) -> None:
    corrupt.elect(1)
    consumer = corrupt.nodes[1].consume()
    assert pass_rounds(corrupt, consumer) == []
    leader = corrupt.nodes[1].leader()
    assert leader.concede_damage() == [(0, 1)]
    assert pass_rounds(corrupt, consumer) == [b"two", b"three"]
    assert "no replica has offsets 0 to 0" in corrupt.nodes[1].broker.health
    assert leader.concede_damage() == [(0, 1)]
