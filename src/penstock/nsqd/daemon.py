"""nsqd put together: kernel, broker, sessions, HTTP, and how they start and stop.

A stop loses nothing that was promised: the listeners close, new publishes are refused, those that
wait for the disk are answered, clients are sent what is queued for them and hung up on, and then
the broker writes and closes its files.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from penstock import __version__, limits
from penstock.broker.broker import Broker
from penstock.broker.channel import Channel
from penstock.broker.context import Change
from penstock.broker.options import BrokerOptions
from penstock.broker.topic import Topic
from penstock.clock import SteadyClock
from penstock.command import logs
from penstock.command.program import version_line
from penstock.kernel import IMPLEMENTATION, Engine, new_engine
from penstock.log.disk import OsDisk
from penstock.net.api import Admission
from penstock.net.bulk import BulkThread
from penstock.net.fetch import Fetcher
from penstock.net.gate import Gate
from penstock.net.link import Links
from penstock.net.listener import (
    Acceptor,
    Address,
    bound_address,
    close_listener,
    listen_at,
)
from penstock.net.order import TurnOrder
from penstock.net.secretfile import read_secrets
from penstock.net.sync import SyncPool
from penstock.net.turn import Turn
from penstock.nsqd.auth import Auth
from penstock.nsqd.drain import Drain, drain_routes
from penstock.nsqd.ground import Ground, Identity, Refusals
from penstock.nsqd.lookups import Lookups, all_names
from penstock.nsqd.options import Options
from penstock.nsqd.protocol import Protocol
from penstock.nsqd.reload import RELOADED, new_contexts, report
from penstock.nsqd.routes import Routes
from penstock.nsqd.routes_channels import channel_routes
from penstock.nsqd.routes_topics import topic_routes
from penstock.nsqd.routes_trace import trace_routes
from penstock.nsqd.session import Session, Shell
from penstock.nsqd.statsd import Statsd, StatsdOptions, check_address, expand_prefix
from penstock.nsqd.tls import client_context, server_context
from penstock.nsqd.topics import TopicMaker
from penstock.nsqd.upgrade import Upgrades
from penstock.nsqd.web import TlsOnly, Web
from penstock.takeover.start import take_over_at_start
from penstock.wire.identify import Offer, Settings

log = logging.getLogger("penstock.nsqd")


def broker_options(options: Options) -> BrokerOptions:
    return BrokerOptions(
        node_id=options.node_id,
        durability="os" if options.durability == "os" else "disk",
        segment_bytes_max=options.segment_bytes,
        segment_age_max_ns=options.segment_age_ns,
        retain_age_ns=options.retain_age_ns,
        retain_bytes=options.retain_bytes,
        max_depth=options.max_depth,
        max_age_ns=options.max_age_ns,
        trace_rate=options.trace_rate,
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
    """What holds for a client that has not identified itself."""
    return Settings(
        client_id="",
        hostname="",
        user_agent="",
        heartbeat_ns=limits.HEARTBEAT_NS,
        output_bytes=limits.OUTPUT_BUFFER_BYTES,
        output_timeout_ns=options.output_buffer_timeout_ns,
        sample_rate=0,
        message_timeout_ns=options.msg_timeout_ns,
        deflate_level=min(6, options.max_deflate_level),
    )


def make_engine(options: Options) -> Engine:
    """The kernel throws no dice: what sampled consumers get is decided here."""
    sizes = options.max_msg_size, options.max_body_size
    return new_engine(*sizes, options.max_rdy_count, seed=secrets.randbits(64))


class Daemon:
    """`start`, then wait for `ended` (an exit code), then `stop`."""

    statsd: Statsd | None = None  # from the start on
    _secrets: tuple[bytes, ...] = ()  # for changes over HTTP, from the start on
    _searching: asyncio.TimerHandle | None = None  # the next slice of a search

    def __init__(self, options: Options) -> None:
        self.options = options
        self.config = dict(options.all_values)  # by flag: what holds now
        self.tcp_address = Address("", 0, "")  # the real ones, after the start
        self.http_address = Address("", 0, "")
        self.https_address = Address("", 0, "")
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[int] = self._loop.create_future()
        self.broken = False  # by a fault of the program: no file is touched any more
        self._clock = clock = SteadyClock()
        self.engine = make_engine(options)
        self._pool = SyncPool(self.engine.wake)
        self._bulk = BulkThread(self._loop)
        self._data_path = Path(options.data_path or os.curdir).absolute()
        self.broker = Broker(
            self.engine, OsDisk(), self._data_path, broker_options(options), clock, self._pool
        )
        self.broker.trace.client_name = lambda conn: conn.owner.label
        self.broker.on_topic_changed.append(self._on_topic_changed)
        self._offer = make_offer(options)
        self._fetcher = Fetcher(
            options.http_client_connect_timeout_ns,
            options.http_client_request_timeout_ns,
            keeps_connections=False,
        )
        self.lookups = Lookups(lambda: all_names(self.broker.topics))
        self.broker.on_topic_changed.append(self.lookups.on_topic_changed)
        self.topics = TopicMaker(
            self.broker,
            self._fetcher,
            self.lookups.http_addresses,
            lambda: self.turn.soon(),
            self._on_fault,
        )
        self.links = Links(self._loop, self.engine, lambda: self.turn.soon())
        self.upgrades = Upgrades(self.links)
        self.auth = Auth(
            options.auth_http_address,
            options.auth_http_request_method,
            self._fetcher,
            lambda: self.turn.soon(),
        )
        self.protocol = Protocol(
            self.broker,
            self.topics,
            self.auth,
            options,
            self._offer,
            self.upgrades,
            clock,
            self._on_fault,
        )
        order = TurnOrder(
            self.engine,
            self.broker,
            self.links,
            clock,
            self._pool.done,
            self.protocol.handle,
        )
        self.turn = Turn(self._loop, self.engine.fileno(), order, clock, self._on_fault)
        self._shell = Shell(self._loop, clock, self.turn.soon)
        self.drain = Drain(self.broker, self._loop, self._on_drained)
        self._acceptor: Acceptor | None = None
        self._web = Web(self._loop, options.max_body_size)
        self._housekeeping: asyncio.TimerHandle | None = None
        self._default_settings = default_settings(options)

    # --- start ---

    async def start(self) -> None:
        """Raises PenstockError or OSError; then nothing is left open."""
        with ExitStack() as undo:
            undo.callback(self._close_engine)
            log.info("%s", version_line("nsqd"))
            log.info("ID: %d", self.options.node_id)
            log.info("kernel: %s, durability: %s", IMPLEMENTATION, self.options.durability)
            if self.options.without_effect:
                flags = ", ".join(f"-{name}" for name in self.options.without_effect)
                log.warning("no effect here: %s", flags)
            self.lookups.set_addresses(self.options.lookupd_tcp_address)
            if self.lookups.addresses or self.auth.required:
                self._fetcher.prepare()
            check_address(self.options.statsd_address)
            self._secrets = read_secrets(self.options.http_secret_file)
            self.upgrades.context = server_context(self.options)
            self._fetcher.tls = client_context(self.options)
            tcp = self._listen(self.options.tcp_address, "tcp-address", undo)
            http = https = None
            if self.options.http_address:
                http = self._listen(self.options.http_address, "http-address", undo)
            if self.options.https_address and self.upgrades.context is not None:
                https = self._listen(self.options.https_address, "https-address", undo)
            self.broker.open(self._take_over)
            undo.callback(self.broker.close)
            self.tcp_address = bound_address(tcp)
            self.turn.start()
            undo.callback(self.turn.stop)
            if http is not None:
                self.http_address = bound_address(http)
            self.lookups.start(self._lookup_identity())
            undo.callback(self.lookups.close)
            await self.lookups.settled(limits.LOOKUP_START_NS)
            self._acceptor = Acceptor(self._loop, tcp, self._on_connect)
            log.info("TCP: listening on %s", self.tcp_address)
            await self._serve_http(http, https)
            self._keep_house()
            self.statsd = Statsd(self.broker, self._statsd_options())
            self.statsd.start()
            undo.pop_all()

    def _take_over(self) -> None:
        options = broker_options(self.options)
        take_over_at_start(OsDisk(), str(self._data_path), options, self._clock)

    def _listen(self, text: str, name: str, undo: ExitStack) -> socket.socket:
        sock = listen_at(text, name)
        undo.callback(close_listener, sock)
        return sock

    async def _serve_http(self, http: socket.socket | None, https: socket.socket | None) -> None:
        if http is not None:
            self.http_address = bound_address(http)
        if https is not None:
            self.https_address = bound_address(https)
        routes = self._routes()
        if http is not None:
            only_tls = self.options.tls_required == "true"
            if only_tls:
                await self._web.serve(http, TlsOnly(self.https_address.port))
            else:
                await self._web.serve(http, routes, self._admission(self.http_address))
            log.info("HTTP: listening on %s", self.http_address)
        if https is not None:
            admission = self._admission(self.https_address)
            await self._web.serve(https, routes, admission, self.upgrades.context)
            log.info("HTTPS: listening on %s", self.https_address)

    def _admission(self, address: Address) -> Admission:
        names = (socket.gethostname(), self.options.broadcast_address)
        allowed = self.options.http_allowed_host
        return Admission(Gate(address.is_loopback, names, allowed, self._secrets), log)

    def _statsd_options(self) -> StatsdOptions:
        options, port = self.options, self._identity().http_port
        return StatsdOptions(
            address=options.statsd_address,
            interval_ns=options.statsd_interval_ns,
            prefix=expand_prefix(options.statsd_prefix, options.broadcast_address, port),
            packet_bytes=options.statsd_udp_packet_size,
            memory=options.statsd_mem_stats,
            exclude_ephemeral=options.statsd_exclude_ephemeral,
        )

    def _routes(self) -> Routes:
        routes = Routes(
            Ground(
                broker=self.broker,
                topics=self.topics,
                protocol=self.protocol,
                options=self.options,
                config=self.config,
                identity=self._identity(),
                clock=self._clock,
                bulk=self._bulk,
                soon=self.turn.soon,
                set_lookupds=self.lookups.set_addresses,
                sync_times=self._pool.times,
                http_connections=lambda: len(self._web.connections),
                refusals=Refusals(),
                on_fault=self._on_fault,
            )
        )
        routes.table |= topic_routes(self.broker, self.turn.soon) | drain_routes(self.drain)
        routes.table |= channel_routes(self.broker, self.turn.soon)
        routes.table |= trace_routes(self.broker, self.turn.soon)
        return routes

    def _identity(self) -> Identity:
        def port(address: Address, broadcast: int) -> int:
            if address.path:
                return -1
            return broadcast or address.port

        return Identity(
            version_line=version_line("nsqd"),
            start_time=self._clock.wall_ns() // limits.SECOND,
            started_mono_ns=self._clock.mono_ns(),
            tcp_port=port(self.tcp_address, self.options.broadcast_tcp_port),
            http_port=port(self.http_address, self.options.broadcast_http_port),
            hostname=socket.gethostname(),
        )

    def _lookup_identity(self) -> dict[str, str | int]:
        identity, options = self._identity(), self.options
        return {
            "version": __version__,
            "tcp_port": identity.tcp_port,
            "http_port": identity.http_port or -1,  # without HTTP: nsqlookupd takes no 0
            "hostname": identity.hostname,
            "broadcast_address": options.broadcast_address,
            "topology_zone": options.topology_zone,
            "topology_region": options.topology_region,
        }

    # --- while it runs ---

    async def reload(self, options: Options) -> None:
        """Take what may change at run time from `options`. Raises ConfigError, and then nothing
        has changed."""
        server, client = new_contexts(options, self.upgrades.context is not None)
        self.upgrades.context, self._fetcher.tls = server, client
        if server is not None:
            await self._web.renew(server)
        self.lookups.set_addresses(options.lookupd_tcp_address)
        logs.set_level(options.log_level)
        report(self.config, options.all_values)
        for name in RELOADED:
            self.config[name] = options.all_values[name]

    def _on_connect(self, sock: socket.socket, remote: str) -> None:
        conn = self.engine.open(sock.detach())
        host = remote.rpartition(":")[0].strip("[]") or remote
        settings = replace(self._default_settings, client_id=host, hostname=host)
        now_s = self._clock.wall_ns() // limits.SECOND
        self.protocol.add(Session(conn, remote, now_s, settings, self._shell))

    def _on_topic_changed(self, change: Change, topic: Topic, channel: Channel | None) -> None:
        if change is Change.TOPIC_CREATED:
            log.info("TOPIC(%s): created", topic.name)
        elif change is Change.TOPIC_DELETED:
            log.info("TOPIC(%s): deleted", topic.name)
        elif channel is not None and change is Change.CHANNEL_CREATED:
            log.info("TOPIC(%s): new channel(%s)", topic.name, channel.name)
        elif channel is not None:
            log.info("TOPIC(%s): deleting channel %s", topic.name, channel.name)
            for conn in list(channel.consumers):
                conn.owner.channel = None
                conn.close()
            self.turn.soon()

    def _keep_house(self) -> None:
        self._housekeeping = self._loop.call_later(1.0, self._keep_house)
        self._clock.check()
        try:
            self.broker.housekeeping()
        except Exception as error:
            self._on_fault(error)
            return
        if self._searching is None:
            self._search()
        self.turn.tick()  # also after the wall clock was set, when no timer knows it

    def _search(self) -> None:
        """For delayed messages in logs, a slice between turns and then a pause."""
        self._searching = None
        try:
            more = self.broker.search()
        except Exception as error:
            self._on_fault(error)
            return
        if more:
            pause_s = limits.SEARCH_PAUSE_NS / limits.SECOND
            self._searching = self._loop.call_later(pause_s, self._search)
            self.turn.soon()

    def _on_fault(self, error: Exception) -> None:
        """The turn broke: what it had in hand is in doubt, so nothing more is done with it."""
        if self.broken:
            return  # by the one that was reported
        log.critical("a fault of the program stops the daemon", exc_info=error)
        self.turn.stop()
        self.broken = True
        if not self.ended.done():
            self.ended.set_result(1)

    def _on_drained(self) -> None:
        if not self.ended.done():
            self.ended.set_result(0)

    # --- stop ---

    async def stop(self) -> None:
        log.info("NSQ: stopping")
        self.drain.stop()
        for timer in (self._housekeeping, self._searching):
            if timer is not None:
                timer.cancel()
        self._close_listeners()
        await self.lookups.stop()
        if self.statsd is not None:
            await self.statsd.stop()
        if not self.broken:
            self.broker.exiting = True
            await self.topics.stop()
            await self.auth.stop()
            self.turn.soon()
            await self._until(self._publishes_answered, limits.SHUTDOWN_NS)
            await self._hang_up()
        self.turn.stop()
        if not self.broken:
            self.broker.close()
        self._close_engine()
        await self._fetcher.close()
        log.info("NSQ: bye")

    def _close_listeners(self) -> None:
        if self._acceptor is not None:
            self._acceptor.close()
        self._web.close()

    def _publishes_answered(self) -> bool:
        return not self._web.is_serving and not any(
            session.conn.pending for session in self.protocol.sessions.values()
        )

    async def _hang_up(self) -> None:
        sessions = self.protocol.sessions
        for session in list(sessions.values()):
            session.stop_heartbeat()
            session.conn.close_after_flush()
        self._web.stop()
        self.turn.soon()
        await self._until(lambda: not (sessions or self.links.by_serial), limits.SHUTDOWN_LINGER_NS)
        for session in list(sessions.values()):
            session.conn.close()
        self.turn.soon()
        await self._until(lambda: not sessions, limits.SHUTDOWN_LINGER_NS)
        self._web.abort()
        await asyncio.sleep(0)  # the connections hear of it

    async def _until(self, done: Callable[[], bool], timeout_ns: int) -> None:
        deadline_ns = self._clock.mono_ns() + timeout_ns
        while not (done() or self.broken) and self._clock.mono_ns() < deadline_ns:
            await asyncio.sleep(limits.SHUTDOWN_POLL_NS / limits.SECOND)

    def _close_engine(self) -> None:
        for session in self.protocol.sessions.values():
            session.stop_heartbeat()
        self.links.abort()
        self._bulk.close()
        self._pool.close()
        self.engine.close()
