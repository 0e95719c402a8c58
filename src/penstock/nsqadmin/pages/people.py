"""Users, their sessions and passwords, and the tokens of programs: roles, logins, and the last use
of each token.

A token is shown once, when it is made: only its hash is kept. Whoever makes one lets a program do
what its role says, so this takes the same right as making users.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from nicegui import ui

from penstock.errors import ConfigError
from penstock.nsqadmin import words
from penstock.nsqadmin.access import ROLE_NAMES, Role
from penstock.nsqadmin.pages import layout, parts
from penstock.nsqadmin.pages.layout import PageView
from penstock.nsqadmin.pages.message import COPY
from penstock.nsqadmin.store import Holder, Session, Store, hash_password

T = TypeVar("T")

_ROLES = {
    "view": "may look",
    "operate": "may pause, publish, replay, requeue",
    "destroy": "may also delete, empty, and make users and tokens",
}


def draw_account(view: PageView) -> None:
    parts.heading("Your account")
    role = view.caller.role.name.lower()
    ui.label(f"You are {view.caller.shown}: {_ROLES.get(role, 'may do nothing')}.")
    if view.caller.how != "session":
        parts.soft("Your password, if you have one, is not kept here: change it where you log in.")
        return
    with parts.section("Change your password"):
        _Password(view)


def _form() -> ui.element:
    """Enter presses its button; the browser itself sends nothing. A form of its own, so that
    password managers recognise it."""
    return ui.element("form").classes("heading").on("submit.prevent", js_handler="() => {}")


def _role_select() -> ui.select:
    shown = {name: f"{name}: {what}" for name, what in _ROLES.items()}
    return ui.select(shown, value="view", label="Role")


def _list(area: ui.element, found: Sequence[T], draw: Callable[[T], None], none: str) -> None:
    area.clear()
    with area:
        for one in found:
            with parts.row():
                draw(one)
        if not found:
            parts.soft(none)


def _draw_holder(one: Holder, last: str, remove: Callable[[str], Awaitable[None]]) -> None:
    ui.label(one.name)
    ui.label(one.role.name.lower()).classes("badge soft")
    parts.soft(f"since {words.clock(one.created_s)}, {last}")
    button = parts.small_button("Remove", partial(remove, one.name), f"Remove {one.name}")
    button.props("color=negative")


def _ago(time_s: float) -> str:
    return f"{words.span(max(0.0, time.time() - time_s))} ago"


class Users:
    def __init__(self, view: PageView) -> None:
        self._view = view
        self._store = view.deps.store
        parts.heading("Users")
        if not self._store.has_users():
            ui.label(
                "Nobody has to log in yet. The first user should have the role destroy: from then"
                " on everybody has to log in."
            ).classes("banner")
        with parts.section("Who may log in"):
            self._area = ui.element("div")
        with parts.section("Make a user, or give one another password and role"), _form():
            self._name = ui.input("Name").props("autocomplete=username")
            self._password = ui.input("Password", password=True).props("autocomplete=new-password")
            self._role = _role_select()
            ui.button("Save", on_click=self._save).props("unelevated type=submit")
        with parts.section("Who is logged in"):
            self._logged_in = ui.element("div")
        self._show()

    def _show(self) -> None:
        logins = self._store.last_logins()

        def draw(user: Holder) -> None:
            at_s = logins.get(user.name, 0.0)
            last = f"last log-in {_ago(at_s)}" if at_s else "never logged in"
            _draw_holder(user, last, self._remove)

        _list(self._area, self._store.users(), draw, "Nobody yet.")
        sessions = self._store.sessions(self._view.deps.gate.lifetime_s)
        _list(self._logged_in, sessions, self._draw_session, "Nobody.")

    def _draw_session(self, one: Session) -> None:
        ui.label(one.user)
        if one.key == self._view.caller.session:
            ui.label("this browser").classes("badge good")
        how = "by the provider" if one.claimed else "by password"
        parts.soft(f"{how} {_ago(one.created_s)}, used {_ago(one.used_s)}")
        parts.small_button("End", partial(self._end, one), f"End the session of {one.user}")

    async def _end(self, one: Session) -> None:
        run = partial(self._store.end_session, one.key)
        await layout.change(self._view, Role.DESTROY, "end_session", {"user": one.user}, run)
        self._show()

    async def _remove(self, name: str) -> None:
        question = "Remove this user? Their sessions end now."
        if [one.name for one in self._store.users()] == [name]:
            question += " There is no other one: from then on nobody has to log in."

        def run() -> None:
            left = [one.role for one in self._store.users() if one.name != name]
            if left and Role.DESTROY not in left:
                rule = "the others could make no user then: give one of them the role destroy"
                raise ConfigError("user", name, rule)
            self._store.remove_user(name)

        await layout.change(self._view, Role.DESTROY, "remove_user", {"user": name}, run, "",
                            question, name)  # fmt: skip
        self._show()

    async def _save(self) -> None:
        name, password = str(self._name.value or ""), str(self._password.value or "")
        role, about = str(self._role.value), {"user": name}
        run = partial(put_user, self._store, name, password, role)
        if await layout.change(self._view, Role.DESTROY, "put_user", about, run, role):
            self._name.set_value("")
            self._password.set_value("")
        self._show()


async def put_user(store: Store, name: str, password: str, role: str) -> None:
    """Raises ConfigError where nobody with the role destroy would be left."""
    hashed = await asyncio.to_thread(hash_password, password)  # others may act meanwhile
    others = (one.role for one in store.users() if one.name != name)
    if role != "destroy" and Role.DESTROY not in others:
        raise ConfigError("role", role, "somebody has to have the role destroy")
    store.put_user(name, hashed, ROLE_NAMES[role])


class Tokens:
    def __init__(self, view: PageView) -> None:
        self._view = view
        self._store = view.deps.store
        parts.heading("Tokens")
        with parts.section("Programs that may use the API"):
            self._area = ui.element("div")
        with parts.section("Make a token"):
            with _form():
                name = ui.input("Name of the program")
                self._name = name.props("autocomplete=off")
                self._role = _role_select()
                ui.button("Make", on_click=self._make).props("unelevated type=submit")
            self._made = ui.element("div").props('role="status"')
        self._show()

    def _show(self) -> None:
        def draw(one: Holder) -> None:
            used = f"last used {_ago(one.used_s)}" if one.used_s else "never used"
            _draw_holder(one, used, self._remove)

        _list(self._area, self._store.tokens(), draw, "None yet.")

    async def _make(self) -> None:
        name, role = str(self._name.value or ""), str(self._role.value)
        made: list[str] = []

        def run() -> None:
            made.append(self._store.put_token(name, ROLE_NAMES[role]))

        about = {"token": name}
        self._made.clear()
        if await layout.change(self._view, Role.DESTROY, "put_token", about, run, role):
            self._name.set_value("")
            self._show_once(name, made[0])
        self._show()

    def _show_once(self, name: str, token: str) -> None:
        with self._made:
            ui.label(f"The token of {name}. Copy it now: it is not shown again.")
            ui.label(token).classes("mono shown-body")
            with parts.row():
                copy = ui.button("Copy").props("outline dense")
                copy.on("click", lambda: ui.notify("The token is copied."), js_handler=COPY)
                parts.small_button("Hide", self._made.clear)
            parts.soft("The program sends it as: Authorization: Bearer TOKEN")

    async def _remove(self, name: str) -> None:
        question = "Remove this token? The programs that use it get no more answers."
        run = partial(self._store.remove_token, name)
        await layout.change(self._view, Role.DESTROY, "remove_token", {"token": name}, run, "",
                            question, name)  # fmt: skip
        self._show()


class _Password:
    def __init__(self, view: PageView) -> None:
        self._view = view
        parts.soft("Your other sessions end then.")
        with _form():
            name = ui.input("Name", value=self._view.caller.name)
            name.props("readonly autocomplete=username")
            self._old = ui.input("Password so far", password=True)
            self._old.props("autocomplete=current-password")
            self._new = ui.input("New password", password=True)
            self._again = ui.input("New password again", password=True)
            for field in (self._new, self._again):
                field.props("autocomplete=new-password")
            ui.button("Change", on_click=self._save).props("unelevated type=submit")

    async def _save(self) -> None:
        view, name = self._view, self._view.caller.name
        old, new = str(self._old.value or ""), str(self._new.value or "")
        if new != str(self._again.value or ""):
            ui.notify("The new passwords differ.", type="negative")
            return

        async def run() -> None:
            await view.deps.gate.prove(name, old, view.caller.remote)
            hashed = await asyncio.to_thread(hash_password, new)
            view.deps.store.set_password(name, hashed, keep=view.caller.session)

        if await layout.change(view, Role.VIEW, "change_password", {"user": name}, run):
            for field in (self._old, self._new, self._again):
                field.set_value("")
