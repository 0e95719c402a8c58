"""The common parts of pages: the frame, updates from the installation, and actions.

A page is drawn for one browser. Its caller is found once, when it opens, and asked for again at
every action: a log-in may have ended meanwhile, or a role may have been taken away.
"""

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlencode
from weakref import WeakSet

from fastapi import Request
from nicegui import Client, background_tasks, context, ui

from penstock import limits
from penstock.errors import NotFound, PenstockError
from penstock.nsqadmin import aggregate, words
from penstock.nsqadmin.access import Caller, Role
from penstock.nsqadmin.actions import Operation
from penstock.nsqadmin.api import node_stats, origin, viewed
from penstock.nsqadmin.audit import Run
from penstock.nsqadmin.deps import Deps
from penstock.nsqadmin.pages import bar, guard, parts, static
from penstock.nsqadmin.pages.style import SHEET, first_paint, theme_of
from penstock.nsqadmin.snapshot import NodeState, Snapshot
from penstock.nsqadmin.store import renewal_s
from penstock.nsqadmin.upstream import Upstream, UpstreamFailed, reason
from penstock.nsqadmin.watch import Errand
from penstock.wire.names import is_valid_name

T = TypeVar("T")
_asking: WeakSet[Client] = WeakSet()  # pages with a question open
NAME_RULE = f"1 to {limits.NAME_BYTES_MAX} of . a-z A-Z 0-9 _ -"


@dataclass(frozen=True)
class PageView:
    deps: Deps
    caller: Caller
    path: str  # below the base
    origin: dict[str, str]
    cookies: Mapping[str, str]
    query: Mapping[str, str]

    @property
    def theme(self) -> str:
        return theme_of(self.cookies)

    def asked(self, *names: str) -> dict[str, str]:
        """These parameters of the address; "" for missing ones."""
        return {name: self.query.get(name, "") for name in names}

    def may(self, role: Role) -> bool:
        return self.caller.role >= role

    def link(self, *parts: str, **query: object) -> str:
        """The address of another page, without empty parameters."""
        path = self.deps.base + "/" + "/".join(quote(part, safe="") for part in parts)
        given = {name: value for name, value in query.items() if value not in ("", None)}
        return f"{path}?{urlencode(given)}" if given else path

    def show_address(self, *parts: str, **query: object) -> None:
        """The browser's address leads to the shown contents."""
        ui.navigate.history.replace(self.link(*parts, **query))


def opened(deps: Deps, request: Request, role: Role = Role.VIEW) -> PageView:
    """The caller of the page. Raises LoginWanted or Forbidden."""
    path = request.url.path.removeprefix(deps.base) or "/"
    caller = viewed(deps, request, role)
    return PageView(deps, caller, path, origin(request), request.cookies, request.query_params)


# --- the frame ---


class Page(NamedTuple):
    """`draw` is called with the caller, and with the parameters of the path. `title` may name
    these; before anything is drawn `check` is called with them, and may raise the reason why there
    is no such page. A page that is hidden in the bar cannot be opened either."""

    path: str
    title: str | Callable[..., str]
    draw: Callable[..., Any]
    check: Callable[..., Awaitable[None]] | None = None

    def add(self, deps: Deps) -> None:
        title = self.title
        role = next((role for at, _, role in bar.SECTIONS if at == self.path), Role.VIEW)

        @ui.page(self.path, response_timeout=limits.ADMIN_PAGE_S)
        async def answer(request: Request) -> None:
            view, named = opened(deps, request, role), request.path_params
            await deps.watch.ready()
            if self.check is not None:
                await self.check(view, **named)
            shown = title.format(**named) if isinstance(title, str) else title(view, **named)
            with _framed(view, shown):
                drawn = self.draw(view, **named)
                if inspect.isawaitable(drawn):
                    ahead = background_tasks.create(_send_ahead(context.client))
                    try:
                        await drawn
                    finally:
                        ahead.cancel()


async def _send_ahead(client: Client) -> None:
    """What is drawn by then, as when an nsqd hangs: NiceGUI gives up a page that takes longer."""
    await asyncio.sleep(limits.ADMIN_READY_S)
    await client.connected()


@contextmanager
def _framed(view: PageView, title: str) -> Iterator[None]:
    deps = view.deps
    way_out = f"{deps.base}/login?next={quote(view.path)}"
    guard.drawn_for(context.client, view.caller, deps.gate, way_out)
    ui.page_title(f"{title} · Penstock")
    ui.add_head_html(f"<style>{first_paint(view.theme)}</style><script>{bar.SCRIPT}</script>")
    if view.caller.how == "session":
        ui.add_head_html(f"<script>{_renewal(deps)}</script>")
    ui.add_css(SHEET)
    ui.html('<a class="skip" href="#content">Skip to the content</a>', sanitize=False)
    with ui.element("header").classes("bar"):
        bar.draw(view)
    with ui.element("div").classes("content").props('id="content" tabindex="-1"'):
        _banners(view)
        yield


def _renewal(deps: Deps) -> str:
    """Only what its person does extends a session, not the socket and the page's updates."""
    every_ms = 1000 * renewal_s(deps.gate.lifetime_s)
    document = json.dumps({"way": f"{deps.base}/session", "every": every_ms})
    return f"window.penstockSession = {document};\n{static.text('session.js')}"


def _banners(view: PageView) -> None:
    """Daemons that do not answer, as long as they don't."""
    banner = ui.label().classes("banner").props('role="status"')

    def show(snapshot: Snapshot) -> None:
        lines = [*view.deps.history.troubles, *snapshot.errors]
        lines += filter(None, [snapshot.cluster.trouble])
        lines += [_silent(one) for one in snapshot.nodes.values() if not one.can_be_asked]
        banner.set_text("\n".join(lines[:8]))
        banner.set_visibility(bool(lines))

    follow(view, show)


def _silent(node: NodeState) -> str:
    age = words.span(node.stale_s)
    text = f"{node.address} does not answer: {node.error}." if node.error else (
        f"{node.address} has not answered for {age}."
    )  # fmt: skip
    return f"{text} Its figures are {age} old." if node.document and node.stale_s else text


# --- missing things ---


class NoSuchPage(PenstockError):
    """The subject of the page does not exist."""


async def check_exists(view: PageView, topic: str, channel: str = "") -> None:
    """Raises NoSuchPage; not while a silent node may have it, which the page's banner names."""
    for kind, name in (("topic", topic), ("channel", channel)):
        if name and not is_valid_name(name):
            raise NoSuchPage(f"{name!r} is not a valid name of a {kind}: {NAME_RULE}")
    latest = view.deps.watch.latest
    if latest.channel(topic, channel) if channel else topic in latest.topics:
        return
    asking = _is_absent(view.deps.upstream, topic, channel)
    try:
        absent = await asyncio.wait_for(asking, limits.ADMIN_READY_S)
    except (TimeoutError, UpstreamFailed):
        absent = False
    if absent:
        what = f"channel {topic}/{channel}" if channel else f"topic {topic}"
        raise NoSuchPage(f"There is no {what}: every nsqd and nsqlookupd that may have it says so")
    view.deps.watch.hurry()  # it is younger than the last look


async def _is_absent(upstream: Upstream, topic: str, channel: str) -> bool:
    """False also when a node that may know it is silent."""
    try:
        producers, missed = await upstream.producers_of(topic)
    except NotFound:
        return True
    if missed or not channel:
        return False
    if upstream.lookupds and channel in await upstream.channels(topic):
        return False
    if not producers:
        return True
    nodes, silent = await node_stats(upstream, producers, topic, channel)
    return not silent and aggregate.channel(topic, channel, nodes) is None


# --- following ---


def listen(
    source: Callable[[Callable[[T], None]], Callable[[], None]], show: Callable[[T], None]
) -> None:
    """Call `show` with every new value of a source, as long as the page is open."""
    client = context.client

    def on_value(value: T) -> None:
        if guard.is_open(client):
            with client:
                show(value)

    client.on_delete(source(on_value))


def follow(view: PageView, show: Callable[[Snapshot], None]) -> None:
    """The same with the installation, and now."""
    listen(view.deps.watch.listen, show)
    show(view.deps.watch.latest)


def follow_runs(view: PageView, show: Callable[[], None]) -> None:
    listen(view.deps.runs.listen, lambda _: show())
    show()


def poll(view: PageView, ask: Callable[[], Awaitable[None]], every_s: float = 0.0) -> None:
    """Ask now and with every update of the installation, one request at a time and no more often.
    On failure the contents stay: the banner names the silent node."""
    errand = Errand()

    async def run() -> None:
        with suppress(PenstockError):
            await ask()

    def on_snapshot(snapshot: Snapshot) -> None:
        if errand.is_due():
            errand.begin(run(), every_s)

    follow(view, on_snapshot)


# --- doing ---


def may_still(view: PageView, role: Role, action: str, about: Mapping[str, str]) -> bool:
    """Whether the caller may do this now; a refusal is shown, and written down."""
    if view.deps.gate.held(view.caller) >= role:
        return True
    target = "/".join(one for one in about.values() if one)
    failed = f"failed: needs the role {role.name.lower()}"
    view.deps.audit.note(view.caller, action, failed, target)
    ui.notify("You may not do this any more: open the page again.", type="negative")
    return False


async def change(
    view: PageView, role: Role, actions: str | Sequence[str], about: dict[str, str],
    run: Run, detail: str = "", question: str = "", typed: str = "",
) -> bool:  # fmt: skip
    """Change the installation: ask the person for confirmation, if needed, and the gate, write it
    down, act, notify, and show the outcome. Returns whether it was done. An action that the
    official nsqadmin reports as several has several names; an irreversible one wants its name
    `typed`."""
    deps = view.deps
    actions = (actions,) if isinstance(actions, str) else actions
    if question and not await _confirm(question, typed):
        return False
    if not may_still(view, role, actions[0], about):
        return False
    try:
        warning = await deps.audit.perform(view.caller, actions, about, run, detail, view.origin)
    except PenstockError as error:
        ui.notify(why(error), type="negative", multi_line=True, timeout=10_000)
        return False
    deps.watch.hurry()
    shown = warning.removeprefix("WARNING: ")
    ui.notify(shown or "Done.", type="warning" if warning else "positive", multi_line=True,
              timeout=10_000 if warning else 5_000)  # fmt: skip
    return True


async def do(view: PageView, operation: Operation, question: str = "", typed: str = "") -> bool:
    """The same with an Operation, which names its role and itself."""
    return await change(view, *operation, question=question, typed=typed)


def why(error: PenstockError) -> str:
    """The failed nodes, and why. One that took the request and was silent may have done it."""
    if isinstance(error, UpstreamFailed):
        named = "; ".join(f"{at}: {reason(one)}" for at, one in error.failed.items())
        is_open = any(one.sent and not one.status for one in error.failed.values())
        outcome = "It is not known whether it was done" if is_open else "Nothing was done"
        return f"{outcome}: {named or f'no {error.kind} that answers has it'}"
    return reason(error)


async def _confirm(words: str, name: str) -> bool:
    """One at a time: a double click asks once."""
    client = context.client
    if client in _asking:
        return False
    with parts.dialog(words, colour="negative", name=name) as dialog:
        pass
    _asking.add(client)
    try:
        return bool(await dialog)
    finally:
        _asking.discard(client)
