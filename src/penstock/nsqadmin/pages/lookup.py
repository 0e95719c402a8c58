"""Topics that nobody has, and making new ones."""

from __future__ import annotations

from functools import partial

from fastapi import Request
from nicegui import ui

from penstock import limits
from penstock.errors import PenstockError
from penstock.net.query import whole_number
from penstock.nsqadmin.access import Role
from penstock.nsqadmin.ground import Ground
from penstock.nsqadmin.pages import definitions, layout
from penstock.nsqadmin.pages.layout import Opened
from penstock.nsqadmin.snapshot import Snapshot
from penstock.wire.names import is_valid_name

_RULE = "1 to 64 of . a-z A-Z 0-9 _ -"
_PARTITIONS_RULE = f"a whole number, 1 to {limits.PARTITIONS_MAX}"


def add(ground: Ground) -> None:
    @ui.page("/lookup")
    def lookup(request: Request) -> None:
        here = layout.opened(ground, request)
        with layout.page(here, "Lookup"):
            draw(here)


def draw(here: Opened) -> None:
    layout.heading("Lookup")
    if here.may(Role.OPERATE):
        _creation(here)
    definitions.panel(here)
    if not here.ground.upstream.lookupds:
        ui.label(
            "nsqadmin was given nsqds, not nsqlookupds: there are no inactive topics."
        ).classes("soft")
        return
    with layout.section("Topics that no nsqd has"):
        place = ui.element("div")
    shown: list[object] = []

    def show(snapshot: Snapshot) -> None:
        idle = sorted(one.name for one in snapshot.topics.values() if one.is_idle)
        is_certain = not snapshot.errors
        if [is_certain, *idle] == shown and place.default_slot.children:
            return
        shown[:] = [is_certain, *idle]
        place.clear()
        with place:
            if not is_certain:
                ui.label("Not every nsqlookupd answers: an nsqd may have these.").classes("soft")
            if not idle:
                ui.label("None.").classes("soft")
            for name in idle:
                _idle(here, name, is_certain)

    layout.follow(here, show)


def _idle(here: Opened, name: str, is_certain: bool) -> None:
    async def delete() -> None:
        if await layout.confirm("Delete this topic on every nsqlookupd?", name):
            run = partial(here.ground.actions.forget, name)
            await layout.change(here, Role.DESTROY, "delete_topic", {"topic": name}, run)

    async def channels() -> None:
        try:
            found = await here.ground.upstream.channels(name)
        except PenstockError as error:
            label.set_text(str(error))
        else:
            label.set_text(", ".join(found) or "no channel")

    with ui.element("div").classes("heading"):
        ui.label(name)
        label = ui.label().classes("soft")
        ui.timer(0.01, channels, once=True)
        if here.may(Role.DESTROY) and is_certain:
            ui.button("Delete", on_click=delete).props("flat dense color=negative")


def _count(text: str) -> int | None:
    return whole_number(text, limits.PARTITIONS_MAX)


def _creation(here: Opened) -> None:
    async def create() -> None:
        name, part = str(topic.value or ""), str(channel.value or "")
        if not (topic.validate() and channel.validate() and partitions.validate()):
            return
        about = {"topic": name, "channel": part} if part else {"topic": name}
        actions = ("create_topic", "create_channel") if part else ("create_topic",)
        run = partial(here.ground.actions.create, name, part, int(partitions.value or 0))
        if await layout.change_all(here, Role.OPERATE, actions, about, run):
            topic.set_value("")
            channel.set_value("")
            partitions.set_value("")

    # The fields keep room for a fault below them.
    ui.add_css(".making { align-items: flex-start; } .making .q-btn { height: 40px; }")
    with (
        layout.section("Make a topic or channel"),
        ui.element("div").classes("heading making"),
    ):
        topic = ui.input(
            "Topic", validation={_RULE: lambda text: is_valid_name((text or "").encode())}
        ).props("dense outlined")
        channel = ui.input(
            "Channel (optional)",
            validation={_RULE: lambda text: not text or is_valid_name(text.encode())},
        ).props("dense outlined")
        partitions = ui.input(
            "Partitions (optional)",
            validation={_PARTITIONS_RULE: lambda text: not text or bool(_count(text))},
        ).props("dense outlined inputmode=numeric")
        ui.button("Make", on_click=create).props("unelevated")
