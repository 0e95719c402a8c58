"""A leader's channels at work, and a follower's journal that knows at each record what it knows."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import limits
from penstock.log.disk import OsDisk
from penstock.log.fold import Folded, fold
from penstock.log.followedjournal import FollowedJournal
from penstock.log.journalfile import NAMES

from .world import Consumer, World, bodies

Start = Callable[..., World]
STEPS = 150


class Story:
    """One topic with two channels on a leader; each record goes to a follower."""

    def __init__(self, world: World, follower_path: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = world
        self.consumers = [world.consumer("news", name, rdy=5) for name in ("a", "b")]
        self.number = 0
        self.compared = 0
        follower_path.mkdir()
        self.follower = FollowedJournal.open(OsDisk(), str(follower_path))
        cursors = world.broker.find_topic("news").leader().cursors
        assert cursors is not None
        self.cursors = cursors
        cursors.on_record = self.follow
        cursors.begin_generation()

    def follow(self, record: bytes) -> None:
        written = self.cursors.written
        expected = self.follower.files
        if written == (expected.generation, expected.sequence):
            self.follower.append(record)
        elif written.sequence == 0:
            self.follower.replace(record)
        else:  # the leader's witness at rest went to nobody: here is nobody's leader
            self.cursors.begin_generation()
        self.compare()

    def compare(self) -> None:
        mine, theirs = self.follower.folded(), self.leaders()
        assert mine is not None
        assert theirs is not None
        assert (mine.channels, mine.handed_end) == (theirs.channels, theirs.handed_end)
        self.compared += 1

    def leaders(self) -> Folded | None:
        directory = self.world.path / "topics" / "news" / "0"
        files = [directory / name for name in NAMES if (directory / name).exists()]
        found = [folded for path in files if (folded := fold(path.read_bytes())) is not None]
        return max(found, key=lambda folded: folded.generation, default=None)

    def play(self) -> None:
        for _ in range(STEPS):
            self.rng.choice((self.publish, self.finish, self.finish, self.requeue, self.pause))()

    def publish(self) -> None:
        self.number += 1
        due_ns = 0
        if self.rng.random() < 0.2:
            due_ns = self.world.clock.wall_ns() + self.rng.randint(1, 20) * limits.SECOND
        self.world.publish("news", b"%d" % self.number, due_ns=due_ns)

    def consumer(self) -> Consumer:
        return self.rng.choice(self.consumers)

    def finish(self) -> None:
        """In any order: some stay behind, and time out."""
        taken = self.consumer()
        given = taken.take()
        self.rng.shuffle(given)
        taken.finish(*given[: self.rng.randint(0, len(given))])

    def requeue(self) -> None:
        consumer = self.consumer()
        for message in consumer.take()[:1]:
            consumer.requeue(message, self.rng.randint(0, 3) * limits.SECOND)

    def pause(self) -> None:
        self.world.pass_ns(self.rng.randint(1, 40) * limits.SECOND)


@pytest.mark.parametrize("seed", range(4))
def test_a_follower_knows_at_each_record_what_the_leader_said(
    start: Start, tmp_path: Path, seed: int
) -> None:
    story = Story(start(journal_bytes_max=2000), tmp_path / "follower", seed)
    story.play()
    assert story.compared > 60
    assert story.follower.position.generation > 2  # files were begun again
    story.follower.close()
    again = FollowedJournal.open(OsDisk(), str(tmp_path / "follower"))
    assert again.folded() == story.follower.folded()
    again.close()


def test_a_follower_that_takes_over_gives_out_what_was_not_finished(
    start: Start, tmp_path: Path
) -> None:
    """Its log is the leader's; of the journal it has what it followed."""
    story = Story(start(), tmp_path / "follower", 0)
    for number in range(5):
        story.world.publish("news", b"%d" % number)
    consumer = story.consumers[0]
    taken = consumer.take()
    consumer.finish(taken[0], *taken[2:4])
    story.cursors.on_record = None  # the link breaks
    consumer.finish(taken[4])
    story.follower.close()
    story.world.turns()
    other = tmp_path / "other"
    shutil.copytree(story.world.path, other)
    for name in NAMES:
        (other / "topics" / "news" / "0" / name).unlink(missing_ok=True)
        if (tmp_path / "follower" / name).exists():
            shutil.copy(tmp_path / "follower" / name, other / "topics" / "news" / "0" / name)
    story.world.close()
    world = story.world._again(other, {})
    assert bodies(world.consumer("news", "a").take()) == [b"1", b"4"]
    assert len(world.consumer("news", "b").take()) == 5
