"""One message that everything happens to, as `penstock trace` tells it afterwards."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.limits import SECOND
from penstock.tools.main import main
from penstock.trace.events import ABOUT_NO_MESSAGE, Kind

from .world import MESSAGE_TIMEOUT_NS, Consumer, Message, World

Start = Callable[..., World]
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


def told(world: World, message: Message, capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
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

    lines = told(world, message, capsys)
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
