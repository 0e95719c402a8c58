"""Delayed messages that are not in memory when they are handed to a channel."""

import random

import pytest

from cases import fresh_seed
from penstock import limits
from penstock.broker.channels import operator
from penstock.broker.channels.channel import Channel
from penstock.broker.partition.appends import Content, Stored, publish_located
from penstock.kernel import Section, Stray

from ..replicas.cluster_world import BILLING, Cluster, Node
from ..world import Consumer, Message, Outcome, Start, World, bodies

SECOND = limits.SECOND


def counts(channel: Channel) -> tuple[int, int]:
    channel.validate()
    return channel.depth, channel.delayed


def schedule(world: World, count: int) -> None:
    """A message and a scheduled one in turn, in a batch each."""
    for number in range(count):
        world.publish("news", b"now %d" % number)
        due_ns = world.clock.wall_ns() + (60 + number) * SECOND
        world.publish("news", b"later %d" % number, due_ns=due_ns)


def check_the_rest(world: World, count: int) -> None:
    """What is undelayed comes in order, the rest when it is due, each once; one can be cancelled,
    and one hastened."""
    channel = world.channel("news", "a")
    listed = channel.windows[0].stray_records(Stray.DELAYED, 2)
    operator.finish(channel, listed[0].id)
    operator.requeue(channel, listed[1].id, 0, world.clock.wall_ns())
    channel.set_paused(False)
    consumer = world.consumer("news", "a")
    now = take(world, consumer, SECOND)
    assert bodies(now).count(b"later 1") == 1
    expected = [b"now %d" % n for n in range(count)]
    assert [body for body in bodies(now) if body != b"later 1"] == expected
    assert (channel.depth, channel.delayed) == (0, count - 2)
    later = take(world, consumer, 600 * SECOND)
    assert sorted(bodies(later)) == sorted(b"later %d" % n for n in range(2, count))
    assert channel.unfinished == 0


def take(world: World, consumer: Consumer, ns: int) -> list[Message]:
    """What comes within that time, finished."""
    world.pass_ns(ns)
    taken: list[Message] = []
    while more := consumer.take():
        consumer.finish(*more)
        taken += more
    return taken


def test_a_failed_read_is_retried(simulate: Start, caplog: pytest.LogCaptureFixture) -> None:
    world = simulate(tail_memory_bytes_max=0)
    world.broker.topic("news")
    schedule(world, 10)
    channel = world.broker.find_topic("news").channel("a")
    channel.set_paused(True)
    world.fail("read", ".log")
    world.pass_seconds(3)
    assert counts(channel) == (19, 1)
    assert caplog.text.count("news: cannot look for delayed messages: the log cannot be read") == 1
    world.disk.faults.clear()
    world.pass_ns(SECOND)
    assert counts(channel) == (10, 10)
    check_the_rest(world, 10)


def test_corrupt_messages_are_skipped(start: Start) -> None:
    world = start(tail_memory_bytes_max=0)
    world.broker.topic("news").channel("a").set_paused(True)
    world.broker.find_topic("news").set_paused(True)
    schedule(world, 10)
    topic = world.broker.find_topic("news")
    (path,) = (world.path / "topics" / "news" / "0").glob("*.log")
    data = bytearray(path.read_bytes())
    data[data.index(b"later 3")] ^= 1
    data[data.index(b"now 5") - 8] ^= 1
    path.write_bytes(data)
    topic.set_paused(False)
    world.pass_ns(SECOND)
    assert counts(world.channel("news", "a")) == (11, 9)  # the cursor will learn that two are lost
    assert [start for start, _, _ in topic.leader().replica.damaged] == [7]
    world.channel("news", "a").set_paused(False)
    consumer = world.consumer("news", "a")
    assert len(take(world, consumer, SECOND)) == 9
    assert len(take(world, consumer, 600 * SECOND)) == 9


class Story:
    """One channel under random traffic, and what is to be true of it."""

    def __init__(self, world: World, dice: random.Random, parked_max: int) -> None:
        self.world = world
        self.dice = dice
        self.parked_max = parked_max
        self.due: dict[bytes, int] = {}  # of what is published and not finished
        self.held: dict[bytes, Message] = {}
        self.order: list[bytes] = []  # of undelayed messages, as they came first
        self.number = 0
        self.consumer: Consumer | None = None
        world.broker.topic("news").channel("a").windows[0].parked_max = parked_max

    @property
    def now_ns(self) -> int:
        return self.world.clock.wall_ns()

    def publish(self) -> None:
        for _ in range(self.dice.randrange(1, 6)):
            delay_ns = self.dice.choice([0, 0, 3 * SECOND, 30 * SECOND, 300 * SECOND])
            due_ns = self.now_ns + delay_ns if delay_ns else 0
            count = self.dice.randrange(1, 4)
            given = [b"%d" % (self.number + n) for n in range(count)]
            self.number += count
            if due_ns and self.dice.random() < 0.3:
                self.copy(given, due_ns)
            else:
                assert self.world.publish("news", *given, due_ns=due_ns).stored
            self.due.update(dict.fromkeys(given, due_ns))

    def copy(self, given: list[bytes], due_ns: int) -> None:
        """With ids of their own, which may be those of others."""
        group = self.world.broker.find_topic("news").leader().group
        ids = [self.dice.choice([5, 6, group.sealed_base_id or 7]) for _ in given]
        sections = [{Section.ID: id, Section.DUE: due_ns} for id in ids]
        letters = [Content(body, one) for body, one in zip(given, sections, strict=True)]
        outcome = Outcome()
        publish_located(
            group,
            letters,
            0,
            lambda answers: outcome(None if isinstance(answers, Stored) else answers),
        )
        self.world.turns()
        assert outcome.stored

    def pause_topic(self) -> None:
        topic = self.world.broker.find_topic("news")
        topic.set_paused(not topic.paused)

    def pause_channel(self) -> None:
        channel = self.world.channel("news", "a")
        channel.set_paused(not channel.paused)

    def consume(self) -> None:
        if self.consumer is None:
            self.consumer = self.world.consumer("news", "a", rdy=0)
            self.consumer.conn.timeout_ns = 10_000 * SECOND
            self.consumer.ready(self.dice.randrange(1, 20))
        self.receive()

    def receive(self) -> None:
        for message in self.consumer.take() if self.consumer else ():
            due_ns = self.due[message.body]  # else it was finished before
            assert due_ns <= self.now_ns
            assert message.body not in self.held
            self.held[message.body] = message
            if not due_ns and message.attempts == 1:
                self.order.append(message.body)

    def finish(self) -> None:
        self.receive()
        for body in [body for body in self.held if self.dice.random() < 0.7]:
            if self.consumer:
                self.consumer.finish(self.held.pop(body))
                del self.due[body]

    def search(self) -> None:
        self.world.broker.housekeeping()
        for _ in range(self.dice.randrange(4)):
            self.world.broker.delays.slice()

    def end(self) -> None:
        """Of the process: at once, or in order. What was held comes again."""
        self.receive()
        self.world = self.dice.choice([World.killed, World.restart])(self.world)
        self.consumer = None
        self.held.clear()
        self.world.channel("news", "a").windows[0].parked_max = self.parked_max

    def check(self) -> None:
        """The counts, when the search has come to its end."""
        self.world.pass_ns(SECOND)
        self.world.pass_ns(limits.SEARCH_AGAIN_NS)
        self.receive()
        topic, channel = self.world.broker.find_topic("news"), self.world.channel("news", "a")
        channel.validate()
        delayed = sum(due > self.now_ns for body, due in self.due.items() if body not in self.held)
        waiting = len(self.due) - len(self.held)
        assert channel.unfinished + topic.depth == len(self.due)
        if not topic.depth:  # its own queue counts in the topic
            assert (channel.delayed, channel.depth) == (delayed, waiting - delayed)

    def drain(self) -> None:
        """In the end everything has come."""
        self.world.broker.find_topic("news").set_paused(False)
        self.world.channel("news", "a").set_paused(False)
        for _ in range(400):
            self.consume()
            self.consumer.ready(50) if self.consumer else None
            self.finish()
            self.check()
            if not self.due:
                return
        raise AssertionError(f"never came: {sorted(self.due)}")


WEIGHTS = {
    Story.publish: 8,
    Story.pause_topic: 3,
    Story.pause_channel: 2,
    Story.consume: 4,
    Story.finish: 6,
    Story.search: 4,
    Story.check: 4,
    Story.end: 2,
}


@pytest.mark.parametrize("fixed_seed", [*range(6), None])
def test_random_histories(start: Start, fixed_seed: int | None) -> None:
    """None: a seed that no run had before. It is printed, and shown when the test fails."""
    seed = fresh_seed() if fixed_seed is None else fixed_seed
    print(f"seed {seed}")
    dice = random.Random(seed)
    world = start(tail_memory_bytes_max=dice.choice([0, 500, 1 << 20]), durability="os")
    story = Story(world, dice, dice.choice([3, limits.PARKED_MAX]))
    for _ in range(60):
        (act,) = dice.choices(list(WEIGHTS), list(WEIGHTS.values()))
        act(story)
    story.drain()
    assert story.order == sorted(set(story.order), key=int)


# --- the search for delayed messages in a log of several replicas ---


HOUR_NS = 3600 * limits.SECOND


@pytest.fixture
def cluster() -> Cluster:
    """Two delayed messages, a batch each, and no channel that has been given them."""
    cluster = Cluster(channels=())
    cluster.place([0])
    for word in (b"first", b"second"):
        cluster.publish(0, word, due_ns=cluster.clock.wall_ns() + HOUR_NS)
    return cluster


def delayed(node: Node) -> int:
    channel: Channel = node.topic.find_channel("billing")
    return channel.delayed


def test_a_delayed_message_is_found_after_a_repair(cluster: Cluster) -> None:
    cluster.nodes[1].rot(b"first")
    cluster.elect(1)
    cluster.cut.update((0, 2))
    cluster.channels.append(BILLING)
    cluster.announce_channels()
    cluster.pass_seconds(3)
    before = delayed(cluster.nodes[1])
    cluster.cut.clear()
    cluster.pass_seconds(2 * limits.REPAIR_PAUSE)
    assert (before, delayed(cluster.nodes[1])) == (0, 2)
