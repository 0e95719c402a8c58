"""The part of a channel's page that sets its place in the log: back, so that messages come again,
or on, so that some never come.

Nothing moves before a preview has said how many messages it concerns, node by node; and then the
channel goes to the very offset of the preview, whatever was published meanwhile.
"""

from __future__ import annotations

from functools import partial

from nicegui import ui

from penstock.nsqadmin import words
from penstock.nsqadmin.access import Role
from penstock.nsqadmin.channel_messages import (
    PLACES,
    ChannelMessages,
    Move,
    SeekInvalid,
    position_of,
)
from penstock.nsqadmin.pages import layout, parts
from penstock.nsqadmin.pages.layout import Opened
from penstock.nsqadmin.snapshot import Snapshot

ALL = -1  # partitions
_HINTS = {
    "time": "2026-11-21 06:00 (UTC)",
    "back": "How many",
    "offset": "Offset",
    "id": "16 hex digits",
}


def panel(here: Opened, topic: str, name: str) -> None:
    """For those who may; the others don't see it."""
    if here.may(Role.OPERATE):
        with parts.section("Replay"):
            _Replay(here, topic, name).draw()


class _Replay:
    def __init__(self, here: Opened, topic: str, name: str) -> None:
        self._here = here
        self._topic = topic
        self._name = name
        self._channel = ChannelMessages(here.deps.upstream, topic, name)

    def draw(self) -> None:
        parts.soft("Go back and process messages again, or on and leave some out.")
        with parts.row():
            kinds = {kind: label for kind, label, _ in PLACES}
            self._kind = ui.select(kinds, value="time", label="To").props("dense outlined")
            self._kind.style("min-width: 12rem")
            self._text = ui.input(_HINTS["time"]).props("dense outlined")
            self._text.style("min-width: 14rem").on("keydown.enter", self._preview)
            self._partition = ui.select({ALL: "All partitions"}, value=ALL, label="In")
            self._partition.props("dense outlined").set_visibility(False)
            ui.button("Preview", on_click=self._preview).props("unelevated")
        self._kind.on_value_change(self._on_kind)
        self._result = ui.element("div").props('role="status"')
        layout.follow(self._here, self._offer_partitions)

    def _offer_partitions(self, snapshot: Snapshot) -> None:
        found = snapshot.channel(self._topic, self._name)
        numbers = sorted({one.partition for one in found.partitions}) if found else []
        there = {ALL: "All partitions"} | {one: f"Partition {one}" for one in numbers}
        self._partition.set_visibility(bool(numbers))
        if there != self._partition.options:
            self._partition.set_options(there)

    def _on_kind(self) -> None:
        hint = _HINTS.get(str(self._kind.value))
        self._text.set_visibility(hint is not None)
        self._text.props["label"] = hint or ""
        self._result.clear()

    def _nodes(self) -> list[str]:
        found = self._here.deps.watch.latest.channel(self._topic, self._name)
        return list(found.nodes) if found else []

    async def _preview(self) -> None:
        self._result.clear()
        try:
            position = position_of(str(self._kind.value), str(self._text.value or ""))
        except SeekInvalid as error:
            self._say(str(error))
            return
        chosen = int(self._partition.value or 0)
        partition = None if chosen == ALL else chosen
        moves, errors = await self._channel.preview(self._nodes(), position, partition)
        self._result.clear()
        with self._result:
            for move in moves:
                self._offer(move)
            for text in errors:
                ui.label(text).classes("bad")
            if not moves and not errors:
                parts.soft("No nsqd that answers has this channel.")

    def _say(self, text: str) -> None:
        with self._result:
            ui.label(text).classes("bad")

    def _offer(self, move: Move) -> None:
        role = _role_of(move)
        with parts.row():
            ui.label(move.node).classes("mono")
            ui.label(said(move))
            parts.grow()
            if self._here.may(role):
                button = ui.button("Move it there", on_click=partial(self._move, move))
                parts.named(button.props("flat dense color=negative"), f"Move it on {move.node}")
            else:
                parts.soft("Leaving messages out takes the role destroy.")

    async def _move(self, move: Move) -> None:
        if not await layout.confirm(f"On {move.node}: {said(move)}", self._name):
            return

        async def run() -> str:
            await self._channel.seek(move)
            return ""

        about = {"topic": self._topic, "channel": self._name, "node": move.node}
        if await layout.change(self._here, _role_of(move), "seek_channel", about, run, said(move)):
            self._result.clear()


def _role_of(move: Move) -> Role:
    return Role.DESTROY if move.skipped or move.given_up else Role.OPERATE


def said(move: Move) -> str:
    """In words; nothing is said that is not so."""
    parts = []
    if move.again:
        parts.append(f"{words.count(move.again, 'message')} would come again")
    if move.skipped:
        parts.append(f"{words.count(move.skipped, 'message')} would never come")
    if move.given_up:
        below = words.count(move.given_up, "message")
        parts.append(f"{below} in flight or deferred below it would be given up")
    what = ", ".join(parts) or "nothing would come again and nothing be left out"
    if move.offset is not None and not move.places:
        return f"From offset {move.offset:,}: {what}."
    places = ", ".join(f"{offset:,} of partition {one}" for one, offset in move.places)
    return f"From offset {places}: {what}."
