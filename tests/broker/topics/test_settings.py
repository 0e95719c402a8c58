"""Settings of one topic: what holds, what is stored, what a change does at once."""

import msgspec

from penstock import limits
from penstock.broker.topics.settings import TopicSettings

from ..world import Outcome, Start, World, bodies

SECOND = limits.SECOND


def test_only_explicit_settings_are_stored() -> None:
    assert msgspec.json.encode(TopicSettings()) == b"{}"
    assert msgspec.json.encode(TopicSettings(max_depth=0)) == b'{"max_depth":0}'


# --- durability changes while it runs ---


def test_from_os_to_disk_an_ok_waits_for_a_sync_that_covers_it(start: Start) -> None:
    world = start(durability="os", sync_every_count=1)
    topic = world.broker.topic("t")
    world.threads.held = True
    assert world.publish("t", b"1").stored  # its sync is under way
    topic.configure({"durability": "disk"})
    outcome = world.publish("t", b"2")
    assert outcome.answers == []
    job = world.threads.waiting.pop()
    world.threads.waiting.clear()
    world.threads.submit(job)
    world.threads.run()  # ends the sync that began before the second message was written
    world.turn()
    assert outcome.answers == []
    assert topic.leader().log.synced_end == 1
    world.release()
    assert outcome.stored
    assert topic.leader().log.synced_end == 2


def test_from_os_to_disk_what_was_acknowledged_is_synced(start: Start) -> None:
    world = start(durability="os")
    world.publish("t", b"1", b"2")
    topic = world.broker.find_topic("t")
    assert topic.leader().log.synced_end == 0
    topic.configure({"durability": "disk"})
    world.turns()
    assert topic.leader().log.synced_end == 2


def test_from_disk_to_os_with_a_sync_under_way(world: World) -> None:
    consumer = world.consumer("t", "c")
    topic = world.broker.find_topic("t")
    world.threads.held = True
    first, second = world.publish("t", b"1"), Outcome()
    topic.configure({"durability": "os"})
    topic.publish([b"2"], 0, second)
    world.turns()
    assert first.answers == second.answers == []
    world.release()
    assert first.stored
    assert second.stored
    assert world.publish("t", b"3").stored
    assert bodies(consumer.take()) == [b"1", b"2", b"3"]
