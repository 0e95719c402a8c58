"""One message's life as a timeline: /trace?id=…&topic=…&since=…"""

from __future__ import annotations

from urllib.parse import urlencode

from fastapi import Request
from nicegui import ui

from penstock import limits
from penstock.errors import PenstockError
from penstock.nsqadmin import traces
from penstock.nsqadmin.ground import Grounds
from penstock.nsqadmin.pages import layout, words
from penstock.nsqadmin.pages.layout import Opened
from penstock.nsqadmin.traces import Seeker
from penstock.nsqadmin.tracetable import Found


def add(grounds: Grounds) -> None:
    @ui.page("/trace")
    async def trace(request: Request, id: str = "", topic: str = "", since: str = "") -> None:
        here = layout.opened(grounds, request)
        await here.ground.watch.ready()
        with layout.page(here, "Trace"):
            _Lives(here, topic, since).draw(id)


class _Lives:
    def __init__(self, here: Opened, topic: str, since: str) -> None:
        self._here = here
        self._topic = topic
        self._since = since
        self._search_count = 0

    def draw(self, text: str) -> None:
        layout.heading("One message's life")
        with ui.element("div").classes("heading"):
            self._id = ui.input("Message id, or trace:N", value=text).props("dense outlined")
            self._id.style("min-width: 16rem").on("keydown.enter", self._search)
            self._only = ui.input("Only in topic", value=self._topic).props("dense outlined")
            self._day = ui.input("Trace id: since day", value=self._since).props(
                'dense outlined placeholder="2026-05-01"'
            )
            ui.button("Show", on_click=self._search).props("unelevated")
        self._note = ui.label().classes("soft").props('role="status"')
        self._place = ui.element("div").classes("lives")
        if text:
            ui.timer(0.05, self._search, once=True)  # the page is there at once

    async def _search(self) -> None:
        """The log's part is shown as soon as it is there, then the table's with it."""
        self._search_count += 1
        mine = self._search_count
        self._place.clear()
        self._note.set_text("Looking …")
        text, topic = str(self._id.value or ""), str(self._only.value or "").strip()
        since = str(self._day.value or "")
        ground = self._here.ground
        nodes = [one.address for one in ground.watch.latest.nodes.values() if one.is_up]
        try:
            ask = traces.wanted(text, since)
        except PenstockError as error:
            self._note.set_text(str(error))
            return
        given = {"id": text, "topic": topic, "since": since}
        query = urlencode({name: value for name, value in given.items() if value})
        ui.navigate.history.replace(f"{self._here.link('trace')}?{query}")
        seeker = Seeker(ground.upstream, nodes, ground.options.trace_table, ask, topic)
        await seeker.look_in_log()
        if mine == self._search_count and seeker.has_tables:
            self._show(seeker, "; looking into the table …")
            await seeker.look_in_tables()
        if mine == self._search_count:  # or somebody has asked for something else meanwhile
            self._show(seeker, "")

    def _show(self, seeker: Seeker, more: str) -> None:
        life = seeker.life()
        self._place.clear()
        said = words.count(len(life.found), "event") if life.found or more else seeker.nothing
        notes = f" ({'; '.join(life.notes)})" if life.notes else ""
        self._note.set_text(f"{said}{more}{notes}")
        with self._place:
            for message_id in dict.fromkeys(one.event.message_id for one in life.found):
                if message_id:
                    self._life(
                        message_id,
                        [one for one in life.found if one.event.message_id in (0, message_id)],
                    )

    def _life(self, message_id: int, found: list[Found]) -> None:
        trace_id = max(one.event.trace_id for one in found)
        name = f"Message {message_id:016x}" + (f", trace id {trace_id}" if trace_id else "")
        with layout.section(name), ui.element("ol").classes("life"):
            before_ns = found[0].event.time_ns
            for one in found:
                passed_ns, before_ns = one.event.time_ns - before_ns, one.event.time_ns
                with ui.element("li"):
                    _event(self._here, one, passed_ns)


def _event(here: Opened, found: Found, passed_ns: int) -> None:
    event = found.event
    ui.label(words.moment(event.time_ns)).classes("mono soft")
    ui.label(f"+{words.span(passed_ns / limits.SECOND)}").classes("soft")
    ui.label(event.kind.label.replace("_", " ")).classes(
        f"badge {_COLOURS.get(event.kind.label, 'soft')}"
    )
    place = (event.topic, event.channel) if event.channel else (event.topic,)
    ui.link("/".join(place), here.link("topics", *place))
    facts = [f"offset {event.offset:,}"]
    if found.node:
        facts.append(f"on {found.node}")
    if event.attempts:
        facts.append(f"attempt {event.attempts}")
    if event.client:
        facts.append(event.client)
    ui.label(", ".join(facts)).classes("soft")
    ui.label(f"from {found.sources}").classes("source soft")


_COLOURS = {
    "published": "good", "finished": "good", "timed_out": "warn", "requeued": "warn",
    "dead_lettered": "bad", "skipped": "bad", "emptied": "warn", "disconnected": "warn",
}  # fmt: skip
