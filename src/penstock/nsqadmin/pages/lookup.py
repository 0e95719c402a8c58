"""The page Lookup: topics without an nsqd, creating new ones, and all topics and channels with
their settings as one document, exported and imported."""

from functools import partial

from fastapi.responses import Response
from nicegui import ui

from penstock import limits
from penstock.errors import PenstockError
from penstock.net.query import whole_number
from penstock.nsqadmin import definitions, words
from penstock.nsqadmin.access import Role
from penstock.nsqadmin.api import ApiError, saved
from penstock.nsqadmin.definitions import Definitions
from penstock.nsqadmin.pages import layout, parts
from penstock.nsqadmin.pages.layout import NAME_RULE, PageView
from penstock.nsqadmin.routes import Call, file_route
from penstock.nsqadmin.snapshot import Snapshot
from penstock.wire.names import is_valid_name

_PATH = "definitions.json"
_SHOWN_MAX = 200  # changes of a preview
_IDLE_MAX = 100  # topics that no nsqd has: each row asks for its channels


async def download(call: Call) -> Response:
    await call.deps.watch.ready()
    try:
        found = definitions.taken(await call.deps.watch.fresh())
    except PenstockError as error:
        raise ApiError(502, f"UPSTREAM_ERROR: {error}") from error
    text = definitions.to_text(found)
    return Response(text, media_type="application/json", headers=saved(_PATH))


FILES = (file_route(f"/{_PATH}", download),)


def draw(view: PageView) -> None:
    parts.heading("Lookup")
    if view.may(Role.OPERATE):
        _creation(view)
    with parts.section("Definitions"):
        parts.soft(
            "All topics and channels with their settings as one document, for another installation"
            " or to go back to. Messages are not in it."
        )
        ui.link("Download definitions", view.link(_PATH)).props("download")
        if view.may(Role.DESTROY):
            _Form(view)
    if not view.deps.upstream.lookupds:
        parts.soft("nsqadmin was given nsqds, not nsqlookupds: there are no inactive topics.")
        return
    with parts.section("Topics that no nsqd has"):
        area = parts.Redrawn()

    def show(snapshot: Snapshot) -> None:
        idle = idle_topics(snapshot)
        is_certain = not snapshot.errors

        def draw() -> None:
            if not is_certain:
                parts.soft("Not every nsqlookupd answers: an nsqd may have these.")
            if not idle:
                parts.soft("None.")
            for name in idle[:_IDLE_MAX]:
                _idle(view, name, is_certain)
            parts.more(idle, _IDLE_MAX)

        area.show((is_certain, idle), draw)

    layout.follow(view, show)


def idle_topics(snapshot: Snapshot) -> list[str]:
    """On no nsqd. What a cluster has is on the disks of its nodes, whether they run or not."""
    clustered = {one.topic for one in snapshot.cluster.partitions}
    found = (one.name for one in snapshot.topics.values() if one.is_idle)
    return sorted(name for name in found if name not in clustered)


def _idle(view: PageView, name: str, is_certain: bool) -> None:
    async def delete() -> None:
        question = "Delete this topic on every nsqlookupd?"
        await layout.do(view, view.deps.actions.forget(name), question, name)

    async def channels() -> None:
        try:
            found = await view.deps.upstream.channels(name)
        except PenstockError as error:
            label.set_text(str(error))
        else:
            label.set_text(", ".join(found) or "no channel")

    with parts.row():
        ui.label(name)
        label = parts.soft()
        ui.timer(0.01, channels, once=True)
        if view.may(Role.DESTROY) and is_certain:
            parts.small_button("Delete", delete).props("color=negative")


def _creation(view: PageView) -> None:
    async def create() -> None:
        name, part = str(topic.value or ""), str(channel.value or "")
        if not all(field.validate() for field in (topic, channel, *counts)):
            return
        numbers = (int(field.value or 0) for field in counts)
        if await layout.do(view, view.deps.actions.create(name, part, *numbers)):
            for field in (topic, channel, *counts):
                field.set_value("")

    with parts.section("Make a topic or channel"), parts.row("heading making"):
        topic = ui.input("Topic", validation={NAME_RULE: lambda text: is_valid_name(text or "")})
        channel = ui.input(
            "Channel (optional)",
            validation={NAME_RULE: lambda text: not text or is_valid_name(text)},
        )
        counts = [_count("Partitions (optional)", limits.PARTITIONS_MAX)]
        if view.deps.watch.latest.cluster.name:
            counts.append(_count("Replicas (optional)", limits.MEMBERS_MAX))
        ui.button("Make", on_click=create).props("unelevated")


def _count(label: str, most: int) -> ui.input:
    def is_valid(text: str) -> bool:
        return not text or bool(whole_number(text, most))

    rule = f"a whole number, 1 to {most}"
    return ui.input(label, validation={rule: is_valid}).props("inputmode=numeric")


class _Form:
    def __init__(self, view: PageView) -> None:
        self._view = view
        self._text = ui.textarea("Definitions to put in").props("outlined")
        self._text.classes("mono definitions")
        with parts.row():
            chosen = ui.element("input").props('type=file accept=".json,application/json"')
            parts.named(chosen, "Take them from a file").on(
                "change", js_handler="(e) => penstock.readFile(e)"
            )
            nodes = list(self._view.deps.watch.latest.nodes)
            self._nodes = ui.select(nodes, value=nodes, label="On nodes", multiple=True)
            self._nodes.props("use-chips").set_visibility(len(nodes) > 1)
            parts.grow()
            ui.button("Show what would change", on_click=self._preview).props("outline")
            ui.button("Put in", on_click=self._put).props("unelevated")
        self._note = ui.label().classes("bad").props('role="status"')
        self._changes = ui.element("div")

    def _chosen(self) -> list[str]:
        """The nodes that answer: all, when there was one when the page was drawn."""
        nodes = self._view.deps.watch.latest.nodes
        chosen = self._nodes.value if self._nodes.visible else list(nodes)
        return [at for at in chosen or () if at in nodes and nodes[at].is_up]

    def _read(self) -> Definitions | None:
        self._changes.clear()
        self._note.set_text("")
        try:
            return definitions.read(str(self._text.value or ""))
        except PenstockError as error:
            self._note.set_text(str(error))
            return None

    async def _preview(self) -> None:
        found = self._read()
        if found is None:
            return
        changes = definitions.changes(await self._view.deps.watch.fresh(), found, self._chosen())
        self._changes.clear()
        with self._changes:
            text = words.count(len(changes), "change") if changes else "Nothing would change"
            ui.label(f"{text}.").props('role="status"')
            with ui.element("ul").classes("mono small"):
                for one in changes[:_SHOWN_MAX]:
                    parts.written("li", one.text)
            parts.more(changes, _SHOWN_MAX)

    async def _put(self) -> None:
        found = self._read()
        if found is None:
            return
        nodes = self._chosen()
        if not nodes:
            self._note.set_text("Choose a node that answers.")
            return
        changes = definitions.changes(await self._view.deps.watch.fresh(), found, nodes)
        question = (
            f"{words.count(len(changes), 'change')} on {words.count(len(nodes), 'node')}: make what"
            " is missing, and change settings? Nothing is deleted."
        )
        run = partial(definitions.put, self._view.deps.upstream, nodes, found)
        detail = f"{', '.join(one.name for one in found.topics)} on {', '.join(nodes)}"
        if await layout.change(self._view, Role.DESTROY, "put_definitions", {}, run, detail,
                               question, "definitions"):  # fmt: skip
            self._text.set_value("")
