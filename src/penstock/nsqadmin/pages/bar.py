"""The bar of every page: navigation, quick open, and the user.

Menus are buttons that show what stands beside them. They and the box of quick open are opened by
the script below, so that they do so at once, whatever the socket does. What quick open finds is the
server's answer to an event: the script puts it onto the page as text, never as HTML.

There a name that is the text comes before one that begins with it, that before one with a word that
begins so, that before one that has it anywhere; among equals what is shorter, and topics before
channels. Sixteen hex digits are a message, and its life is asked for; 32 are a trace.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from nicegui import context, events, ui

from penstock import limits
from penstock.nsqadmin.access import Role
from penstock.nsqadmin.messages import named_message
from penstock.nsqadmin.pages import parts, static
from penstock.nsqadmin.pages.style import COOKIE, THEMES
from penstock.nsqadmin.snapshot import Snapshot
from penstock.trace.search import W3C_DIGITS

if TYPE_CHECKING:
    from penstock.nsqadmin.pages.layout import PageView

# What the bar leads to: (path, words, the role that sees it).
SECTIONS: list[tuple[str, str, Role]] = [
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
    ("/tokens", "Tokens", Role.DESTROY),
]

# Those that stand in the bar itself. The others are under More.
_FIRST = frozenset(("/", "/topics", "/nodes", "/connections", "/pipelines", "/trace"))
_YEAR_S = 365 * 86400
_FIND = "penstock_find"  # the event of quick open
_ROLES = {
    Role.NONE: "do nothing",
    Role.VIEW: "look",
    Role.OPERATE: "look and operate",
    Role.DESTROY: "look, operate and destroy",
}

SCRIPT = "\n".join(map(static.text, ("bar.js", "away.js", "grid.js", "pages.js")))


def draw(view: PageView) -> None:
    ui.link("Penstock", view.link("")).classes("brand")
    may = [(path, words) for path, words, role in SECTIONS if view.may(role)]
    with ui.element("div").classes("drop main"):
        _opener("Menu", "menu")
        with ui.element("nav").props('aria-label="Main"'):
            for path, words in may:
                if path in _FIRST:
                    _link(view, path, words)
            rest = [one for one in may if one[0] not in _FIRST]
            with ui.element("div").classes("drop"):
                opener = _opener("More")
                if any(_is_at(view.path, path) for path, _ in rest):
                    opener.classes("at")
                with ui.element("div").classes("dropped"):
                    for path, words in rest:
                        _link(view, path, words)
    parts.grow()
    _finder(view, may)
    _who(view)


def _opener(words: str, icon: str = "") -> ui.element:
    """A button that opens its neighbour."""
    button = parts.written("button", "" if icon else words).classes("opener")
    button.props('type=button aria-expanded="false"')
    if icon:
        parts.named(button, words)
        with button:
            ui.icon(icon)
    return button


def _link(view: PageView, path: str, words: str) -> None:
    link = ui.link(words, view.deps.base + path)
    if _is_at(view.path, path):
        link.props('aria-current="page"')


def _is_at(path: str, target: str) -> bool:
    if path.startswith("/messages/"):
        return target == "/topics"
    return path == target or (target != "/" and path.startswith(f"{target}/"))


def _who(view: PageView) -> None:
    with ui.element("div").classes("drop who"):
        _opener(view.caller.shown)
        with ui.element("div").classes("dropped"):
            text = f"{view.caller.shown} may {_ROLES[view.caller.role]}."
            parts.written("p", text).classes("soft")
            _theme(view)
            if view.caller.how == "session":
                ui.link("Your account", view.link("account"))
            if view.caller.session:
                with ui.element("form").props('method="post"') as form:
                    form.props["action"] = f"{view.deps.base}/logout"
                    ui.button("Log out").props("flat dense type=submit")
            elif view.caller.how == "header" and view.deps.options.logout_url:
                ui.link("Log out", view.deps.options.logout_url)


def _theme(view: PageView) -> None:
    """Dark or light by hand, remembered by this browser."""
    dark = ui.dark_mode(THEMES[view.theme])

    def choose(theme: str) -> None:
        dark.set_value(THEMES[theme])
        remember(view, COOKIE, theme)

    ui.toggle(
        {name: name.capitalize() for name in THEMES}, value=view.theme,
        on_change=lambda event: choose(str(event.value)),
    ).props('dense unelevated no-caps aria-label="Dark or light"')  # fmt: skip


def remember(view: PageView, name: str, value: str) -> None:
    """Store in a cookie of this browser: settings that the next page needs before it is drawn."""
    cookie = f"{name}={value}; max-age={_YEAR_S}; samesite=lax; path={view.deps.base or '/'}"
    ui.run_javascript(f"document.cookie = {json.dumps(cookie)}")


# --- quick open ---


def _finder(view: PageView, pages: Sequence[tuple[str, str]]) -> None:
    with ui.element("button").classes("find") as button:
        button.props('type=button aria-label="Quick open" aria-keyshortcuts="Control+K /"')
        ui.icon("search")
        parts.written("span", "Search")
        parts.written("kbd", "Ctrl K")
    client = context.client

    def on_find(event: events.GenericEventArguments) -> None:
        text = event.args[0] if isinstance(event.args, list) else event.args
        if not isinstance(text, str):
            raise TypeError("what is sought is a text")
        rows = [
            {"kind": one.kind, "words": one.words, "href": view.link(*one.path, **dict(one.query))}
            for one in find(text[: limits.ADMIN_FOUND_CHARS], view.deps.watch.latest, pages)
        ]
        client.run_javascript(f"penstockFound({json.dumps(text)}, {json.dumps(rows)})")

    ui.on(_FIND, on_find)


_KINDS = ("page", "topic", "channel", "node")
_NOWHERE = 9  # a rank


class Suggestion(NamedTuple):
    kind: str
    words: str
    path: tuple[str, ...]  # of its page: ("topics", "orders")
    query: tuple[tuple[str, str], ...] = ()


def find(
    text: str, snapshot: Snapshot, pages: Iterable[tuple[str, str]],
    count_max: int = limits.ADMIN_FOUND_MAX,
) -> list[Suggestion]:  # fmt: skip
    """`pages`: (path, text) of those that the caller may open."""
    sought = text.strip().casefold()
    offered = [Suggestion("page", words, (path.strip("/"),)) for path, words in pages]
    if not sought:
        return offered[:count_max]
    named = ((_rank(one.words.casefold(), sought), one) for one in (*offered, *_named(snapshot)))
    ranked = [(rank, one) for rank, one in named if rank < _NOWHERE]
    ranked.sort(key=lambda pair: (pair[0], _KINDS.index(pair[1].kind), len(pair[1].words), pair[1]))
    return [*_message(sought), *(one for _, one in ranked)][:count_max]


def _named(snapshot: Snapshot) -> Iterator[Suggestion]:
    for node in snapshot.nodes.values():
        hostname = node.producer.hostname
        words = f"{node.address} ({hostname})" if hostname else node.address
        yield Suggestion("node", words, ("nodes", node.address))
    for topic in snapshot.topics.values():
        yield Suggestion("topic", topic.name, ("topics", topic.name))
        for name in topic.channels:
            yield Suggestion("channel", f"{topic.name}/{name}", ("topics", topic.name, name))


def _message(sought: str) -> list[Suggestion]:
    text = sought.removeprefix("trace:")
    is_trace = text != sought or len(text) == W3C_DIGITS
    if named_message(f"trace:{text}" if is_trace else text) is None:
        return []
    words = f"Messages with trace id {text}" if is_trace else f"Life of message {text}"
    return [Suggestion("message", words, ("trace",), (("id", sought),))]


def _rank(name: str, sought: str) -> int:
    """Less is nearer."""
    if sought not in name:
        words = sought.split()
        return 4 if len(words) > 1 and all(one in name for one in words) else _NOWHERE
    if name.startswith(sought):
        return int(name != sought)
    return 2 if re.search(rf"(?<![^\W_]){re.escape(sought)}", name) else 3
