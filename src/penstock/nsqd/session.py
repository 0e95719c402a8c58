"""One V2 client: its identity, the negotiated options, its state, and its heartbeat.

Heartbeats go out every interval from the moment of connecting, whatever else is sent. The client
has two intervals to begin a command (a `NOP` will do), counted from its last one; after that it is
gone, and is told nothing. Before the magic it hears nothing either, and has as long to send it. A
client that waits for the answer to a publish, or for a topic that is being made, is not silent: we
are. A client that asked for no heartbeats has no deadline either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from penstock import limits
from penstock.kernel import Conn, Filter
from penstock.wire.frames import HEADER_BYTES, HEARTBEAT, FrameType
from penstock.wire.identify import Settings
from penstock.wire.states import State

if TYPE_CHECKING:
    from penstock.broker.channels.channel import Channel
    from penstock.net.link import ServerLink
    from penstock.nsqd.auth import Grant

_HEARTBEAT_FRAME_BYTES = HEADER_BYTES + len(HEARTBEAT)


class Shell(NamedTuple):
    loop: asyncio.AbstractEventLoop
    mono_ns: Callable[[], int]
    soon: Callable[[], None]  # have a turn run: something was queued outside of one


class Session:
    def __init__(
        self, conn: Conn, remote: str, connected_s: int, settings: Settings, shell: Shell
    ) -> None:
        self.conn = conn
        self.remote = remote
        self.connected_s = connected_s
        self.settings = settings
        self.state = State.INIT
        self.channel: Channel | None = None
        self.filter: Filter | None = None  # for what it consumes, if that has headers
        self.link: ServerLink | None = None  # once TLS or compression was agreed on
        self.awaits: Callable[[Session, bytes], None] | None = None  # who takes the next body
        self.body_command = b""  # the command that the body belongs to, and its bound
        self.body_bytes_max = 0
        self.waits = False  # for a topic, an upgrade, an auth server: no command is read meanwhile
        self.gone = False  # its connection is closed
        self.grant: Grant | None = None  # what an auth server has allowed
        self.secret = b""  # with which it is asked again
        self.grant_timer: asyncio.TimerHandle | None = None
        self._shell = shell
        self._timer: asyncio.TimerHandle | None = None
        self._beat_ns = 0
        self._unsent_at_beat = 0
        conn.owner = self
        self._connected_ns = shell.mono_ns()
        self.start_heartbeat(self._connected_ns)

    @property
    def common_name(self) -> str:
        tls = self.link.tls if self.link is not None else None
        return tls.common_name if tls is not None else ""

    @property
    def remote_ip(self) -> str:
        """Empty for a unix socket."""
        return self.remote.rpartition(":")[0].strip("[]")

    @property
    def label(self) -> str:
        """For the trace: its own id, if it has one, and its address."""
        client_id = self.settings.client_id
        return self.remote if client_id in ("", self.remote_ip) else f"{client_id} {self.remote}"

    @property
    def has_authorizations(self) -> bool:
        return self.grant is not None and bool(self.grant.entries)

    def set_grant(self, grant: Grant) -> None:
        """For the rest of the connection: permissions to publish are checked anew."""
        self.drop_grant_timer()
        self.grant = grant
        self._withdraw_leave()
        loop = self._shell.loop
        self.grant_timer = loop.call_later(grant.ttl_s, self._end_grant)

    def drop_grant_timer(self) -> None:
        if self.grant_timer is not None:
            self.grant_timer.cancel()
            self.grant_timer = None

    @property
    def grant_has_ended(self) -> bool:
        return self.grant_timer is None

    def _end_grant(self) -> None:
        self.grant_timer = None
        self._withdraw_leave()

    def _withdraw_leave(self) -> None:
        if self.conn.allowed is not None:
            self.conn.allowed.clear()

    def start_heartbeat(self, since_ns: int) -> None:
        """Begin, or begin again with another interval. It counts from the command that set it, so
        the second heartbeat and the deadline coincide: a silent client receives both."""
        self.stop_heartbeat()
        self._unsent_at_beat = 0
        if self.settings.heartbeat_ns:
            self._beat_ns = since_ns + self.settings.heartbeat_ns
            self._arm(self._shell.mono_ns(), since_ns)

    def stop_heartbeat(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, now_ns: int, last_command_ns: int) -> None:
        deadline_ns = last_command_ns + 2 * self.settings.heartbeat_ns
        wait_ns = max(min(self._beat_ns, deadline_ns) - now_ns, limits.MS)
        self._timer = self._shell.loop.call_later(wait_ns / limits.SECOND, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now_ns = self._shell.mono_ns()
        conn = self.conn
        interval_ns = self.settings.heartbeat_ns
        last_command_ns = conn.last_command_ns or self._connected_ns
        waits = bool(conn.pending) or self.waits
        silent = now_ns >= last_command_ns + 2 * interval_ns and not waits
        reads = not conn.unsent
        if now_ns >= self._beat_ns:
            if conn.last_command_ns and self._is_stuck():
                conn.close()
                self._shell.soon()
                return
            if conn.last_command_ns:
                conn.reply(FrameType.RESPONSE, HEARTBEAT)
            self._beat_ns += interval_ns
        if not silent:
            self._arm(now_ns, last_command_ns)
        elif reads:
            conn.close_after_flush()
        else:  # nobody is there to wait for
            conn.close()
        self._shell.soon()

    def _is_stuck(self) -> bool:
        """The socket took nothing for a whole interval: only the heartbeat was added."""
        unsent = self.conn.unsent
        stuck = 0 < self._unsent_at_beat == unsent
        self._unsent_at_beat = unsent + _HEARTBEAT_FRAME_BYTES if unsent else 0
        return stuck
