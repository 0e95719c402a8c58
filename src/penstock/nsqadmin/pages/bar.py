"""The bar of every page: where one can go, quick open, and who one is.

Menus are buttons that show what stands beside them. They and the box of quick open are opened by
the script below, so that they do so at once, whatever the socket does. What quick open finds is the
server's answer to an event: the script puts it onto the page as text, never as HTML.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from nicegui import context, events, ui

from penstock import limits
from penstock.nsqadmin.access import Role
from penstock.nsqadmin.find import Found, find
from penstock.nsqadmin.pages import static
from penstock.nsqadmin.pages.parts import named, written
from penstock.nsqadmin.pages.style import COOKIE, THEMES

if TYPE_CHECKING:
    from penstock.nsqadmin.pages.layout import Opened

Place = tuple[str, str, Role]  # path, words, the role that sees it

_YEAR_S = 365 * 86400
_FIND = "penstock_find"  # the event of quick open

SCRIPT = static.text("bar.js").replace("FIND", _FIND) + static.text("away.js")


def draw(here: Opened, places: Sequence[Place], first: frozenset[str]) -> None:
    """`first`: paths that stand in the bar itself, the others are under More."""
    may = [one for one in places if here.may(one[2])]
    with ui.element("div").classes("drop main"):
        _opener("Menu", "menu")
        with ui.element("nav").props('aria-label="Main"'):
            for path, words, _ in may:
                if path in first:
                    _link(here, path, words)
            rest = [one for one in may if one[0] not in first]
            with ui.element("div").classes("drop"):
                opener = _opener("More")
                if any(_is_at(here.path, path) for path, _, _ in rest):
                    opener.classes("at")
                with ui.element("div").classes("dropped"):
                    for path, words, _ in rest:
                        _link(here, path, words)
    ui.element("div").classes("grow")
    _finder(here, may)


def _opener(words: str, icon: str = "") -> ui.element:
    """A button that shows what stands beside it."""
    button = written("button", "" if icon else words).classes("opener")
    button.props('type=button aria-expanded="false"')
    if icon:
        named(button, words)
        with button:
            ui.icon(icon)
    return button


def _link(here: Opened, path: str, words: str) -> None:
    link = ui.link(words, here.ground.base + path)
    if _is_at(here.path, path):
        link.props('aria-current="page"')


def _is_at(path: str, place: str) -> bool:
    if path.startswith("/messages/"):
        return place == "/topics"
    return path == place or (place != "/" and path.startswith(f"{place}/"))


def _finder(here: Opened, places: Sequence[Place]) -> None:
    with ui.element("button").classes("find") as button:
        button.props('type=button aria-label="Quick open" aria-keyshortcuts="Control+K /"')
        ui.icon("search")
        written("span", "Search")
        written("kbd", "Ctrl K")
    client = context.client
    pages = [(path, words) for path, words, _ in places]

    def on_find(event: events.GenericEventArguments) -> None:
        text = event.args[0] if isinstance(event.args, list) else event.args
        if not isinstance(text, str):
            raise TypeError("what is sought is a text")
        found = find(text[: limits.ADMIN_FOUND_CHARS], here.ground.watch.latest, pages)
        rows = [_row(here, one) for one in found]
        client.run_javascript(f"penstockFound({json.dumps(text)}, {json.dumps(rows)})")

    ui.on(_FIND, on_find)


def _row(here: Opened, one: Found) -> dict[str, str]:
    query = f"?{urlencode(one.query)}" if one.query else ""
    return {"kind": one.kind, "words": one.words, "href": here.link(*one.path) + query}


# --- who one is ---


def who(here: Opened) -> None:
    """Whom nsqadmin takes the caller for, light or dark, and the way out."""
    with ui.element("div").classes("drop who"):
        _opener(here.caller.shown)
        with ui.element("div").classes("dropped"):
            written("p", f"{here.caller.shown} may {_ROLES[here.caller.role]}.").classes("soft")
            _theme(here)
            if here.caller.how == "session":
                ui.link("Your account", here.link("account"))
            if here.caller.session:
                with ui.element("form").props('method="post"') as form:
                    form.props["action"] = f"{here.ground.base}/logout"
                    ui.button("Log out").props("flat dense type=submit")
            elif here.caller.how == "header" and here.ground.options.logout_url:
                ui.link("Log out", here.ground.options.logout_url)


_ROLES = {
    Role.NONE: "do nothing",
    Role.VIEW: "look",
    Role.OPERATE: "look and operate",
    Role.DESTROY: "look, operate and destroy",
}


def remember(here: Opened, name: str, value: str) -> None:
    """In a cookie of this browser: what the next page has to know before it is drawn."""
    cookie = f"{name}={value}; max-age={_YEAR_S}; samesite=lax; path={here.ground.base or '/'}"
    ui.run_javascript(f"document.cookie = {json.dumps(cookie)}")


def _theme(here: Opened) -> None:
    """Dark or light by hand, remembered by this browser."""
    dark = ui.dark_mode(THEMES[here.theme])

    def choose(theme: str) -> None:
        dark.set_value(THEMES[theme])
        remember(here, COOKIE, theme)

    ui.toggle(
        {name: name.capitalize() for name in THEMES}, value=here.theme,
        on_change=lambda event: choose(str(event.value)),
    ).props('dense unelevated no-caps aria-label="Dark or light"')  # fmt: skip
