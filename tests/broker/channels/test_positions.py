"""Replaying a channel: places by name, and what moving its cursor does."""

import pytest

from cases import each, ended
from penstock import limits
from penstock.broker.channels.reading import Position, parse_position, resolve
from penstock.errors import NotFound, OffsetBeyondEnd, OffsetGone

from ..world import Consumer, Start, World

NOW_NS = 1_790_121_600 * limits.SECOND


@each(
    ("text", "position"),
    [
        ("earliest", Position("earliest")),
        (" latest\n", Position("latest")),
        ("special:-1", Position("latest")),
        ("timestamp:2026-09-22", Position("timestamp", 1_790_035_200 * limits.SECOND)),
        ("timestamp:1790035200.5", Position("timestamp", 1_790_035_200_500 * limits.MS)),
        ("offset:5", Position("offset", 5)),
        ("virtual_queue:5", Position("offset", 5)),
        ("msgcount:0", Position("offset", 0)),
        ("back:3", Position("back", 3)),
        ("id:00000000000000aF", Position("id", 0xAF)),
    ],
)
def test_positions_by_name(text: str, position: Position) -> None:
    assert parse_position(text, NOW_NS) == position


@each(
    "text",
    [
        "",
        "5",
        "offset:",
        "offset:-1",
        "offset:٣",
        "special:1",
        "timestamp:-1",
        "timestamp:12",
        "id:af",
        "earliest:1",
        "Offset:1",
    ],
)
def test_invalid_positions(text: str) -> None:
    with pytest.raises(ValueError, match=r"one of timestamp:TIME|no time, as 2026"):
        parse_position(text, NOW_NS)


def find(consumer: Consumer, text: str) -> int:
    return ended(resolve(consumer.channel.topic, parse_position(text, NOW_NS)))[0]


def test_retention_waits_for_redelivery(start: Start) -> None:
    world = start(segment_bytes_max=64 * limits.KIB, retain_age_ns=0, retain_bytes=0)
    consumer = world.consumer("news", "a", rdy=0)
    for _ in range(4):
        world.publish("news", bytes(40_000))
    consumer.channel.seek({0: 4})
    consumer.channel.seek({0: 0})
    world.pass_ns(limits.SECOND)
    log = world.broker.find_topic("news").leader().log
    assert log.start_offset == 0
    consumer.channel.seek({0: 4})
    world.pass_seconds(3)  # until the journal is synced
    assert log.start_offset > 0
    for call in (lambda: consumer.channel.seek({0: 0}), lambda: find(consumer, "offset:0")):
        with pytest.raises(OffsetGone) as refused:
            call()
        assert refused.value.edge == log.start_offset
    assert find(consumer, "earliest") == find(consumer, "back:100") == log.start_offset
    with pytest.raises(OffsetBeyondEnd):
        consumer.channel.seek({0: 5})


def test_positions_of_messages(world: World) -> None:
    consumer = world.consumer("news", "a")
    for number in range(6):
        world.publish("news", b"%d" % number)
        world.clock.pass_ns(limits.SECOND)
    third = world.broker.find_topic("news").leader().log.message(3)
    seconds = f"{third.timestamp_ns // limits.SECOND}.{third.timestamp_ns % limits.SECOND:09}"
    assert find(consumer, f"timestamp:{seconds}") == 3
    assert find(consumer, "timestamp:0") == find(consumer, "earliest") == 0
    assert find(consumer, "timestamp:9999999999") == find(consumer, "latest") == 6
    assert find(consumer, "offset:6") == 6
    assert find(consumer, "back:2") == 4
    assert find(consumer, "back:100") == 0
    assert find(consumer, f"id:{third.id:016x}") == 3
    with pytest.raises(OffsetBeyondEnd):
        find(consumer, "offset:7")
    with pytest.raises(NotFound):
        find(consumer, "id:0000000000000001")
