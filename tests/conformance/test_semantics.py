"""What NSQ's queues do, as stories: heartbeats, timeouts, held output, ephemerals.

They run on a clock that the story moves, so a minute costs nothing and an instant is exact. RDY,
pausing, CLS, emptying and every mix of answers are random histories' (`kernel/test_model.py`).
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.in_process import Client, World
from e2e.v2client import take_frames
from penstock import kernel, limits
from penstock.nsqd.options import read_options
from penstock.nsqd.stats import View, json_parts
from penstock.wire import frames
from penstock.wire.frames import FrameType, Message, with_size

SECOND = limits.SECOND
FLAGS = ["-data-path=.", "-msg-timeout=2s", "-max-msg-timeout=5s", "-max-req-timeout=10s"]


class Listener(Client):
    """Keeps everything it hears, in order, and answers nothing: heartbeats neither."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number)
        self.received: list[frames.Frame] = []
        self._kept = bytearray()

    def read(self) -> bool:
        data = self.conn.take_output()
        self._kept += data
        self.received += take_frames(self._kept)
        return bool(data)

    # --- for stories ---

    def say(self, data: bytes) -> None:
        self.world.say(self, data)

    def identify(self, text: bytes) -> None:
        self.say(b"IDENTIFY\n" + with_size(text))
        assert self.take() == [b"OK"]

    def consume(self, rdy: int, channel: bytes = b"c") -> None:
        self.say(b"SUB t %b\nRDY %d\n" % (channel, rdy))
        assert self.received.pop(0).data == b"OK"

    def take(self) -> list[bytes]:
        """What was heard since the last time; messages by their bodies."""
        received, self.received = self.received, []
        return [
            frames.decode_message(frame.data).body
            if frame.type == FrameType.MESSAGE
            else frame.data
            for frame in received
        ]

    def messages(self) -> list[Message]:
        """The same where nothing but messages is expected."""
        received, self.received = self.received, []
        assert all(frame.type == FrameType.MESSAGE for frame in received), received
        return [frames.decode_message(frame.data) for frame in received]


class Story:
    def __init__(self, world: World) -> None:
        self.world = world

    def client(self, magic: bytes = frames.MAGIC_V2) -> Listener:
        client = self.world.connect(Listener, magic)
        assert isinstance(client, Listener)
        return client

    def publish(self, body: bytes) -> None:
        client = self.client()
        client.say(b"PUB t\n" + with_size(body))
        assert client.take() == [b"OK"]
        self.world.hang_up(client)

    def wait(self, seconds: float) -> None:
        self.world.pass_ns(round(seconds * SECOND))

    def topic(self) -> dict[str, Any]:
        world = self.world
        view = View(world.broker, world.protocol.sessions, 0, topic="t")
        found: dict[str, Any] = json.loads(b"".join(json_parts(view)))["topics"][0]
        return found

    def channel(self) -> dict[str, Any]:
        (found,) = self.topic()["channels"]
        return dict(found)


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    world = World(tmp_path / "data", kernel, read_options(FLAGS, {}))
    yield Story(world)
    world.stop()


@pytest.fixture
def client(story: Story) -> Listener:
    return story.client()


# --- heartbeats and deadlines ---

BEAT = frames.HEARTBEAT


def test_heartbeats_come_without_any_identify(story: Story, client: Listener) -> None:
    story.wait(29.9)
    assert client.take() == []
    story.wait(0.2)
    assert client.take() == [BEAT]
    story.wait(29.8)
    assert client.is_open
    story.wait(0.2)
    assert client.take() == [BEAT]
    assert not client.is_open


def test_nothing_is_sent_before_the_magic(story: Story) -> None:
    """Deliberately unlike NSQ, which waits for ever: a minute without a magic is the end."""
    prompt, late = story.client(magic=b""), story.client(magic=b"  V")
    story.wait(59.9)
    prompt.say(b"  V2PUB t\n" + with_size(b"x"))
    assert (prompt.take(), late.take(), late.is_open) == ([b"OK"], [], True)
    story.wait(0.2)
    assert (prompt.take(), late.take(), late.is_open) == ([BEAT], [], False)
    story.wait(30)
    assert prompt.take() == [BEAT]


def test_heartbeats_are_not_put_off_by_other_traffic(story: Story, client: Listener) -> None:
    client.identify(b'{"heartbeat_interval":1000}')
    for _ in range(8):
        story.wait(0.45)
        client.say(b"PUB t\n" + with_size(b"x"))
    assert client.take() == [b"OK", b"OK", BEAT] * 3 + [b"OK", b"OK"]


def test_a_body_that_dribbles_shares_the_deadline_of_its_command(
    story: Story, client: Listener
) -> None:
    client.identify(b'{"heartbeat_interval":1000}')
    client.say(b"PUB t\n\x00\x00\x00\xff")
    for _ in range(3):
        story.wait(0.6)
        client.say(b"x")
    assert client.is_open
    story.wait(0.3)
    assert not client.is_open


# --- timeouts, TOUCH, REQ ---


def test_touch_reaches_as_far_as_the_longest_timeout(story: Story) -> None:
    story.publish(b"x")
    client = story.client()
    client.consume(1)
    (message,) = client.messages()
    for _ in range(4):
        story.wait(1.2)
        client.say(b"TOUCH %b\n" % message.id)
        assert client.messages() == []
    story.wait(5.0 - 4 * 1.2 - 0.01)  # 5 s after the delivery, whatever the last TOUCH asked for
    assert client.messages() == []
    story.wait(0.02)
    assert [message.attempts for message in client.messages()] == [2]
    assert story.channel()["timeout_count"] == 1


def test_req_is_clamped_to_the_longest_delay(story: Story) -> None:
    story.publish(b"x")
    client = story.client()
    client.consume(1)
    (message,) = client.messages()
    client.say(b"REQ %b 999999999\n" % message.id)
    row = story.channel()
    assert (row["depth"], row["in_flight_count"], row["deferred_count"]) == (0, 0, 1)
    story.wait(9.99)
    assert client.messages() == []
    story.wait(0.02)
    assert [again.attempts for again in client.messages()] == [2]
    row = story.channel()
    assert (row["requeue_count"], row["clients"][0]["requeue_count"]) == (1, 1)


def test_the_latest_identify_counts(story: Story) -> None:
    """Deliberately unlike NSQ, whose deliveries go on with the first one's values."""
    story.publish(b"x")
    client = story.client()
    client.identify(b'{"msg_timeout":1000,"heartbeat_interval":1000}')
    client.identify(b'{"msg_timeout":3000,"heartbeat_interval":60000}')
    client.consume(1)
    assert len(client.messages()) == 1
    story.wait(2.99)
    assert client.take() == []
    story.wait(0.02)
    assert [again.attempts for again in client.messages()] == [2]


# --- output buffering (ADR 0002) ---


def test_one_message_waits_for_the_output_timeout(story: Story) -> None:
    """The rule of NSQ's own test: a buffer larger than the message, 500 ms, RDY 10."""
    story.publish(b"x")
    client = story.client()
    client.identify(b'{"output_buffer_size":65536,"output_buffer_timeout":500}')
    client.say(b"SUB t c\n")
    assert client.take() == [b"OK"]
    client.say(b"RDY 10\n")
    story.wait(0.499)
    assert client.messages() == []
    story.wait(0.01)
    assert len(client.messages()) == 1


def test_held_messages_leave_when_the_client_has_all_it_asked_for(
    story: Story, client: Listener
) -> None:
    client.identify(b'{"output_buffer_size":65536,"output_buffer_timeout":5000}')
    client.consume(2)
    story.publish(b"x")
    assert client.messages() == []
    story.publish(b"y")
    assert [message.body for message in client.messages()] == [b"x", b"y"]


# --- ephemerals ---


def test_an_ephemeral_channel_of_a_lasting_topic(story: Story, client: Listener) -> None:
    client.consume(1, channel=b"c#ephemeral")
    story.publish(b"x")
    assert len(client.messages()) == 1
    story.world.hang_up(client)
    assert story.topic()["channels"] == []
    story.publish(b"y")
    assert story.topic()["depth"] == 1
