"""One scenario against one fresh daemon: a warm-up pass, then the pass that counts."""

import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench import machine
from bench.daemon import Contender, Daemon
from bench.dialect import DaemonFailed, Dialect
from bench.load import Load
from bench.scenarios import BATCH, UNBATCHED_WINDOW, Kind, Plan, Scenario
from bench.shape import PLAIN, Shape

PERCENTILES = (50.0, 99.0, 99.9)
UNLIMITED_SECONDS = 3600.0  # filling a backlog is not what is measured
SETTLE_SECONDS = 1.0  # before memory is read


@dataclass(slots=True)
class Measure:
    """What one counted pass showed. `messages` are deliveries where there are several channels."""

    messages: int = 0
    seconds: float = 0.0
    cpu_ns: int = 0
    latency_us: dict[str, float] = field(default_factory=dict)
    rss_kb: int = 0
    anonymous_kb: int = 0
    extra: dict[str, float] = field(default_factory=dict)
    generator_ns: int = 0  # processor time of the generator in the same seconds
    waited_ns: int = 0  # the daemon's threads were ready, and other work had the processor

    @property
    def rate(self) -> float:
        return self.messages / self.seconds if self.seconds else 0.0

    @property
    def busy(self) -> float:
        """Share of one core that the daemon used: near 1 it was the limit, not the generator."""
        return self.cpu_ns / 1e9 / self.seconds if self.seconds else 0.0

    @property
    def starved(self) -> float:
        """Share of the time that the daemon waited for its core. Its own threads wait for each
        other too, so a little is normal."""
        return self.waited_ns / 1e9 / self.seconds if self.seconds else 0.0

    @property
    def generator_busy(self) -> float:
        return self.generator_ns / 1e9 / self.seconds if self.seconds else 0.0

    @property
    def cpu_seconds_per_million(self) -> float:
        return self.cpu_ns / 1000 / self.messages if self.messages else 0.0


def percentiles(latencies_ns: Sequence[int]) -> dict[str, float]:
    """In microseconds, by the nearest rank."""
    if not latencies_ns:
        return {}
    ranked = sorted(latencies_ns)
    top = len(ranked) - 1
    return {f"p{p:g}": ranked[min(top, int(len(ranked) * p / 100))] / 1000 for p in PERCENTILES}


def can_run(scenario: Scenario, contender: Contender, contender_batches: bool) -> bool:
    if not (contender.has_shapes or scenario.shape.is_plain):
        return False
    return contender_batches or not scenario.batch_is_the_point


def run(scenario: Scenario, plan: Plan, contender: Contender, data: Path) -> Measure | None:
    """None when this daemon's protocol cannot do it."""
    kind: Callable[[Contender, Path], Daemon] = Daemon
    if contender.nodes > 1:
        from bench.cluster import cluster_of as kind  # it needs etcd, and the client of a cluster
    with kind(contender, data) as daemon:
        if not can_run(scenario, contender, daemon.dialect.batches):
            return None
        if scenario.kind is Kind.RESTART:
            return restart(scenario, plan, daemon)
        if scenario.kind is Kind.MEMORY:
            return memory(scenario, plan, daemon)
        count = plan.messages(scenario)
        if scenario.kind is Kind.CONSUME:
            consume(scenario, plan, daemon, count, "warmup")
            return consume(scenario, plan, daemon, count, "bench")
        daemon.dialect.prepare("bench", channel_names(scenario), scenario.shape)
        publish(scenario, plan, daemon, count, "bench")
        return publish(scenario, plan, daemon, count, "bench")


def channel_names(scenario: Scenario) -> list[str]:
    return [f"c{number}" for number in range(scenario.channels)]


@dataclass(frozen=True, slots=True)
class Publishers:
    """How a run publishes: `count` messages over `connections`, in commands of `batch`."""

    topic: str
    count: int
    batch: int
    window: int
    connections: int = 1
    stamped: bool = False  # the time of sending in every body
    shape: Shape = PLAIN

    def join(self, load: Load, stack: ExitStack, dialect: Dialect, body_bytes: int) -> None:
        for serial in range(self.connections):
            unit = dialect.unit(self.topic, body_bytes, self.batch, serial, self.shape)
            sock = opened(stack, dialect.publisher(serial))
            load.publisher(
                sock.fileno(),
                unit.data,
                unit.messages,
                self.count // self.batch // self.connections,
                self.window,
                unit.stamp_first if self.stamped else 0,
                unit.stamp_stride if self.stamped else 0,
                dialect.nats,
                unit.count,
            )


def join_consumer(
    load: Load,
    stack: ExitStack,
    dialect: Dialect,
    scenario: Scenario,
    plan: Plan,
    topic: str,
    channel: str,
) -> None:
    shape = scenario.shape
    sock, opening = dialect.consumer(topic, channel, scenario.credit, shape)
    opened(stack, sock)
    size, ext_bytes = dialect.frame_bytes(plan.body_bytes, shape), shape.frame_ext_bytes
    load.consumer(sock.fileno(), size, opening, scenario.ack_each, dialect.nats, ext_bytes)


def opened(stack: ExitStack, sock: socket.socket) -> socket.socket:
    stack.callback(sock.close)
    return sock


def sizes(scenario: Scenario, dialect: Dialect) -> tuple[int, int]:
    """(messages per command, commands outstanding), as far as the protocol has batches."""
    if dialect.batches or scenario.batch == 1:
        return scenario.batch, scenario.window
    return 1, UNBATCHED_WINDOW


def measured(daemon: Daemon, load: Load, go: Callable[[], float]) -> Measure:
    """Run the load and look at both processes before and after."""
    before, generator_before = daemon.cpu(), time.thread_time_ns()
    seconds = go()
    generator_ns = time.thread_time_ns() - generator_before
    after = daemon.cpu()
    memory_now = daemon.memory()
    return Measure(
        messages=load.received or load.acked,
        seconds=seconds,
        cpu_ns=after.ran_ns - before.ran_ns,
        latency_us=percentiles(load.latencies()),
        rss_kb=memory_now.rss_kb,
        anonymous_kb=memory_now.anonymous_kb,
        generator_ns=generator_ns,
        waited_ns=after.waited_ns - before.waited_ns,
    )


def publish(scenario: Scenario, plan: Plan, daemon: Daemon, count: int, topic: str) -> Measure:
    """Publish, and consume at the same time where the scenario has channels."""
    dialect = daemon.dialect
    names = channel_names(scenario)
    batch, window = sizes(scenario, dialect)
    with ExitStack() as stack:
        load = Load(sample_every=max(1, count * max(1, len(names)) // 200_000))
        for name in names:
            join_consumer(load, stack, dialect, scenario, plan, topic, name)
        stamped, connections = bool(names), scenario.connections
        how = Publishers(topic, count, batch, window, connections, stamped, scenario.shape)
        how.join(load, stack, dialect, plan.body_bytes)
        spin = bool(scenario.rate) and machine.cores()[2]
        lag, rate = scenario.lag_max, scenario.rate
        return measured(daemon, load, lambda: load.go(plan.seconds_max, 0, lag, rate, spin))


def fill(
    plan: Plan, daemon: Daemon, count: int, topic: str, channels: list[str], shape: Shape = PLAIN
) -> int:
    """Publish a backlog, as fast as it goes; returns how many were acknowledged."""
    dialect = daemon.dialect
    dialect.prepare(topic, channels, shape)
    batch, window = (BATCH, 8) if dialect.batches and count % BATCH == 0 else (1, UNBATCHED_WINDOW)
    with ExitStack() as stack:
        load = Load(samples_max=1)
        how = Publishers(topic, count, batch, window, shape=shape)
        how.join(load, stack, dialect, plan.body_bytes)
        load.go(UNLIMITED_SECONDS)
        return load.acked


def consume(scenario: Scenario, plan: Plan, daemon: Daemon, count: int, topic: str) -> Measure:
    """Consume a backlog; a daemon too slow for the time allowed is measured on what it managed."""
    dialect = daemon.dialect
    names = channel_names(scenario)
    fill(plan, daemon, count, topic, names, scenario.shape)
    with ExitStack() as stack:
        load = Load(samples_max=1)
        join_consumer(load, stack, dialect, scenario, plan, topic, names[0])
        return measured(daemon, load, lambda: load.go(plan.seconds_max, expected=count))


def memory(scenario: Scenario, plan: Plan, daemon: Daemon) -> Measure:
    base = daemon.memory()
    before = daemon.cpu().ran_ns
    began = time.monotonic()
    queued = fill(plan, daemon, plan.messages(scenario), "bench", channel_names(scenario))
    seconds, cpu = time.monotonic() - began, daemon.cpu().ran_ns - before
    time.sleep(SETTLE_SECONDS)
    now = daemon.memory()
    extra = {"queued": float(queued), "base_rss_kb": float(base.rss_kb)}
    return Measure(queued, seconds, cpu, {}, now.rss_kb, now.anonymous_kb, extra)


def restart(scenario: Scenario, plan: Plan, daemon: Daemon) -> Measure:
    """Fill, kill -9, start again; what was acknowledged and is gone is counted."""
    published = fill(plan, daemon, plan.messages(scenario), "bench", channel_names(scenario))
    daemon.kill()
    seconds = daemon.start()
    cpu = daemon.cpu().ran_ns
    stored = daemon.dialect.stored("bench")
    lost = published - stored
    if lost and daemon.contender.keeps_all:
        raise DaemonFailed(f"{lost} of {published} acknowledged messages are gone after kill -9")
    now = daemon.memory()
    extra = {"published": float(published), "lost": float(lost), "ready_seconds": seconds}
    if stored:
        extra["first_message_seconds"] = seconds + first_message(plan, daemon, scenario)
    return Measure(0, 0.0, cpu, {}, now.rss_kb, now.anonymous_kb, extra)


def first_message(plan: Plan, daemon: Daemon, scenario: Scenario) -> float:
    """Seconds from subscribing to the first message of the old backlog."""
    began = time.monotonic()
    with ExitStack() as stack:
        load = Load(samples_max=1)
        one = replace(scenario, credit=1)
        join_consumer(load, stack, daemon.dialect, one, plan, "bench", channel_names(one)[0])
        load.go(UNLIMITED_SECONDS, expected=1)
    return time.monotonic() - began
