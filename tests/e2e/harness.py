"""Load on a real daemon, and the history of it: what `checker` is fed with.

All clients live in one thread on non-blocking sockets, so the history has one order. Publishers
keep a window of unanswered publishes; consumers finish most of what comes, requeue some, and let
some time out. A consumer confirms its finishes by asking twice for something that has an answer:
the first answer shows that a turn of the daemon's loop has seen the finishes, the second that
this turn is over, and so its journal is written.
"""

from __future__ import annotations

import random
import selectors
import socket
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from . import history
from .checker import check, report
from .daemon import Daemon
from .history import Event
from .v2client import (
    ERROR,
    HEARTBEAT,
    MESSAGE,
    Frame,
    dpub_bytes,
    mpub_bytes,
    parse_message,
    pub_bytes,
    take_frame,
)

TOPIC = "orders"
MS = 1_000_000
CLOCK_SLACK_NS = 2 * MS  # the daemon counts timeouts on another clock, which is not adjusted
SEND_SLACK_NS = 400 * MS  # it may have to wait for a processor in the middle of sending
BACKLOG_MAX = 4_000  # publishers wait while consumers are so far behind
DRAIN_S_MAX = 80.0
NOBODY = b"00000000"  # ids that begin so belong to barriers


@dataclass(frozen=True)
class Style:
    """How a publisher publishes."""

    name: str
    window: int  # publishes without an answer
    bodies_max: int = 1
    delay_ms_max: int = 0


STYLES = (
    Style("sync", 1),
    Style("pipelined", 64),
    Style("mpub", 2, bodies_max=80),
    Style("dpub", 8, delay_ms_max=400),
)


@dataclass
class Traffic:
    """What one round amounted to."""

    attempted: int = 0
    acknowledged: int = 0
    delivered: int = 0
    confirmed: int = 0
    unanswered: int = 0  # at the kill

    def is_enough(self) -> bool:
        return min(self.acknowledged, self.delivered) >= 50 and self.confirmed >= 20


class Wire:
    """A non-blocking connection: bytes out when they fit, whole frames in."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 40)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.out = bytearray(b"  V2")
        self.closed = False
        self.looked_ns = time.time_ns()  # nothing more had come by then
        self._in = bytearray()

    def flush(self) -> None:
        if not self.out or self.closed:
            return
        try:
            sent = self.socket.send(self.out)
        except BlockingIOError:
            return
        except ConnectionError:
            self.out.clear()  # what has come before the end is still to be read
            return
        del self.out[:sent]

    def receive(self) -> list[Frame]:
        """All frames that are there. `closed` is set at the end of the stream."""
        while not self.closed:
            looked_ns = time.time_ns()
            try:
                data = self.socket.recv(1 << 18)
            except BlockingIOError:
                self.looked_ns = looked_ns
                break
            except ConnectionError:
                data = b""
            self.closed = not data
            self._in += data
        frames = []
        while (frame := take_frame(self._in)) is not None:
            if frame.data == HEARTBEAT:
                self.out += b"NOP\n"
            else:
                frames.append(frame)
        return frames

    def close(self) -> None:
        self.closed = True
        self.socket.close()


class Publisher:
    def __init__(self, load: Load, name: str, style: Style) -> None:
        self.name = name
        self.style = style
        self.wire = Wire(load.daemon.tcp_port)
        self.errors: list[bytes] = []
        self._load = load
        self._open: deque[tuple[int, int]] = deque()  # publish, how many messages

    def act(self) -> None:
        while len(self._open) < self.style.window and not self._load.backlogged:
            self._publish()

    def _publish(self) -> None:
        load, rng, style = self._load, self._load.rng, self.style
        count = rng.randint(1, style.bodies_max)
        delay_ms = rng.randint(1, style.delay_ms_max) if style.delay_ms_max else 0
        bodies = tuple(load.new_body(self.name) for _ in range(count))
        now_ns = time.time_ns()
        due_ns = now_ns + delay_ms * MS if delay_ms else 0
        publish = load.new_publish()
        load.record(history.PublishAttempted(now_ns, publish, self.name, bodies, due_ns))
        self._open.append((publish, count))
        load.traffic.attempted += count
        if delay_ms:
            self.wire.out += dpub_bytes(load.topic, delay_ms, bodies[0])
        elif style.bodies_max > 1:
            self.wire.out += mpub_bytes(load.topic, bodies)
        else:
            self.wire.out += pub_bytes(load.topic, bodies[0])

    def take(self, frame: Frame, sent_after_ns: int) -> None:
        publish, count = self._open.popleft()
        if frame.kind == ERROR:
            self.errors.append(frame.data)
            self._load.record(history.PublishFailed(time.time_ns(), publish))
            self._load.settled(count)
        elif frame.data == b"OK":
            self._load.record(history.PublishAcknowledged(time.time_ns(), publish))
            self._load.traffic.acknowledged += count
        else:
            raise AssertionError(f"{self.name}: a publish was answered {frame}")

    def end(self) -> None:
        """The connection is gone: nobody knows what became of the rest."""
        self.wire.close()
        for publish, count in self._open:
            self._load.record(history.PublishUnknown(time.time_ns(), publish))
            self._load.traffic.unanswered += count
            self._load.settled(count)
        self._open.clear()


class Consumer:
    """`wild`: it requeues some messages and forgets others, the first two times that they come."""

    def __init__(self, load: Load, name: str, channel: str, rdy: int, wild: bool = True) -> None:
        self.name = name
        self.channel = channel
        self.wire = Wire(load.daemon.tcp_port)
        self.wire.out += f"SUB {load.topic} {channel}\nRDY {rdy}\n".encode()
        self._load = load
        self._wild = wild
        self._subscribed = False
        self._finished: list[bytes] = []  # sent since the last barrier began
        self._waiting: dict[bytes, None] = {}  # before the barrier under way
        self._barrier = b""
        self._barriers = 0

    def act(self) -> None:
        if self._finished and not self._barrier:
            self._waiting = dict.fromkeys(self._finished)
            self._finished.clear()
            self._begin_barrier()

    @property
    def unconfirmed(self) -> int:
        return len(self._finished) + len(self._waiting)

    def _begin_barrier(self) -> None:
        self._barriers += 1
        self._barrier = NOBODY + b"%08x" % self._barriers
        self.wire.out += b"FIN %s\n" % self._barrier

    def take(self, frame: Frame, sent_after_ns: int) -> None:
        if frame.kind == MESSAGE:
            self._take_message(frame.data, sent_after_ns)
        elif frame.kind == ERROR:
            self._take_error(frame.data)
        elif frame.data == b"OK" and not self._subscribed:
            self._subscribed = True
        else:
            raise AssertionError(f"{self.name}: {frame}")

    def _take_message(self, data: bytes, sent_after_ns: int) -> None:
        message = parse_message(data)
        load = self._load
        load.record(
            history.Delivered(
                time.time_ns(),
                self.channel,
                self.name,
                message.id,
                message.attempts,
                message.body,
                sent_after_ns,
                load.timeout_ns,
            )
        )
        load.traffic.delivered += 1
        load.seen(self.channel, message.body)
        dice = load.rng.random() if self._wild and message.attempts < 3 else 1.0
        if dice < 0.02:
            return  # it will time out
        if dice < 0.08:
            delay_ms = load.rng.choice((0, 0, 1, 50, 200))
            self.wire.out += b"REQ %s %d\n" % (message.id, delay_ms)
            now_ns = time.time_ns()
            load.record(history.RequeueSent(now_ns, self.channel, message.id, delay_ms * MS))
            return
        self.wire.out += b"FIN %s\n" % message.id
        load.record(history.FinishSent(time.time_ns(), self.channel, message.id))
        self._finished.append(message.id)

    def _take_error(self, data: bytes) -> None:
        code, _, message_id = data.split(b" ")[:3]
        if message_id == self._barrier and code == b"E_FIN_FAILED":
            self._end_barrier()
        elif code in (b"E_FIN_FAILED", b"E_REQ_FAILED"):
            # It had timed out just before.
            self._waiting.pop(message_id, None)
            if message_id in self._finished:
                self._finished.remove(message_id)
            now_ns = time.time_ns()
            self._load.record(history.SettleRefused(now_ns, self.channel, message_id))
        else:
            raise AssertionError(f"{self.name}: {data!r}")

    def _end_barrier(self) -> None:
        if self._barriers % 2:
            self._begin_barrier()  # once more: the turn that answered may not have ended
            return
        self._barrier = b""
        now_ns = time.time_ns()
        for message_id in self._waiting:
            self._load.record(history.FinishConfirmed(now_ns, self.channel, message_id))
        self._load.traffic.confirmed += len(self._waiting)
        self._waiting.clear()

    def end(self) -> None:
        self.wire.close()


class Load:
    """Clients of one topic on one daemon, over as many lives as the daemon has."""

    def __init__(self, daemon: Daemon, rng: random.Random, timeout_ms: int) -> None:
        self.daemon = daemon
        self.rng = rng
        self.timeout_ns = timeout_ms * MS
        self.topic = TOPIC
        self.events: list[Event] = []
        self.traffic = Traffic()
        self.publishers: list[Publisher] = []
        self.consumers: list[Consumer] = []
        self.channels: list[str] = []
        self._leaving: list[Consumer] = []
        self._publishes = 0
        self._bodies = 0
        self._names = 0
        self._expected = 0  # messages that may still come to the first channel
        self._seen: set[bytes] = set()  # by the first channel

    # --- what the clients use ---

    def record(self, event: Event) -> None:
        self.events.append(event)

    def new_publish(self) -> int:
        self._publishes += 1
        return self._publishes

    def new_body(self, name: str) -> bytes:
        """Unique; mostly small, now and then as large as a batch of others."""
        self._bodies += 1
        self._expected += 1
        size = self.rng.choice((0, 0, 10, 100, 100, 1000)) if self.rng.random() > 0.003 else 100_000
        return b"%s/%d/" % (name.encode(), self._bodies) + self.rng.randbytes(size)

    def seen(self, channel: str, body: bytes) -> None:
        if channel == self.channels[0] and body not in self._seen:
            self._seen.add(body)
            self._expected -= 1

    def settled(self, count: int) -> None:
        """So many messages need not be waited for."""
        self._expected -= count

    @property
    def backlogged(self) -> bool:
        return self._expected > BACKLOG_MAX

    # --- making things ---

    def make_channel(self, name: str) -> None:
        if not self.channels:
            self.daemon.post(f"/topic/create?topic={self.topic}")
        self.daemon.post(f"/channel/create?topic={self.topic}&channel={name}")
        self.record(history.ChannelMade(time.time_ns(), name, not self.channels))
        self.channels.append(name)

    def _new_name(self, kind: str) -> str:
        self._names += 1
        return f"{kind}-{self._names}"

    def add_publisher(self, style: Style) -> None:
        self.publishers.append(Publisher(self, self._new_name(style.name), style))

    def add_consumer(self, channel: str, wild: bool = True) -> None:
        rdy = self.rng.choice((1, 10, 100, 500)) if wild else 500
        name = self._new_name(channel)
        self.consumers.append(Consumer(self, name, channel, rdy, wild))

    def connect(self) -> None:
        """Two consumers a channel, and publishers of every style."""
        self.traffic = Traffic()
        for channel in self.channels:
            self.add_consumer(channel)
            self.add_consumer(channel)
        for style in STYLES:
            self.add_publisher(style)

    def replace_consumer(self) -> None:
        """One of them hangs up in the middle of its work; another comes. Until the daemon has
        noticed, it may go on sending to the one that no longer looks: so this is told twice."""
        consumer = self.consumers.pop(self.rng.randrange(len(self.consumers)))
        consumer.wire.socket.shutdown(socket.SHUT_WR)
        self._leaving.append(consumer)
        self._record_gone(consumer)
        self.add_consumer(consumer.channel)

    def _record_gone(self, consumer: Consumer) -> None:
        self.record(history.Disconnected(time.time_ns(), consumer.channel, consumer.name))

    def _see_off(self) -> None:
        for consumer in list(self._leaving):
            consumer.wire.receive()
            if consumer.wire.closed:
                consumer.end()
                self._leaving.remove(consumer)
                self._record_gone(consumer)

    # --- turns ---

    @property
    def clients(self) -> list[Publisher | Consumer]:
        return [*self.publishers, *self.consumers]

    def run(self, seconds: float) -> None:
        deadline_s = time.monotonic() + seconds
        while time.monotonic() < deadline_s:
            self.turn()

    def turn(self, wait_s: float = 0.002) -> None:
        with selectors.DefaultSelector() as selector:
            for client in self.clients:
                client.act()
                client.wire.flush()
                if not client.wire.closed:
                    selector.register(client.wire.socket, selectors.EVENT_READ, client)
            looked_ns = time.time_ns()
            readable = {key.data for key, _ in selector.select(wait_s)}
        self._see_off()
        for client in self.clients:
            if client in readable:
                self._take_frames(client)
            else:
                client.wire.looked_ns = looked_ns

    def _take_frames(self, client: Publisher | Consumer) -> None:
        sent_after_ns = client.wire.looked_ns
        for frame in client.wire.receive():
            client.take(frame, sent_after_ns)

    def hang_up(self) -> None:
        """Read what has come so far, and close all connections."""
        for client in self.clients:
            self._take_frames(client)
            client.end()
        for consumer in self._leaving:
            consumer.end()
            self._record_gone(consumer)
        self._leaving.clear()
        self.publishers.clear()
        self.consumers.clear()

    # --- ends ---

    def kill(self) -> None:
        self.daemon.kill()
        self.hang_up()
        self.record(history.Crashed(time.time_ns()))

    def restart(self) -> None:
        self.daemon.start()
        self.record(history.Restarted(time.time_ns()))

    def drain(self) -> None:
        """Finish all that is left; the daemon's own numbers say when that is done."""
        for channel in self.channels:
            self.add_consumer(channel, wild=False)
        deadline_s = time.monotonic() + DRAIN_S_MAX
        while not self._is_drained():
            if time.monotonic() > deadline_s:
                stats = self.daemon.topic_stats(self.topic)
                for channel in self.channels:
                    self.record(history.StoredAtEnd(time.time_ns(), channel, frozenset()))
                found = report(check(self.events, CLOCK_SLACK_NS, SEND_SLACK_NS))
                raise AssertionError(f"not drained after {DRAIN_S_MAX} s: {stats}\n{found}")
            self.run(0.1)
        self.hang_up()
        for channel in self.channels:
            self.record(history.StoredAtEnd(time.time_ns(), channel, frozenset()))

    def _is_drained(self) -> bool:
        if any(consumer.unconfirmed for consumer in self.consumers):
            return False
        topic = self.daemon.topic_stats(self.topic)
        counts = ("depth", "in_flight_count", "deferred_count")
        left = [channel[count] for channel in topic["channels"] for count in counts]
        return not any(left) and not topic["depth"]

    def judge(self) -> None:
        broken = check(self.events, CLOCK_SLACK_NS, SEND_SLACK_NS)
        if broken:
            raise AssertionError(report(broken))


def load_on(data_path: Path, rng: random.Random, timeout_ms: int, *flags: str) -> Load:
    """A load on a daemon that is yet to be started."""
    daemon = Daemon(data_path, f"--msg-timeout={timeout_ms}ms", *flags)
    return Load(daemon, rng, timeout_ms)
