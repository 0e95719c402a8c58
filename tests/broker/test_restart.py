"""What a restart brings back, after an orderly stop ("restart") and after kill -9 ("killed")."""

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import limits
from penstock.broker.commits.record import CommitFile, CommitPart, RecordJob
from penstock.broker.partition.idempotent import Stamp
from penstock.errors import DirectoryLocked, Refused, StorageError
from penstock.log.disk import OsDisk
from penstock.log.seal import seal, unseal

from .world import Start, World, bodies

HOUR_NS = 3600 * limits.SECOND

both_ways = pytest.mark.parametrize("again", [World.restart, World.killed])
Again = Callable[[World], World]


@both_ways
def test_finished_messages_do_not_return(again: Again, world: World) -> None:
    consumer = world.consumer("news", "a")
    world.publish("news", *(b"%d" % number for number in range(10)))
    got = consumer.take()
    consumer.finish(*got[:3], got[5], *got[8:])
    world = again(world)
    left = world.consumer("news", "a").take()
    assert sorted(bodies(left)) == [b"3", b"4", b"6", b"7"]
    assert [message.attempts for message in left] == [2, 2, 2, 2]
    assert {message.id for message in left} < {message.id for message in got}


@both_ways
def test_delayed_messages_keep_their_due_time(again: Again, world: World) -> None:
    world.broker.topic("news").channel("a")
    world.publish("news", b"published late", due_ns=world.clock.wall_ns() + HOUR_NS)
    consumer = world.consumer("news", "a")
    world.publish("news", b"put off")
    consumer.requeue(*consumer.take(), delay_ns=2 * HOUR_NS)
    assert consumer.channel.delayed == 2

    world = again(world)
    consumer = world.consumer("news", "a")
    assert (consumer.take(), consumer.channel.delayed) == ([], 2)
    world.clock.pass_ns(HOUR_NS - 1)
    assert consumer.take() == []
    world.clock.pass_ns(1)
    assert bodies(consumer.take()) == [b"published late"]
    world.clock.pass_ns(HOUR_NS)
    (late,) = [message for message in consumer.take() if message.body == b"put off"]
    assert late.attempts == 2


@both_ways
def test_ids_rise_over_restarts_even_when_the_clock_steps_back(again: Again, world: World) -> None:
    world.publish("news", b"1")
    world = again(world)
    world.clock.wall_step_ns = -HOUR_NS
    world.publish("news", b"2")
    world = again(world)
    world.publish("other", b"3")
    world.publish("news", b"4")
    ids = [message.id for message in world.consumer("news", "a").take()]
    assert ids == sorted(ids)
    assert len(set(ids)) == 3
    log = world.broker.find_topic("news").leader().log
    times = [log.message(offset).timestamp_ns for offset in range(3)]
    assert times == sorted(times)


def test_a_journal_ahead_of_the_log_loses_no_new_messages(world: World) -> None:
    """A power loss may keep the journal's last records and lose the log's last batches."""
    consumer = world.consumer("news", "a")
    world.publish("news", b"kept")
    world.turn()
    before = {
        path: path.read_bytes()
        for path in (world.path / "topics" / "news" / "0").iterdir()
        if not path.name.startswith("channels")
    }
    world.publish("news", b"lost", b"lost too")
    consumer.finish(*consumer.take())
    for path, data in before.items():
        path.write_bytes(data)
    world = world.killed()
    world.publish("news", b"new", b"new too")
    assert world.channel("news", "a").depth == 2
    world = world.killed()  # the journal must say so as well
    assert sorted(bodies(world.consumer("news", "a").take())) == [b"new", b"new too"]


def test_a_lost_journal_redelivers_everything(world: World) -> None:
    consumer = world.consumer("news", "a")
    world.publish("news", b"1", b"2")
    consumer.finish(*consumer.take())
    world.close()
    for path in (world.path / "topics" / "news" / "0").glob("channels.*"):
        path.unlink()
    world = world.restart()
    assert bodies(world.consumer("news", "a").take()) == [b"1", b"2"]


# Which file of the topic `news` is changed, how, and what is said.
SPOILT: dict[str, tuple[str, Callable[[bytes], bytes | None], str]] = {
    "lost": ("topic.json", lambda data: None, "topic.json is gone, but 1 messages are there"),
    "empty": ("topic.json", lambda data: b"", "it does not end with its checksum"),
    "flipped": ("topic.json", lambda data: data.replace(b"news", b"mews"), "checksum"),
    "sealed, but not ours": (
        "topic.json",
        lambda data: seal(unseal(data).replace(b'"settings":{}', b'"settings":{"max_depth":-1}')),
        "max_depth",
    ),
    "producers": ("0/producers", lambda data: data[:-3] + b"xyz", "the table of producers"),
}


def files(path: Path) -> dict[Path, bytes]:
    return {file.relative_to(path): file.read_bytes() for file in path.rglob("*") if file.is_file()}


@pytest.mark.parametrize("kind", SPOILT)
def test_a_corrupt_topic_is_set_aside_and_the_others_are_served(start: Start, kind: str) -> None:
    name, spoil, text = SPOILT[kind]
    world = start()
    world.publish("news", b"1")
    world.broker.topic("news").publish_stamped(Stamp(1, 0, 0), [b"2"], 0, lambda *_: None)
    world.publish("other", b"3")
    if name == "topic.json" and "1 messages" in text:
        text = text.replace("1 messages", "2 messages")
    world = world.restart()
    world.close()
    path = world.path / "topics" / "news" / name
    intact = path.read_bytes()
    spoilt = spoil(intact)
    path.unlink() if spoilt is None else path.write_bytes(spoilt)
    before = files(path.parent)

    world = world.restart()
    assert list(world.broker.topics) == ["other"]
    assert bodies(world.consumer("other", "a").take()) == [b"3"]
    assert world.broker.health.startswith("NOK - topic news: set aside until it is repaired: ")
    assert text in world.broker.health
    with pytest.raises(Refused, match="topic news is set aside"):
        world.broker.topic("news")
    world = world.killed()
    path = world.path / "topics" / "news" / name
    assert files(path.parent) == before
    world.close()

    path.write_bytes(intact)
    world = world.restart()
    assert bodies(world.consumer("news", "a").take()) == [b"1", b"2"]
    assert world.broker.health == "OK"


def test_unknown_files_in_the_topics_directory_are_left_alone(world: World) -> None:
    (world.path / "topics" / "lost+found").mkdir()
    world = world.restart()
    assert world.broker.topics == {}
    assert (world.path / "topics" / "lost+found").exists()


def test_a_topic_file_about_another_topic_is_set_aside(world: World) -> None:
    world.broker.topic("news")
    world.close()
    (world.path / "topics" / "news").rename(world.path / "topics" / "old")
    world = world.restart()
    assert "about another topic, 'news'" in world.broker.health
    assert world.publish("news", b"1").stored


def test_a_data_directory_has_one_owner(world: World) -> None:
    with pytest.raises(DirectoryLocked):
        world._again(world.path, {})
    assert world.publish("news", b"1").stored


def test_the_data_directory_must_exist(tmp_path: Path, world: World) -> None:
    world.close()
    with pytest.raises(StorageError, match="does not exist"):
        world._again(tmp_path / "nowhere", {})


def test_the_node_id_may_change(start: Start) -> None:
    world = start(node_id=7)
    world.publish("news", b"1")
    world = world.restart(node_id=3)
    world.publish("news", b"2")
    first, second = world.consumer("news", "a").take()
    assert first.id < second.id
    assert [int(message.id, 16) >> 12 & 1023 for message in (first, second)] == [7, 3]


def test_a_start_that_fails_half_way_holds_nothing(simulate: Start) -> None:
    world = simulate()
    for name in ("a", "b", "c"):
        world.publish(name, b"1")
    world.close()
    world.fail("open", "topics/b/0/")
    with pytest.raises(StorageError):
        world.restart()
    world.disk.faults.clear()
    assert sorted(world.restart().broker.topics) == ["a", "b", "c"]


def test_a_decided_commit_is_not_forgotten_with_a_topic_that_is_set_aside(world: World) -> None:
    world.publish("news", b"1")
    topic = world.broker.topic("news")
    part = CommitPart("news", topic.identity, topic.leader().log.written_end, 1, ["gone"])
    world.close()
    file = CommitFile("app", 3, "prepared", 1, 0, None, [part])
    RecordJob(OsDisk(), str(world.path / "commits"), file).run()
    (world.path / "topics" / "news" / "topic.json").write_bytes(b"{")
    with pytest.raises(StorageError, match="commit 3 of app is decided, but topic news is set asi"):
        world.restart()
