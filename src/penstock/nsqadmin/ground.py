"""What every part of nsqadmin stands on, made once at the start: the daemons and what is known of
them, the charts, who may log in, what was done, and whom to tell."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from penstock.net.fetch import Fetcher
from penstock.nsqadmin.access import Caller
from penstock.nsqadmin.actions import Actions
from penstock.nsqadmin.audit import About, Audit, of
from penstock.nsqadmin.connections import Connections
from penstock.nsqadmin.diagnostics import Diagnostics
from penstock.nsqadmin.gate import Gate
from penstock.nsqadmin.history import History
from penstock.nsqadmin.notify import Notifier
from penstock.nsqadmin.oidclogin import OidcLogin
from penstock.nsqadmin.options import Options
from penstock.nsqadmin.remembered import words_about
from penstock.nsqadmin.runwatch import RunWatch
from penstock.nsqadmin.store import Store
from penstock.nsqadmin.upstream import Upstream, warnings
from penstock.nsqadmin.watch import Watch


@dataclass
class Ground:
    options: Options
    store: Store
    gate: Gate
    notifier: Notifier
    fetcher: Fetcher
    oidc: OidcLogin | None
    upstream: Upstream
    actions: Actions
    watch: Watch
    history: History
    connections: Connections
    runs: RunWatch
    diagnostics: Diagnostics = field(default_factory=Diagnostics)

    @property
    def base(self) -> str:
        """What every path begins with: "" or "/some/where"."""
        return self.options.base_path.rstrip("/")

    @property
    def data_path(self) -> Path:
        return Path(self.options.data_path)

    @property
    def audit(self) -> Audit:
        return Audit(self.store)

    def done(self, caller: Caller, action: str) -> None:
        """Write what is about nothing but the caller into the audit log. StoreFailed."""
        self.store.record(caller.shown, caller.how, caller.remote, action, "", "", "ok")

    async def perform(
        self, caller: Caller, actions: Sequence[str], about: About,
        run: Callable[[], Awaitable[str]], origin: dict[str, str], detail: str = "",
    ) -> str:  # fmt: skip
        """Do what changes something, write it down, and tell about it. `run` returns a warning or
        "". NotDone, when it can't be written down."""
        warning = await self.audit.perform(caller, actions, about, run, detail)
        who = {"user": caller.name} if caller.session else {}  # the official one knows no log-in
        for action in actions:
            self.notifier.tell(action, of(action, about), who | origin)
        return warning

    async def delete(self, topic: str, channel: str = "") -> str:
        """Everywhere; the warning says what is left on nodes that do not answer."""
        said = await self.actions.delete(topic, channel)
        return warnings(said, words_about(self.watch.latest, topic, channel))

    def start(self) -> None:
        self.watch.listen(self.history.take)
        self.watch.start()

    async def stop(self) -> None:
        await self.watch.stop()
        await self.runs.stop()
        self.diagnostics.close()
        self.history.close()
        await self.notifier.close()
        await self.fetcher.close()
        if self.oidc is not None:
            await self.oidc.close()
        self.store.close()
