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
from random import Random
from typing import TYPE_CHECKING, Any

from penstock import __version__, limits
from penstock.broker.channels.channel import Channel
from penstock.broker.context import TopicChange
from penstock.broker.topics.topic import Topic
from penstock.errors import ConfigError, PeerFault
from penstock.net.listener import keep_alive, parse_address
from penstock.nsqd.dialogue import IDENTIFY, PING, Dialogue, PeerInfo, all_commands, commands_of

if TYPE_CHECKING:
    from penstock.nsqd.http.deps import Identity
    from penstock.nsqd.options import Options

log = logging.getLogger("penstock.nsqd")

Topics = Callable[[], Iterable[Topic]]  # all that is there
_READ_BYTES = 1 << 16


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
        """Until each peer knows us or has failed once: the first new topics are asked for, too."""
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
        for peer in self.peers.values():
            peer.notify(change, topic, channel)


class LookupPeer:
    def __init__(self, address: str, topics: Topics, dice: Random) -> None:
        self.settled = asyncio.Event()  # it knows us, or something has failed
        self._address = address
        self._topics = topics
        self._dice = dice
        self._identity: Mapping[str, Any] = {}
        self._dialogue: Dialogue | None = None  # of the connection, once it stands
        self._writer: asyncio.StreamWriter
        self._overdue: asyncio.Timeout
        self._task: asyncio.Task[None] | None = None

    def start(self, identity: Mapping[str, Any]) -> None:
        self._identity = identity
        self._task = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def ended(self) -> None:
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.sleep(0)  # an aborted transport says so in the next round

    @property
    def _info(self) -> PeerInfo | None:
        return self._dialogue.info if self._dialogue is not None else None

    @property
    def http_address(self) -> str:
        return self._info.http_address if self._info is not None else ""

    def notify(self, change: TopicChange, topic: Topic, channel: Channel | None) -> None:
        """Something has changed. A peer that does not know us yet learns it when it does."""
        if self._info is None:
            return
        kind = "topic" if channel is None else "channel"
        for command in commands_of(change, topic, channel, self._info.partitions):
            log.info("LOOKUPD(%s): %s %s", self._address, kind, command)
            self._send(command)

    # --- one connection after the other ---

    async def _run(self) -> None:
        loop, failures, last = asyncio.get_running_loop(), 0, ""
        while True:
            log.log(logging.DEBUG if failures else logging.INFO,
                    "LOOKUP connecting to %s", self._address)  # fmt: skip
            began_s = loop.time()
            reason = await self._connect()
            if loop.time() - began_s >= limits.LOOKUP_RETRY_NS_MAX / limits.SECOND:
                failures, last = 0, ""  # it was a good one: try again at once
            self.settled.set()
            # An nsqlookupd that stays away is one line, not one every few seconds.
            level = logging.DEBUG if reason == last else logging.ERROR
            log.log(level, "LOOKUPD(%s): %s", self._address, reason)
            last = reason
            doubled_ns = limits.LOOKUP_RETRY_NS_MIN << min(failures, 16)
            failures += 1
            pause_s = min(doubled_ns, limits.LOOKUP_RETRY_NS_MAX) / limits.SECOND
            await asyncio.sleep(pause_s * self._dice.uniform(0.5, 1.0))

    async def _connect(self) -> str:
        """Returns why it has failed, or ended."""
        address = parse_address(self._address)
        try:
            async with asyncio.timeout(limits.LOOKUP_CONNECT_NS / limits.SECOND):
                if address.path:
                    reader, self._writer = await asyncio.open_unix_connection(address.path)
                else:
                    reader, self._writer = await asyncio.open_connection(address.host, address.port)
        except TimeoutError:
            return "connecting - timed out"
        except (OSError, ValueError) as error:  # ValueError: a host name that cannot be one
            return f"connecting - {error}"
        dialogue = self._dialogue = Dialogue(self._identity)
        pinging = asyncio.get_running_loop().create_task(self._ping())
        try:
            keep_alive(self._writer.get_extra_info("socket"))
            async with asyncio.timeout(None) as self._overdue:
                self._write(dialogue.begin())
                while data := await reader.read(_READ_BYTES):
                    self._take(dialogue, data)
            return "connection closed"
        except PeerFault as fault:
            return str(fault)
        except OSError as error:  # a TimeoutError is the system's own, too
            if self._overdue.expired():
                return f"{dialogue.owed[0].split()[0]} - no answer"
            return f"connection lost - {error}"
        except Exception:
            log.exception("LOOKUPD(%s): internal error", self._address)
            return "an internal error"
        finally:
            self._dialogue = None
            pinging.cancel()
            self._writer.transport.abort()

    def _take(self, dialogue: Dialogue, data: bytes) -> None:
        answered = dialogue.feed(data)
        if answered:
            self._overdue.reschedule(None)
            if answered[0] == IDENTIFY and dialogue.info is not None:
                self._introduced(dialogue, dialogue.info)
            if dialogue.owed:
                self._await_answer()

    def _introduced(self, dialogue: Dialogue, info: PeerInfo) -> None:
        """The peer knows us: register everything."""
        log.info("LOOKUPD(%s): peer info %s", self._address, info.text)
        if not info.http_address:
            log.error("LOOKUPD(%s): no broadcast address", self._address)
        commands = list(all_commands(self._topics(), info.partitions))
        for command in commands:
            log.debug("LOOKUPD(%s): %s", self._address, command)
        log.info("LOOKUPD(%s): registering %d topics and channels", self._address, len(commands))
        self._write(b"".join(map(dialogue.command, commands)))
        self.settled.set()

    def _send(self, command: str) -> None:
        if self._dialogue is not None:
            self._write(self._dialogue.command(command))

    def _write(self, data: bytes) -> None:
        if self._writer.is_closing():
            return  # uvloop would raise, in whoever changed a topic; the next connection has it all
        self._writer.write(data)
        if data and self._overdue.when() is None:
            self._await_answer()

    def _await_answer(self) -> None:
        wait_s = limits.LOOKUP_ANSWER_NS / limits.SECOND
        self._overdue.reschedule(asyncio.get_running_loop().time() + wait_s)

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(limits.LOOKUP_PING_NS / limits.SECOND)
            log.debug("LOOKUPD(%s): sending heartbeat", self._address)
            self._send(PING)
