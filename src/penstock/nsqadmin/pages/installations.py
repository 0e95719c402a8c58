"""All installations at a glance, for who looks after several: the worst first, by the second."""

from __future__ import annotations

from fastapi import Request
from nicegui import context, ui

from penstock.nsqadmin import glance
from penstock.nsqadmin.access import Role
from penstock.nsqadmin.glance import Glance
from penstock.nsqadmin.ground import Ground, Grounds
from penstock.nsqadmin.pages import guard, layout, words
from penstock.nsqadmin.pages.layout import Opened

_REDRAW_S = 1.0
_LEVELS = {glance.FINE: "good", glance.UNREACHABLE: "bad", "fault": "bad", "warning": "warn"}


def add(grounds: Grounds) -> None:
    @ui.page("/installations")
    def installations(request: Request) -> None:
        here = layout.opened(grounds, request)
        with layout.page(here, "Installations"):
            draw(here)


def draw(here: Opened) -> None:
    with layout.heading("Installations"):
        count = ui.label().classes("soft").props('role="status"')
    place = ui.element("div").classes("sites")
    cards: dict[str, _Card] = {}
    order: list[str] = []

    def show() -> None:
        seen = {one.name: one for one in here.grounds.held_by(here.caller, Role.VIEW)}
        found = glance.glances(seen.values())
        for name in cards.keys() - seen.keys():
            cards.pop(name).box.delete()
        for one in found:
            if one.name not in cards:
                with place:
                    cards[one.name] = _Card(seen[one.name])
            cards[one.name].show(one)
        names = [one.name for one in found]
        if names != order:
            order[:] = names
            for index, name in enumerate(names):
                cards[name].box.move(place, index)
        wanting = sum(one.state not in (glance.FINE, glance.UNKNOWN, "note") for one in found)
        count.set_text(f"{wanting} of {len(found)} need attention" if wanting else "All is well")

    client = context.client
    ui.timer(_REDRAW_S, lambda: show() if guard.is_open(client) else None)
    show()


class _Card:
    """One of them."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self.box = ui.element("section").classes("panel")
        with self.box:
            with ui.element("div").classes("heading"):
                with ui.element("h2"):
                    ui.link(ground.name, layout.way(ground))
                self._state = layout.Badge()
                self._counts = ui.label().classes("soft")
            with ui.element("div").classes("tiles facts-row"):
                self._tiles = {name: layout.Tile(name) for name in ("Nodes", "In", "Out", "Depth")}
            self._worst = ui.element("div")
        self._shown: object = None

    def show(self, one: Glance) -> None:
        self._state.show(one.state, _LEVELS.get(one.state, "soft"))
        self._counts.set_text(_counted(one))
        down = one.nodes - one.nodes_up
        self._tiles["Nodes"].show(
            f"{one.nodes_up} of {one.nodes}", "answer", "bad" if down else ""
        )  # fmt: skip
        self._tiles["In"].show(words.rate(one.in_rate), "published")
        self._tiles["Out"].show(words.rate(one.out_rate), "finished")
        self._tiles["Depth"].show(words.number(one.depth), "messages wait")
        told = (one.state, one.why, one.worst, one.runs)
        if told != self._shown:
            self._shown = told
            self._worst.clear()
            with self._worst:
                _worst(self._ground, one)


def _counted(one: Glance) -> str:
    return ", ".join(words.count(count, kind) for kind, count in one.counts.items() if count)


def _worst(ground: Ground, one: Glance) -> None:
    if one.state == glance.UNREACHABLE:
        ui.label(f"It can't be reached: {one.why}").classes("bad")
        step = "See whether its daemons run, and whether this machine reaches them."
        ui.label(step).classes("soft")
    elif one.worst is not None:
        ui.link(one.worst.what, layout.way(ground, *one.worst.path))
        ui.label(f"{one.worst.why} {one.worst.next_step}").classes("soft")
    else:
        asked = one.state != glance.UNKNOWN
        ui.label("Nothing needs attention." if asked else "It is being asked.").classes("soft")
    if one.runs:
        said = f"{words.count(one.runs, 'finding')} about pipelines"
        ui.link(said, layout.way(ground, "pipelines"))
