"""nsqd's connections to nsqlookupd: one per address, always there or on its way back.

Whatever ends a connection (a restart on either side, a lost network, garbage) leads to a new one
after a short pause that grows while it keeps failing, and everything is registered anew. So a queue
of what happened meanwhile is never kept: what is true when the connection stands is what is told.

A closed socket is noticed at once. A dead network is noticed when an answer is overdue: to a PING
at the latest. All times are measured by the loop's monotonic clock.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from penstock import __version__, limits
from penstock.broker.channels.channel import Channel
from penstock.broker.context import TopicChange
from penstock.broker.topics.topic import Topic
from penstock.errors import ConfigError, PeerFault
from penstock.net.listener import keep_alive, parse_address
from penstock.nsqd.dialogue import IDENTIFY, PING, Dialogue, all_commands, commands_of

if TYPE_CHECKING:
    from penstock.nsqd.http.deps import Identity
    from penstock.nsqd.options import Options

log = logging.getLogger("penstock.nsqd")

Topics = Callable[[], Iterable[Topic]]  # all that is there


def lookup_identity(options: Options, identity: Identity) -> dict[str, str | int]:
    """The description of this nsqd for an nsqlookupd."""
    return {
        "version": __version__,
        "tcp_port": identity.tcp_port,
        "http_port": identity.http_port or -1,  # without HTTP: nsqlookupd takes no 0
        "hostname": identity.hostname,
        "broadcast_address": options.broadcast_address,
        "topology_zone": options.topology_zone,
        "topology_region": options.topology_region,
        "partitions": True,  # it names them to an nsqlookupd that knows them
    }


class Lookups:
    """All peers. `start` gives our identity; the addresses may be set before and after it. The dice
    spread their next attempts."""

    def __init__(self, topics: Topics, dice: Random) -> None:
        self.peers: dict[str, LookupPeer] = {}
        self._topics = topics
        self._dice = dice
        self._identity: Mapping[str, Any] | None = None

    @property
    def addresses(self) -> list[str]:
        return list(self.peers)

    def set_addresses(self, addresses: Sequence[str]) -> None:
        """Drop peers that are not in the list, and add the new ones. Raises ConfigError for an
        invalid address; then nothing has changed."""
        for address in addresses:
            if parse_address(address, "lookupd-tcp-address").path and "/" not in address:
                raise ConfigError("lookupd-tcp-address", address, "must be host:port")
        for address in [known for known in self.peers if known not in addresses]:
            log.info("LOOKUPD(%s): removing peer", address)
            self.peers.pop(address).close()
        for address in addresses:
            if address not in self.peers:
                log.info("LOOKUPD(%s): adding peer", address)
                peer = self.peers[address] = LookupPeer(address, self._topics, self._dice)
                if self._identity is not None:
                    peer.start(self._identity)

    def start(self, identity: Mapping[str, Any]) -> None:
        self._identity = identity
        for peer in self.peers.values():
            peer.start(identity)

    async def settled(self, timeout_ns: int) -> None:
        """Wait until each peer knows us or has failed once, so that the first new topics are asked
        for too; at most this long."""
        waiting = [asyncio.ensure_future(peer.settled.wait()) for peer in self.peers.values()]
        if waiting:
            _, late = await asyncio.wait(waiting, timeout=timeout_ns / limits.SECOND)
            for task in late:
                task.cancel()

    def close(self) -> list[LookupPeer]:
        self._identity = None
        peers, self.peers = list(self.peers.values()), {}
        for peer in peers:
            peer.close()
        return peers

    async def stop(self) -> None:
        await asyncio.gather(*(peer.ended() for peer in self.close()))

    def http_addresses(self) -> list[str]:
        """Of the peers that are connected and know us."""
        return [peer.http_address for peer in self.peers.values() if peer.http_address]

    def on_topic_changed(self, change: TopicChange, topic: Topic, channel: Channel | None) -> None:
        """The hook of the broker."""
        for peer in self.peers.values():
            peer.notify(change, topic, channel)


class LookupPeer:
    """One nsqlookupd: connects, and reconnects."""

    def __init__(self, address: str, topics: Topics, dice: Random) -> None:
        self.address = address
        self.topics = topics
        self._dice = dice
        self.settled = asyncio.Event()  # it knows us, or something has failed
        self.identity: Mapping[str, Any] = {}
        self._loop: asyncio.AbstractEventLoop
        self._link: LookupLink | None = None
        self._task: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._failures = 0
        self._last_failure = ""
        self._closed = False

    def start(self, identity: Mapping[str, Any]) -> None:
        self.identity = identity
        self._loop = asyncio.get_running_loop()
        self._connect()

    def close(self) -> None:
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()
        if self._task is not None:
            self._task.cancel()
        if self._link is not None:
            self._link.close()

    async def ended(self) -> None:
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.sleep(0)  # an aborted transport says so in the next round

    @property
    def http_address(self) -> str:
        info = self._link.dialogue.info if self._link is not None else None
        return info.http_address if info is not None else ""

    def notify(self, change: TopicChange, topic: Topic, channel: Channel | None) -> None:
        """Something has changed. A peer that does not know us yet learns it when it does."""
        info = self._link.dialogue.info if self._link is not None else None
        if self._link is None or info is None:
            return
        kind = "topic" if channel is None else "channel"
        for command in commands_of(change, topic, channel, info.partitions):
            log.info("LOOKUPD(%s): %s %s", self.address, kind, command)
            self._link.send(command)

    # --- connecting ---

    def _connect(self) -> None:
        self._retry = None
        self._task = self._loop.create_task(self._open())

    async def _open(self) -> None:
        address, loop = parse_address(self.address), self._loop
        level = logging.DEBUG if self._failures else logging.INFO
        log.log(level, "LOOKUP connecting to %s", self.address)
        link = partial(LookupLink, self)
        try:
            async with asyncio.timeout(limits.LOOKUP_CONNECT_NS / limits.SECOND):
                if address.path:
                    await loop.create_unix_connection(link, address.path)
                else:
                    await loop.create_connection(link, address.host, address.port)
        except TimeoutError:
            if self._link is not None:  # connected as the time was up: the loop closes it silently
                self._link.connection_lost(None)
            else:
                self._failed("connecting - timed out")
        except (OSError, ValueError) as error:  # ValueError: a host name that cannot be one
            self._failed(f"connecting - {error}")

    def opened(self, link: LookupLink) -> None:
        if self._closed:
            link.close()
        else:
            self._link = link

    def lost(self, link: LookupLink, reason: str) -> None:
        if self._link is link:
            self._link = None
            if link.age_s >= limits.LOOKUP_RETRY_NS_MAX / limits.SECOND:
                self._failures = 0  # it was a good one: try again at once
                self._last_failure = ""
            self._failed(reason)

    def _failed(self, reason: str) -> None:
        self.settled.set()
        if self._closed:
            return
        # An nsqlookupd that stays away is one line, not one every few seconds.
        level = logging.DEBUG if reason == self._last_failure else logging.ERROR
        log.log(level, "LOOKUPD(%s): %s", self.address, reason)
        self._last_failure = reason
        self._retry = self._loop.call_later(self._pause_s(), self._connect)
        self._failures += 1

    def _pause_s(self) -> float:
        doubled_ns = limits.LOOKUP_RETRY_NS_MIN << min(self._failures, 16)
        pause_s = min(doubled_ns, limits.LOOKUP_RETRY_NS_MAX) / limits.SECOND
        return pause_s * self._dice.uniform(0.5, 1.0)


class LookupLink(asyncio.Protocol):
    """One connection of a peer: moves the bytes and watches the clock."""

    def __init__(self, peer: LookupPeer) -> None:
        self.dialogue = Dialogue(peer.identity)
        self._peer = peer
        self._loop = asyncio.get_running_loop()
        self._opened_s = self._loop.time()
        self._transport: asyncio.Transport | None = None
        self._overdue: asyncio.TimerHandle | None = None
        self._ping: asyncio.TimerHandle | None = None
        self._reason = "connection closed"

    @property
    def age_s(self) -> float:
        return self._loop.time() - self._opened_s

    # --- callbacks of the loop ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        keep_alive(transport.get_extra_info("socket"))
        self._peer.opened(self)
        self._write(self.dialogue.begin())
        self._arm_ping()

    def data_received(self, data: bytes) -> None:
        try:
            answered = self.dialogue.feed(data)
        except PeerFault as fault:
            self._fail(str(fault))
            return
        if answered:
            self._disarm()
            if answered[0] == IDENTIFY:
                self._introduced()
            if self.dialogue.owed:
                self._arm()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._disarm()
        if self._ping is not None:
            self._ping.cancel()
        if error is not None and self._reason == "connection closed":
            self._reason = f"connection lost - {error}"
        self._peer.lost(self, self._reason)

    # --- calls of the peer ---

    def send(self, command: str) -> None:
        self._write(self.dialogue.command(command))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)
            if self._overdue is None:
                self._arm()

    def _introduced(self) -> None:
        """The peer knows us: register everything."""
        peer, info = self._peer, self.dialogue.info
        if info is None:
            return
        log.info("LOOKUPD(%s): peer info %s", peer.address, info.text)
        if not info.http_address:
            log.error("LOOKUPD(%s): no broadcast address", peer.address)
        commands = list(all_commands(peer.topics(), info.partitions))
        for command in commands:
            log.debug("LOOKUPD(%s): %s", peer.address, command)
        log.info("LOOKUPD(%s): registering %d topics and channels", peer.address, len(commands))
        if commands:
            self._write(b"".join(map(self.dialogue.command, commands)))
        peer.settled.set()

    def _fail(self, reason: str) -> None:
        self._reason = reason
        self.close()

    # --- time ---

    def _arm(self) -> None:
        self._disarm()  # a second timer would outlive the answer that it waits for
        wait_s = limits.LOOKUP_ANSWER_NS / limits.SECOND
        self._overdue = self._loop.call_later(wait_s, self._on_overdue)

    def _disarm(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None

    def _on_overdue(self) -> None:
        self._overdue = None
        self._fail(f"{self.dialogue.owed[0].split()[0]} - no answer")

    def _arm_ping(self) -> None:
        wait_s = limits.LOOKUP_PING_NS / limits.SECOND
        self._ping = self._loop.call_later(wait_s, self._on_ping)

    def _on_ping(self) -> None:
        log.debug("LOOKUPD(%s): sending heartbeat", self._peer.address)
        self.send(PING)
        self._arm_ping()
