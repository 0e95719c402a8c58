"""Tokens of programs: which there are, what each may do, and when it was used last.

A token is shown once, when it is made: only its hash is kept. Whoever makes one lets a program do
what its role says, so this takes the same right as making users.
"""

from __future__ import annotations

from functools import partial

from fastapi import Request
from nicegui import ui

from penstock.nsqadmin.access import ROLE_NAMES, Role
from penstock.nsqadmin.ground import Ground
from penstock.nsqadmin.pages import layout, people, static, words
from penstock.nsqadmin.pages.layout import Opened
from penstock.nsqadmin.store import Token

_COPY = static.text("copy.js")  # of what has the class shown-body


def add(ground: Ground) -> None:
    @ui.page("/tokens")
    def tokens(request: Request) -> None:
        here = layout.opened(ground, request)
        people.check_page(here)
        with layout.page(here, "Tokens"):
            _Tokens(here).draw()


class _Tokens:
    def __init__(self, here: Opened) -> None:
        self._here = here
        self._store = here.ground.store

    def draw(self) -> None:
        layout.heading("Tokens")
        with layout.section("Programs that may use the API"):
            self._place = ui.element("div")
        with layout.section("Make a token"):
            self._form()
            self._made = ui.element("div").props('role="status"')
        self._show()

    def _show(self) -> None:
        found = self._store.tokens()
        self._place.clear()
        with self._place:
            for one in found:
                self._row(one)
            if not found:
                ui.label("None yet.").classes("soft")

    def _row(self, one: Token) -> None:
        with ui.element("div").classes("heading"):
            ui.label(one.name)
            ui.label(one.role.name.lower()).classes("badge soft")
            used = f"last used {people.ago(one.used_s)}" if one.used_s else "never used"
            ui.label(f"since {words.clock(one.created_s)}, {used}").classes("soft")
            remove = ui.button("Remove", on_click=partial(self._remove, one.name))
            layout.named(remove.props("flat dense color=negative"), f"Remove {one.name}")

    def _form(self) -> None:
        with people.form():
            self._name = ui.input("Name of the program").props("dense outlined autocomplete=off")
            self._role = people.role_select()
            ui.button("Make", on_click=self._make).props("unelevated type=submit")

    async def _make(self) -> None:
        name, role = str(self._name.value or ""), str(self._role.value)
        made: list[str] = []

        async def run() -> str:
            people.check_right(self._here)
            made.append(self._store.put_token(name, ROLE_NAMES[role]))
            return ""

        about = {"token": name}
        self._made.clear()
        if await layout.change(self._here, Role.DESTROY, "put_token", about, run, role):
            self._name.set_value("")
            self._show_once(name, made[0])
        self._show()

    def _show_once(self, name: str, token: str) -> None:
        with self._made:
            ui.label(f"The token of {name}. Copy it now: it is not shown again.")
            ui.label(token).classes("mono shown-body")
            with ui.element("div").classes("heading"):
                copy = ui.button("Copy").props("outline dense")
                copy.on("click", lambda: ui.notify("The token is copied."), js_handler=_COPY)
                ui.button("Hide", on_click=self._made.clear).props("flat dense")
            ui.label("The program sends it as: Authorization: Bearer TOKEN").classes("soft")

    async def _remove(self, name: str) -> None:
        question = "Remove this token? The programs that use it get no more answers."
        if not await layout.confirm(question, name):
            return

        async def run() -> str:
            people.check_right(self._here)
            self._store.remove_token(name)
            return ""

        await layout.change(self._here, Role.DESTROY, "remove_token", {"token": name}, run)
        self._show()
