"""What a topic promises, told as stories: who gets which messages."""

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import limits
from penstock.broker.topics.deletions import ENDED_FILE, EndedTopics
from penstock.errors import NameInvalid, NotFound, Refused
from penstock.log.disk import OsDisk

from ..world import Start, World, bodies


def test_the_first_channel_gets_the_backlog_and_a_later_one_does_not(world: World) -> None:
    assert world.publish("news", b"1", b"2").stored
    topic = world.broker.find_topic("news")
    assert topic.depth == 2

    first = world.consumer("news", "first")
    assert bodies(first.take()) == [b"1", b"2"]
    assert topic.depth == 0

    second = world.consumer("news", "second")
    world.publish("news", b"3")
    assert bodies(first.take()) == [b"3"]
    assert bodies(second.take()) == [b"3"]


def test_deleting_a_topic_takes_everything_along(world: World) -> None:
    consumer = world.consumer("news", "a")
    world.publish("news", b"1")
    seen: list[int] = []
    world.broker.context.hooks.append(
        lambda change, topic, channel: seen.append(len(channel.consumers)) if channel else None
    )
    world.broker.delete_topic("news")
    assert seen == [1]  # the daemon can still close its consumers
    assert consumer.channel.consumers == []
    assert world.changes[-2:] == [("CHANNEL_DELETED", "news", "a"), ("TOPIC_DELETED", "news", "")]
    assert not (world.path / "topics" / "news").exists()
    with pytest.raises(NotFound):
        world.broker.find_topic("news")
    assert world.restart().broker.topics == {}


def test_a_publish_under_way_is_answered_before_its_topic_goes(world: World) -> None:
    world.threads.held = True
    syncing = world.publish("news", b"1")
    gathering = world.publish("news", b"2")
    assert (syncing.answers, gathering.answers) == ([], [])
    world.broker.delete_topic("news")
    assert syncing.stored
    assert gathering.stored
    world.turn()
    assert not (world.path / "topics" / "news").exists()


def test_an_ephemeral_topic_goes_with_its_last_channel(world: World) -> None:
    name = "live#ephemeral"
    consumer = world.consumer(name, "a#ephemeral")
    other = world.consumer(name, "b")
    world.publish(name, b"1")
    assert bodies(consumer.take()) == [b"1"]
    consumer.leave()
    assert name in world.broker.topics
    other.leave()  # "b" is not ephemeral: it stays without consumers
    assert name in world.broker.topics
    world.broker.find_topic(name).delete_channel("b")
    assert name not in world.broker.topics
    assert not (world.path / "topics" / name).exists()


def test_an_ephemeral_topic_is_never_synced_and_never_comes_back(world: World) -> None:
    world.publish("live#ephemeral", b"1", b"2")
    assert world.threads.submitted == 0
    world.pass_ns(10**10)
    assert world.threads.submitted == 0
    assert world.broker.find_topic("live#ephemeral").depth == 2
    world = world.killed()
    assert world.broker.topics == {}
    assert not (world.path / "topics" / "live#ephemeral").exists()


def test_the_queue_of_an_ephemeral_topic_has_a_bound(start: Start) -> None:
    world = start(mem_queue_size=3)
    world.publish("live#ephemeral", *(b"%d" % number for number in range(5)))
    assert world.broker.find_topic("live#ephemeral").depth == 3
    assert bodies(world.consumer("live#ephemeral", "a").take()) == [b"2", b"3", b"4"]


@pytest.mark.parametrize("name", ["", "a b", "#ephemeral", "x" * 65, "ü", "a/b"])
def test_invalid_names_make_nothing(name: str, world: World) -> None:
    with pytest.raises(NameInvalid):
        world.broker.topic(name)
    with pytest.raises(NameInvalid):
        world.broker.topic("news").channel(name)
    assert list(world.broker.topics) == ["news"]
    assert world.broker.topics["news"].channels == {}


def test_an_exiting_broker_takes_nothing_new(world: World) -> None:
    topic = world.broker.topic("news")
    world.broker.refuse(exiting=True)
    for attempt in (
        lambda: world.broker.topic("other"),
        lambda: topic.channel("a"),
        lambda: world.publish("news", b"1"),
    ):
        with pytest.raises(Refused) as caught:
            attempt()
        assert caught.value.reason == "exiting"
    assert (topic.refusal, topic.leader().tail.refusing) == ("exiting", True)
    assert world.broker.topic("news") is topic


# --- where the logs of deleted topics ended ---


def opened(path: Path, count_max: int = 9) -> EndedTopics:
    ended = EndedTopics(OsDisk(), str(path), count_max)
    ended.open()
    return ended


def test_torn_and_corrupt_lines_are_skipped(tmp_path: Path) -> None:
    ended = opened(tmp_path)
    for name in ("a", "b", "c"):
        ended.add(name, "one", {0: 7})
    path = tmp_path / ENDED_FILE
    path.write_bytes(path.read_bytes().replace(b'"a"', b'"x"')[:-9])
    again = opened(tmp_path)
    assert set(again.logs_of({"a", "b", "c", "x"})) == {"b"}
    again.add("d", "one", {0: 1})
    assert set(opened(tmp_path).logs_of({"a", "b", "c", "d"})) == {"b", "d"}


def test_only_partitions_led_by_this_node_are_recorded(tmp_path: Path) -> None:
    ended = opened(tmp_path)
    for ends in ({1: 7, 3: 9}, {3: 9}, {}):
        ended.add("orders", "one", ends)
    ended.add("bills", "two", {})
    for known in (ended, opened(tmp_path)):
        assert known.logs_of({"orders", "bills"}) == {
            "orders": {"one": {1: 7, 3: 9}}, "bills": {"two": {}},
        }  # fmt: skip
    assert (tmp_path / ENDED_FILE).read_bytes().count(b"\n") == 2  # what is known is not written


def test_the_file_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ENDED_FILE_BYTES_MAX", 1000)
    ended = opened(tmp_path, 100)
    for number in range(100):
        ended.add(f"topic{number}", "one", {0: number})
        assert (tmp_path / ENDED_FILE).stat().st_size <= 1000
    known = opened(tmp_path).logs_of({"topic0", "topic98", "topic99"})
    assert known == {"topic98": {"one": {0: 98}}, "topic99": {"one": {0: 99}}}


def test_a_deleted_topic_is_known_after_a_restart_and_a_kill(world: World) -> None:
    identity = world.broker.topic("orders").identity
    world.publish("orders", b"1", b"2")
    world.broker.topic("live#ephemeral")
    for name in ("orders", "live#ephemeral"):
        world.broker.delete_topic(name)
    world = world.killed()
    for again in (world, world.restart()):
        names = {"orders", "live#ephemeral"}
        assert again.broker.ended.logs_of(names) == {"orders": {identity: {0: 2}}}


def test_a_topic_can_be_deleted_on_a_full_disk(simulate: Callable[..., World]) -> None:
    world = simulate()
    for name in ("first", "second", "third"):
        world.publish(name, b"1")
    world.broker.delete_topic("first")
    world.fail("write", ENDED_FILE)
    world.broker.delete_topic("second")
    assert "second" not in world.broker.topics
    world.disk.faults.clear()
    world.broker.housekeeping()
    world = world.killed()
    assert set(world.broker.ended.logs_of({"first", "second", "third"})) == {"first", "second"}
