"""What every page has: the bar, the heading, following the installation, and doing things.

A page is drawn for one browser. Its caller is found once, when it opens, and asked for again at
every action: a log-in may have ended meanwhile, or a role may have been taken away.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from fastapi import Request
from nicegui import context, ui

from penstock.errors import PenstockError
from penstock.nsqadmin import upstream
from penstock.nsqadmin.access import Caller, Role
from penstock.nsqadmin.api import caller_of, origin
from penstock.nsqadmin.ground import Ground
from penstock.nsqadmin.pages import bar, guard, static, words
from penstock.nsqadmin.pages.bar import remember
from penstock.nsqadmin.pages.parts import (
    Badge,
    Bar,
    Curve,
    Switch,
    Tile,
    go,
    heading,
    named,
    section,
    tabs,
    written,
)
from penstock.nsqadmin.pages.style import SHEET, first_paint, theme_of
from penstock.nsqadmin.snapshot import ChannelState, NodeState, Snapshot, TopicState
from penstock.nsqadmin.store import renewal_s
from penstock.nsqadmin.upstream import UpstreamFailed

__all__ = [
    "FIRST", "PLACES", "Badge", "Bar", "Curve", "Opened", "StateButtons", "Switch", "Tile",
    "change", "confirm", "follow", "follow_runs", "go", "heading", "named", "opened", "page",
    "remember", "section", "show_age", "tabs", "way", "written",
]  # fmt: skip

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
    ("/diagnostics", "Diagnostics", Role.OPERATE),
    ("/audit", "Audit", Role.OPERATE),
    ("/users", "Users", Role.DESTROY),
    ("/tokens", "Tokens", Role.DESTROY),
]

# Those that stand in the bar itself. The others are under More.
FIRST = frozenset(("/", "/topics", "/nodes", "/connections", "/pipelines", "/trace"))


@dataclass(frozen=True)
class Opened:
    """One page in one browser."""

    ground: Ground
    caller: Caller
    path: str  # below the base
    origin: dict[str, str]
    theme: str = "auto"

    def may(self, role: Role) -> bool:
        return self.caller.role >= role

    def connections(self, **narrowed: str) -> str:
        """The connections of a topic, a channel or a node."""
        return f"{self.link('connections')}?{urlencode(narrowed)}"

    def link(self, *parts: str) -> str:
        """The address of another page; the parts may hold any character."""
        return way(self.ground, *parts)


def way(ground: Ground, *parts: str) -> str:
    """The address of a page."""
    return ground.base + "/" + "/".join(quote(part, safe="") for part in parts)


def opened(ground: Ground, request: Request) -> Opened:
    """Who opens the page. Raises LoginWanted or Forbidden."""
    caller = caller_of(ground, request)
    ground.gate.check(caller, Role.VIEW)
    path = request.url.path.removeprefix(ground.base) or "/"
    theme = theme_of(request.cookies)
    return Opened(ground, caller, path, origin(request), theme)


@contextmanager
def page(here: Opened, title: str) -> Iterator[None]:
    """The bar and the place for everything else."""
    ground = here.ground
    way_out = f"{ground.base}/login?next={quote(here.path)}"
    guard.drawn_for(context.client, here.caller, ground.gate, way_out)
    ui.page_title(f"{title} · Penstock")
    ui.add_head_html(f"<style>{first_paint(here.theme)}</style><script>{bar.SCRIPT}</script>")
    if here.caller.how == "session":
        ui.add_head_html(f"<script>{_renewal(ground)}</script>")
    ui.add_css(SHEET)
    ui.html('<a class="skip" href="#content">Skip to the content</a>', sanitize=False)
    with ui.element("header").classes("bar"):
        ui.link("Penstock", here.link("")).classes("brand")
        bar.draw(here, PLACES, FIRST)
        bar.who(here)
    with ui.element("div").classes("content").props('id="content" tabindex="-1"'):
        _banners(here)
        yield


def _renewal(ground: Ground) -> str:
    """Keeps the session while its person does something: the socket, and what a page does by
    itself, do not."""
    every_ms = 1000 * renewal_s(ground.gate.lifetime_s)
    told = json.dumps({"way": f"{ground.base}/session", "every": every_ms})
    return f"window.penstockSession = {told};\n{static.text('session.js')}"


def _banners(here: Opened) -> None:
    """Daemons that do not answer, as long as they don't."""
    banner = ui.label().classes("banner").props('role="status"')

    def show(snapshot: Snapshot) -> None:
        lines = [*here.ground.history.troubles, *snapshot.errors]
        lines += [_silent(one) for one in snapshot.nodes.values() if not one.can_be_asked]
        banner.set_text("\n".join(lines[:8]))
        banner.set_visibility(bool(lines))

    follow(here, show)


def _silent(node: NodeState) -> str:
    age = words.span(node.stale_s)
    said = f"{node.address} does not answer: {node.error}." if node.error else (
        f"{node.address} has not answered for {age}."
    )  # fmt: skip
    return f"{said} Its figures are {age} old." if node.document and node.stale_s else said


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


class StateButtons:
    """Pause, Empty and Delete of a topic or channel, for those who may; hidden while no node of it
    can be asked, because then nothing would be done. `deletable`: its name can be deleted at the
    nsqlookupds all the same."""

    def __init__(
        self, here: Opened, turn: Callable[[bool], Awaitable[None]],
        empty: Callable[[], Awaitable[None]], delete: Callable[[], Awaitable[None]], paused: bool,
    ) -> None:  # fmt: skip
        self._switch = None
        self._destroying: list[ui.button] = []
        if here.may(Role.OPERATE):
            self._switch = Switch("Pause", "Unpause", turn, paused)
        if here.may(Role.DESTROY):
            for label, act in (("Empty", empty), ("Delete", delete)):
                button = ui.button(label, on_click=act).props("flat dense color=negative")
                self._destroying.append(button)

    def show(
        self, snapshot: Snapshot, of: TopicState | ChannelState, nodes: Sequence[str],
        deletable: bool = False,
    ) -> None:  # fmt: skip
        can_act = snapshot.can_ask(nodes)
        if self._switch is not None:
            self._switch.show(of.paused, of.is_paused_partly)
            self._switch.set_visibility(can_act)
        for button in self._destroying:
            button.set_visibility(can_act or (deletable and button is self._destroying[-1]))


def show_age(element: ui.element, stale_s: float) -> None:
    """Figures that are old are grey; the banner says why, and tables how old they are."""
    element.classes(remove="" if stale_s else "stale", add="stale" if stale_s else "")


async def change(
    here: Opened, role: Role, action: str, about: dict[str, str],
    run: Callable[[], Awaitable[str]], detail: str = "",
) -> bool:  # fmt: skip
    """Do something that changes the installation: ask the gate, write it down, do it, tell about
    it, and show what came of it. `run` returns a warning or "". Returns whether it was done."""
    return await change_all(here, role, (action,), about, run, detail)


async def change_all(
    here: Opened, role: Role, actions: Sequence[str], about: dict[str, str],
    run: Callable[[], Awaitable[str]], detail: str = "",
) -> bool:  # fmt: skip
    """The same for what the official one tells of as several actions."""
    ground = here.ground
    if not ground.gate.is_still(here.caller, role):
        target = "/".join(one for one in about.values() if one)
        ground.audit.note(here.caller, actions[0], f"failed: needs the role {role.name.lower()}",
                          target)  # fmt: skip
        ui.notify("You may not do this any more: open the page again.", type="negative")
        return False
    try:
        warning = await ground.audit.perform(here.caller, actions, about, run, detail, here.origin)
    except PenstockError as error:
        ui.notify(_why(error), type="negative", multi_line=True, timeout=10_000)
        return False
    ground.watch.hurry()
    shown = warning.removeprefix("WARNING: ")
    ui.notify(shown or "Done.", type="warning" if warning else "positive", multi_line=True,
              timeout=10_000 if warning else 5_000)  # fmt: skip
    return True


def _why(error: PenstockError) -> str:
    """Who did not do it, and why."""
    if isinstance(error, UpstreamFailed) and error.failed:
        named = "; ".join(f"{at}: {upstream.reason(one)}" for at, one in error.failed.items())
        return f"Nothing was done: {named}"
    return upstream.reason(error)


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
