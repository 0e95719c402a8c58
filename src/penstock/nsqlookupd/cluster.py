"""The effect of `--cluster` on nsqlookupd: it answers from the cluster's metadata.

It follows the metadata as a node does. It writes there that it lives (`lookups/<id>`) and, while it
holds the key for that, what the controller decides (`controller`). So any number of them give the
same answers, and none is asked to be up for the others. What a client asks for while a partition
has no leader waits a moment for the next one (`Holds`); what is to change something is passed on to
an nsqd (`Relay`).
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlencode

from penstock import __version__, limits
from penstock.clock import Clock
from penstock.cluster import keys
from penstock.cluster.coordinator import Coordinator
from penstock.cluster.documents import LOOKUP, Lookup
from penstock.cluster.registration import Leased, leave
from penstock.cluster.view import View
from penstock.cluster.watch import Phase, Watching
from penstock.errors import FetchFailed
from penstock.net.api import EMPTY, NSQ_HEADER, Answer, HttpError, Parameters, error_response
from penstock.net.etcd.address import parse_address
from penstock.net.etcd.session import EtcdCoordinator, Secrets
from penstock.net.exchange import Request, Response
from penstock.net.fetch import Fetcher
from penstock.net.query import whole_number
from penstock.net.tasks import Tasks
from penstock.net.tls import TlsFiles, http_client_tls
from penstock.nsqlookupd.controller import ControllerService
from penstock.nsqlookupd.metadata import Feed
from penstock.nsqlookupd.options import Options
from penstock.nsqlookupd.registry import Registry

log = logging.getLogger("penstock.nsqlookupd")

TICK_S = 0.1
CREATE, EXPAND, DELETE = "/topic/create", "/topic/partition/expand", "/topic/delete"
CHANNEL_CREATE = "/channel/create"


class _Held(NamedTuple):
    deadline_ns: int
    is_ready: Callable[[], bool]
    act: Callable[[], None]


class Holds:
    """Answers that wait until a condition holds, or LOOKUP_HOLD_NS, also counted from an earlier
    time: a later event is not waited for again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: list[_Held] = []

    def wait(
        self, is_ready: Callable[[], bool], act: Callable[[], None], since_ns: int | None = None
    ) -> None:
        mono_ns = self._clock.mono_ns()
        deadline_ns = (mono_ns if since_ns is None else since_ns) + limits.LOOKUP_HOLD_NS
        if mono_ns >= deadline_ns or is_ready():
            act()
        else:
            self._held.append(_Held(deadline_ns, is_ready, act))

    def look(self) -> None:
        held, self._held = self._held, []
        mono_ns = self._clock.mono_ns()
        for one in held:
            if mono_ns >= one.deadline_ns or one.is_ready():
                one.act()
            else:
                self._held.append(one)


@dataclass(eq=False)
class Relay:
    """Changes of topics and channels, forwarded to an nsqd. A node with a replica of the topic is
    asked, its leaders before others; any node may make a topic, and refuse a channel of a topic
    that is not there. An answer waits until this nsqlookupd has seen the change, for LOOKUP_HOLD_NS
    at most: whoever looks next finds it."""

    _view: View
    _holds: Holds
    _registry: Registry
    _fetcher: Fetcher
    _tasks: Tasks

    def send(self, request: Request, parameters: Parameters, answer: Answer) -> None:
        """`parameters`: of the request, checked."""
        self._tasks.begin(self._send(request, parameters, answer))

    async def _send(self, request: Request, parameters: Parameters, answer: Answer) -> None:
        response = await self._ask(request, parameters)
        if response.status != 200:
            answer(response)
            return
        self._holds.wait(
            lambda: is_seen(self._registry, request.path, parameters), lambda: answer(response)
        )

    async def _ask(self, request: Request, parameters: Parameters) -> Response:
        query = urlencode(parameters, errors="surrogateescape")
        credentials = (request.header(b"authorization") or b"").decode("latin-1")
        is_new = request.path in (CREATE, CHANNEL_CREATE)
        numbers = self._view.nodes_for(parameters["topic"], any_node=is_new)
        nodes = [self._view.nodes[number].document for number in numbers]
        addresses = [node.http_address for node in nodes if node.http_port]
        found = await self._ask_first(addresses, f"{request.path}?{query}", credentials)
        if found.status == 404 and request.path == DELETE:
            return EMPTY  # by another nsqlookupd, and as of a topic that none knows
        return found

    async def _ask_first(self, addresses: Iterable[str], target: str, credentials: str) -> Response:
        """The answer of the first that can be reached: the others have not heard of it. Where one
        may have heard it and has not answered, the outcome is not known."""
        reasons = []
        for address in addresses:
            url = f"http://{address}{target}"
            try:
                found = await self._fetcher.request("POST", url, b"", None, credentials)
            except FetchFailed as failed:
                if failed.sent:
                    unknown = {"changed": "unknown"}
                    return error_response(HttpError(503, f"FAILED {failed}", details=unknown))
                reasons.append(f"{address}: {failed.reason}")
                continue
            kind = found.headers.get("content-type", "") if found.body else ""
            return Response(found.status, found.body, kind, NSQ_HEADER)
        why = "; ".join(reasons) or "none is alive"
        code = f"FAILED no nsqd with a replica can be reached: {why}"
        return error_response(HttpError(503, code))


def is_seen(registry: Registry, path: str, parameters: Parameters) -> bool:
    """The registry shows the result of this request."""
    topic, channel = parameters["topic"], parameters.get("channel", "")
    if path == CREATE:
        return topic in registry.cluster_topics and registry.unled_ns(topic) is None
    if path == DELETE:
        return topic not in registry.cluster_topics
    if path == EXPAND:
        wanted = whole_number(parameters.get("partition_num", ""), limits.PARTITIONS_MAX)
        meta = registry.cluster_topics.get(topic)
        return meta is None or meta.partition_num >= (wanted or 0)
    return (channel in registry.channels.get(topic, ())) == (path == CHANNEL_CREATE)


class ClusterLookup:
    """`own`: where clients reach this nsqlookupd. `on_fault`: of the program."""

    def __init__(
        self,
        name: str,
        own: Lookup,
        coordinator: Coordinator,
        registry: Registry,
        clock: Clock,
        fetcher: Fetcher,
        on_fault: Callable[[Exception], None],
    ) -> None:
        self.name = name
        self.view = View()
        self.holds = Holds(clock)
        self._tasks = Tasks(on_fault)
        self.relay = Relay(self.view, self.holds, registry, fetcher, self._tasks)
        self._coordinator = coordinator
        self._watching = Watching(coordinator, self.view)
        self._own = Leased(
            keys.lookup(f"{own.host}:{own.tcp_port}"), coordinator, lambda: LOOKUP.encode(own)
        )
        self._feed = Feed(self.view, registry)
        self.controller = ControllerService(
            f"{own.host}:{own.http_port}", self.view, coordinator, clock, fetcher, self._tasks
        )
        self._clock = clock
        self._fetcher = fetcher
        self._current_ns = clock.mono_ns()  # when the view was that of the time
        self._since_ns = self._current_ns  # it has been so, without a gap
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """The first clients get the present state, if etcd answers soon."""
        self._task = self._tasks.begin(self._run())
        deadline_s = time.monotonic() + limits.COORDINATOR_START_NS / limits.SECOND
        while not (self.is_known or self._task.done()) and time.monotonic() < deadline_s:
            await asyncio.sleep(limits.SHUTDOWN_POLL_NS / limits.SECOND)

    # --- while it runs ---

    async def _run(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(TICK_S)

    async def look(self) -> None:
        """Ten times a second."""
        mono_ns = self._clock.mono_ns()
        self._watching.tick(mono_ns)
        changes = self.view.apply(limits.LOOKUP_SLICE_DOCUMENTS)
        while self.view.is_pending:
            await asyncio.sleep(0)
            changes += self.view.apply(limits.LOOKUP_SLICE_DOCUMENTS)
        is_current = self._watching.phase is Phase.WATCHING
        if is_current:
            self._current_ns = mono_ns
        else:
            self._since_ns = mono_ns
        followed_ns = mono_ns - self._since_ns
        self._feed.take(changes, followed_ns >= limits.NODE_LEASE_NS + limits.ABSENCE_GRACE_NS)
        if any(key == self._own.key and after is None for key, _, after in changes):
            self._own.key_gone()
        self._own.tick(mono_ns, is_current)
        self.controller.look(changes, is_current)
        self.holds.look()

    # --- for people and clients ---

    @property
    def is_known(self) -> bool:
        """The metadata was read as a whole, if not just now."""
        return self.view.revision > 0

    @property
    def reason(self) -> str:
        """Why it may not be that of now."""
        if self.view.frozen:
            return f"the metadata in etcd is not trusted: {self.view.frozen}"
        return self._watching.reason or "the metadata is being read"

    @property
    def trouble(self) -> str:
        """For how long etcd has not been followed, and why; empty: it is, or was recently."""
        away_ns = self._clock.mono_ns() - self._current_ns
        if away_ns < limits.LOOKUP_AWAY_NS:
            return ""
        return f"etcd has not been followed for {away_ns // limits.SECOND} s: {self.reason}"

    def info(self) -> dict[str, str]:
        return {"name": self.name, "uuid": f"{self.view.uuid:032x}"}

    def lookups(self) -> list[Lookup]:
        """All live ones; the oldest leads, as Youzan's clients expect: it is only a name."""
        held = sorted(self.view.lookups.items(), key=lambda item: (item[1].created, item[0]))
        return [one.document for _, one in held]

    # --- stop ---

    async def stop(self) -> None:
        if self._task is None:
            return
        await self._tasks.close()
        await self._fetcher.close()
        gone = asyncio.Event()
        leave(self._coordinator, (self._own, self.controller.key), gone.set)
        await gone.wait()


@asynccontextmanager
async def following(
    options: Options,
    about: Mapping[str, Any],
    registry: Registry,
    clock: Clock,
    on_fault: Callable[[Exception], None],
) -> AsyncIterator[ClusterLookup]:
    """`about`: the description for an nsqd. Raises ConfigError."""
    address = parse_address(options.cluster)
    secrets = Secrets.of_files(options.cluster_password_file, options.cluster_etcd_ca)
    tcp_port, http_port = max(about["tcp_port"], 0), max(about["http_port"], 0)  # -1: no port
    own = Lookup(about["broadcast_address"], tcp_port, http_port, __version__)
    pair = options.http_client_tls_cert, options.http_client_tls_key
    tls = http_client_tls(TlsFiles(options.http_client_tls_root_ca_file, *pair))
    fetcher = Fetcher(request_timeout_ns=limits.LOOKUP_RELAY_NS, tls=tls, keeps_connections=False)
    log.info("cluster %s (%s)", address.cluster, ",".join(address.endpoints))
    coordinator = EtcdCoordinator(address, secrets, on_fault)
    cluster = ClusterLookup(address.cluster, own, coordinator, registry, clock, fetcher, on_fault)
    try:
        await cluster.start()
        yield cluster
    finally:
        await cluster.stop()
        await coordinator.close()
