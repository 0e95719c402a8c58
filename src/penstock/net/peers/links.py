"""All links of one node: it listens, dials, and carries frames.

**Who dials.** Of two nodes the one with the lower id, so that two attempts never cross. The other
one only knocks while there is no link: it connects and hangs up, since a refused connection is how
the end of a process is noticed soonest.

**What is sent** goes out with the loop's next step, as many frames in one call as there are. Where
more than PEER_LIVE_BYTES_MAX wait on the live lane the other node is too slow to be worth waiting
for, and the link ends. The bulk lane has `has_room`: who feeds a replica asks first.

**A link that is silent** for `silence_ns` ends: each end sends heartbeats more often than that.
Time in which this process stood still is not counted.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from penstock.broker.ports import PeerLane
from penstock.errors import PeerFault
from penstock.limits import (
    PEER_BULK_BYTES_MAX,
    PEER_CONNECT_NS,
    PEER_KNOCK_NS,
    PEER_LIVE_BYTES_MAX,
    PEER_SILENCE_NS,
    PEER_SLICE_NS,
    PEER_STALL_NS,
    SECOND,
)
from penstock.net.outgoing import words_of
from penstock.net.peers.connection import PeerConnection
from penstock.net.peers.handshake import NONCE_BYTES, Dialling, Listening, Own, Reason
from penstock.net.tasks import Tasks
from penstock.replication.frames import Frame, FrameBroken, Frames, Target

if TYPE_CHECKING:
    from typing_extensions import Buffer


_LANES = len(PeerLane)
_log = logging.getLogger("penstock.cluster")


class PeerAddress(NamedTuple):
    """The address of a node, and its incarnation there, according to the metadata."""

    host: str
    port: int
    incarnation: int


class Events(Protocol):
    """Events about other nodes. Never called from within `send`."""

    def linked(self, node: int, incarnation: int) -> None: ...
    def unlinked(self, node: int) -> None: ...
    def received(self, node: int, target: Target, frame: Any) -> None: ...
    def refused(self, node: int, incarnation: int) -> None: ...


class _Knock(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A process listens there: that was the question."""
        transport.close()


@dataclass(eq=False, repr=False)  # it has secrets
class PeerLinks:
    """Any node with the cluster's secret may link: its incarnation may be newer than the metadata
    here."""

    own: Own
    _events: Events
    _on_fault: Callable[[Exception], None]
    _server_tls: ssl.SSLContext | None = None
    _client_tls: ssl.SSLContext | None = None
    silence_ns: int = PEER_SILENCE_NS
    links: dict[int, PeerLink] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)  # why there is no link, by node
    _addresses: dict[int, PeerAddress] = field(default_factory=dict)
    _members: frozenset[int] = field(default_factory=frozenset)
    _dials: dict[int, asyncio.Task[None]] = field(default_factory=dict)  # attempts, by node
    _dial_due_ns: dict[int, int] = field(default_factory=dict)
    _number: int = 0  # of the newest session
    _received_ns: dict[int, int] = field(default_factory=dict)  # when something came last
    _now_ns: int = 0
    _server: asyncio.Server | None = None
    _strangers: set[PeerConnection] = field(default_factory=set)  # nothing is known of them yet

    def __post_init__(self) -> None:
        self._tasks = Tasks(self._on_fault)

    # --- start and end ---

    async def listen(self, host: str, port: int) -> int:
        """Returns the port. Raises OSError."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._accepted, host, port, ssl=self._server_tls, reuse_address=True
        )
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        await self._tasks.close()
        for stranger in tuple(self._strangers):
            stranger.close()
        for link in self.links.values():
            link.end()

    def know(self, addresses: Mapping[int, PeerAddress], members: Collection[int]) -> None:
        """`addresses`: of the nodes to dial. `members`: all nodes of the cluster. A link ends when
        its node leaves the cluster. A node without an address may have lost its lease in an outage
        of the coordinator, and an unknown one may be newer than the metadata here."""
        self._addresses = {
            node: address for node, address in addresses.items() if node != self.own.node
        }
        for node in self._members.difference(members).intersection(self.links):
            self.links.pop(node).end()
        self._members = frozenset(members)
        for node in [node for node in self._dial_due_ns if node not in self._addresses]:
            del self._dial_due_ns[node]
            if node in self._dials:
                self._dials.pop(node).cancel()

    # --- the broker's port ---

    def send(self, node: int, lane: PeerLane, frames: Sequence[Sequence[Buffer]]) -> None:
        link = self.links.get(node)
        if link is None or not link.is_whole:
            return
        connection = link.lanes[lane]
        connection.write([part for frame in frames for part in frame])
        if lane is PeerLane.LIVE and connection.waiting_bytes > PEER_LIVE_BYTES_MAX:
            asyncio.get_running_loop().call_soon(self._too_slow, link, connection)

    def is_linked(self, node: int) -> bool:
        link = self.links.get(node)
        return link is not None and link.is_whole

    def has_room(self, node: int) -> bool:
        """Is there room for another piece on the bulk lane?"""
        link = self.links.get(node)
        if link is None or not link.is_whole:
            return False
        connection = link.lanes[PeerLane.BULK]
        return connection.waiting_bytes < PEER_BULK_BYTES_MAX

    def _too_slow(self, link: PeerLink, connection: PeerConnection) -> None:
        if connection in link.lanes.values():
            self._end(link, f"{connection.waiting_bytes} bytes wait for it")

    # --- time ---

    def tick(self, mono_ns: int) -> None:
        """Some ten times a second."""
        self._excuse(mono_ns - self._now_ns)
        self._now_ns = mono_ns
        for node, link in tuple(self.links.items()):
            if link.is_whole and mono_ns - self._received_ns[node] >= self.silence_ns:
                self._end(link, f"silent for {self.silence_ns / SECOND:g} s")
        for stranger in tuple(self._strangers):
            if mono_ns - stranger.since_ns >= PEER_CONNECT_NS:
                stranger.close()
                self._strangers.discard(stranger)
        for node, address in self._addresses.items():
            self._dial_if_due(node, address, mono_ns)

    def _excuse(self, since_ns: int) -> None:
        """After a pause of this process, input of the meantime was not read yet."""
        if since_ns >= PEER_STALL_NS:
            for node in self._received_ns:
                self._received_ns[node] += since_ns

    def _dial_if_due(self, node: int, address: PeerAddress, mono_ns: int) -> None:
        link = self.links.get(node)
        if link is not None and link.is_whole:
            return
        before = self._dials.get(node)
        if (before is None or before.done()) and mono_ns >= self._dial_due_ns.get(node, 0):
            self._dial_due_ns[node] = mono_ns + PEER_KNOCK_NS
            work = self._dial(node, address) if self.own.node < node else self._knock(node, address)
            self._dials[node] = self._tasks.begin(work)

    # --- dialling ---

    async def _dial(self, node: int, address: PeerAddress) -> None:
        self._number += 1
        session = PeerSession(self.own.incarnation, self._number)
        try:
            async with asyncio.timeout(PEER_CONNECT_NS / SECOND):
                for lane in (PeerLane.BULK, PeerLane.LIVE):
                    await self._dial_lane(node, address, session, lane)
        except (OSError, PeerFault, TimeoutError) as error:
            link = self.links.get(node)
            if link is not None and link.session == session:
                link.end()
            self._failed(node, address, error)

    async def _dial_lane(
        self, node: int, address: PeerAddress, session: PeerSession, lane: PeerLane
    ) -> None:
        loop = asyncio.get_running_loop()
        handshake = Dialling(self.own, node, lane, session.number, os.urandom(NONCE_BYTES))
        connection = PeerConnection(handshake, self._now_ns)
        connection.on_open = lambda: self._take(
            node, session, lane, handshake.incarnation, connection
        )
        opened = connection.wait_open(loop)
        try:
            await loop.create_connection(
                lambda: connection, address.host, address.port, ssl=self._client_tls
            )
            await opened
        except BaseException:
            connection.close()
            raise

    async def _knock(self, node: int, address: PeerAddress) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(PEER_CONNECT_NS / SECOND):
                await loop.create_connection(_Knock, address.host, address.port)
        except (OSError, TimeoutError) as error:
            self._failed(node, address, error)

    def _failed(self, node: int, address: PeerAddress, error: Exception) -> None:
        reason = words_of(error)
        if self.reasons.get(node) != reason:
            self.reasons[node] = reason
            _log.warning("node %d at %s:%d: %s", node, address.host, address.port, reason)
        if isinstance(error, ConnectionRefusedError):
            self._events.refused(node, address.incarnation)

    # --- being dialled ---

    def _accepted(self) -> PeerConnection:
        handshake = Listening(self.own, os.urandom(NONCE_BYTES), self._hindrance)
        connection = PeerConnection(handshake, self._now_ns)
        self._strangers.add(connection)
        connection.on_open = lambda: self._welcomed(handshake, connection)
        connection.on_end = lambda reason: self._strangers.discard(connection)
        return connection

    def _hindrance(self, node: int, incarnation: int, session: int) -> Reason | None:
        if node >= self.own.node:
            return Reason.STRANGER
        link = self.links.get(node)
        if (
            link is not None
            and link.session is not None
            and link.session.incarnation == incarnation
        ):
            return Reason.SESSION if session < link.session.number else None
        return None

    def _welcomed(self, handshake: Listening, connection: PeerConnection) -> None:
        self._strangers.discard(connection)
        greeting = handshake.greeting
        session = PeerSession(greeting.incarnation, greeting.session)
        self._take(greeting.source, session, handshake.lane, greeting.incarnation, connection)

    # --- links ---

    def _take(
        self,
        node: int,
        session: PeerSession,
        lane: PeerLane,
        incarnation: int,
        connection: PeerConnection,
    ) -> None:
        link = self.links.get(node)
        if link is None:
            link = self.links[node] = PeerLink(node, self._linked, self._events.unlinked)
        frames = Frames(node)
        connection.space = frames.space
        connection.on_filled = partial(self._received, link, connection, frames)
        connection.on_end = lambda reason: self._ended(link, connection, reason)
        link.opened(session, lane, incarnation, connection)

    def _linked(self, node: int, incarnation: int) -> None:
        self._received_ns[node] = self._now_ns
        self.reasons.pop(node, None)
        _log.info("node %d is linked", node)
        self._events.linked(node, incarnation)

    def _received(
        self, link: PeerLink, connection: PeerConnection, frames: Frames, count: int
    ) -> None:
        self._hand_out(link, connection, frames.filled(count))

    def _hand_out(
        self, link: PeerLink, connection: PeerConnection, found: Iterator[tuple[Target, Frame]]
    ) -> bool:
        """False: more is to come, after a turn of the loop. A node that comes back has news of
        thousands of partitions, each of which may write files; meanwhile etcd's lease has to be
        kept, and clients wait."""
        self._received_ns[link.node] = self._now_ns
        until_ns = time.monotonic_ns() + PEER_SLICE_NS
        try:
            for target, frame in found:
                self._events.received(link.node, target, frame)
                if connection not in link.lanes.values():
                    return False  # the frame has ended the link
                if time.monotonic_ns() >= until_ns:
                    connection.pause()
                    loop = asyncio.get_running_loop()
                    loop.call_soon(self._go_on, link, connection, found)
                    return False
        except FrameBroken as fault:
            self._end(link, str(fault))
        except Exception as error:
            self._on_fault(error)
        return True

    def _go_on(
        self, link: PeerLink, connection: PeerConnection, found: Iterator[tuple[Target, Frame]]
    ) -> None:
        if connection in link.lanes.values() and self._hand_out(link, connection, found):
            connection.go_on()

    def _ended(self, link: PeerLink, connection: PeerConnection, reason: str) -> None:
        if connection in link.lanes.values():
            self._end(link, reason)

    def _end(self, link: PeerLink, reason: str) -> None:
        self.reasons[link.node] = reason
        _log.warning("the link to node %d ends: %s", link.node, reason)
        link.end()


class PeerSession(NamedTuple):
    incarnation: int  # of the node that dialled
    number: int


@dataclass(eq=False)
class PeerLink:
    """The link to one other node, without I/O. `incarnation`: of its process.

    Two connections, one for each lane, of one session. A session is (incarnation, number) of the
    node that dials. What is seen of a newer one ends an older one, before anything that comes over
    the newer one is looked at: frames of the older that still wait in buffers are never read.

    | a lane opens | the link was | then |
    |---|---|---|
    | of the session in hand | waiting for this lane | it is whole: `linked` |
    | of a newer session | anything | that ends (`unlinked`, if it was whole), and this one begins |
    | of an older session, or twice | anything | the connection is closed |

    | a lane ends | then |
    |---|---|
    | of the session in hand | so does the other: `unlinked`, if the link was whole |
    | of any other | nothing |
    """

    node: int
    _on_linked: Callable[[int, int], None]
    _on_unlinked: Callable[[int], None]
    incarnation: int = 0
    session: PeerSession | None = None
    lanes: dict[PeerLane, PeerConnection] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        return len(self.lanes) == _LANES

    def _may_open(self, session: PeerSession, lane: PeerLane) -> bool:
        known = self.session
        if known is None or known.incarnation != session.incarnation:
            return True
        return session.number > known.number or (session == known and lane not in self.lanes)

    def opened(
        self, session: PeerSession, lane: PeerLane, incarnation: int, connection: PeerConnection
    ) -> None:
        """A superfluous connection is closed."""
        if not self._may_open(session, lane):
            connection.close()
            return
        if session != self.session:
            self.end()
            self.session, self.incarnation = session, incarnation
        elif incarnation != self.incarnation:  # that process was started again in between
            connection.close()
            self.end()
            return
        self.lanes[lane] = connection
        if self.is_whole:
            self._on_linked(self.node, incarnation)
            for one in tuple(self.lanes.values()):
                one.go_on()

    def end(self) -> None:
        """The session stays known: its number is not used again."""
        lanes, self.lanes = self.lanes, {}
        for connection in lanes.values():
            connection.close()
        if len(lanes) == _LANES:
            self._on_unlinked(self.node)
