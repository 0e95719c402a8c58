"""The group commit, and what happens when the disk does not do what it should."""

import pytest

from penstock import limits
from penstock.errors import PartitionStopped, Refused, WriteRefused
from penstock.kernel import Event
from penstock.kernel.layout import SHORT_HEADER_BYTES
from penstock.log.head import HEAD_BYTES

from ..world import Outcome, Start, World, bodies


def test_durability_os_syncs_by_time(start: Start) -> None:
    world = start(durability="os")
    world.publish("news", b"1")
    world.pass_ns(limits.SYNC_TIMEOUT_NS)
    submitted = world.threads.submitted
    assert world.broker.find_topic("news").leader().log.unsynced_bytes == 0
    for _ in range(2):
        world.pass_ns(limits.SYNC_TIMEOUT_NS)
    assert world.threads.submitted == submitted


def test_a_write_that_fails_fails_its_batch_and_nothing_else(simulate: Start) -> None:
    world = simulate()
    conn = world.engine.open_detached()
    assert world.publish("news", b"1").stored
    world.fail("write", ".log")
    conn.feed(b"  V2PUB news\n\x00\x00\x00\x02hi")
    outcome = world.publish("news", b"2")
    (error,) = outcome.answers
    assert isinstance(error, WriteRefused)
    assert [event[1] for event in world.events if event[0] == Event.PUB_FAILED] == [conn]
    assert world.broker.health.startswith("NOK - topic news: the write failed")
    assert world.broker.find_topic("news").refusal == ""

    world.pass_ns(limits.SECOND)
    assert world.broker.health.startswith("NOK - topic news: the write failed")
    world.disk.faults.clear()
    world.pass_ns(limits.SECOND)
    assert world.broker.health == "OK"  # though nobody publishes, as behind a load balancer
    assert world.publish("news", b"3").stored
    assert world.broker.health == "OK"
    assert bodies(world.consumer("news", "a").take()) == [b"1", b"3"]


@pytest.mark.parametrize("durability", ["disk", "os"])
def test_a_sync_that_fails_stops_the_partition_for_good(start: Start, durability: str) -> None:
    world = start(durability=durability, sync_every_count=1)
    assert world.publish("news", b"1").stored
    world.publish("other", b"1")
    world.pass_ns(limits.SYNC_PAUSE_NS)
    world.threads.held = True
    world.threads.error = OSError(5, "Input/output error")
    syncing = world.publish("news", b"2")
    gathering = world.publish("news", b"3")
    world.threads.run()
    world.turn()
    world.threads.held = False
    world.threads.error = None

    topic = world.broker.find_topic("news")
    if durability == "disk":
        assert [type(error) for error in syncing.answers + gathering.answers] == [
            PartitionStopped
        ] * 2
    else:
        assert syncing.stored  # it had been promised no more than the write
        assert gathering.stored
    assert topic.leader().tail.refusing
    assert "sync failed" in topic.refusal
    assert "sync failed" in world.broker.health
    with pytest.raises(Refused) as caught:
        topic.publish([b"4"], 0, Outcome())
    assert caught.value.reason == topic.refusal
    world.pass_seconds(3)
    assert topic.leader().tail.refusing
    assert world.publish("other", b"2").stored
    assert bodies(world.consumer("news", "a").take())[0] == b"1"


def damage(world: World, offset: int, topic: str = "news") -> None:
    """Overwrite some bytes of the batch that holds `offset`."""
    log = world.broker.find_topic(topic).leader().log
    position = HEAD_BYTES
    for header, _ in log.batches(0):
        if header.base_offset <= offset < header.base_offset + header.count:
            break
        position += header.length
    (path,) = (world.path / "topics" / topic / "0").glob("*.log")
    data = bytearray(path.read_bytes())
    data[position + SHORT_HEADER_BYTES] ^= 0xFF
    path.write_bytes(data)


def test_damage_met_while_reading_is_stepped_over_and_shown(world: World) -> None:
    world.broker.topic("news").channel("b")
    for number in range(5):
        world.publish("news", b"%d" % number)
    world = world.restart()
    damage(world, 2)
    assert world.broker.health == "OK"
    assert bodies(world.consumer("news", "a").take()) == []  # "a" is new, "b" has the backlog
    consumer = world.consumer("news", "b")
    assert bodies(consumer.take()) == [b"0", b"1", b"3", b"4"]
    topic = world.broker.find_topic("news")
    assert topic.leader().replica.damaged[0][:2] == (2, 3)
    assert world.broker.health.startswith("OK - warning: topic news: offsets 2 to 2 are corrupt")
    assert world.broker.healthy
    assert topic.refusal == ""
    assert world.publish("news", b"5").stored  # it concerns readers only
    assert bodies(consumer.take()) == [b"5"]
    assert world.publish("other", b"1").stored


def test_a_failed_read_is_retried(simulate: Start) -> None:
    world = simulate()
    world.broker.topic("news").channel("a")
    world.publish("news", b"1", b"2")
    world = world.restart()
    world.fail("read", ".log")
    consumer = world.consumer("news", "a")
    assert consumer.take() == []
    assert "cannot be read" in world.broker.health
    world.pass_ns(limits.SECOND)
    assert consumer.take() == []
    world.disk.faults.clear()
    world.pass_ns(limits.SECOND)
    assert bodies(consumer.take()) == [b"1", b"2"]
    assert world.broker.health == "OK"


def test_a_corrupt_end_refuses_publishes_and_serves_the_rest(world: World) -> None:
    world.broker.topic("news").channel("a")
    for number in range(5):
        world.publish("news", b"%d" % number)
    world.close()
    (path,) = (world.path / "topics" / "news" / "0").glob("*.log")
    data = path.read_bytes()
    path.write_bytes(data[:-20] + b"\xff" + data[-19:])
    world = world.restart()
    topic = world.broker.find_topic("news")
    assert topic.leader().tail.refusing
    assert "the end of the log is corrupt: offsets 4 to 4" in topic.refusal
    assert world.broker.health.startswith("NOK - topic news: the end of the log is corrupt")
    assert not world.broker.healthy
    assert bodies(world.consumer("news", "a").take()) == [b"0", b"1", b"2", b"3"]
    assert world.publish("other", b"1").stored
    world = world.restart()
    assert world.broker.find_topic("news").leader().tail.refusing
