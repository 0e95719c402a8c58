"""The topic `_trace`: what is kept, for how long, and what a kill leaves of it."""

from typing import Any
from unittest.mock import Mock

import pytest

from penstock.broker.partition.appends import Stored
from penstock.broker.partition.idempotent import Stamp
from penstock.broker.replicas.outbox import Outbox
from penstock.broker.topics.publishing import INTERNAL
from penstock.errors import Refused, WriteRefused
from penstock.kernel import TRACE_ALL, Section
from penstock.limits import SECOND
from penstock.log.head import HEAD_BYTES
from penstock.log.partition import PartitionLog
from penstock.tools.main import main
from penstock.trace.events import (
    ABOUT_NO_MESSAGE,
    RATE_ALL,
    TOPIC,
    Event,
    Kind,
    decode,
    encode,
    ranges,
)

from .partition.test_leader import damage
from .world import MESSAGE_TIMEOUT_NS, Consumer, Message, Start, World


def events(world: World) -> list[Event]:
    """Those about messages."""
    return [event for event in every(world) if event.kind not in ABOUT_NO_MESSAGE]


def every(world: World) -> list[Event]:
    topic = world.broker.topics.get(TOPIC)
    if topic is None:
        return []
    log = topic.leader().log
    found: list[Event] = []
    for offset in range(topic.leader().tail.committed_end):
        found += decode(log.message(offset).body)
    return found


@pytest.mark.parametrize("durability", ["disk", "os"])
def test_a_kill_takes_only_events_that_were_still_gathered(start: Start, durability: str) -> None:
    world = start(trace_rate=1.0, durability=durability)
    for number in range(5):
        world.trace_due = number < 3
        assert world.publish("orders", b"%d" % number).stored
    again = world.killed()
    assert [event.offset for event in events(again)] == [0, 1, 2]
    assert again.broker.topics["orders"].leader().tail.committed_end == 5


def test_the_events_of_a_leadership_that_has_ended_since_are_kept(start: Start) -> None:
    """Publishers who wait go on with its tail, at the new leader, who notes what it stores."""
    world = start(trace_rate=1.0)
    world.trace_due = False
    assert world.publish("orders", b"a").stored
    topic = world.broker.topics["orders"]
    outbox = Outbox(topic, 0, Mock(), topic.leader().tail)
    assert not outbox.tail.traceable
    world.broker.write_trace()
    world.turns()
    assert [event.topic for event in events(world)] == ["orders"]


def test_the_trace_topic_is_not_traced(start: Start) -> None:
    world = start(trace_rate=1.0)
    world.publish("orders", b"a")
    topic = world.broker.topics[TOPIC]
    topic.channel("look")
    topic.configure({"trace_rate": 1.0})
    topic.channels["look"].configure({"trace_rate": 1.0})
    consumer = world.consumer(TOPIC, "look")
    world.publish("orders", b"b")
    assert len(consumer.take()) == 1
    world.turns()
    assert [event.kind for event in events(world)] == [Kind.PUBLISHED, Kind.PUBLISHED]
    assert (topic.trace_rate, topic.channels["look"].trace_rate) == (0.0, 0.0)
    with pytest.raises(Refused, match="only nsqd"):
        topic.publish([b"x"], 0, lambda error: None)
    assert (topic.leader().tail.refusing, topic.refusal, topic.trouble) == (True, INTERNAL, "")


def test_the_switches_last_and_the_narrower_one_counts(world: World) -> None:
    topic = world.broker.topic("orders")
    mail, bill = topic.channel("mail"), topic.channel("bill")
    topic.configure({"trace_rate": 0.25})
    bill.configure({"trace_rate": 0.0})
    for _ in range(2):
        topic = world.broker.topics["orders"]
        mail, bill = topic.channels["mail"], topic.channels["bill"]
        assert (topic.trace_rate, mail.trace_rate, bill.trace_rate) == (0.25, 0.25, 0.0)
        assert (
            topic.leader().tail.trace_below == mail.windows[0].trace_below == int(0.25 * TRACE_ALL)
        )
        assert bill.windows[0].trace_below == 0
        assert topic.channel("new").windows[0].trace_below == topic.leader().tail.trace_below
        topic.delete_channel("new")
        world = world.restart()
    topic = world.broker.topics["orders"]
    mail, bill = topic.channels["mail"], topic.channels["bill"]
    topic.configure({"trace_rate": None})
    bill.configure({"trace_rate": 1.0})
    assert (topic.leader().tail.trace_below, mail.windows[0].trace_below) == (0, 0)
    assert bill.windows[0].trace_below == TRACE_ALL


def test_a_numbered_publish_may_have_trace_ids(world: World) -> None:
    consumer = world.consumer("orders", "mail")
    answers: list[Any] = []
    topic = world.broker.topic("orders")
    sections: list[dict[int, int | bytes]] = [{}, {Section.TRACE: 42}]
    topic.publish_stamped(
        Stamp(7, 0, 0), [b"a", b"b"], 0, lambda *text: answers.append(text), sections
    )
    world.turns()
    messages = consumer.take()
    assert answers == [(None, Stored(0, int(messages[0].id, 16)))]
    consumer.finish(*messages)
    world.turns()
    found = [(event.message_id, event.trace_id, event.kind) for event in events(world)]
    traced = int(messages[1].id, 16)
    assert found == [(traced, 42, kind) for kind in (Kind.PUBLISHED, Kind.SENT, Kind.FINISHED)]


def test_events_that_cannot_be_stored_are_dropped_and_nobody_waits(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = start(trace_rate=1.0)
    world.publish("orders", b"a")
    log = world.broker.topics[TOPIC].leader().log
    write = PartitionLog.write

    def fail(self: PartitionLog, *arguments: Any) -> Any:
        if self is log:
            raise WriteRefused("here", "the disk is full")
        return write(self, *arguments)

    monkeypatch.setattr(PartitionLog, "write", fail)
    assert world.publish("orders", b"b").stored
    assert world.broker.health.startswith("NOK - topic _trace: the disk is full")
    monkeypatch.setattr(PartitionLog, "write", write)
    world.pass_ns(10 * SECOND)  # the trouble ends, though nothing is published
    assert world.broker.health == "OK"
    assert world.publish("orders", b"c").stored
    assert [event.offset for event in events(world)] == [0, 2]


def test_changes_of_rates_and_starts_are_noted(world: World) -> None:
    topic = world.broker.topic("orders")
    channel = topic.channel("mail")
    topic.configure({"trace_rate": 1.0})
    channel.configure({"trace_rate": 0.25})
    channel.configure({"max_attempts": 0})  # changes no rate
    world.turns()
    switched = [(event.channel, event.count / RATE_ALL) for event in every(world)]
    assert switched == [(None, 1.0), ("mail", 1.0), ("mail", 0.25)]
    world = world.restart()
    world.turns()
    assert [(e.kind, e.topic, e.channel, e.count) for e in every(world)[3:]] == [
        (Kind.STARTED, TOPIC, None, 1),
        (Kind.SWITCHED, "orders", None, RATE_ALL),
        (Kind.SWITCHED, "orders", "mail", RATE_ALL // 4),
    ]
    assert not [one for event in every(world) for one in ranges(encode([event]))]


@pytest.mark.parametrize("at_start", [True, False])
def test_skipped_corrupt_messages_are_traced(start: Start, at_start: bool) -> None:
    """As lost, which `skipped` is not, once, at its time: found at the start, or met while
    reading."""
    world = start(trace_rate=1.0)
    world.broker.topic("news").channel("a")
    for number in range(5):
        world.publish("news", b"%d" % number)
    if not at_start:
        world = world.restart()
        damage(world, 2)
    else:
        world.close()
        (path,) = (world.path / "topics" / "news" / "0").glob("*.log")
        data = path.read_bytes()
        third = HEAD_BYTES + (len(data) - HEAD_BYTES) // 5 * 2
        path.write_bytes(data[: third + 40] + b"\xff" + data[third + 41 :])
        world = world.restart()
    world.consumer("news", "a").take()
    world.pass_ns(SECOND)
    world.turns()
    began_ns = world.clock.wall_ns() - 10 * SECOND
    for _ in range(2):
        found = [event for event in events(world) if event.kind in (Kind.CORRUPT, Kind.SKIPPED)]
        (one,) = found
        assert (one.kind, one.channel, one.offset, one.count) == (Kind.CORRUPT, "a", 2, 1)
        assert began_ns < one.time_ns <= world.clock.wall_ns()
        world = world.restart()


# --- one message that everything happens to, as `penstock trace` tells it afterwards ---


CHANNELS = ("mail", "bill", "sample", "old", "gone")
DRAWS_MAX = 100  # at a sample rate of 1 two in a hundred messages are not dropped


def mailed(world: World, consumer: Consumer) -> Message:
    """Touched, given back with a delay, timed out, left behind, and at last finished."""
    (message,) = consumer.take()
    window = consumer.conn.window
    window.touch(consumer.conn.serial, int(message.id, 16), world.clock.mono_ns())
    consumer.requeue(message, 5 * SECOND)
    world.pass_ns(5 * SECOND)
    assert len(consumer.take()) == 1
    world.pass_ns(MESSAGE_TIMEOUT_NS)
    assert len(consumer.take()) == 1
    consumer.leave()
    world.pass_ns(MESSAGE_TIMEOUT_NS)
    another = world.consumer("orders", "mail")
    another.finish(*another.take())
    return message


def billed(world: World) -> None:
    """Tried as often as it may be."""
    consumer = world.consumer("orders", "bill")
    (message,) = consumer.take()
    consumer.requeue(message)
    world.turns()
    world.turns()


def sampled(world: World) -> None:
    """Dropped by a consumer that takes a share; what is not dropped goes back."""
    consumer = world.consumer("orders", "sample", rdy=0)
    consumer.conn.sample_rate = 1
    consumer.ready(1)
    for _ in range(DRAWS_MAX):
        for message in consumer.take():
            consumer.requeue(message)
    assert consumer.channel.unfinished == 0


def timelines(
    world: World, message: Message, capsys: pytest.CaptureFixture[str]
) -> list[list[str]]:
    """The words of each line, but for the time."""
    code = main(["trace", message.id.decode(), f"--data-path={world.path}"])
    head, *lines = capsys.readouterr().out.splitlines()
    assert (code, head) == (0, f"message {message.id.decode()}")
    return [line.split()[2:] for line in lines]


def test_everything_that_can_happen_to_a_message(
    start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    world = start(trace_rate=1.0)
    topic = world.broker.topic("orders")
    for name in CHANNELS:
        topic.channel(name)
    topic.channels["bill"].configure({"max_attempts": 1, "dead_letter_topic": "unpaid"})
    first = world.consumer("orders", "mail", rdy=1)
    world.publish("orders", b"one")
    message = mailed(world, first)
    billed(world)
    sampled(world)
    topic.channels["gone"].empty()
    topic.configure({"max_age_ns": 60 * SECOND})
    world.pass_ns(60 * SECOND)
    world.turns()

    lines = timelines(world, message, capsys)
    assert {line[0] for line in lines} == {
        kind.label for kind in set(Kind) - ABOUT_NO_MESSAGE - {Kind.CORRUPT}
    }
    by_place: dict[str, list[str]] = {}
    for kind, where, *_ in lines:
        by_place.setdefault(where, []).append(kind)
    assert by_place.pop("orders/sample")[-1] == "filtered"
    assert by_place == {
        "orders": ["published"],
        "orders/mail": [
            *("sent", "touched", "requeued", "delayed", "released"),
            *("sent", "timed_out", "sent", "disconnected", "timed_out"),
            *("sent", "finished"),
        ],
        "orders/bill": ["sent", "requeued", "dead_lettered"],
        "unpaid": ["published"],
        "orders/old": ["skipped"],
        "orders/gone": ["emptied"],
    }
    sent = [line for line in lines if line[:2] == ["sent", "orders/mail"]]
    assert [line[line.index("attempt") + 1] for line in sent] == ["1", "2", "3", "4"]
    assert ["emptied", "orders/gone", "offsets", "0", "to", "0"] in lines
