"""What a topic promises, told as stories: who gets which messages."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.errors import NameInvalid, NotFound

from .world import World

Start = Callable[..., World]


def bodies(consumer) -> list[bytes]:
    return [message.body for message in consumer.take()]


def test_the_first_channel_gets_the_backlog_and_a_later_one_does_not(start: Start) -> None:
    world = start()
    assert world.publish("news", b"1", b"2").stored
    topic = world.broker.find_topic("news")
    assert topic.depth == 2

    first = world.consumer("news", "first")
    assert bodies(first) == [b"1", b"2"]
    assert topic.depth == 0

    second = world.consumer("news", "second")
    world.publish("news", b"3")
    assert bodies(first) == [b"3"]
    assert bodies(second) == [b"3"]


def test_every_channel_gets_every_message_once(start: Start) -> None:
    world = start()
    consumers = [world.consumer("news", name) for name in ("a", "b", "c")]
    for number in range(5):
        world.publish("news", b"%d" % number)
    for consumer in consumers:
        got = consumer.take()
        assert [message.body for message in got] == [b"0", b"1", b"2", b"3", b"4"]
        consumer.finish(*got)
        assert consumer.channel.in_flight == 0
