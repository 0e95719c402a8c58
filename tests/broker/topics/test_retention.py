"""Nothing that somebody still wants is deleted; what nobody wants goes by age and size."""

import pytest

from penstock import limits
from penstock.broker.topics import retention
from penstock.log.disk import OsDisk
from penstock.log.inspect import find
from penstock.log.verify import verify

from ..world import Start, World, bodies

SEGMENT = 4096
BODY = bytes(500)


def fill(world: World, count: int = 40) -> None:
    for _ in range(count):
        world.publish("news", BODY)


def stored(world: World) -> int:
    return world.broker.find_topic("news").leader().log.start_offset


def housekeep(world: World) -> None:
    """Until the journal is synced, too: nothing is removed that it still calls unfinished."""
    world.pass_seconds(3)


def test_segments_that_every_channel_has_finished_are_removed(start: Start) -> None:
    world = start(segment_bytes_max=SEGMENT, retain_age_ns=0, retain_bytes=0)
    fast, slow = world.consumer("news", "fast"), world.consumer("news", "slow")
    fill(world)
    fast.finish(*fast.take())
    housekeep(world)
    assert stored(world) == 0
    got = slow.take()
    slow.finish(*got[:20])
    housekeep(world)
    assert 0 < stored(world) <= 20
    slow.finish(*got[20:])
    housekeep(world)
    assert stored(world) > 20


def test_a_delayed_message_keeps_its_segment(start: Start) -> None:
    world = start(segment_bytes_max=SEGMENT, retain_age_ns=0, retain_bytes=0)
    consumer = world.consumer("news", "a")
    fill(world, 5)
    world.publish("news", b"later", due_ns=world.clock.wall_ns() + 3600 * limits.SECOND)
    fill(world, 30)
    consumer.finish(*consumer.take())
    housekeep(world)
    assert 0 <= stored(world) <= 5
    world = world.killed()
    world.clock.pass_ns(3600 * limits.SECOND)
    consumer = world.consumer("news", "a")
    (late,) = consumer.take()
    assert late.body == b"later"
    consumer.finish(late)
    housekeep(world)
    assert stored(world) > 5


def test_an_ephemeral_topic_does_not_fill_the_disk(start: Start) -> None:
    world = start(segment_bytes_max=SEGMENT, mem_queue_size=2, retain_age_ns=0, retain_bytes=0)
    for _ in range(40):
        world.publish("live#ephemeral", BODY)
    housekeep(world)
    housekeep(world)
    topic = world.broker.find_topic("live#ephemeral")
    assert topic.leader().log.start_offset > 20
    assert bodies(world.consumer("live#ephemeral", "a").take()) == [BODY, BODY]


def test_a_channel_behind_the_start_of_the_log_goes_on_from_there(start: Start) -> None:
    """Somebody has put an old journal back, or removed a segment. It is reported."""
    world = start(segment_bytes_max=SEGMENT, retain_age_ns=0, retain_bytes=0)
    consumer = world.consumer("news", "a")
    journal = world.path / "topics" / "news" / "0" / "channels.0"
    old = journal.read_bytes()
    fill(world)
    got = consumer.take()
    consumer.finish(*got)
    housekeep(world)
    first = stored(world)
    assert first > 0
    journal.write_bytes(old)
    assert world.broker.health == "OK"
    world = world.killed()
    consumer = world.consumer("news", "a")
    again = consumer.take()
    assert len(again) == 40 - first
    assert world.broker.health == (
        f"OK - warning: topic news: offsets 0 to {first - 1} are missing: the log begins at offset "
        f"{first}, and not finished below it were: channel a"
    )
    consumer.finish(*again)
    assert world.publish("news", b"one more").stored
    consumer.finish(*consumer.take())
    housekeep(world)
    assert world.broker.health == "OK"  # the channel is past it


def test_messages_unfinished_in_the_durable_journal_are_kept(simulate: Start) -> None:
    """Else a power loss would leave a channel behind the start of the log."""
    world = simulate(segment_bytes_max=SEGMENT, retain_age_ns=0, retain_bytes=0)
    consumer = world.consumer("news", "a")
    fill(world)
    consumer.finish(*consumer.take())
    world.pass_ns(limits.SECOND)
    assert stored(world) == 0
    world.pass_seconds(2)
    assert stored(world) > 0
    world.fail("write", "channels")  # as on a full disk: then removing is what makes room
    fill(world)
    consumer.finish(*consumer.take())
    before = stored(world)
    world.pass_seconds(3)
    assert stored(world) > before
    assert "the state of the channels cannot be stored" in world.broker.health


@pytest.mark.parametrize("channel", ["a", ""])
def test_a_missing_first_segment_is_reported(start: Start, channel: str) -> None:
    world = start(segment_bytes_max=SEGMENT)
    world.broker.topic("news")
    if channel:
        world.broker.topic("news").channel(channel)
    fill(world)
    world.pass_seconds(3)
    world.close()
    partition = world.path / "topics" / "news" / "0"
    assert verify(OsDisk(), find(OsDisk(), str(world.path))).findings == []
    first, second = sorted(partition.glob("*.log"))[:2]
    first.unlink()
    first.with_suffix(".index").unlink()
    (finding,) = verify(OsDisk(), find(OsDisk(), str(world.path))).findings
    assert (finding.from_offset, finding.to_offset) == (0, int(second.stem))
    world = world.restart()
    assert f"offsets 0 to {int(second.stem) - 1} are missing" in world.broker.health
    whose = f"channel {channel}" if channel else "the topic's own queue"
    assert world.broker.health.endswith(f"not finished below it were: {whose}")
    assert world.broker.healthy
    assert world.publish("news", b"goes on").stored


def test_many_topics_all_get_their_turn(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "RETAIN_MIN", 4)
    world = start(segment_bytes_max=SEGMENT, retain_age_ns=0, retain_bytes=0, durability="os")
    names = [f"t{number}" for number in range(11)]
    for name in names:
        consumer = world.consumer(name, "a")
        for _ in range(9):
            world.broker.topic(name).publish([BODY], 0, lambda error: None)
            world.broker.write(world.engine.dirty_tails(), world.clock.wall_ns())
        world.turn()
        consumer.finish(*consumer.take())
    for _ in range(6):  # twice round: the log is synced after two seconds
        housekeep(world)
    assert all(world.broker.topics[name].leader().log.start_offset > 0 for name in names)


@pytest.mark.parametrize("age_s", [0, 160])
def test_finished_messages_go_after_a_clock_that_was_a_year_ahead(start: Start, age_s: int) -> None:
    """Their timestamps lie in the future for a year."""
    options = {
        "segment_bytes_max": SEGMENT,
        "retain_age_ns": age_s * limits.SECOND,
        "retain_bytes": 1 << 40,
    }
    world = start(**options)
    world.clock.wall_step_ns = 365 * 86_400 * limits.SECOND
    consumer = world.consumer("news", "a")
    fill(world)
    consumer.finish(*consumer.take())
    world.clock.wall_step_ns = 0
    world = world.killed(**options)
    for _ in range(10):
        world.pass_ns(10 * limits.SECOND)
    assert (stored(world) > 30) == (age_s == 0)
    world = world.killed(**options)  # the age goes on counting
    for _ in range(9):
        world.pass_ns(10 * limits.SECOND)
    assert stored(world) > 30
    assert verify(OsDisk(), find(OsDisk(), str(world.path))).findings == []
