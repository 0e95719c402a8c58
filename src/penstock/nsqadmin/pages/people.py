"""Users and the audit log: who may do what, and who has done what."""

from __future__ import annotations

import asyncio
from functools import partial

from fastapi import Request
from nicegui import ui

from penstock.errors import ConfigError
from penstock.nsqadmin.access import ROLE_NAMES, Role
from penstock.nsqadmin.gate import Forbidden
from penstock.nsqadmin.ground import Grounds
from penstock.nsqadmin.pages import layout, words
from penstock.nsqadmin.pages.grid import Grid, Row, column
from penstock.nsqadmin.pages.layout import Opened
from penstock.nsqadmin.store import Entry, User, hash_password

_PAGE = 200  # entries of the log at once

_ROLES = {
    "view": "may look",
    "operate": "may pause, publish, replay, requeue",
    "destroy": "may also delete, empty, and make users",
}


def add(grounds: Grounds) -> None:
    @ui.page("/users")
    def users(request: Request) -> None:
        here = layout.opened(grounds, request)
        if not here.may(Role.DESTROY):
            raise Forbidden("this page needs the role destroy")
        if not grounds.shared.may_make_users(here.caller):
            raise Forbidden("this page needs the role destroy in every installation")
        with layout.page(here, "Users"):
            _Users(here).draw()

    @ui.page("/audit")
    def audit(request: Request) -> None:
        here = layout.opened(grounds, request)
        if not here.may(Role.OPERATE):
            raise Forbidden("this page needs the role operate")
        with layout.page(here, "Audit log"):
            draw_audit(here)


class _Users:
    def __init__(self, here: Opened) -> None:
        self._here = here

    def draw(self) -> None:
        layout.heading("Users")
        if not self._here.ground.store.has_users():
            ui.label(
                "Nobody has to log in yet. The first user should have the role destroy: from then"
                " on everybody has to log in."
            ).classes("banner")
        with layout.section("Who may log in"):
            self._place = ui.element("div")
        with layout.section("Make a user, or give one another password and role"):
            self._form()
        self._show()

    def _show(self) -> None:
        self._place.clear()
        with self._place:
            for user in self._here.ground.store.users():
                self._row(user)

    def _row(self, user: User) -> None:
        with ui.element("div").classes("heading"):
            ui.label(user.name)
            ui.label(user.role.name.lower()).classes("badge soft")
            ui.label(f"since {words.clock(user.created_s)}").classes("soft")
            ui.button("Remove", on_click=partial(self._remove, user.name)).props(
                "flat dense color=negative"
            )

    async def _remove(self, name: str) -> None:
        if not await layout.confirm("Remove this user? Their sessions end now.", name):
            return

        async def run() -> str:
            self._check()
            self._here.ground.store.remove_user(name)
            return ""

        await layout.change(self._here, Role.DESTROY, "remove_user", {"user": name}, run)
        self._show()

    def _check(self) -> None:
        if not self._here.grounds.shared.may_make_users(self._here.caller):
            raise Forbidden("users need the role destroy in every installation")

    def _form(self) -> None:
        with ui.element("div").classes("heading"):
            self._name = ui.input("Name").props("dense outlined autocomplete=off")
            self._password = ui.input("Password", password=True).props(
                "dense outlined autocomplete=new-password"
            )
            self._role = ui.select(
                {name: f"{name}: {what}" for name, what in _ROLES.items()}, value="view",
                label="Role",
            ).props("dense outlined")  # fmt: skip
            ui.button("Save", on_click=self._save).props("unelevated")

    async def _save(self) -> None:
        name, password = str(self._name.value or ""), str(self._password.value or "")
        role = str(self._role.value)
        store = self._here.ground.store

        async def run() -> str:
            self._check()
            if role != "destroy" and not any(
                one.role is Role.DESTROY and one.name != name for one in store.users()
            ):
                raise ConfigError("role", role, "somebody has to have the role destroy")
            store.put_user(name, await asyncio.to_thread(hash_password, password), ROLE_NAMES[role])
            return ""

        about = {"user": name}
        if await layout.change(self._here, Role.DESTROY, "put_user", about, run, role):
            self._name.set_value("")
            self._password.set_value("")
        self._show()


_ENTRIES = [
    column("time", "Time", width=200),
    column("who", "Who", width=140),
    column("how", "How", width=110),
    column("remote", "From", width=140),
    column("action", "Action", width=180),
    column("target", "On", flex=1, minWidth=140),
    column("detail", "Detail", flex=1, minWidth=120),
    column("result", "Result", flex=1, minWidth=120),
]


_WHERE = column("installation", "Installation", width=130)
_ALL = "All installations"


def draw_audit(here: Opened) -> None:
    several = len(here.grounds) > 1
    with layout.heading("Audit log"):
        ui.element("div").classes("grow")
        names = [one.name for one in here.grounds.held_by(here.caller, Role.OPERATE)]
        only = ui.select([_ALL, *names], value=_ALL).props("dense outlined options-dense")
        layout.named(only, "Installation").set_visibility(several)
        search = ui.input("Search").props('clearable dense outlined aria-label="Search the log"')
        older = ui.button("Older").props("flat dense")
        newest = ui.button("Newest").props("flat dense")
    empty = "Nothing has been done yet."
    columns = [_ENTRIES[0], _WHERE, *_ENTRIES[1:]] if several else _ENTRIES
    grid = Grid(columns, [], "id", empty, "Audit log", "calc(100vh - 190px)")
    before = {"id": 0}  # 0: the newest, which move by themselves

    def found_before(id: int) -> list[Entry]:
        chosen = None if only.value == _ALL else str(only.value)
        return here.ground.store.audit(
            str(search.value or ""), id, _PAGE, only=chosen, without=_not_to_be_seen(here)
        )

    def show() -> None:
        found = found_before(before["id"])
        grid.show([_entry_row(one) for one in found])
        older.set_enabled(len(found) == _PAGE)
        newest.set_enabled(before["id"] > 0)

    def go(older_than: int) -> None:
        before["id"] = older_than
        show()

    def go_back() -> None:
        found = found_before(before["id"])
        go(found[-1].id if found else 0)

    search.on_value_change(lambda: go(0))
    only.on_value_change(lambda: go(0))
    older.on_click(go_back)
    newest.on_click(lambda: go(0))
    ui.timer(2.0, lambda: None if before["id"] else show())
    show()


def _not_to_be_seen(here: Opened) -> list[str]:
    """Installations in which the caller may not operate: what is done there is not theirs to read.
    What belongs to none, log-ins among it, is for who may operate in the default one."""
    open_ = here.grounds.held_by(here.caller, Role.OPERATE)
    hidden = [one.name for one in here.grounds if one not in open_]
    return hidden if here.grounds.default in open_ else [*hidden, ""]


def _entry_row(one: Entry) -> Row:
    return {
        "id": one.id,
        "time": words.clock(one.time_s),
        "installation": one.installation,
        "who": one.who,
        "how": one.how,
        "remote": one.remote,
        "action": one.action,
        "target": one.target,
        "detail": one.detail,
        "result": one.result,
    }
