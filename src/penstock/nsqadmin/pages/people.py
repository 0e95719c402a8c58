"""Users and their sessions: who may do what, who is logged in, and one's own password."""

from __future__ import annotations

import asyncio
import time
from functools import partial

from fastapi import Request
from nicegui import ui

from penstock.errors import ConfigError
from penstock.nsqadmin.access import ROLE_NAMES, Role
from penstock.nsqadmin.gate import Forbidden
from penstock.nsqadmin.ground import Ground
from penstock.nsqadmin.pages import layout, words
from penstock.nsqadmin.pages.layout import Opened
from penstock.nsqadmin.store import LoggedIn, User, hash_password

_ROLES = {
    "view": "may look",
    "operate": "may pause, publish, replay, requeue",
    "destroy": "may also delete, empty, and make users and tokens",
}


def add(ground: Ground) -> None:
    @ui.page("/users")
    def users(request: Request) -> None:
        here = layout.opened(ground, request)
        check_page(here)
        with layout.page(here, "Users"):
            _Users(here).draw()

    @ui.page("/account")
    def account(request: Request) -> None:
        here = layout.opened(ground, request)
        with layout.page(here, "Your account"):
            _draw_account(here)


def check_page(here: Opened) -> None:
    """Whether the caller may see who may do what. Raises Forbidden."""
    if not here.may(Role.DESTROY):
        raise Forbidden("this page needs the role destroy")


def check_right(here: Opened) -> None:
    """The same at an action: a role may have been taken away since the page was drawn."""
    if not here.ground.gate.is_still(here.caller, Role.DESTROY):
        raise Forbidden("users and tokens need the role destroy")


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
        with layout.section("Who is logged in"):
            self._logged_in = ui.element("div")
        self._show()

    def _show(self) -> None:
        store = self._here.ground.store
        users, logins = store.users(), store.last_logins()
        self._place.clear()
        with self._place:
            for user in users:
                self._row(user, logins.get(user.name, 0.0))
            if not users:
                ui.label("Nobody yet.").classes("soft")
        sessions = store.sessions(self._here.ground.gate.lifetime_s)
        self._logged_in.clear()
        with self._logged_in:
            for one in sessions:
                self._session(one)
            if not sessions:
                ui.label("Nobody.").classes("soft")

    def _row(self, user: User, login_s: float) -> None:
        with ui.element("div").classes("heading"):
            ui.label(user.name)
            ui.label(user.role.name.lower()).classes("badge soft")
            last = f"last log-in {ago(login_s)}" if login_s else "never logged in"
            ui.label(f"since {words.clock(user.created_s)}, {last}").classes("soft")
            remove = ui.button("Remove", on_click=partial(self._remove, user.name))
            layout.named(remove.props("flat dense color=negative"), f"Remove {user.name}")

    def _session(self, one: LoggedIn) -> None:
        with ui.element("div").classes("heading"):
            ui.label(one.user)
            if one.key == self._here.caller.session:
                ui.label("this browser").classes("badge good")
            how = "by the provider" if one.is_by_provider else "by password"
            ui.label(f"{how} {ago(one.created_s)}, used {ago(one.used_s)}").classes("soft")
            end = ui.button("End", on_click=partial(self._end, one)).props("flat dense")
            layout.named(end, f"End the session of {one.user}")

    async def _end(self, one: LoggedIn) -> None:
        async def run() -> str:
            check_right(self._here)
            self._here.ground.store.end_session(one.key)
            return ""

        await layout.change(self._here, Role.DESTROY, "end_session", {"user": one.user}, run)
        self._show()

    async def _remove(self, name: str) -> None:
        question = "Remove this user? Their sessions end now."
        if [one.name for one in self._here.ground.store.users()] == [name]:
            question += " There is no other one: from then on nobody has to log in."
        if not await layout.confirm(question, name):
            return

        async def run() -> str:
            check_right(self._here)
            left = [one.role for one in self._here.ground.store.users() if one.name != name]
            if left and Role.DESTROY not in left:
                rule = "the others could make no user then: give one of them the role destroy"
                raise ConfigError("user", name, rule)
            self._here.ground.store.remove_user(name)
            return ""

        await layout.change(self._here, Role.DESTROY, "remove_user", {"user": name}, run)
        self._show()

    def _form(self) -> None:
        """A form of its own, so that password managers know what is asked for."""
        with form():
            self._name = ui.input("Name").props("dense outlined autocomplete=username")
            self._password = ui.input("Password", password=True).props(
                "dense outlined autocomplete=new-password"
            )
            self._role = role_select()
            ui.button("Save", on_click=self._save).props("unelevated type=submit")

    async def _save(self) -> None:
        name, password = str(self._name.value or ""), str(self._password.value or "")
        role = str(self._role.value)
        store = self._here.ground.store

        async def run() -> str:
            check_right(self._here)
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


def form() -> ui.element:
    """Enter presses its button; the browser itself sends nothing."""
    form = ui.element("form").classes("heading")
    return form.on("submit.prevent", js_handler="() => {}")


def role_select() -> ui.select:
    shown = {name: f"{name}: {what}" for name, what in _ROLES.items()}
    return ui.select(shown, value="view", label="Role").props("dense outlined")


def ago(time_s: float) -> str:
    return f"{words.span(max(0.0, time.time() - time_s))} ago"


# --- one's own ---


def _draw_account(here: Opened) -> None:
    layout.heading("Your account")
    role = here.caller.role.name.lower()
    ui.label(f"You are {here.caller.shown}: {_ROLES.get(role, 'may do nothing')}.")
    if here.caller.how != "session":
        ui.label(
            "Your password, if you have one, is not kept here: change it where you log in."
        ).classes("soft")
        return
    with layout.section("Change your password"):
        _Password(here).draw()


class _Password:
    def __init__(self, here: Opened) -> None:
        self._here = here

    def draw(self) -> None:
        ui.label("Your other sessions end then.").classes("soft")
        with form():
            name = ui.input("Name", value=self._here.caller.name)
            name.props("dense outlined readonly autocomplete=username")
            self._old = ui.input("Password so far", password=True)
            self._old.props("dense outlined autocomplete=current-password")
            self._new = ui.input("New password", password=True)
            self._again = ui.input("New password again", password=True)
            for field in (self._new, self._again):
                field.props("dense outlined autocomplete=new-password")
            ui.button("Change", on_click=self._save).props("unelevated type=submit")

    async def _save(self) -> None:
        here, name = self._here, self._here.caller.name
        old, new = str(self._old.value or ""), str(self._new.value or "")
        if new != str(self._again.value or ""):
            ui.notify("The new passwords differ.", type="negative")
            return

        async def run() -> str:
            await here.ground.gate.prove(name, old, here.caller.remote)
            hashed = await asyncio.to_thread(hash_password, new)
            here.ground.store.set_password(name, hashed, keep=here.caller.session)
            return ""

        if await layout.change(here, Role.VIEW, "change_password", {"user": name}, run):
            for field in (self._old, self._new, self._again):
                field.set_value("")
