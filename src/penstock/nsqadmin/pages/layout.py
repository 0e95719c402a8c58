"""What every page has: the bar, the heading, following the installation, and doing things.

A page is drawn for one browser. Its caller is found once, when it opens, and asked for again at
every action: a log-in may have ended meanwhile, or a role may have been taken away.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import TypeVar
from urllib.parse import quote, urlencode

from fastapi import Request
from nicegui import context, ui

from penstock.errors import PenstockError
from penstock.nsqadmin.access import Caller, Role
from penstock.nsqadmin.api import caller_of, origin
from penstock.nsqadmin.ground import Ground
from penstock.nsqadmin.pages import guard
from penstock.nsqadmin.pages.style import COOKIE, SHEET, THEMES, first_paint, theme_of
from penstock.nsqadmin.snapshot import Snapshot

E = TypeVar("E", bound=ui.element)

# What the bar leads to: (path, words, the role that sees it).
PLACES: list[tuple[str, str, Role]] = [
    ("/", "Overview", Role.VIEW),
    ("/topics", "Topics", Role.VIEW),
    ("/nodes", "Nodes", Role.VIEW),
    ("/connections", "Connections", Role.VIEW),
    ("/counter", "Counter", Role.VIEW),
    ("/lookup", "Lookup", Role.VIEW),
    ("/trace", "Trace", Role.VIEW),
    ("/pipelines", "Pipelines", Role.VIEW),
    ("/sql", "SQL", Role.OPERATE),
    ("/audit", "Audit", Role.OPERATE),
    ("/users", "Users", Role.DESTROY),
]

_YEAR_S = 365 * 86400


@dataclass(frozen=True)
class Opened:
    """One page in one browser."""

    ground: Ground
    caller: Caller
    path: str  # below the base path
    origin: dict[str, str]
    theme: str = "auto"

    def may(self, role: Role) -> bool:
        return self.caller.role >= role

    def connections(self, **narrowed: str) -> str:
        """The connections of a topic, a channel or a node."""
        return f"{self.link('connections')}?{urlencode(narrowed)}"

    def link(self, *parts: str) -> str:
        """The address of another page of ours; the parts may hold any character."""
        return self.ground.base + "/" + "/".join(quote(part, safe="") for part in parts)


def opened(ground: Ground, request: Request) -> Opened:
    """Who opens the page. Raises LoginWanted or Forbidden."""
    caller = caller_of(ground, request)
    ground.gate.check(caller, Role.VIEW)
    path = request.url.path.removeprefix(ground.base) or "/"
    return Opened(ground, caller, path, origin(request), theme_of(request.cookies))


@contextmanager
def page(here: Opened, title: str) -> Iterator[None]:
    """The bar and the place for everything else."""
    guard.drawn_for(context.client, here.caller)
    _end_with_rights(here)
    ui.page_title(f"{title} · Penstock")
    ui.add_head_html(f"<style>{first_paint(here.theme)}</style>")
    ui.add_css(SHEET)
    ui.html('<a class="skip" href="#content">Skip to the content</a>', sanitize=False)
    with ui.element("header").classes("bar"):
        with ui.element("nav").props('aria-label="Main"'):
            ui.link("Penstock", here.link("")).classes("brand")
            for path, words, role in PLACES:
                if here.may(role):
                    link = ui.link(words, here.ground.base + path)
                    if _is_at(here.path, path):
                        link.props('aria-current="page"')
        ui.element("div").classes("grow")
        _theme(here)
        _who(here)
    with ui.element("div").classes("content").props('id="content" tabindex="-1"'):
        _banners(here)
        yield


def _theme(here: Opened) -> None:
    """Dark or light by hand, remembered by this browser."""
    dark = ui.dark_mode(THEMES[here.theme])
    path = json.dumps(here.ground.base or "/")

    def choose(theme: str) -> None:
        dark.set_value(THEMES[theme])
        ui.run_javascript(
            f"document.cookie = '{COOKIE}={theme}; max-age={_YEAR_S}; samesite=lax; path=' + {path}"
        )

    ui.select(
        {name: f"{name.capitalize()} theme" for name in THEMES}, value=here.theme,
        on_change=lambda event: choose(str(event.value)),
    ).classes("theme").props(
        'dense borderless options-dense aria-label="Dark or light"'
    )  # fmt: skip


def _end_with_rights(here: Opened) -> None:
    """A log-in that ends ends its pages too, and what they show."""
    client, ground = context.client, here.ground

    def on_snapshot(snapshot: Snapshot) -> None:
        if guard.is_open(client) and not ground.gate.is_still(here.caller, Role.VIEW):
            guard.close(client, f"{ground.base}/login?next={quote(here.path)}")

    client.on_delete(ground.watch.listen(on_snapshot))


def _who(here: Opened) -> None:
    role = here.caller.role.name.lower()
    ui.label(f"{here.caller.shown} may {role}").classes("soft")
    if here.caller.session:
        with ui.element("form").props('method="post"') as form:
            form.props["action"] = f"{here.ground.base}/logout"
            ui.button("Log out").props("flat dense type=submit")
    elif here.caller.how == "header" and here.ground.options.logout_url:
        ui.link("Log out", here.ground.options.logout_url)


def _is_at(path: str, place: str) -> bool:
    return path == place or (place != "/" and path.startswith(f"{place}/"))


def _banners(here: Opened) -> None:
    """Daemons that do not answer, as long as they don't."""
    banner = ui.label().classes("banner").props('role="status"')

    def show(snapshot: Snapshot) -> None:
        lines = list(snapshot.errors)
        lines += [f"{one.address} does not answer: {one.error}"
                  for one in snapshot.nodes.values() if one.error]  # fmt: skip
        banner.set_text("\n".join(lines[:8]))
        banner.set_visibility(bool(lines))

    follow(here, show)


def follow(here: Opened, show: Callable[[Snapshot], None]) -> None:
    """Call `show` now and with every new snapshot, as long as the page is open."""
    client = context.client
    watch = here.ground.watch

    def on_snapshot(snapshot: Snapshot) -> None:
        if guard.is_open(client):
            with client:
                show(snapshot)

    end = watch.listen(on_snapshot)
    client.on_delete(end)
    show(watch.latest)


def follow_runs(here: Opened, show: Callable[[], None]) -> None:
    """The same for the runs of pipelines."""
    client = context.client

    def on_look() -> None:
        with client:
            show()

    client.on_delete(here.ground.runs.listen(on_look))
    show()


async def change(
    here: Opened, role: Role, action: str, about: dict[str, str],
    run: Callable[[], Awaitable[str]], detail: str = "",
) -> bool:  # fmt: skip
    """Do something that changes the installation: ask the gate, do it, write it down, tell about
    it, and show what came of it. `run` returns a warning or "". Returns whether it was done."""
    ground = here.ground
    if not ground.gate.is_still(here.caller, role):
        ui.notify("You may not do this any more: open the page again.", type="negative")
        return False
    try:
        warning = await run()
    except PenstockError as error:
        ground.done(here.caller, action, about, f"failed: {error}", detail)
        ui.notify(str(error), type="negative", multi_line=True, timeout=10_000)
        return False
    ground.done(here.caller, action, about, warning, detail)
    ground.notifier.tell(action, about, here.origin)
    ground.watch.hurry()
    ui.notify(warning or "Done.", type="warning" if warning else "positive")
    return True


async def confirm(words: str, name: str = "") -> bool:
    """Ask first. What can't be undone asks for its name, typed."""
    with named(ui.dialog(), words) as dialog, ui.card():
        ui.label(words)
        typed = ui.input(f"Type {name} to confirm") if name else None
        with ui.row():
            ui.button("Cancel", on_click=lambda: dialog.submit(False)).props("flat")
            sure = ui.button("Go on", color="negative", on_click=lambda: dialog.submit(True))
        if typed is not None:
            typed.props("autofocus")
            sure.bind_enabled_from(typed, "value", lambda value: value == name)
    answer = await dialog
    return bool(answer) and (typed is None or typed.value == name)


def heading(words: str) -> ui.element:
    """The page's name; what stands beside it goes into the returned row."""
    row = ui.element("div").classes("heading")
    with row:
        ui.html(f"<h1>{escape(words)}</h1>", sanitize=False)
    return row


def section(words: str) -> ui.element:
    """A panel with a name."""
    panel = ui.element("section").classes("panel")
    with panel:
        ui.html(f"<h2>{escape(words)}</h2>", sanitize=False)
    return panel


def named(element: E, words: str) -> E:
    """Give an element a name for screen readers. Text of others never goes through `props(...)`,
    which reads it as a list of properties, scripts among them."""
    element.props["aria-label"] = words
    return element


class Tile:
    """One number with its name above and a word below."""

    def __init__(self, label: str) -> None:
        self._box = ui.element("div").classes("tile")
        with self._box:
            ui.label(label).classes("label")
            self._number = ui.label().classes("number")
            self._note = ui.label().classes("note")

    def set_visibility(self, visible: bool) -> None:
        self._box.set_visibility(visible)

    def show(self, number: str, note: str) -> None:
        self._number.set_text(number)
        self._note.set_text(note)
