"""What every part of nsqadmin stands on, made once at the start.

One nsqadmin may look after several installations (`installations.py`). `Shared` is there once: who
may log in, what was done, whom to tell. A `Ground` is one installation: its daemons, what is known
of them, its charts, and the gate that says who may do what there. `Grounds` has them all, and finds
that of a request; the default one is at the official addresses, the others below `/i/NAME`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi import Request

from penstock.net.fetch import Fetcher
from penstock.nsqadmin.access import Caller, Claimed, Role
from penstock.nsqadmin.actions import Actions
from penstock.nsqadmin.audit import OF_ALL, About, Audit, of
from penstock.nsqadmin.connections import Connections
from penstock.nsqadmin.diagnostics import Diagnostics
from penstock.nsqadmin.gate import Gate
from penstock.nsqadmin.history import History
from penstock.nsqadmin.notify import Notifier
from penstock.nsqadmin.oidclogin import OidcLogin
from penstock.nsqadmin.options import Options
from penstock.nsqadmin.runwatch import RunWatch
from penstock.nsqadmin.store import Store
from penstock.nsqadmin.upstream import Upstream
from penstock.nsqadmin.watch import Watch

INSTALLATION = "penstock.installation"  # where a request's scope has the name of its installation
BELOW = "/i/"  # where those that are not the default one are found


Scope = MutableMapping[str, Any]


def place_in(scope: Scope) -> str:
    """What a request had in front of the path below the base: "" or "/i/NAME"."""
    name = scope.get(INSTALLATION, "")
    return f"{BELOW}{name}" if name else ""


@dataclass
class Shared:
    """What all installations have together."""

    options: Options
    store: Store
    gate: Gate  # log-ins, and what concerns no installation
    notifier: Notifier
    fetcher: Fetcher  # the notifier's
    oidc: OidcLogin | None
    gates: list[Gate]  # that, and those of installations with rules of their own

    @property
    def base(self) -> str:
        """What every path begins with: "" or "/some/where"."""
        return self.options.base_path.rstrip("/")

    @property
    def audit(self) -> Audit:
        return Audit(self.store)

    def done(self, caller: Caller, action: str) -> None:
        """Write what concerns no installation into the audit log. StoreFailed."""
        self.store.record(caller.shown, caller.how, caller.remote, action, "", "", "ok")

    def may_make_users(self, caller: Caller) -> bool:
        """A user has their role in all installations: who makes one has to have the highest in
        all. In one that nobody may change it counts what they could do otherwise."""
        return self.gate.held(caller) >= Role.DESTROY and all(
            gate.held(caller, despite_read_only=True) >= Role.DESTROY for gate in self.gates
        )

    def login_by_provider(self, claimed: Claimed, remote: str) -> str:
        """The token of a new session, for who may look at any installation. Forbidden."""
        welcoming = (one for one in self.gates if one.welcomes(claimed, remote))
        return next(welcoming, self.gate).login_by_provider(claimed, remote)

    async def close(self) -> None:
        await self.notifier.close()
        await self.fetcher.close()
        if self.oidc is not None:
            await self.oidc.close()
        self.store.close()


@dataclass
class Ground:
    """One installation."""

    name: str
    is_default: bool
    shared: Shared
    options: Options  # with what is its own in place
    gate: Gate
    fetcher: Fetcher
    upstream: Upstream
    actions: Actions
    watch: Watch
    history: History
    connections: Connections
    runs: RunWatch
    diagnostics: Diagnostics = field(default_factory=Diagnostics)

    @property
    def store(self) -> Store:
        return self.shared.store

    @property
    def base(self) -> str:
        """What every path of nsqadmin begins with: "" or "/some/where"."""
        return self.shared.base

    @property
    def place(self) -> str:
        """Where below it this installation is: "" or "/i/NAME"."""
        return "" if self.is_default else f"{BELOW}{self.name}"

    @property
    def home(self) -> str:
        """What every path of its own begins with."""
        return self.base + self.place

    def done(
        self, caller: Caller, action: str, about: dict[str, str], result: str, detail: str = ""
    ) -> None:
        """Write an action into the audit log. `about` names topic, channel, node. StoreFailed."""
        target = "/".join(value for value in about.values() if value)
        name = "" if action in OF_ALL else self.name
        self.store.record(
            caller.shown, caller.how, caller.remote, action, target, detail, result or "ok", name
        )

    @property
    def audit(self) -> Audit:
        return Audit(self.store, self.name)

    async def perform(
        self, caller: Caller, actions: Sequence[str], about: About,
        run: Callable[[], Awaitable[str]], origin: dict[str, str], detail: str = "",
    ) -> str:  # fmt: skip
        """Do what changes something, write it down, and tell about it. `run` returns a warning or
        "". NotDone, when it can't be written down."""
        warning = await self.audit.perform(caller, actions, about, run, detail)
        who = {"user": caller.name} if caller.session else {}  # the official one knows no log-in
        for action in actions:
            self.tell(action, of(action, about), who | origin)
        return warning

    def tell(self, action: str, about: dict[str, str], origin: dict[str, str]) -> None:
        """Tell the notification's receiver; of the default installation in the official form."""
        is_named = not self.is_default and action not in OF_ALL
        named = {"installation": self.name} if is_named else {}
        self.shared.notifier.tell(action, about | named, origin)

    def start(self) -> None:
        self.watch.listen(self.history.take)
        self.watch.start()

    async def stop(self) -> None:
        await self.watch.stop()
        await self.runs.stop()
        await self.fetcher.close()
        self.diagnostics.close()
        self.history.close()


class Grounds:
    """All of them; the first is the default one."""

    def __init__(self, shared: Shared, all_: Sequence[Ground]) -> None:
        self.shared = shared
        self.default = all_[0]
        self._by_name = {ground.name: ground for ground in all_}

    def seen_by(self, request: Request) -> list[Ground]:
        """Those that the sender of a request may look at."""
        remote = request.client.host if request.client else ""
        return [
            ground for ground in self
            if ground.gate.caller(request.headers, request.cookies, remote).role >= Role.VIEW
        ]  # fmt: skip

    def held_by(self, caller: Caller, role: Role) -> list[Ground]:
        """Those in which the caller of a page may do this now."""
        return [ground for ground in self if ground.gate.is_still(caller, role)]

    def __iter__(self) -> Iterator[Ground]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def base(self) -> str:
        return self.shared.base

    def of(self, request: Request) -> Ground:
        """That which a request is for."""
        return self.in_scope(request.scope)

    def in_scope(self, scope: Scope) -> Ground:
        return self._by_name.get(scope.get(INSTALLATION, ""), self.default)

    async def stop(self) -> None:
        for ground in self:
            await ground.stop()
        await self.shared.close()
