"""The whole installation on one page: its state, findings, active and waiting topics, nodes, and
the last hours. And the page Counter, for a screen on the wall."""

import heapq
import time
from collections.abc import Callable

from nicegui import ui

from penstock.nsqadmin import words
from penstock.nsqadmin.attention import Finding, Level, folded, of_runs, order
from penstock.nsqadmin.pages import chart, layout, parts, pipelines, resource, states
from penstock.nsqadmin.pages.layout import PageView
from penstock.nsqadmin.snapshot import NodeState, Snapshot, TopicState

_FINDINGS_MAX = 50  # nobody reads more
_RANKS = 5
_NODES_MAX = 12  # more are on the page of the nodes
_CURVES = {"In": "in_rate", "Out": "out_rate", "Depth": "depth", "In flight": "in_flight"}
_POINTS = 60  # of a curve: more are not seen


def draw(view: PageView) -> None:
    latest = view.deps.watch.latest
    parts.heading("Overview")
    with parts.row("tiles") as flow:
        tiles = {name: parts.Tile(name) for name in flow_of(latest)}
    curves = {}
    for name in _CURVES:
        with tiles[name]:
            curves[name] = parts.Curve()
    with parts.row("tiles facts-row"):
        tiles |= {name: parts.Tile(name) for name in facts_of(latest)}

    def show(snapshot: Snapshot) -> None:
        parts.show_age(flow, snapshot.stale_s)
        for name, shown in {**flow_of(snapshot), **facts_of(snapshot)}.items():
            tiles[name].show(*shown)
        for name, field in _CURVES.items():
            curves[name].show(chart.course(view, "", field, _POINTS))

    layout.follow(view, show)
    pipelines.line(view)
    _attention(view)
    with parts.row("two"):
        _ranks(view, "Busiest topics", "in_rate", lambda one: one.in_rate, words.rate)
        _ranks(view, "Deepest topics", "depth", lambda one: one.backlog, words.number)
    _nodes(view)
    chart.pair(view, "")


def draw_counter(view: PageView) -> None:
    parts.heading("Counter")
    with ui.element("div").classes("panel"):
        parts.soft("Messages that came to channels since their nodes started")
        total = ui.label().classes("counter").props('aria-live="off"')
        rate = parts.soft()

    def show(snapshot: Snapshot) -> None:
        channels = list(snapshot.channels())
        total.set_text(f"{sum(one.messages for one in channels):,}")
        rate.set_text(f"{words.rate(sum(one.in_rate for one in channels))} now")

    layout.follow(view, show)
    chart.pair(view, "")


def _attention(view: PageView) -> None:
    with parts.section("Needs attention"):
        area = parts.Redrawn()

    def show(snapshot: Snapshot) -> None:
        found = [*states.found(view, snapshot), *of_runs(view.deps.runs.runs, time.time())]
        found = list(folded(sorted(found, key=order)))[:_FINDINGS_MAX]
        well = "" if found else _all_well(snapshot)

        def draw() -> None:
            if well:
                with ui.element("div").classes("finding"):
                    _level("good", "check_circle", "All well")
                    parts.soft(well)
            for one in found:
                finding(view, one)

        area.show((found, well), draw)

    layout.follow(view, show)


def _all_well(snapshot: Snapshot) -> str:
    if not snapshot.nodes:
        return "No nsqd is known yet: start one with the address of this nsqlookupd."
    late = [one.address for one in snapshot.nodes.values() if not one.can_be_asked]
    if late:
        return f"As far as is known: {', '.join(late[:4])} has not answered for a while."
    if not snapshot.topics:
        return "Nothing has been published yet: publish to any topic, or make one under Lookup."
    return "All nodes answer, and every channel moves."


_LEVELS = {
    Level.BAD: ("bad", "error", "Fault"),
    Level.WARN: ("warn", "warning", "Warning"),
    Level.NOTE: ("soft", "info", "Note"),
}


def finding(view: PageView, one: Finding) -> None:
    what = one.what[:1].upper() + one.what[1:]
    with ui.element("div").classes("finding"):
        _level(*_LEVELS[one.level])
        with ui.element("div"):
            if one.path:
                of_all = {"state": "attention"} if one.path == ("topics",) else {}
                ui.link(what, view.link(*one.path, **of_all))
            else:
                ui.label(what)
            parts.soft(f"{one.why} {one.next_step}".strip())


def _level(colour: str, icon: str, text: str) -> None:
    with ui.element("div").classes("level").classes(colour):
        ui.icon(icon)
        parts.written("span", text)


def _ranks(
    view: PageView, title: str, field: str, amount: Callable[[TopicState], float],
    text: Callable[[float], str],
) -> None:  # fmt: skip
    """The topics with the most of something, each with its curve."""
    with parts.section(title):
        none = parts.soft("None at the moment.")
        with parts.row("ranks"):
            slots = [(ui.link(), parts.Curve(), ui.label().classes("amount"))
                     for _ in range(_RANKS)]  # fmt: skip

    def show(snapshot: Snapshot) -> None:
        moving = (one for one in snapshot.topics.values() if not one.is_internal and amount(one))
        first = heapq.nlargest(_RANKS, moving, key=amount)
        none.set_visibility(not first)
        for (link, curve, label), topic in zip(slots, [*first, *[None] * _RANKS], strict=False):
            for one in (link, curve, label):
                one.set_visibility(topic is not None)
            if topic is None:
                continue
            if link.text != topic.name:
                link.set_text(topic.name)
                link.props["href"] = view.link("topics", topic.name)
                link.props["title"] = topic.name
            label.set_text(text(amount(topic)))
            curve.show(chart.course(view, topic.name, field, _POINTS))

    layout.follow(view, show)


def _nodes(view: PageView) -> None:
    with parts.section("Nodes"):
        area = parts.Redrawn("nodes")
        more = ui.link("", view.link("nodes"))
    cards: dict[str, _Card] = {}

    def show(snapshot: Snapshot) -> None:
        found = sorted(snapshot.nodes.values(), key=lambda one: (one.is_up, one.address))
        left, shown = len(found) - _NODES_MAX, found[:_NODES_MAX]
        more.set_text(f"{left} more" if left > 0 else "")
        more.set_visibility(left > 0)

        def draw() -> None:
            cards.clear()
            cards.update((one.address, _Card(view, one.address)) for one in shown)
            if not shown:
                parts.soft("No nsqd is known.")

        area.show([one.address for one in shown], draw)
        for one in shown:
            cards[one.address].show(one)

    layout.follow(view, show)


class _Card:
    def __init__(self, view: PageView, address: str) -> None:
        with ui.element("div").classes("node"):
            with parts.row("heading split"):
                ui.link(address, view.link("nodes", address))
                self._badge = parts.Badge()
            self._rates = parts.soft().classes("small")
            self._disk = parts.Bar(f"Disk of {address}")

    def show(self, node: NodeState) -> None:
        self._badge.show(*states.node_badge(node))
        if node.is_up:
            self._rates.set_text(
                f"{words.rate(node.in_rate)} in, {words.rate(node.out_rate)} out,"
                f" {words.number(node.depth)} wait"
            )
        else:
            age = f"; figures {words.aged(node.stale_s)}" if node.document else ""
            self._rates.set_text(f"{node.error}{age}")
        self._disk.show(*states.disk_of(node))


def flow_of(snapshot: Snapshot) -> resource.Figures:
    channels = list(snapshot.channels())
    oldest = resource.oldest_in(channels)
    where = f"{oldest.topic}/{oldest.name}" if oldest else ""
    return {
        "In": (words.rate(snapshot.in_rate), "published"),
        "Out": (words.rate(snapshot.finish_rate), "finished"),
        "Depth": (words.number(snapshot.backlog), "messages wait"),
        "In flight": (words.number(sum(one.in_flight for one in channels)), "at consumers"),
        "Deferred": (words.number(sum(one.deferred for one in channels)), "not due yet"),
        "Oldest": resource.oldest_of(oldest, where, "unfinished message"),
    }


def facts_of(snapshot: Snapshot) -> resource.Figures:
    nodes = snapshot.nodes.values()
    up = sum(one.can_be_asked for one in nodes)
    channels = list(snapshot.channels())
    unsynced = sum(one.unsynced_bytes for one in snapshot.topics.values())
    disks = [one.disk for one in nodes if one.disk]
    free = min((one["free_bytes"] for one in disks if "free_bytes" in one), default=None)
    slowest_s = max((one.get("sync_slowest_seconds", 0.0) for one in disks), default=0.0)
    last_s = [one["last_sync_seconds_ago"] for one in disks if "last_sync_seconds_ago" in one]
    topics = sum(not one.is_internal for one in snapshot.topics.values())
    down = len(nodes) - up
    text = f"{down} down" if down else "answer"
    return {
        "Nodes": (f"{up} of {len(nodes)}", text, "bad" if down else ""),
        "Timeouts": (words.rate(sum(one.timeout_rate for one in channels)), "came back"),
        "Not synced": (words.size(unsynced), "not on disk yet") if disks else words.UNKNOWN,
        "Last sync": (
            words.span(min(last_s)) if last_s else "none",
            f"ago, slowest {words.span(slowest_s)}" if slowest_s else "in the last minute",
        ) if disks else words.UNKNOWN,
        "Disk left": (words.size(free) if free is not None else "unknown", "on the fullest node"),
        "Topics": (words.number(topics), words.count(len(channels), "channel")),
        "Consumers": (words.number(sum(one.clients for one in channels)), "connected"),
    }  # fmt: skip
