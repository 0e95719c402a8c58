"""A message's timeline: /trace?id=…&topic=…&partition=…&since=…"""

from collections.abc import Mapping

from nicegui import ui

from penstock import limits
from penstock.errors import PenstockError
from penstock.nsqadmin import lifeline, traces, words
from penstock.nsqadmin.pages import parts
from penstock.nsqadmin.pages.grid import Grid, column, row_of
from penstock.nsqadmin.pages.layout import PageView
from penstock.nsqadmin.traces import Seeker, TracedEvent, contexts
from penstock.trace.events import Event


class Lives:
    def __init__(self, view: PageView) -> None:
        self._view = view
        self._search_count = 0
        text, topic, partition, since = view.asked("id", "topic", "partition", "since").values()
        parts.heading("One message's life")
        with parts.row():
            self._id = ui.input("Message id, or trace:N", value=text).style("min-width: 16rem")
            self._only = ui.input("Only in topic", value=topic)
            self._part = ui.input("Only in partition", value=partition)
            self._part.props('inputmode="numeric"').style("width: 9rem")
            self._day = ui.input("Trace id: since day", value=since)
            self._day.props('placeholder="2026-05-01"')
            for field in (self._id, self._only, self._part, self._day):
                field.on("keydown.enter", self._search)
            ui.button("Show", on_click=self._search).props("unelevated")
        self._note = parts.note()
        self._area = ui.element("div").classes("lives")
        if text:
            ui.timer(0.05, self._search, once=True)  # the page is there at once
        else:
            self._note.set_text(
                "Such as 18a338925ce69000, the id of a message: it stands on the page of messages"
                " and in its consumer's log. trace:42 is all that its publisher gave the trace id"
                " 42, and 32 hex digits are a W3C trace."
            )
            with self._area:
                ui.timer(0.05, self._show_recent, once=True)

    async def _show_recent(self) -> None:
        """Something to click on, where there is anything."""
        deps, mine = self._view.deps, self._search_count
        nodes = deps.watch.up()
        found = await traces.recent(deps.upstream, nodes)
        if mine != self._search_count:
            return
        with self._area, parts.section("Traced last"):
            if not found:
                ui.label(
                    "Nothing is traced. Switch it on for a topic or a channel, all of it or a"
                    " share: on its page, under Settings."
                )
                ui.link("Topics", self._view.link("topics"))
                return
            grid = Grid(_RECENT, "id", "None.", "Traced last", "calc(100vh - 330px)")
            grid.show([row_of(self._view.link, _RECENT, one) for one in found])

    async def _search(self) -> None:
        """The log's part is shown as soon as it is there, then the table's with it."""
        self._search_count += 1
        mine = self._search_count
        self._area.clear()
        self._note.set_text("Looking …")
        text, topic = str(self._id.value or ""), str(self._only.value or "").strip()
        partition, since = str(self._part.value or "").strip(), str(self._day.value or "")
        deps = self._view.deps
        nodes = deps.watch.up()
        try:
            ask = traces.wanted(text, since)
            only = traces.only_in(topic, partition)
        except PenstockError as error:
            self._note.set_text(str(error))
            return
        self._view.show_address("trace", id=text, topic=topic, partition=partition, since=since)
        seeker = Seeker(deps.upstream, nodes, deps.options.trace_table, ask, only)
        await seeker.look_in_log()
        if mine == self._search_count and seeker.tables:
            self._show(seeker, "; looking into the table …", {})
            await seeker.look_in_tables()
        hidden = deps.options.mask_field
        known = await contexts(deps.upstream, seeker.found(), hidden)
        if mine == self._search_count:  # or somebody has asked for something else meanwhile
            self._show(seeker, "", known)

    def _show(self, seeker: Seeker, more: str, known: Mapping[int, str]) -> None:
        found = seeker.found()
        self._area.clear()
        text = words.count(len(found), "event") if found or more else seeker.nothing
        notes = f" ({'; '.join(seeker.notes)})" if seeker.notes else ""
        self._note.set_text(f"{text}{more}{notes}")
        with self._area:
            for message_id in dict.fromkeys(one.event.message_id for one in found):
                if message_id:
                    mine = [one for one in found if one.event.message_id in (0, message_id)]
                    self._life(message_id, mine, known.get(message_id, ""))

    def _life(self, message_id: int, found: list[TracedEvent], context: str) -> None:
        trace_id = max(one.event.trace_id for one in found)
        name = f"Message {message_id:016x}" + (f", trace id {trace_id}" if trace_id else "")
        events = [one.event for one in found]
        with parts.section(name):
            ui.label(lifeline.summary(events)).classes("told")
            if context:
                ui.label(f"traceparent {context}").classes("mono soft")
            with parts.row():
                _links(self._view, found, message_id)
            _drawing(self._view, events)
            box = ui.expansion(f"{words.count(len(found), 'event')}, one by one", value=True)
        with box.props("dense"), ui.element("ol").classes("life"):
            before_ns = found[0].event.time_ns
            for one in found:
                passed_ns, before_ns = one.event.time_ns - before_ns, one.event.time_ns
                with ui.element("li"):
                    _event(self._view, one, passed_ns)


def _event(view: PageView, found: TracedEvent, passed_ns: int) -> None:
    event = found.event
    ui.label(words.moment(event.time_ns)).classes("mono soft")
    parts.soft(f"+{words.fine(passed_ns / 1e9)}")
    ui.label(_kind(event)).classes(f"badge {lifeline.LEVELS.get(event.kind, 'soft')}")
    names = (event.topic, event.channel) if event.channel else (event.topic,)
    ui.link("/".join(names), view.link("topics", *names))
    partition = f"partition {event.partition} " if event.partition else ""
    facts = [f"{partition}offset {event.offset:,}"]
    if found.node:
        facts.append(f"on {found.node}")
    if event.attempts:
        facts.append(f"attempt {event.attempts}")
    if event.client:
        facts.append(event.client)
    parts.soft(", ".join(facts))
    ui.label(f"from {found.sources}").classes("source soft")


def _kind(event: Event) -> str:
    return event.kind.label.replace("_", " ")


def _id(event: Event) -> str:
    return f"{event.message_id:016x}"


_RECENT = [
    column("id", "Message", "link", _id, to=lambda link, one: link("trace", id=_id(one)),
           width=190, cellClass="mono"),
    column("topic", "Topic", flex=1, minWidth=110),
    column("last", "Last event",
           of=lambda one: _kind(one) + (f" in {one.channel}" if one.channel else ""), flex=1,
           minWidth=130),
    column("time", "At (UTC)", at=700,
           of=lambda one: words.moment(one.time_ns).removesuffix(" UTC"), width=215),
    column("trace_id", "Trace id", "value", at=700,
           of=lambda one: str(one.trace_id) if one.trace_id else ""),
]  # fmt: skip


def _links(view: PageView, found: list[TracedEvent], message_id: int) -> None:
    event = next((one.event for one in found if one.event.message_id == message_id), None)
    if event is None:
        return
    node = next((one.node for one in found if one.node), "")
    query = {"node": node, "partition": event.partition, "at": event.offset,
             "open": event.offset} if node else {"at": f"{message_id:016x}"}  # fmt: skip
    ui.link("The message itself", view.link("messages", event.topic, **query))


def _drawing(view: PageView, events: list[Event]) -> None:
    """A lane for the topic and each channel. Its points are in the list below, too."""
    shown = events[: limits.ADMIN_TRACE_DRAWN]
    lanes, cuts = lifeline.drawn(shown)
    first, last = words.clock_of(shown[0].time_ns), words.clock_of(shown[-1].time_ns)
    in_all_s = (shown[-1].time_ns - shown[0].time_ns) / 1e9
    with parts.named(ui.element("div").classes("lanes").props('role="group"'), "Timeline"):
        for lane in lanes:
            names = (lane.topic, lane.channel) if lane.channel else (lane.topic,)
            ui.link(lane.channel or lane.topic, view.link("topics", *names))
            with ui.element("div").classes("track"):
                _track(lane, cuts)
        ui.element("span")
        with ui.element("div").classes("axis soft small"):
            ui.label(first)
            ui.label(f"{words.fine(in_all_s)} in all")
            ui.label(last)
    kinds = {event.kind for event in shown}
    with ui.element("div").classes("legend small"):
        for kind in sorted(kinds):
            with ui.element("span"):
                ui.element("i").classes(f"dot {lifeline.LEVELS.get(kind, 'soft')}")
                ui.label(kind.label.replace("_", " "))
    if len(shown) < len(events):
        parts.soft(f"The first {len(shown):,} events are drawn.")


def _track(lane: lifeline.Lane, cuts: list[lifeline.Bar]) -> None:
    for cut in cuts:
        mark = ui.element("div").classes("cut small")
        mark.style(f"left: {cut.start:.2f}%; width: {cut.end - cut.start:.2f}%")
        with mark:
            ui.label(cut.what)
    for bar in lane.bars:
        drawn = ui.element("div").classes(f"span {bar.what}")
        drawn.style(f"left: {bar.start:.2f}%; width: {max(bar.end - bar.start, 0.2):.2f}%")
    for point in lane.points:
        event = point.event
        text = f"{_kind(event)} at {words.clock_of(event.time_ns)}"
        if event.attempts:
            text += f", attempt {event.attempts}"
        if event.client:
            text += f", {event.client}"
        dot = ui.element("i").classes(f"dot {lifeline.LEVELS.get(event.kind, 'soft')}")
        dot.style(f"left: {point.at:.2f}%").props('role="img"')
        dot.props["title"] = text
        parts.named(dot, text)
