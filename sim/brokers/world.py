"""A cluster of brokers with clients.

A publisher asks any node that runs, as a client does that knows no better, and is refused where
none of the partitions is led. Some messages are due later. A channel has a consumer on each node:
it finishes most of what it gets, puts some back, forgets some until they time out, and leaves now
and then.
"""

import random
from collections.abc import Callable

from penstock import kernel
from penstock.clock import NEVER_NS
from penstock.cluster import keys
from penstock.cluster.keys import PartitionName
from penstock.errors import Refused, StorageError
from penstock.limits import MS, SECOND
from penstock.replication.record import PartitionRecord
from sim.brokers.clients import Consumer, Message
from sim.brokers.cluster import STEP_NS, JoinedCluster
from sim.brokers.latecomers import Latecomers
from sim.brokers.node import JoinedNode
from sim.brokers.observer import Feed, Observer, Publish
from sim.brokers.passed import Cursors
from sim.brokers.port import Passage
from sim.brokers.producers import Producer
from sim.brokers.topics import PLANS, Topics
from sim.store import Backup

TIMEOUT_NS = 4 * SECOND  # of a message that a consumer has
RDY_MAX = 100
REQUEUED_NS_MAX = 3 * SECOND
DUE_NS_MAX = 8 * SECOND
PRODUCERS = 2
VALIDATED_EVERY = 200  # turns
CALL_NS_MAX = 60 * MS  # to the coordinator, and back
CALLS_LOST = 0.02


class BrokersWorld:
    """`canary`: a message that was acknowledged is lost behind the observer's back."""

    def __init__(self, seed: int, canary: bool = False) -> None:
        self.seed = seed
        self.dice = random.Random(seed)
        self.canary = canary
        self.observer = Observer()
        self.loses_calls = False
        self.cluster = JoinedCluster(kernel, passage=self._passage, validated_every=VALIDATED_EVERY)
        self.cluster.dice = self.dice
        self.publishes_a_second = self.dice.choice((2, 6, 15))
        self.publishes = True
        self.backup: tuple[dict[str, int], Backup] | None = None  # lives of topics, metadata
        self.forgets = True
        self._count = 0
        self._shown_ns = 0  # the latest time of any clock, before one was set
        self._consumers: dict[tuple[int, Feed], Consumer] = {}
        self._waiting: list[
            tuple[int, Publish]
        ] = []  # by the incarnation of the process that was asked
        self._later: list[tuple[int, Callable[[], None]]] = []
        self._producers = [Producer(77 + n, self._stamped) for n in range(PRODUCERS)]
        self.rolled_back = 0
        self.leaderships = self.growths = self.shrinks = 0
        self.records: dict[str, PartitionRecord] = {}
        self.topics = Topics(self.cluster)
        self.cursors = Cursors(self.observer, self.topics.incarnation)
        self.latecomers = Latecomers(self.dice, self.cluster.store)

    def close(self) -> None:
        self.cluster.close()

    def _passage(self) -> Passage:
        if self.loses_calls and self.dice.random() < CALLS_LOST:
            return Passage(*self.dice.sample((0, NEVER_NS), 2))
        return Passage(self.dice.randrange(CALL_NS_MAX), self.dice.randrange(CALL_NS_MAX))

    # --- publishers ---

    def publish(self) -> None:
        running = self.cluster.running()
        if not running:
            return
        node, plan = self.dice.choice(running), self.dice.choices(PLANS, (3, 1))[0]
        topic = node.broker.topics.get(plan.name)
        incarnation = self.topics.incarnation(topic) if topic is not None else None
        if topic is None or incarnation is None:
            return
        bodies = self._bodies(plan.name, self.dice.choice((1, 1, 1, 3)))
        is_late = plan.name == "orders" and self.dice.random() < 0.15
        due_ns = self.cluster.clock.wall_ns() + self.dice.randrange(DUE_NS_MAX) if is_late else 0
        publish = Publish(plan.name, incarnation, bodies, due_ns, self._now_ns)
        self.observer.publishing(publish)
        try:
            topic.publish(bodies, due_ns, publish.done)
        except (Refused, StorageError) as error:
            publish.done(error)
        self._waiting.append((node.incarnation, publish))

    def _stamped(self) -> Publish | None:
        """The next one of a producer."""
        if not self.publishes:
            return None
        bodies = self._bodies("orders", self.dice.choice((1, 2)))
        publish = Publish("orders", 0, bodies, 0, self._now_ns)
        self.observer.publishing(publish)
        return publish

    def _now_ns(self) -> int:
        return self.cluster.clock.since_ns

    def _bodies(self, topic: str, count: int) -> list[bytes]:
        first, self._count = self._count, self._count + count
        return [b"%s %d" % (topic.encode(), first + n) for n in range(count)]

    def _produce(self) -> None:
        nodes = self.cluster.running()
        for producer in self._producers:
            producer.turn(nodes, self.cluster.clock.since_ns, self.dice)

    def note_ended(self, incarnation: int) -> None:
        """A process: its clients will not be answered any more."""
        for other, publish in self._waiting:
            if other == incarnation and not publish.answers:
                publish.is_cut = True
        self._waiting = [one for one in self._waiting if one[0] != incarnation and one[1].waits]
        for producer in self._producers:
            producer.note_ended(incarnation)
        self.latecomers.note_ended(incarnation)
        self._consumers = {k: c for k, c in self._consumers.items() if k[0] != incarnation}

    # --- consumers ---

    def consume(self) -> None:
        for node in self.cluster.running():
            for plan in PLANS:
                topic = node.broker.topics.get(plan.name)
                incarnation = self.topics.incarnation(topic) if topic is not None else None
                if topic is None or incarnation is None:
                    continue
                for channel in plan.channels:
                    if channel in topic.channels:
                        feed = Feed(plan.name, incarnation, channel)
                        self._treat(node, feed, self._consumer(node, feed, channel))
            for late in self.latecomers.channels_at(node):
                self._treat(node, late.feed, self._consumer(node, late.feed, late.name))

    def _consumer(self, node: JoinedNode, feed: Feed, channel: str) -> Consumer:
        """A daemon closes the connections of a channel that goes, as where its replica is copied
        again, and clients come again."""
        key = node.incarnation, feed
        found = node.broker.topics[feed.topic].channels[channel]
        if key not in self._consumers or self._consumers[key].channel is not found:
            rdy = self.dice.choice((1, 5, RDY_MAX)) if self.forgets else RDY_MAX
            self._consumers[key] = node.consume(feed.topic, channel, rdy, TIMEOUT_NS)
        return self._consumers[key]

    def _treat(self, node: JoinedNode, feed: Feed, consumer: Consumer) -> None:
        messages = consumer.take()
        consumer.received.clear()
        done: list[Message] = []
        for message in messages:
            if self.canary and self._is_lost(feed, message):
                consumer.finish(message)
                continue
            made_ns = self.topics.made_ns[feed.topic]
            self.observer.came(feed, message, self._latest_ns(), made_ns)
            fate = self.dice.random() if self.forgets else 0.0
            if fate < 0.75:
                done.append(message)
            elif fate < 0.85:
                consumer.requeue(message, self.dice.randrange(REQUEUED_NS_MAX))
        if done:
            consumer.finish(*done)
            for message in done:
                self.observer.finished(feed, message)
        if self.forgets and self.dice.random() < 0.01:
            consumer.leave()
            del self._consumers[node.incarnation, feed]

    def _latest_ns(self) -> int:
        """That any machine's clock has shown: what was due by one comes again from another."""
        return max(self._shown_ns, *(clock.wall_ns() for clock in self.cluster.clocks))

    def note_clock_set(self) -> None:
        self._shown_ns = self._latest_ns()

    def _is_lost(self, feed: Feed, message: Message) -> bool:
        return feed.channel == "billing" and message.body.endswith(b"7")

    # --- time ---

    def run(self, seconds: float) -> None:
        for _ in range(int(seconds * SECOND / STEP_NS)):
            self.step()

    def run_until(self, at_ns: int) -> None:
        while self.cluster.clock.since_ns < at_ns:
            self.step()

    def step(self) -> None:
        self.cluster.step()
        now_ns = self.cluster.clock.since_ns
        due = [event for at_ns, event in self._later if at_ns <= now_ns]
        self._later = [one for one in self._later if one[0] > now_ns]
        for event in due:
            event()
        if self.publishes and self.dice.random() < self.publishes_a_second * STEP_NS / SECOND:
            self.publish()
        self.latecomers.turn(now_ns)
        if self.dice.random() < 0.25:
            self.consume()
            self._produce()
        if now_ns % SECOND < STEP_NS:
            if self.publishes:
                self.latecomers.request(self.cluster.running())
            self._set_up_again()
            self.topics.turn()
            self._count_changes()
            self.look_at_cursors()

    def look_at_cursors(self) -> None:
        self.cursors.check(self.cluster.running())

    def _set_up_again(self) -> None:
        """A node that is refused ends; an operator gives it an empty disk."""
        for node in self.cluster.running():
            if self.cluster.is_refused(node):
                self.cluster.kill(node.number)
                self.note_ended(node.incarnation)
                self.cluster.wipe(node.number)

    def _count_changes(self) -> None:
        for name in self.topics.all_partitions():
            found = self.topics.record(name)
            if found is not None:
                self._count_change(keys.partition(*name), found[0])

    def _count_change(self, key: str, record: PartitionRecord) -> None:
        before = self.records.get(key)
        self.records[key] = record
        if before is None or before.identity != record.identity:
            return
        self.leaderships += record.leader is not None and record.epoch > before.epoch
        self.growths += len(record.members) > len(before.members)
        self.shrinks += len(record.members) < len(before.members)
        if record != before:
            self.happened("a record changes")

    def happened(self, event: str) -> None:
        """For who looks on."""

    def later(self, seconds: int, event: Callable[[], None]) -> None:
        """Within so many."""
        self._later.append(
            (self.cluster.clock.since_ns + self.dice.randrange(seconds * SECOND), event)
        )

    def be_calm(self) -> None:
        """Nothing goes wrong any more, and what was to go right later does so now."""
        self.loses_calls = False
        self._later.clear()
        self.note_clock_set()
        for clock in self.cluster.clocks:
            clock.wall_step_ns = 0

    def drain(self) -> None:
        """Consumers forget nothing any more, and take what there is."""
        self.forgets = False
        for consumer in self._consumers.values():
            consumer.ready(RDY_MAX)

    def within(self, seconds: float, holds: Callable[[], object]) -> bool:
        for _ in range(int(seconds * SECOND / STEP_NS)):
            if holds():
                return True
            self.step()
        return bool(holds())

    # --- how it stands ---

    def is_led(self) -> bool:
        return self.topics.are_all_there and all(
            self.cluster.leader(*name) for name in self.topics.all_partitions()
        )

    def is_whole(self) -> bool:
        """Every replica that is wanted is a member, and is the one that its node has; the first
        leads."""
        return all(map(self._is_whole, self.topics.all_partitions()))

    def _is_whole(self, name: PartitionName) -> bool:
        found = self.topics.record(name)
        if found is None:
            return False
        record = found[0]
        if record.leader is None or record.leader.node != record.wanted[0]:
            return False  # the leadership is yet to be handed over
        for node in self.cluster.up():
            member, replicated = record.member_on(node.number), node.replicated(*name)
            if member is None or replicated is None or replicated.own.replica != member.replica:
                return False
            if member.generation != node.generation or replicated.own.state == "stopped":
                return False
        return len(self.cluster.up()) == len(record.members) == len(record.wanted)

    def is_sound(self) -> bool:
        """Nothing is wrong anywhere."""
        cluster = self.cluster
        quiet = not (cluster.hung or cluster.cut or cluster.away or self.loses_calls)
        faults = any(node.disk.faults for node in cluster.nodes)
        return quiet and not faults and self.is_led() and self.is_whole()

    def may_lose(self, number: int) -> bool:
        """Another member of each partition that runs has all that was committed."""
        node = self.cluster.nodes[number]
        if not node.is_up or number in self.cluster.hung or not self.topics.are_all_there:
            return False
        others = {one.number for one in self.cluster.running()} - {number}
        found = [self.topics.record(name) for name in self.topics.all_partitions()]
        return all(
            one is not None and others & {member.node for member in one[0].members} for one in found
        )

    def has_stopped(self, node: JoinedNode) -> bool:
        return any(
            replicated is not None and replicated.own.state == "stopped"
            for replicated in (node.replicated(*name) for name in self.topics.all_partitions())
        )

    def is_answered(self) -> bool:
        waits = any(publish.waits for _, publish in self._waiting)
        return not waits and all(one.publish is None for one in self._producers)

    def is_drained(self) -> bool:
        return not any(
            channel.depth
            for node in self.cluster.up()
            for topic in node.broker.topics.values()
            for channel in topic.channels.values()
        )

    def feeds(self) -> list[Feed]:
        """Of the topics and channels that are there."""
        feeds = [
            Feed(plan.name, self.topics.incarnations[plan.name], channel)
            for plan in PLANS
            for channel in plan.channels
        ]
        for late in self.latecomers.promised():
            if late.made_ns is not None:
                self.observer.since_ns[late.feed] = late.made_ns
                feeds.append(late.feed)
        return feeds

    def received_count(self) -> int:
        return sum(sum(seen.received.values()) for seen in self.observer.feeds.values())
