"""Traffic for the model test: what can happen to topics and channels, done to the product and told
to the model, and what has to hold afterwards."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path

from kernel.model import Answer, ChannelModel, ConsumerModel, Forbidden, State, TopicModel
from penstock import kernel, limits
from penstock.log.reader import MessageReader
from penstock.nsqd.options import read_options
from penstock.wire.frames import Message, encode_bodies, with_size

from .in_process import Client, World

MS = limits.MS
SECOND = limits.SECOND
LATE_NS = limits.TICK_NS + 2 * MS  # a timer may fire so much after its time
TOUCH_MAX_NS = 20 * SECOND
MESSAGE_TIMEOUT_NS = 10 * SECOND
CONSUMERS_MAX = 6
ATTEMPTS_MAX = 2
DRAIN_STEPS_MAX = 100
REFILL_NS = 3 * MS  # a consumer with a large RDY may wait so long for its last few messages
REFILLS_MAX = 5

TOPICS = ("t", "u")
OPTIONS = [
    "-data-path=.",
    f"-msg-timeout={MESSAGE_TIMEOUT_NS}ns",
    f"-max-msg-timeout={TOUCH_MAX_NS}ns",
]


@dataclass
class Consumer:
    client: Client
    topic: TopicModel
    channel: ChannelModel
    me: ConsumerModel
    seen: list[Message] = field(default_factory=list)  # all that it ever got

    @property
    def number(self) -> int:
        return self.client.number

    def held(self) -> list[Message]:
        bodies = {copy.body for copy in self.channel.held_by(self.number)}
        newest = {message.body: message for message in self.seen if message.body in bodies}
        return list(newest.values())


class Traffic:
    def __init__(self, path: Path, durability: str, retains: bool, **sizes: int) -> None:
        retention = {} if retains else {"retain_age_ns": 0, "retain_bytes": 0}
        self.path = path
        self.topics = {name: TopicModel(name) for name in TOPICS}
        self.consumers: list[Consumer] = []
        self.published = 0
        self.unanswered: list[tuple[TopicModel, list[bytes]]] = []  # in the producer's order
        self.identities: dict[bytes, tuple[bytes, int]] = {}  # body: id and timestamp
        self.w = World(
            path / "data",
            kernel,
            read_options(OPTIONS, {}),
            durability=durability,
            **sizes,
            **retention,
        )
        for name in TOPICS:
            self.w.broker.topic(name)
        self.connect_producer()
        self.subscribe("t", "a", 0, 2)
        self.subscribe("t", "b", 1_000, 50)

    def close(self) -> None:
        self.w.stop()
        shutil.rmtree(self.path)

    # --- what the clients see ---

    @property
    def mono_ns(self) -> int:
        return self.w.clock.mono_ns()

    @property
    def wall_ns(self) -> int:
        return self.w.clock.wall_ns()

    def connect_producer(self) -> None:
        self.producer = self.w.connect()

    def take_answers(self) -> None:
        """Each OK is for the oldest publish that has none."""
        assert not self.producer.errors, self.producer.errors
        for response in self.producer.responses:
            assert response == b"OK"
            topic, bodies = self.unanswered.pop(0)
            topic.store(bodies, self.wall_ns)
        self.producer.responses.clear()

    def on_message(self, consumer: Consumer, message: Message) -> None:
        self.take_answers()
        topic, body = consumer.topic, message.body
        if body in topic.pending:
            if self.w.threads.held and self.w.broker.context.options.durability == "disk":
                raise Forbidden(f"{body[:12]!r} was delivered before it was on the disk")
            topic.store([body], self.wall_ns)
        consumer.channel.deliver(
            consumer.number, body, message.attempts, self.mono_ns, self.wall_ns
        )
        identity = message.id, message.timestamp_ns
        assert self.identities.setdefault(body, identity) == identity
        assert topic.ids.setdefault(message.id, body) == body
        consumer.seen.append(message)

    def do(self, consumer: Consumer, data: bytes, cut: int, expected: list[bytes]) -> None:
        self.w.say(consumer.client, data, cut)
        assert consumer.client.errors == expected
        consumer.client.errors.clear()

    def some_consumer(self, number: int) -> Consumer | None:
        return self.consumers[number % len(self.consumers)] if self.consumers else None

    def forget_closed(self) -> None:
        self.consumers = [one for one in self.consumers if one.client.is_open]

    # --- publishing ---

    def new_bodies(self, count: int, size: int) -> list[bytes]:
        first, self.published = self.published, self.published + count
        return [b"%d " % number + b"x" * size for number in range(first, self.published)]

    def publish(
        self, name: str, commands: list[tuple[bytes, list[bytes]]], due_ns: int, cut: int
    ) -> None:
        topic = self.topics[name]
        for _, bodies in commands:
            for body in bodies:
                topic.publish(body, due_ns)
            self.unanswered.append((topic, bodies))
        self.w.say(self.producer, b"".join(command for command, _ in commands), cut)
        self.take_answers()

    def pub(self, name: str, count: int, size: int, cut: int) -> None:
        line = b"PUB %s\n" % name.encode()
        bodies = self.new_bodies(count, size)
        self.publish(name, [(line + with_size(body), [body]) for body in bodies], 0, cut)

    def mpub(self, name: str, count: int, size: int, cut: int) -> None:
        bodies = self.new_bodies(count, size)
        command = b"MPUB %s\n" % name.encode() + with_size(encode_bodies(bodies))
        self.publish(name, [(command, bodies)], 0, cut)

    def dpub(self, name: str, delay_ms: int, count: int, cut: int) -> None:
        if self.unanswered:
            return  # it would be read later, and be due later
        if self.w.threads.held:
            count = 1
        line = b"DPUB %s %d\n" % (name.encode(), delay_ms)
        due_ns = self.wall_ns + delay_ms * MS if delay_ms else 0
        bodies = self.new_bodies(count, 1)
        self.publish(name, [(line + with_size(body), [body]) for body in bodies], due_ns, cut)

    # --- consuming ---

    def subscribe(self, name: str, channel_name: str, timeout_ms: int, rdy: int) -> None:
        if len(self.consumers) == CONSUMERS_MAX:
            return
        topic = self.topics[name]
        channel = topic.channel(channel_name, self.wall_ns)
        client = self.w.connect()
        me = ConsumerModel(client.number, timeout_ms * MS or MESSAGE_TIMEOUT_NS, rdy)
        channel.consumers[me.number] = me
        consumer = Consumer(client, topic, channel, me)
        client.on_message = lambda message: self.on_message(consumer, message)
        self.consumers.append(consumer)
        if timeout_ms:
            self.do(consumer, b"IDENTIFY\n" + with_size(b'{"msg_timeout":%d}' % timeout_ms), -1, [])
        text = f"SUB {name} {channel_name}\nRDY {rdy}\n"
        self.do(consumer, text.encode(), -1, [])
        assert client.responses.count(b"OK") == (2 if timeout_ms else 1)

    def ready(self, number: int, rdy: int, cut: int) -> None:
        consumer = self.some_consumer(number)
        if consumer is None:
            return
        before = consumer.me.rdy
        consumer.me.rdy = max(before, rdy) if cut >= 0 else rdy  # while half of it is read
        self.do(consumer, b"RDY %d\n" % rdy, cut, [])
        consumer.me.rdy = rdy

    def settle_messages(self, number: int, verb: str, share: int, suffix: str, cut: int) -> None:
        """FIN, REQ or TOUCH one of every `share` messages that a consumer holds."""
        consumer = self.some_consumer(number)
        if consumer is not None:
            self.command(consumer, verb, consumer.held()[::share], suffix, cut)

    def command(
        self, consumer: Consumer, verb: str, chosen: list[Message], suffix: str, cut: int
    ) -> None:
        expected = []
        for message in chosen:
            answer = self.apply(consumer, verb, message.body, suffix)
            if answer is not Answer.DONE:
                text = f"E_{verb}_FAILED {verb} {message.id.decode()} failed {answer.value}"
                expected.append(text.encode())
        lines = b"".join(f"{verb} {message.id.decode()}{suffix}\n".encode() for message in chosen)
        self.do(consumer, lines, cut, expected)

    def apply(self, consumer: Consumer, verb: str, body: bytes, suffix: str) -> Answer:
        channel, number = consumer.channel, consumer.number
        if verb == "FIN":
            return channel.finish(number, body)
        if verb == "REQ":
            return channel.requeue(number, body, int(suffix) * MS, self.wall_ns)
        return channel.touch(number, body, TOUCH_MAX_NS, self.mono_ns)

    def finish(self, number: int, share: int, cut: int) -> None:
        self.settle_messages(number, "FIN", share, "", cut)

    def requeue(self, number: int, share: int, delay_ms: int, cut: int) -> None:
        self.settle_messages(number, "REQ", share, f" {delay_ms}", cut)

    def touch(self, number: int, share: int, cut: int) -> None:
        self.settle_messages(number, "TOUCH", share, "", cut)

    def settle_any(self, number: int, index: int, verb: str) -> None:
        """A message that may be finished, another consumer's, or of another channel."""
        consumer = self.some_consumer(number)
        if consumer is None:
            return
        ids = list(consumer.topic.ids.items()) or [(b"0" * 16, b"")]
        id, body = ids[-1 - index % len(ids)]
        message = Message(0, 0, id, body)
        self.command(consumer, verb, [message], " 0" if verb == "REQ" else "", -1)

    def close_politely(self, number: int) -> None:
        consumer = self.some_consumer(number)
        if consumer is None or consumer.me.closing:
            return
        consumer.me.closing = True
        self.do(consumer, b"CLS\n", -1, [])
        assert consumer.client.responses[-1] == b"CLOSE_WAIT"

    def hang_up(self, number: int) -> None:
        consumer = self.some_consumer(number)
        if consumer is not None:
            self.part_with(consumer)

    def part_with(self, consumer: Consumer) -> None:
        self.w.hang_up(consumer.client)
        assert not consumer.client.is_open
        consumer.topic.leave(consumer.channel, consumer.number)
        self.forget_closed()

    # --- what operators do ---

    def operate(self, name: str, channel_name: str, action: str) -> None:
        """One rule for all of it: what operators and accidents do is rare beside the traffic."""
        channel = self.topics[name].channels.get(channel_name)
        match action:
            case "unpause":
                self.unpause_all()
            case "create channel":
                self.create_channel(name, channel_name)
            case "pause topic":
                self.pause_topic(name, True)
            case "empty topic":
                self.empty_topic(name)
            case "hold syncs" | "let syncs go":
                self.hold_syncs(action == "hold syncs")
            case "kill" | "stop":
                self.restart(killed=action == "kill")
                self.subscribe(name, channel_name, 0, 2)
                self.subscribe(name, "a", 1_000, 50)
            case "delete topic" if not self.unanswered:
                self.delete_topic(name)
            case "pause channel" if channel is not None:
                self.pause_channel(name, channel, True)
            case "empty channel" if channel is not None:
                self.empty_channel(name, channel)
            case "limit attempts" if channel is not None and not channel.ephemeral:
                self.limit_attempts(name, channel)
            case "delete channel" if channel is not None:
                self.delete_channel(name, channel_name)

    def unpause_all(self) -> None:
        for topic in self.topics.values():
            self.pause_topic(topic.name, False)
            for channel in topic.channels.values():
                self.pause_channel(topic.name, channel, False)

    def pause_topic(self, name: str, pause: bool) -> None:
        topic, real = self.topics[name], self.w.broker.find_topic(name)
        real.set_paused(pause)
        topic.paused = pause
        topic.hand_over(self.wall_ns)
        self.w.settle()

    def pause_channel(self, name: str, channel: ChannelModel, pause: bool) -> None:
        real = self.w.broker.find_topic(name).find_channel(channel.name)
        real.set_paused(pause)
        channel.paused = pause
        self.w.settle()

    def empty_topic(self, name: str) -> None:
        self.w.broker.find_topic(name).empty()
        self.topics[name].empty()
        self.w.settle()

    def empty_channel(self, name: str, channel: ChannelModel) -> None:
        self.w.broker.find_topic(name).find_channel(channel.name).empty()
        channel.empty()
        self.w.settle()

    def limit_attempts(self, name: str, channel: ChannelModel) -> None:
        real = self.w.broker.find_topic(name).find_channel(channel.name)
        real.configure({"max_attempts": ATTEMPTS_MAX})
        channel.limit_attempts(ATTEMPTS_MAX)
        self.w.settle()

    def create_channel(self, name: str, channel_name: str) -> None:
        self.w.broker.find_topic(name).channel(channel_name)
        self.topics[name].channel(channel_name, self.wall_ns)
        self.w.settle()

    def delete_channel(self, name: str, channel_name: str) -> None:
        self.topics[name].delete_channel(channel_name)
        self.w.broker.find_topic(name).delete_channel(channel_name)
        self.w.settle()
        self.forget_closed()

    def delete_topic(self, name: str) -> None:
        self.w.broker.delete_topic(name)
        self.topics[name] = TopicModel(name)
        self.w.settle()
        self.forget_closed()
        self.w.broker.topic(name)

    # --- the world ---

    def pass_time(self, ms: int) -> None:
        self.pass_ns(ms * MS)

    def pass_time_up_to_the_next_timer(self, past_ns: int) -> None:
        """To the instant at which something is due, or to the nanosecond before it."""
        waits = [
            wait_ns
            for topic in self.topics.values()
            for channel in topic.channels.values()
            for wait_ns in channel.waits(self.mono_ns, self.wall_ns)
        ]
        self.pass_ns(max(min(waits, default=SECOND) + past_ns, 0))

    def pass_ns(self, ns: int) -> None:
        self.hold_syncs(False)  # none takes so long
        self.w.pass_ns(ns)
        self.check_timers_fired()
        self.w.tick()
        for topic in self.topics.values():
            for channel in topic.channels.values():
                channel.pass_time(self.mono_ns, self.wall_ns)

    def check_timers_fired(self) -> None:
        """All that was due a few milliseconds ago has happened by itself."""
        for topic in self.topics.values():
            for channel in topic.channels.values():
                channel.pass_time(self.mono_ns - LATE_NS, self.wall_ns - LATE_NS)
                real = self.w.broker.find_topic(topic.name).find_channel(channel.name)
                assert real.in_flight <= len(channel.in_state(State.IN_FLIGHT)), "a late timeout"
                assert real.delayed <= len(channel.in_state(State.DELAYED)), "a late release"

    def hold_syncs(self, held: bool) -> None:
        self.w.hold_syncs(held)
        self.take_answers()

    def restart(self, killed: bool) -> None:
        (self.w.kill if killed else self.w.stop)()
        self.consumers.clear()
        self.unanswered.clear()
        self.w.start()
        for topic in self.topics.values():
            real = self.w.broker.find_topic(topic.name)
            topic.restart(real.leader().tail.written_end, real.depth, self.wall_ns)
            assert real.paused == topic.paused
            assert set(real.channels) == set(topic.channels)
        self.connect_producer()

    # --- what holds after every step ---

    def underserved(self) -> list[str]:
        """Messages wait, the channel is not paused, and a consumer has room all the same."""
        found = []
        for topic in self.topics.values():
            for channel in topic.channels.values():
                channel.pass_time(self.mono_ns, self.wall_ns)
                if channel.in_state(State.WAITING) and not channel.paused:
                    found += [
                        f"{topic.name}:{channel.name}: consumer {me.number} of RDY {me.rdy}"
                        for me in channel.consumers.values()
                        if channel.room_of(me) > 0
                    ]
        return found

    def check(self) -> None:
        self.all_are_served()
        self.counts_agree()

    def all_are_served(self) -> None:
        for _ in range(REFILLS_MAX):
            if not self.underserved():
                return
            self.w.pass_ns(REFILL_NS)
            self.w.tick()
        raise AssertionError(f"messages wait, and there is room: {self.underserved()}")

    def counts_agree(self) -> None:
        if not self.w.threads.held:
            assert not self.unanswered, "a publish has no answer"
        for topic in self.topics.values():
            real = self.w.broker.find_topic(topic.name)
            assert real.depth == topic.queued
            for channel in topic.channels.values():
                self.channel_agrees(topic, channel)

    def channel_agrees(self, topic: TopicModel, channel: ChannelModel) -> None:
        channel.pass_time(self.mono_ns, self.wall_ns)
        real = self.w.broker.find_topic(topic.name).find_channel(channel.name)
        waiting = channel.in_state(State.WAITING)
        assert real.in_flight == len(channel.in_state(State.IN_FLIGHT))
        # What is delayed and still behind the cursor counts as depth.
        depth = real.depth - real.windows[0].exhausted  # those are on their way to the dead letters
        assert depth + real.delayed == len(waiting) + len(channel.in_state(State.DELAYED))
        assert depth >= len(waiting)
        assert real.requeue_count == channel.requeues
        assert real.timeout_count == channel.timeouts
        assert len(real.consumers) == len(channel.consumers)

    # --- the end ---

    def drain(self) -> None:
        """Everything is unpaused. Consumers come and are lost with the daemon, twice; new ones
        finish all there is."""
        self.w.hold_syncs(False)
        self.take_answers()
        self.start_over(rdy=3)
        self.restart(killed=True)
        self.start_over(rdy=2)
        self.restart(killed=False)
        self.start_over(rdy=50)
        for _ in range(DRAIN_STEPS_MAX):
            self.finish_all()
            if all(one.channel.is_done for one in self.consumers):
                break
            self.pass_time(11_000)
        else:
            left = [(one.channel.name, len(one.channel.copies)) for one in self.consumers]
            raise AssertionError(f"messages never came: {left}")
        self.counts_agree()
        for topic in self.topics.values():
            offsets = {body: offset for offset, body in enumerate(topic.log)}
            in_order = [offsets[body] for _, body in sorted(topic.ids.items())]
            assert in_order == sorted(in_order), "ids do not rise along the log"
        self.check_dead_letters()
        self.restart(killed=True)  # and what is finished stays finished
        self.counts_agree()

    def check_dead_letters(self) -> None:
        for topic in self.topics.values():
            for channel in topic.channels.values():
                if dead := {copy.body for copy in channel.in_state(State.EXHAUSTED)}:
                    real = self.w.broker.find_topic(topic.name).find_channel(channel.name)
                    log = self.w.broker.find_topic(real.dead_letter_topic).leader().log
                    assert real.windows[0].exhausted == 0
                    reader = MessageReader(log)
                    stored = {reader.read(offset).body for offset in range(log.written_end)}
                    assert dead <= stored, "a dead letter is lost"

    def start_over(self, rdy: int) -> None:
        """Everybody leaves, and one consumer comes to each channel."""
        for consumer in list(self.consumers):
            self.part_with(consumer)
        for topic in self.topics.values():
            self.create_channel(topic.name, "a")
            for channel_name in list(topic.channels):
                self.subscribe(topic.name, channel_name, 0, rdy)
        self.unpause_all()
        self.check()

    def finish_all(self) -> None:
        while any(consumer.held() for consumer in self.consumers):
            for consumer in self.consumers:
                self.command(consumer, "FIN", consumer.held(), "", -1)
