"""The frame of the pages about one thing: a topic, a channel, a node. Each has its name with the
way to it, a state in a word, a sentence, and figures; topics and channels have buttons.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nicegui import ui

from penstock import limits
from penstock.nsqadmin import noderecords, words
from penstock.nsqadmin.access import Role
from penstock.nsqadmin.pages import layout, parts, states
from penstock.nsqadmin.pages.grid import Row
from penstock.nsqadmin.pages.layout import Opened
from penstock.nsqadmin.pages.states import Badge
from penstock.nsqadmin.snapshot import ChannelState, NodeState, Snapshot, TopicState

Figures = Mapping[str, tuple[str, str, str]]  # a number, a word about it, and its level


_KINDS = ("", "topic", "channel")


class Head:
    """The heading with its badges and buttons, and the tabs below it."""

    def __init__(
        self, name: str, trail: Sequence[tuple[str, str]], kind: str,
        tabs: Sequence[tuple[str, str]], buttons: Callable[[], StateButtons] | None = None,
    ) -> None:  # fmt: skip
        with parts.heading(name, *trail):
            self._badges = [parts.Badge() for _ in range(1 if buttons is None else 2)]
            if buttons is not None:
                parts.grow()
            self._buttons = buttons() if buttons is not None else None
        parts.tabs(f"This {kind}", tabs, kind.capitalize())

    def show(self, snapshot: Snapshot, *badges: Badge) -> None:
        for shown, (word, level) in zip(self._badges, badges, strict=False):
            shown.show(word, level)
        if self._buttons is not None:
            self._buttons.show(snapshot)


class Body:
    """What is there while the thing is: a sentence, and figures. The rest goes into `place`."""

    def __init__(self, figures: Figures) -> None:
        self.place = ui.element("div").classes("below")
        with self.place:
            self._writing_about = ui.label().classes("saying")
            with parts.row("tiles row"):
                self._tiles = {name: parts.Tile(name) for name in figures}

    def show(self, is_there: bool, stale_s: float, saying: str, figures: Figures) -> None:
        self.place.set_visibility(is_there)
        parts.show_age(self.place, stale_s)
        self._writing_about.set_text(saying)
        for name, shown in figures.items():
            self._tiles[name].show(*shown)


class StateButtons:
    """Pause, Empty and Delete of a topic or channel, for those who may; hidden while no node of it
    can be asked, because then nothing would be done. The name of a topic that no nsqlookupd knows a
    node of can be deleted at them all the same."""

    def __init__(self, here: Opened, topic: str, channel: str = "") -> None:
        self._here = here
        self._names = (topic, channel) if channel else (topic,)
        self._switch = None
        self._destroying: list[ui.button] = []
        if here.may(Role.OPERATE):
            is_paused = self._state(here.deps.watch.latest).paused
            self._switch = parts.Switch("Pause", "Unpause", self._turn, is_paused)
        if here.may(Role.DESTROY):
            for label, act in (("Empty", self._empty), ("Delete", self._delete)):
                button = ui.button(label, on_click=act).props("flat dense color=negative")
                self._destroying.append(button)

    def _state(self, snapshot: Snapshot) -> TopicState | ChannelState:
        if len(self._names) > 1:
            return snapshot.channel(*self._names) or ChannelState(*self._names)
        return snapshot.topics.get(*self._names) or TopicState(*self._names)

    def show(self, snapshot: Snapshot) -> None:
        of = self._state(snapshot)
        nodes, is_deletable = list(of.nodes), False
        if isinstance(of, TopicState):
            nodes += of.registered
            is_forgotten = not any(snapshot.nodes[at].is_listed for at in nodes)
            is_deletable = bool(self._here.deps.upstream.lookupds) and is_forgotten
        can_act = snapshot.can_ask(nodes)
        if self._switch is not None:
            self._switch.show(of.paused, of.is_paused_partly)
            self._switch.set_visibility(can_act)
        for button in self._destroying:
            is_last = button is self._destroying[-1]
            button.set_visibility(can_act or (is_deletable and is_last))

    async def _turn(self, pause: bool) -> None:
        verb = "pause" if pause else "unpause"
        await layout.do(self._here, self._here.deps.actions.act(verb, *self._names))

    async def _empty(self) -> None:
        here, names = self._here, self._names
        question = f"Throw away all messages that wait in this {_KINDS[len(names)]}?"
        if await layout.confirm(question, names[-1]):
            await layout.do(here, here.deps.actions.act("empty", *names))

    async def _delete(self) -> None:
        here, names = self._here, self._names
        lost = lost_with(here.deps.watch.latest, *names)
        if await layout.confirm(lost, names[-1]) and await layout.do(
            here, here.deps.actions.delete(*names)
        ):
            parts.go(here.link("topics", *names[:-1]))


def topic_on(here: Opened, node: NodeState, row: Mapping[str, Any]) -> Row:
    name = str(row.get("topic_name", ""))
    channels = row.get("channels") or ()
    depth, backend = row.get("depth", 0), row.get("backend_depth", 0)
    is_dead = dict(node.producer.topics).get(name, False)
    return {
        "topic": name,
        "topic_link": here.link("topics", name),
        "node": node.address,
        "node_link": here.link("nodes", node.address),
        "waits": sum(one.get("depth", 0) for one in channels),
        "depth": depth,
        "memory": depth - backend,
        "disk": backend,
        "messages": row.get("message_count", 0),
        "stored": row.get("stored_bytes"),
        "channels": len(channels),
        "clients": sum(one.get("client_count") or len(one.get("clients") or ())
                       for one in channels),
        "durability": row.get("durability", ""),
        "state": "tombstoned" if is_dead else states.silent(node),
        "stale": bool(node.stale_s),
    }  # fmt: skip


def lost_with(snapshot: Snapshot, name: str, channel: str = "") -> str:
    """What a deletion loses, and what it does not reach."""
    left = noderecords.words_about(snapshot, name, channel)
    if channel:
        said = "Delete this channel with its messages on every node?"
        return f"{said} Not on {left}." if left else said
    topic = snapshot.topics.get(name) or TopicState(name)
    if left and not snapshot.can_ask(topic.nodes):
        return f"Delete the name {name} at every nsqlookupd? Nothing else is lost: {left}."
    waits = topic.backlog + topic.in_flight + topic.deferred - sum(
        one.messages for one in noderecords.left_on(snapshot, name)
    )  # fmt: skip
    said = (
        f"Delete {name}? {words.count(waits, 'message')} in"
        f" {words.count(len(topic.channels), 'channel')} are lost,"
        f" and {words.count(topic.clients, 'consumer')} cut off."
    )
    return f"{said} Not on {left}." if left else said


def oldest_of(channel: ChannelState | None, where: str, note: str = "unfinished"
              ) -> tuple[str, str, str]:  # fmt: skip
    """The figure of the oldest unfinished message, which stands out when it is old."""
    if channel is not None and not channel.tells_age:
        return (*words.UNKNOWN, "")
    if channel is None or not channel.oldest_s:
        return "none", note, ""
    is_old = channel.oldest_s > limits.ADMIN_OLD_S
    if is_old:
        note = f"old: in {where}" if where else "old"
    return words.span(channel.oldest_s), note, "warn" if is_old else ""


def oldest_in(channels: Sequence[ChannelState]) -> ChannelState | None:
    return max(channels, key=lambda one: (one.oldest_s, one.tells_age), default=None)


def plain(figures: Mapping[str, tuple[str, str]]) -> dict[str, tuple[str, str, str]]:
    """Those that never stand out."""
    return {name: (*pair, "") for name, pair in figures.items()}
