"""One node's connection to etcd: several endpoints, one of them in use.

| a call | its answer |
|---|---|
| `transact` that was answered | DONE or REFUSED |
| `transact` whose lease is gone | REFUSED, with what stands there |
| `transact` that failed in any other way, or took longer than COORDINATOR_CALL_NS | UNKNOWN |
| a read, a page, a grant, a keep that failed | Failed: ask again |
| a watch whose stream broke | Failed |

Nothing is asked twice by this port, but for one case: etcd looked at no request whose token it
refused, so that is sent again with a new one. All calls that need a new token wait for the same
one: etcd spends a tenth of a second of its processor on each, and it forgets those of all nodes
when it starts.

**Endpoints.** One that cannot be reached, or does not answer in time, is left for the next, and the
watches over it end with Failed: a stream to a machine that hangs would be silent. Streams ask for
members that know a leader (`hasleader`), so a member that was cut off from the others ends them.

**How far a watch is** cannot be asked of every etcd: releases before 3.4.25 and 3.5.8 answer a
request for progress with a revision of which some events are still to come. A change of the
watched keys shows it in any release, since events come in the order of their revisions. So the
watch makes one: it writes the key `pulse`, and when that comes back, all before it has come. Nodes
that watch the same cluster see each other's pulses, so together they write about one in a period.

The answer to that write tells more: a revision below the one that the watch waits for means that
the coordinator was restored, and then nothing would come for a long time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import grpc
from aetcd import rpc

from penstock.cluster.coordinator import (
    UNKNOWN,
    Changes,
    Compacted,
    Failed,
    Granted,
    KeyEvent,
    KeyPage,
    LeaseGone,
    Put,
    Reading,
    Settled,
    Transaction,
)
from penstock.errors import ConfigError, CoordinatorFailed
from penstock.limits import (
    COORDINATOR_CALL_NS,
    COORDINATOR_MESSAGE_BYTES_MAX,
    COORDINATOR_PAGE_NS,
    SECOND,
)
from penstock.net.etcd.address import EtcdAddress
from penstock.net.etcd.messages import PULSE, Keys
from penstock.net.tasks import Tasks
from penstock.replication.leader import Outcome

_PULSE = Transaction((), (Put(PULSE, b""),))
T = TypeVar("T")
Changed = Callable[[Changes | Compacted | Failed], None]
_Metadata = tuple[tuple[str, str], ...]  # of a call: who asks


@dataclass(eq=False)
class EtcdWatch:
    _session: EtcdCoordinator
    _keys: Keys
    _prefix: str
    _since: int  # all below it has been handed out
    _changed: Changed
    endpoint: str  # whose stream it is
    is_over: bool = False
    task: asyncio.Task[None] | None = None
    _events: list[KeyEvent] = field(default_factory=list)  # of an answer that comes in fragments
    _has_received: bool = False  # something, since the last question

    def request_progress(self) -> None:
        if self.is_over:
            return
        if self._has_received:
            self._has_received = False
            self._changed(Changes(self._since - 1, ()))
            return
        self._session.transact(_PULSE, self._pulsed)

    def _pulsed(self, settled: Settled) -> None:
        done = settled.outcome is Outcome.DONE
        if done and not self.is_over and settled.revision < self._since:
            self._changed(Changes(settled.revision, ()))

    def cancel(self) -> None:
        self.is_over = True
        if self.task is not None:
            self.task.cancel()

    def fail(self, reason: str) -> None:
        """The endpoint was abandoned."""
        self._end(Failed(reason))

    def _end(self, last: Compacted | Failed) -> None:
        if not self.is_over:
            self.cancel()
            self._changed(last)

    # --- the stream ---

    async def follow(self, stream: Any) -> None:
        await stream.write(self._keys.watch(self._prefix, self._since))
        async for response in stream:
            if self.is_over:
                return
            if response.canceled:
                self._end(_reason(response))
                return
            self._take(response)
        self._end(Failed("the stream of changes has ended"))

    def _take(self, response: Any) -> None:
        self._events.extend(map(self._keys.event, response.events))
        if response.fragment or not self._events:
            return
        events, self._events = self._events, []
        revision = events[-1].revision
        self._since, self._has_received = revision + 1, True
        shown = tuple(event for event in events if event.key != PULSE)
        self._changed(Changes(revision, shown))


def _reason(response: Any) -> Compacted | Failed:
    if response.compact_revision:
        return Compacted(response.compact_revision)
    return Failed(response.cancel_reason or "etcd has ended the watch")


_log = logging.getLogger("penstock.cluster")
_Code = grpc.StatusCode
_LOST = {code.name for code in (_Code.UNAVAILABLE, _Code.DEADLINE_EXCEEDED, _Code.CANCELLED)}
# The latter: its token is of before users or roles were changed.
_TOKEN_REFUSED = {code.name for code in (_Code.UNAUTHENTICATED, _Code.INVALID_ARGUMENT)}
_LEASE_GONE = _Code.NOT_FOUND.name
_NEEDS_LEADER = ("hasleader", "true")
_OPTIONS = (
    # etcd hangs up on clients that ping more often than every five seconds.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.max_receive_message_length", COORDINATOR_MESSAGE_BYTES_MAX),
    ("grpc.use_local_subchannel_pool", 1),
)


class Secrets(NamedTuple):
    """Contents, not paths. Empty: none."""

    password: str = ""
    authority: bytes = b""  # certificates in PEM that etcd's is signed by; none: the system's

    @classmethod
    def of_files(cls, password_file: str, authority_file: str) -> Secrets:
        """From -cluster-password-file and -cluster-etcd-ca. Raises ConfigError."""
        password = _content("cluster-password-file", password_file).strip()
        return cls(password.decode("utf-8", "replace"), _content("cluster-etcd-ca", authority_file))


def _content(name: str, path: str) -> bytes:
    if not path:
        return b""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(name, path, f"cannot be read: {error.strerror or error}") from error


class Stubs:
    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self.kv = rpc.KVStub(channel)
        self.lease = rpc.LeaseStub(channel)
        self.watch = rpc.WatchStub(channel)
        self.auth = rpc.AuthStub(channel)


class EtcdCoordinator:
    """Created and used in one running loop. `on_fault`: of the program, in a callback."""

    def __init__(
        self, address: EtcdAddress, secrets: Secrets, on_fault: Callable[[Exception], None]
    ) -> None:
        self.endpoint = address.endpoints[0]  # in use
        self.reason = ""  # why calls fail; empty: the last one was answered
        self._full_for = ""  # the call that is refused until etcd has room for it
        self._address = address
        self._secrets = secrets
        self._keys = Keys(address.prefix)
        self._stubs: dict[str, Stubs] = {}
        self._token = ""
        self._new_token: asyncio.Task[str] | None = None  # on its way
        self._tasks = Tasks(on_fault)
        self._watches: set[EtcdWatch] = set()

    async def close(self) -> None:
        """Calls that wait are not answered any more."""
        await self._tasks.close()
        if self._new_token is not None:
            self._new_token.cancel()
        for stubs in self._stubs.values():
            await stubs.channel.close()

    @property
    def is_full(self) -> bool:
        return self._full_for != ""

    # --- the port ---

    def transact(self, transaction: Transaction, done: Callable[[Settled], None]) -> None:
        transaction.check()
        self._tasks.begin(self._transact(transaction, done))

    def read(self, key: str, done: Callable[[Reading | Failed], None]) -> None:
        self._answer(lambda: self._read(key), done)

    def list(self, prefix: str, done: Callable[[KeyPage | Failed], None]) -> None:
        self._answer(lambda: self._list(prefix, done), done)

    def watch(
        self, prefix: str, since: int, changed: Callable[[Changes | Compacted | Failed], None]
    ) -> EtcdWatch:
        watch = EtcdWatch(self, self._keys, prefix, since, changed, self.endpoint)
        watch.task = self._tasks.begin(self._watch(watch))
        return watch

    def grant(self, ttl_ns: int, done: Callable[[Granted | Failed], None]) -> None:
        self._answer(lambda: self._grant(ttl_ns), done)

    def keep(self, lease: int, done: Callable[[Granted | LeaseGone | Failed], None]) -> None:
        self._answer(lambda: self._keep(lease), done)

    # --- calls ---

    async def _transact(self, transaction: Transaction, done: Callable[[Settled], None]) -> None:
        try:
            settled = self._keys.settled(await self._transacted(transaction))
        except CoordinatorFailed as failed:
            settled = UNKNOWN._replace(reason=self._note(failed).reason)
        done(settled)

    async def _transacted(self, transaction: Transaction) -> Any:
        try:
            return await self._call("kv", "Txn", self._keys.transaction(transaction))
        except CoordinatorFailed as failed:
            if failed.code != _LEASE_GONE:
                raise
        return await self._call("kv", "Txn", self._keys.refused(transaction.compares))

    def _answer(
        self, ask: Callable[[], Coroutine[Any, Any, T]], done: Callable[[T | Failed], None]
    ) -> None:
        async def answer() -> None:
            try:
                found: T | Failed = await ask()
            except CoordinatorFailed as failed:
                found = self._note(failed)
            done(found)

        self._tasks.begin(answer())

    async def _read(self, key: str) -> Reading:
        response = await self._call("kv", "Range", self._keys.read(key))
        entry = self._keys.entry(response.kvs[0]) if response.kvs else None
        return Reading(response.header.revision, entry)

    async def _list(self, prefix: str, done: Callable[[KeyPage | Failed], None]) -> KeyPage:
        """All pages as of the revision of the first one; returns the last."""
        after, revision = b"", 0
        while True:
            request = self._keys.page(prefix, after, revision)
            response = await self._call("kv", "Range", request, COORDINATOR_PAGE_NS)
            revision = revision or response.header.revision
            page = KeyPage(revision, self._keys.entries(response.kvs), not response.more)
            if page.is_last:
                return page
            done(page)
            after = response.kvs[-1].key

    async def _grant(self, ttl_ns: int) -> Granted:
        request = rpc.LeaseGrantRequest(TTL=-(-ttl_ns // SECOND))
        response = await self._call("lease", "LeaseGrant", request)
        return Granted(response.ID, response.TTL * SECOND)

    async def _keep(self, lease: int) -> Granted | LeaseGone:
        request = rpc.LeaseKeepAliveRequest(ID=lease)
        response = await self._call("lease", "LeaseKeepAlive", request)
        return Granted(lease, response.TTL * SECOND) if response.TTL else LeaseGone(lease)

    async def _watch(self, watch: EtcdWatch) -> None:
        self._watches.add(watch)
        try:
            await self._follow(watch)
        except CoordinatorFailed as failed:
            watch.fail(self._note(failed).reason)
        finally:
            self._watches.discard(watch)

    async def _follow(self, watch: EtcdWatch) -> None:
        endpoint, stubs, metadata = await self._ready()
        watch.endpoint = endpoint
        stream = stubs.watch.Watch(metadata=(*metadata, _NEEDS_LEADER))
        try:
            await watch.follow(stream)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            raise self._checked(await _failure_of(stream, endpoint), metadata) from None
        finally:
            stream.cancel()

    # --- one call ---

    async def _call(
        self, service: str, name: str, request: Any, timeout_ns: int = COORDINATOR_CALL_NS
    ) -> Any:
        """Raises CoordinatorFailed."""
        try:
            return await self._call_once(service, name, request, timeout_ns)
        except CoordinatorFailed as failed:
            if not self._address.user or failed.code not in _TOKEN_REFUSED:
                raise
        return await self._call_once(service, name, request, timeout_ns)

    async def _call_once(self, service: str, name: str, request: Any, timeout_ns: int) -> Any:
        endpoint, stubs, metadata = await self._ready()
        call, timeout_s = getattr(getattr(stubs, service), name), timeout_ns / SECOND
        try:
            if name == "LeaseKeepAlive":  # one question over a stream of its own
                stream = call(timeout=timeout_s, metadata=(*metadata, _NEEDS_LEADER))
                response = await _ask(stream, request, endpoint)
            else:
                response = await call(request, timeout=timeout_s, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
                self._full_for = name
            raise self._checked(_failure(error, endpoint), metadata) from None
        except CoordinatorFailed as failed:
            raise self._checked(failed, metadata) from None
        self._answered(endpoint, name)
        return response

    async def _ready(self) -> tuple[str, Stubs, _Metadata]:
        """The endpoint in use, with a token where users have them."""
        endpoint = self.endpoint
        stubs = self._stubs.get(endpoint)
        if stubs is None:
            stubs = self._stubs[endpoint] = Stubs(self._channel(endpoint))
        if not self._address.user:
            return endpoint, stubs, ()
        if not self._token:
            if self._new_token is None or self._new_token.done():
                self._new_token = asyncio.create_task(self._authenticate(endpoint, stubs))
            self._token = await asyncio.shield(self._new_token)
        return endpoint, stubs, (("token", self._token),)

    async def _authenticate(self, endpoint: str, stubs: Stubs) -> str:
        name, password = self._address.user, self._secrets.password
        request = rpc.AuthenticateRequest(name=name, password=password)
        try:
            response = await stubs.auth.Authenticate(request, timeout=COORDINATOR_CALL_NS / SECOND)
        except grpc.aio.AioRpcError as error:
            raise _failure(error, endpoint) from None
        return str(response.token)

    def _checked(self, failed: CoordinatorFailed, metadata: _Metadata) -> CoordinatorFailed:
        """A token that was refused is not used again."""
        if failed.code in _TOKEN_REFUSED and metadata == (("token", self._token),):
            self._token = ""
        return failed

    def _channel(self, endpoint: str) -> Any:
        if not self._address.is_secure:
            return grpc.aio.insecure_channel(endpoint, options=_OPTIONS)
        credentials = grpc.ssl_channel_credentials(self._secrets.authority or None)
        return grpc.aio.secure_channel(endpoint, credentials, options=_OPTIONS)

    # --- failures ---

    def _answered(self, endpoint: str, name: str) -> None:
        """A full etcd still answers, except writes."""
        if self._full_for == name:
            self._full_for = ""
        if self.reason and endpoint == self.endpoint and not self._full_for:
            _log.info("etcd answers again, at %s", endpoint)
            self.reason = ""

    def _note(self, failed: CoordinatorFailed) -> Failed:
        """A lost endpoint is replaced by the next one."""
        if not self.reason:
            _log.warning("%s", failed)
        self.reason = str(failed)
        if failed.code in _LOST and failed.endpoint == self.endpoint:
            self._leave(failed)
        return Failed(str(failed))

    def _leave(self, failed: CoordinatorFailed) -> None:
        endpoints, left = self._address.endpoints, failed.endpoint
        self.endpoint = endpoints[(endpoints.index(left) + 1) % len(endpoints)]
        for watch in tuple(self._watches):
            if watch.endpoint == left:
                watch.fail(str(failed))


async def _ask(stream: Any, request: Any, endpoint: str) -> Any:
    try:
        await stream.write(request)
        response = await stream.read()
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):  # it has ended already
        response = grpc.aio.EOF
    if response is grpc.aio.EOF:
        raise await _failure_of(stream, endpoint)
    stream.cancel()
    return response


async def _failure_of(stream: Any, endpoint: str) -> CoordinatorFailed:
    code, details = await stream.code(), await stream.details()
    return CoordinatorFailed(endpoint, code.name, details or "the stream has ended")


def _failure(error: Any, endpoint: str) -> CoordinatorFailed:
    return CoordinatorFailed(endpoint, error.code().name, error.details() or "no details")
