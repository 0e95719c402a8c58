"""The frame of the pages about one thing: a topic, a channel, a node. Each has its name with the
path to it, a state in a word, a sentence, and figures; topics and channels have buttons. And the
tables of such pages, which follow the installation by themselves."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from nicegui import ui

from penstock import limits
from penstock.nsqadmin import noderecords, words
from penstock.nsqadmin.access import Role
from penstock.nsqadmin.pages import layout, parts, states
from penstock.nsqadmin.pages.grid import Column, Grid, Row, column
from penstock.nsqadmin.pages.layout import PageView
from penstock.nsqadmin.pages.states import Badge
from penstock.nsqadmin.snapshot import ChannelState, NodeState, Snapshot, TopicState

Figures = Mapping[str, tuple[str, ...]]  # a number, a word about it, its level if it stands out

_KINDS = ("node", "topic", "channel")


class Frame:
    """The heading with its badges and buttons, the tabs below it, and the summary of an existing
    thing: a sentence, and figures. The rest goes into `body`."""

    def __init__(
        self, view: PageView, figures: Figures, section: str, *names: str,
        gone: Callable[[], object] | None = None,
    ) -> None:  # fmt: skip
        """`section` is "topics" or "nodes", `names` the topic and channel, or the node. `gone`
        draws the replacement when it does not exist."""
        above = [(section.capitalize(), view.link(section))]
        above += [(name, view.link(section, name)) for name in names[:-1]]
        of = names if section == "topics" else ()
        with parts.heading(names[-1], *above):
            self._badges = [parts.Badge() for _ in range(2)]
            parts.grow()
            self._buttons = StateButtons(view, *of) if of else None
        kind = _KINDS[len(of)]
        about = dict(zip(("topic", "channel"), of, strict=False)) or {"node": names[0]}
        ways = [(kind.capitalize(), view.link(section, *names))]
        ways += [("Messages", view.link("messages", of[0]))] if of else []
        ways += [("Connections", view.link("connections", **about))]
        parts.tabs(f"This {kind}", ways, kind.capitalize())
        with ui.element("div").classes("panel empty") as self._gone:
            if gone is not None:
                gone()
        self.body = ui.element("div").classes("below")
        with self.body:
            self._saying = ui.label().classes("saying" if of else "bad")
            with parts.row("tiles row") as self._figures:
                self._tiles = {name: parts.Tile(name) for name in figures}

    def show(
        self, snapshot: Snapshot, badges: Sequence[Badge], saying: str, figures: Figures,
        is_there: bool = True, stale_s: float = 0.0,
    ) -> None:  # fmt: skip
        for shown, (word, level) in zip(self._badges, badges, strict=False):
            shown.show(word, level)
        if self._buttons is not None:
            self._buttons.show(snapshot)
        self._gone.set_visibility(not is_there)
        self.body.set_visibility(is_there)
        parts.show_age(self._figures if self._buttons is None else self.body, stale_s)
        self._saying.set_text(saying)
        self._saying.set_visibility(bool(saying))
        for name, shown_now in figures.items():
            self._tiles[name].show(*shown_now)


def table(
    view: PageView, label: str, columns: Sequence[Column], key: str, empty: str,
    rows: Callable[[Snapshot], list[Row]], height: str = "", is_always: bool = True,
) -> None:  # fmt: skip
    """It follows the installation. Without `is_always` it is shown only when it has rows."""
    with parts.section(label) as section:
        grid = Grid(columns, key, empty, label, height)

    def show(snapshot: Snapshot) -> None:
        found = rows(snapshot)
        section.set_visibility(is_always or bool(found))
        grid.show(found)

    layout.follow(view, show)


class StateButtons:
    """Pause, Empty and Delete of a topic or channel, for callers with the role; hidden while all
    its nodes are silent, because then nothing would be done. A topic name that no nsqlookupd knows
    a node of can be deleted at them all the same."""

    def __init__(self, view: PageView, topic: str, channel: str = "") -> None:
        self._view = view
        self._names = (topic, channel) if channel else (topic,)
        self._switch = None
        self._destroying: list[ui.button] = []
        if view.may(Role.OPERATE):
            self._switch = parts.Switch("Pause", "Unpause", self._turn)
        if view.may(Role.DESTROY):
            for label, act in (("Empty", self._empty), ("Delete", self._delete)):
                button = parts.small_button(label, act).props("color=negative")
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
            is_deletable = bool(self._view.deps.upstream.lookupds) and is_forgotten
        can_act = snapshot.can_ask(nodes)
        if self._switch is not None:
            self._switch.show(of.paused, of.is_paused_partly, can_act)
        for button in self._destroying:
            is_last = button is self._destroying[-1]
            button.set_visibility(can_act or (is_deletable and is_last))

    async def _turn(self, pause: bool) -> None:
        verb = "pause" if pause else "unpause"
        await layout.do(self._view, self._view.deps.actions.act(verb, *self._names))

    async def _empty(self) -> None:
        view, names = self._view, self._names
        question = f"Throw away all messages that wait in this {_KINDS[len(names)]}?"
        await layout.do(view, view.deps.actions.act("empty", *names), question, names[-1])

    async def _delete(self) -> None:
        view, names = self._view, self._names
        lost = lost_with(view.deps.watch.latest, *names)
        if await layout.do(view, view.deps.actions.delete(*names), lost, names[-1]):
            parts.go(view.link("topics", *names[:-1]))


# --- a topic or channel on one node ---


class OnNode(NamedTuple):
    node: NodeState
    topic: str
    row: Mapping[str, Any]  # of its `/stats`

    @property
    def channels(self) -> Sequence[Mapping[str, Any]]:
        return self.row.get("channels") or ()

    @property
    def clients(self) -> int:
        return sum(one.get("client_count") or len(one.get("clients") or ())
                   for one in self.channels)  # fmt: skip

    @property
    def state(self) -> str:
        is_dead = dict(self.node.producer.topics).get(self.topic, False)
        return "tombstoned" if is_dead else states.silent(self.node)


def count_column(
    field: str, words: str, kind: str = "count", none: int | None = 0, **more: Any
) -> Column:
    """A column of the node's value of this name."""
    return column(field, words, kind, lambda one: one.row.get(field, none), **more)


def memory(**more: Any) -> Column:
    held = lambda one: one.row.get("depth", 0) - one.row.get("backend_depth", 0)  # noqa: E731
    return column("memory", "In memory", "count", held, minWidth=105, **more)


TOPIC_ON_NODE = [
    column("waits", "In channels", "count", minWidth=105,
           of=lambda one: sum(each.get("depth", 0) for each in one.channels),
           headerTooltip="Messages that wait in the channels of the topic"),
    count_column("depth", "Depth", at=500, headerTooltip="Those that wait for the first channel"),
    memory(at=700),
    count_column("backend_depth", "Behind", at=700),
    count_column("message_count", "Messages", at=500, minWidth=95),
    count_column("stored_bytes", "On disk", "bytes", None, at=600),
    column("channels", "Channels", "count", at=600, of=lambda one: len(one.channels), minWidth=90),
    column("clients", "Clients", "count", at=500),
    column("durability", "Durability", at=800, of=lambda one: one.row.get("durability", ""),
           width=110),
    column("state", "State", at=450, width=125),
]  # fmt: skip


def lost_with(snapshot: Snapshot, name: str, channel: str = "") -> str:
    """The messages that a deletion loses, and the data that it does not reach."""
    left = noderecords.words_about(snapshot, name, channel)
    if channel:
        found = snapshot.channel(name, channel) or ChannelState(name, channel)
        text = "Delete this channel with its messages on every node?"
        if found.clients:
            cut_off = words.count(found.clients, "consumer")
            text += f" It cuts off {cut_off}: who connects again makes it without its settings."
        return f"{text} Not on {left}." if left else text
    topic = snapshot.topics.get(name) or TopicState(name)
    if left and not snapshot.can_ask(topic.nodes):
        return f"Delete the name {name} at every nsqlookupd? Nothing else is lost: {left}."
    waits = topic.backlog + topic.in_flight + topic.deferred - sum(
        messages for _, messages in noderecords.left_on(snapshot, name)
    )  # fmt: skip
    text = (
        f"Delete {name}? {words.count(waits, 'message')} in"
        f" {words.count(len(topic.channels), 'channel')} are lost,"
        f" and {words.count(topic.clients, 'consumer')} cut off."
    )
    return f"{text} Not on {left}." if left else text


def oldest_of(
    channel: ChannelState | None, where: str, note: str = "unfinished"
) -> tuple[str, ...]:
    """The age of the oldest unfinished message, highlighted when it is old."""
    if channel is not None and not channel.tells_age:
        return words.UNKNOWN
    if channel is None or not channel.oldest_s:
        return "none", note
    age = words.span(channel.oldest_s)
    if channel.oldest_s <= limits.ADMIN_OLD_S:
        return age, note
    return age, f"old: in {where}" if where else "old", "warn"


def oldest_in(channels: Sequence[ChannelState]) -> ChannelState | None:
    return max(channels, key=lambda one: (one.oldest_s, one.tells_age), default=None)
