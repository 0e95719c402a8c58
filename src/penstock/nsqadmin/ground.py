"""What every part of nsqadmin stands on, made once at the start."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.net.fetch import Fetcher
from penstock.nsqadmin.access import Caller
from penstock.nsqadmin.actions import Actions
from penstock.nsqadmin.connections import Connections
from penstock.nsqadmin.gate import Gate
from penstock.nsqadmin.history import History
from penstock.nsqadmin.notify import Notifier
from penstock.nsqadmin.oidclogin import OidcLogin
from penstock.nsqadmin.options import Options
from penstock.nsqadmin.runwatch import RunWatch
from penstock.nsqadmin.store import Store
from penstock.nsqadmin.upstream import Upstream
from penstock.nsqadmin.watch import Watch


@dataclass
class Ground:
    options: Options
    fetcher: Fetcher
    upstream: Upstream
    actions: Actions
    store: Store
    gate: Gate
    notifier: Notifier
    watch: Watch
    history: History
    connections: Connections
    runs: RunWatch
    oidc: OidcLogin | None

    @property
    def base(self) -> str:
        """What every path begins with: "" or "/some/where"."""
        return self.options.base_path.rstrip("/")

    def done(
        self, caller: Caller, action: str, about: dict[str, str], result: str, detail: str = ""
    ) -> None:
        """Write an action into the audit log. `about` names topic, channel, node."""
        target = "/".join(value for value in about.values() if value)
        self.store.record(
            caller.shown, caller.how, caller.remote, action, target, detail, result or "ok"
        )
