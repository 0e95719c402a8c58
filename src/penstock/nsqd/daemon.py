"""nsqd: a node (`assembly.py`), its listeners, HTTP and statsd, and how they start and stop.

A stop loses nothing that was promised: the listeners close, new publishes are refused, those that
wait for the disk are answered, clients are sent what is queued for them and hung up on, and then
the broker writes and closes its files.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from penstock import limits
from penstock.clock import SteadyClock
from penstock.command import logs, memory
from penstock.command.program import version_line
from penstock.errors import ConfigError
from penstock.kernel import Engine
from penstock.log.disk import OsDisk
from penstock.net.api import Admission
from penstock.net.bulk import BulkThread
from penstock.net.fetch import Fetcher
from penstock.net.gate import Gate
from penstock.net.listener import Acceptor, ListenAddress, bound_address, close_listener, listen
from penstock.net.secret_file import read_secrets
from penstock.net.sync import SyncPool
from penstock.net.tasks import Tasks
from penstock.nsqd.assembly import Node, Ports, broker_options, data_path
from penstock.nsqd.drain import Drain, drain_routes
from penstock.nsqd.http.deps import Deps, Identity
from penstock.nsqd.http.routes import Routes
from penstock.nsqd.lookups import lookup_identity
from penstock.nsqd.options import Options
from penstock.nsqd.pattern import need_patterns
from penstock.nsqd.statsd import Statsd, check_address
from penstock.nsqd.tls import client_context, new_contexts, server_context
from penstock.nsqd.web import TlsOnly, Web
from penstock.takeover.takeover import take_over_at_start

if TYPE_CHECKING:
    from penstock.nsqd.cluster import ClusterMember

log = logging.getLogger("penstock.nsqd")

# What SIGHUP changes: the same that `/config` does, and what a certificate's renewal needs.
# Connections keep what they have. All else is named in the log and waits for a restart.
_RELOADED = frozenset(
    (
        *("tls-cert", "tls-key", "tls-root-ca-file", "tls-client-auth-policy", "tls-min-version"),
        *("log-level", "lookupd-tcp-address"),
    )
)


class Daemon:
    """`start`, then wait for `ended` (an exit code), then `stop`."""

    statsd: Statsd | None = None  # from the start on
    member: ClusterMember | None = None  # of a cluster, from the start on
    _secrets: tuple[bytes, ...] = ()  # for changes over HTTP, from the start on

    def __init__(self, options: Options) -> None:
        self.options = options
        self.config = dict(options.all_values)  # by flag: what holds now
        self.tcp_address = ListenAddress("", 0, "")  # the real ones, after the start
        self.http_address = ListenAddress("", 0, "")
        self.https_address = ListenAddress("", 0, "")
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[int] = self._loop.create_future()
        self.broken = False  # by a fault of the program: no file is touched any more
        self._clock = SteadyClock()
        self._fetcher = Fetcher(
            options.http_client_connect_timeout_ns,
            options.http_client_request_timeout_ns,
            keeps_connections=False,
        )
        self.node = node = Node(self._ports(), options)
        self.broker, self.protocol = node.broker, node.protocol
        self.drain = Drain(self.broker, self._loop, Tasks(self._on_fault), lambda: self._end(0))
        self._bulk = BulkThread(self._loop)
        self._acceptor: Acceptor | None = None
        self._web = Web(self._loop, options.max_body_size)

    def _ports(self) -> Ports:
        return Ports(
            loop=self._loop,
            clock=self._clock,
            disk=OsDisk(),
            new_engine=Engine,
            seed=secrets.randbits(64),
            new_pool=self._new_pool,
            fetcher=self._fetcher,
            each_second=self._clock.check,
            on_fault=self._on_fault,
        )

    def _new_pool(self, wake: Callable[[], None]) -> SyncPool:
        self._pool = SyncPool(wake)
        return self._pool

    # --- start ---

    async def start(self) -> None:
        """Raises PenstockError or OSError; then nothing is left open."""
        with ExitStack() as undo:
            undo.callback(self._close_node)
            log.info("%s", version_line("nsqd"))
            log.info("ID: %d", self.options.node_id)
            log.info("durability: %s", self.options.durability)
            if self.options.without_effect:
                flags = ", ".join(f"-{name}" for name in self.options.without_effect)
                log.warning("flags without effect: %s", flags)
            self.node.lookups.set_addresses(self.options.lookupd_tcp_address)
            check_address(self.options.statsd_address)
            if self.node.auth.required:
                need_patterns("--auth-http-address")
            self._secrets = read_secrets(self.options.http_secret_file)
            self.node.upgrades.context = server_context(self.options)
            self._fetcher.tls = client_context(self.options)
            tcp = self._listen(self.options.tcp_address, "tcp-address", undo)
            http = https = None
            if self.options.http_address:
                http = self._listen(self.options.http_address, "http-address", undo)
            if self.options.https_address and self.node.upgrades.context is not None:
                https = self._listen(self.options.https_address, "https-address", undo)
            await self._join_cluster()
            with memory.uncollected():
                self.broker.open(self._before_topics)
            undo.callback(self.broker.close)
            self.tcp_address = bound_address(tcp)
            self.node.turn.start()
            undo.callback(self.node.turn.stop)
            if http is not None:
                self.http_address = bound_address(http)
            self.node.lookups.start(lookup_identity(self.options, self._identity()))
            undo.callback(self.node.lookups.close)
            await self.node.lookups.settled(limits.LOOKUP_START_NS)
            self._acceptor = Acceptor(self._loop, tcp, self._on_connect)
            log.info("TCP: listening on %s", self.tcp_address)
            await self._serve_http(http, https)
            await self._begin_membership()
            self.node.housekeeping.start()
            self.statsd = Statsd(self.broker, self.options, self._identity().http_port)
            self.statsd.start()
            undo.pop_all()

    async def _join_cluster(self) -> None:
        if not self.options.cluster:
            return
        try:
            from penstock.nsqd.cluster import ClusterMember
        except ImportError as error:
            rule = f"needs penstock[cluster]: {error}"
            raise ConfigError("cluster", self.options.cluster, rule) from error
        self.member = ClusterMember(self.options, self.node, self._on_refused)
        await self.member.prepare(data_path(self.options))

    def _before_topics(self) -> None:
        path, options = str(data_path(self.options)), broker_options(self.options)
        take_over_at_start(self.node.ports.disk, path, options, self._clock)
        if self.member is not None:
            self.member.join(data_path(self.options))

    async def _begin_membership(self) -> None:
        if self.member is None:
            return
        identity = self._identity()
        host = self.options.broadcast_address
        await self.member.start(host, identity.tcp_port, identity.http_port)
        self.node.turn.order.after = self.member.after_turn
        self.drain.hand_over = self.member.hand_over

    def _on_refused(self, reason: str) -> None:
        if not self.ended.done():
            log.critical("this node may not be a member of the cluster: %s", reason)
            self._end(1)

    def _listen(self, text: str, name: str, undo: ExitStack) -> socket.socket:
        sock = listen(text, name)
        undo.callback(close_listener, sock)
        return sock

    async def _serve_http(self, http: socket.socket | None, https: socket.socket | None) -> None:
        if https is not None:
            self.https_address = bound_address(https)
        routes = self._routes()
        if http is not None:
            if self.options.tls_required == "true":
                await self._web.serve(http, TlsOnly(self.https_address.port))
            else:
                await self._web.serve(http, routes, self._admission(self.http_address))
            log.info("HTTP: listening on %s", self.http_address)
        if https is not None:
            admission = self._admission(self.https_address)
            await self._web.serve(https, routes, admission, lambda: self.node.upgrades.context)
            log.info("HTTPS: listening on %s", self.https_address)

    def _admission(self, address: ListenAddress) -> Admission:
        names = (socket.gethostname(), self.options.broadcast_address)
        allowed = self.options.http_allowed_host
        return Admission(Gate(address.is_loopback, names, allowed, self._secrets), log)

    def _routes(self) -> Routes:
        routes = Routes(
            Deps(
                broker=self.broker,
                topics=self.node.topics,
                protocol=self.protocol,
                options=self.options,
                config=self.config,
                identity=self._identity(),
                clock=self._clock,
                bulk=self._bulk,
                soon=self.node.turn.soon,
                set_lookupds=self.node.lookups.set_addresses,
                sync_times=self._pool.times,
                http_connections=lambda: len(self._web.connections),
                on_fault=self._on_fault,
                long_work=asyncio.Lock(),
                member=self.member,
            )
        )
        routes.table |= routes.routes_of(drain_routes(self.drain))
        if self.member is not None:
            self.member.extend(routes)
        return routes

    def _identity(self) -> Identity:
        def port(address: ListenAddress, broadcast: int) -> int:
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

    # --- while it runs ---

    async def reload(self, options: Options) -> None:
        """Apply the options that may change at run time. Raises ConfigError, and then nothing has
        changed."""
        upgrades = self.node.upgrades
        contexts = new_contexts(options, upgrades.context is not None)
        self.node.lookups.set_addresses(options.lookupd_tcp_address)
        upgrades.context, self._fetcher.tls = contexts
        logs.set_level(options.log_level)
        _report(self.config, options.all_values)
        for name in _RELOADED:
            self.config[name] = options.all_values[name]

    def _on_connect(self, sock: socket.socket, remote: str) -> None:
        self.node.connect(self.node.engine.open(sock.detach()), remote)

    def _on_fault(self, error: Exception) -> None:
        """The turn failed: its state is in doubt, so nothing more is done with it."""
        if self.broken:
            return  # by the one that was reported
        log.critical("internal error: the daemon stops", exc_info=error)
        self.node.turn.stop()
        self.broken = True
        self._end(1)

    def _end(self, code: int) -> None:
        if not self.ended.done():
            self.ended.set_result(code)

    # --- stop ---

    async def stop(self) -> None:
        log.info("NSQ: stopping")
        self.drain.stop()
        if self.member is not None and not self.broken:
            await self.member.hand_over()
        self.node.housekeeping.stop()
        if self._acceptor is not None:
            self._acceptor.close()
        self._web.close()
        await self.node.lookups.stop()
        if self.statsd is not None:
            await self.statsd.stop()
        if not self.broken:
            self.broker.refuse(exiting=True)
            await self.node.topics.stop()
            await self.node.auth.stop()
            self.node.turn.soon()
            await self._until(self._is_answered, limits.SHUTDOWN_NS)
            await self._hang_up()
        self.node.turn.stop()
        if self.member is not None:
            await self.member.disconnect()
        if not self.broken:
            self.broker.close()
        if self.member is not None:
            await self.member.stop(is_tidy=not self.broken)
        self._close_node()
        await self._fetcher.close()
        log.info("NSQ: bye")

    def _is_answered(self) -> bool:
        """Every publish."""
        sessions = self.protocol.sessions.values()
        return not (self._web.is_serving or any(one.conn.pending for one in sessions))

    async def _hang_up(self) -> None:
        sessions = self.protocol.sessions
        for session in list(sessions.values()):
            session.stop_heartbeat()
            session.conn.close_after_flush()
        self._web.stop()
        self.node.turn.soon()
        links = self.node.links.by_serial
        await self._until(lambda: not (sessions or links), limits.SHUTDOWN_LINGER_NS)
        for session in list(sessions.values()):
            session.conn.close()
        self.node.turn.soon()
        await self._until(lambda: not sessions, limits.SHUTDOWN_LINGER_NS)
        self._web.abort()
        await asyncio.sleep(0)  # the connections hear of it

    async def _until(self, done: Callable[[], bool], timeout_ns: int) -> None:
        deadline_ns = self._clock.mono_ns() + timeout_ns
        while not (done() or self.broken) and self._clock.mono_ns() < deadline_ns:
            await asyncio.sleep(limits.SHUTDOWN_POLL_NS / limits.SECOND)

    def _close_node(self) -> None:
        self._bulk.close()
        self.node.close()


def _report(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Log the changes, and those that need a restart."""
    changed = [name for name, value in now.items() if before[name] != value]
    waiting = ", ".join(f"-{name}" for name in changed if name not in _RELOADED)
    if waiting:
        log.warning("changed settings that need a restart: %s", waiting)
    log.info("reloaded: certificates, nsqlookupds and the log level")
