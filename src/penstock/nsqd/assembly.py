"""A node assembled from its ports: kernel, broker, sessions, and the turn that drives them.

What a node asks of the world around it is in `Ports`, so the daemon (`daemon.py`) and the worlds of
the tests run one and the same node: the daemon on the clock, disk, threads and loop of its host,
the tests on theirs. A node has no listeners: connections come through `connect`.
"""

import asyncio
import logging
import os
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from penstock import __version__, limits
from penstock.broker.broker import Broker
from penstock.broker.channels.channel import Channel
from penstock.broker.context import TopicChange
from penstock.broker.options import BrokerOptions
from penstock.broker.ports import Syncer
from penstock.broker.topics.topic import Topic
from penstock.clock import Clock
from penstock.kernel import Conn, Engine
from penstock.log.disk import Disk
from penstock.net.fetch import Fetcher
from penstock.net.link import Links
from penstock.net.turn import Turn, TurnOrder, descriptor_of
from penstock.nsqd.auth import Auth
from penstock.nsqd.lookups import Lookups
from penstock.nsqd.options import Options
from penstock.nsqd.protocol import Protocol as V2Protocol
from penstock.nsqd.session import Session, Shell
from penstock.nsqd.tls import Upgrades
from penstock.nsqd.topics import TopicMaker
from penstock.wire.identify import DEFLATE_LEVEL_DEFAULT, Offer, Settings

log = logging.getLogger("penstock.nsqd")


class Pool(Syncer, Protocol):
    done: deque[Any]  # jobs that have ended and were not taken yet

    def close(self) -> None: ...


class Ports(NamedTuple):
    loop: asyncio.AbstractEventLoop  # timers, calls, tasks, and the engine's descriptor
    clock: Clock
    disk: Disk
    new_engine: type[Engine]
    # of 64 bits, for the node throws no dice of its own: what sampled consumers get, which auth
    # server is asked first, and when a lost nsqlookupd is tried again
    seed: int
    new_pool: Callable[[Callable[[], None]], Pool]  # it is given what wakes the loop, from a thread
    fetcher: Fetcher  # for lookups and authentication
    each_second: Callable[[], None]
    on_fault: Callable[[Exception], None]  # of the program: what is in hand is in doubt


@dataclass(eq=False)
class Housekeeping:
    """The work of each second, and the search for delayed messages between turns. `each_second` is
    called before the broker visits its topics."""

    _loop: asyncio.AbstractEventLoop
    _broker: Broker
    _turn: Turn
    _each_second: Callable[[], None]
    _on_fault: Callable[[Exception], None]
    _timer: asyncio.TimerHandle | None = None
    _searching: asyncio.TimerHandle | None = None  # the next slice of a search

    def stop(self) -> None:
        for timer in (self._timer, self._searching):
            if timer is not None:
                timer.cancel()

    def start(self) -> None:
        self._timer = self._loop.call_later(1.0, self.start)
        self._each_second()
        try:
            self._broker.housekeeping()
        except Exception as error:
            self._on_fault(error)
            return
        if self._searching is None:
            self._search()
        self._turn.tick()  # also after the wall clock was set, when no timer knows it

    def _search(self) -> None:
        """Search for delayed messages in logs: a slice between turns, then a pause."""
        self._searching = None
        try:
            more = self._broker.delays.slice()
        except Exception as error:
            self._on_fault(error)
            return
        if more:
            pause_s = limits.SEARCH_PAUSE_NS / limits.SECOND
            self._searching = self._loop.call_later(pause_s, self._search)
            self._turn.soon()


class Node:
    """`for_broker` replaces the broker's part of `options`. Nothing is read, written or started
    before `Broker.open` and `Turn.start`."""

    def __init__(
        self, ports: Ports, options: Options, for_broker: BrokerOptions | None = None
    ) -> None:
        self.ports = ports
        loop, clock, fetcher, on_fault = ports.loop, ports.clock, ports.fetcher, ports.on_fault
        dice = random.Random(ports.seed)
        sizes = options.max_msg_size, options.max_body_size
        self.engine = engine = ports.new_engine(*sizes, options.max_rdy_count, seed=ports.seed)
        self.turn = turn = Turn(loop, engine.fileno(), clock, on_fault)
        self.pool = pool = ports.new_pool(engine.wake)
        chosen = for_broker or broker_options(options)
        self.broker = broker = Broker(engine, ports.disk, data_path(options), chosen, clock, pool)
        broker.trace.client_name = _label
        self.lookups = lookups = Lookups(broker.topics.values, dice)
        self.topics = TopicMaker(broker, fetcher, lookups.http_addresses, turn.soon, on_fault)
        self.links = Links(loop, engine, turn.soon)
        self.upgrades = Upgrades(self.links)
        method = options.auth_http_request_method
        self.auth = Auth(options.auth_http_address, method, fetcher, turn.soon, loop, dice)
        self.protocol = V2Protocol(self, options, make_offer(options))
        turn.order = TurnOrder(engine, broker, self.links, clock, pool.done, self.protocol.handle)
        engine.watch_outside(descriptor_of(loop))
        self.housekeeping = Housekeeping(loop, broker, turn, ports.each_second, on_fault)
        self._shell = Shell(loop, clock.mono_ns, turn.soon)
        self._settings = default_settings(options)
        broker.context.hooks.extend((self.on_topic_changed, lookups.on_topic_changed))

    def connect(self, conn: Conn, remote: str) -> None:
        host = remote.rpartition(":")[0].strip("[]") or remote
        settings = replace(self._settings, client_id=host, hostname=host)
        now_s = self.ports.clock.wall_ns() // limits.SECOND
        self.protocol.add(Session(conn, remote, now_s, settings, self._shell))

    def on_topic_changed(self, change: TopicChange, topic: Topic, channel: Channel | None) -> None:
        if change is TopicChange.TOPIC_CREATED:
            log.info("TOPIC(%s): created", topic.name)
        elif change is TopicChange.TOPIC_RESHAPED:
            log.info("TOPIC(%s): %s", topic.name, _shape_of(topic))
            self.turn.soon()
        elif change is TopicChange.TOPIC_DELETED:
            log.info("TOPIC(%s): deleted", topic.name)
        elif channel is not None and change is TopicChange.CHANNEL_CREATED:
            log.info("TOPIC(%s): new channel(%s)", topic.name, channel.name)
        elif channel is not None:
            log.info("TOPIC(%s): deleting channel %s", topic.name, channel.name)
            for conn in list(channel.consumers):
                conn.owner.channel = None
                conn.close()
            self.turn.soon()

    def close(self) -> None:
        """Leave nothing open besides the broker's files, which `Broker.close` closes before."""
        for session in self.protocol.sessions.values():
            session.stop_heartbeat()
        self.links.abort()
        self.pool.close()
        self.engine.close()


def _shape_of(topic: Topic) -> str:
    count = topic.partition_count
    noun = "partition" if count == 1 else "partitions"
    headers = ", messages have headers" if topic.extended else ""
    led = [str(leader.number) for leader in topic.leaders]
    leads = f", leads {', '.join(led) or 'none'}" if topic.replicated else ""
    return f"{count} {noun}{headers}{leads}"


def _label(conn: Conn) -> str:
    label: str = conn.owner.label
    return label


def data_path(options: Options) -> Path:
    return Path(options.data_path or os.curdir).absolute()


def broker_options(options: Options) -> BrokerOptions:
    return BrokerOptions(
        node_id=options.node_id,
        durability="os" if options.durability == "os" else "disk",
        segment_bytes_max=options.segment_bytes,
        segment_age_max_ns=options.segment_age_ns,
        retain_age_ns=options.retain_age_ns,
        retain_bytes=options.retain_bytes,
        default_partitions=options.default_partitions,
        max_depth=options.max_depth,
        max_age_ns=options.max_age_ns,
        trace_rate=options.trace_rate,
        waiting_bytes_max=options.max_pub_waiting_size,
        auto_ack_attempts=options.ack_retry_cnt,
        auto_ack_age_ns=options.ack_old_than_time_ns,
        idle_topic_delete_ns=options.idle_topic_delete_ns,
        idle_channel_delete_ns=options.idle_channel_delete_ns,
        idle_delete_backlog=options.idle_delete_backlog,
        sync_every_count=options.sync_every,
        sync_timeout_ns=options.sync_timeout_ns,
        disk_free_bytes_min=options.min_disk_free,
        mem_queue_size=options.mem_queue_size,
        message_timeout_max_ns=options.max_msg_timeout_ns,
        latency_quantiles=options.e2e_processing_latency_percentile,
        latency_window_ns=options.e2e_processing_latency_window_time_ns,
    )


def make_offer(options: Options) -> Offer:
    return Offer(
        version=__version__,
        rdy_count_max=options.max_rdy_count,
        heartbeat_max_ns=options.max_heartbeat_interval_ns,
        output_timeout_min_ns=options.min_output_buffer_timeout_ns,
        output_timeout_max_ns=options.max_output_buffer_timeout_ns,
        output_bytes_max=options.max_output_buffer_size,
        message_timeout_max_ns=options.max_msg_timeout_ns,
        deflate_level_max=options.max_deflate_level,
        topology_region=options.topology_region,
        topology_zone=options.topology_zone,
        tls=bool(options.tls_cert),
        snappy=options.snappy,
        deflate=options.deflate,
        auth_required=bool(options.auth_http_address),
    )


def default_settings(options: Options) -> Settings:
    return Settings(
        output_timeout_ns=options.output_buffer_timeout_ns,
        message_timeout_ns=options.msg_timeout_ns,
        deflate_level=min(DEFLATE_LEVEL_DEFAULT, options.max_deflate_level),
    )
