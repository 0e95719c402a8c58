"""The parts of a channel's page about its messages: each of those inside, in flight, deferred,
waiting to be sent again, behind others, held, dead, and what can be done to those that are chosen;
and the channel's position in the log, which goes back, so that messages come again, or on, so that
some never come.

Messages are asked for with every look at the installation, in the state that is shown only. The
position moves to the very offset of a preview, whatever was published meanwhile.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from operator import itemgetter
from typing import Any

from nicegui import ui

from penstock import limits
from penstock.nsqadmin import words
from penstock.nsqadmin.access import Role
from penstock.nsqadmin.channel_messages import (
    POSITIONS,
    ChannelMessages,
    DeadLetterRef,
    HeldMessage,
    Listed,
    Move,
    dead_letter,
    position_of,
)
from penstock.nsqadmin.messages import InputInvalid
from penstock.nsqadmin.pages import layout, parts
from penstock.nsqadmin.pages.grid import Grid, Row, column, row_of
from penstock.nsqadmin.pages.layout import PageView
from penstock.nsqadmin.snapshot import Snapshot

IN_FLIGHT, DEFERRED, REQUEUED, DEAD = "in_flight", "deferred", "requeued", "dead"
BEHIND, HELD = "behind", "held"  # of channels that keep an order
_STATES = {
    IN_FLIGHT: "In flight",
    DEFERRED: "Deferred",
    REQUEUED: "Waiting again",
    BEHIND: "Behind others",
    HELD: "Held",
    DEAD: "Dead letters",
}
_EXPLAINED = {
    IN_FLIGHT: "Sent to a consumer that has not answered. Those that time out first come first.",
    DEFERRED: "Sent, or sent again, when they are due.",
    REQUEUED: "Requeued or timed out: the next consumer that is ready gets them.",
    BEHIND: "They wait until those before them in the channel's order are finished.",
    HELD: "Sent as often as they may be, and kept: finish them, or raise max_attempts.",
    DEAD: "Given up after too many attempts. Redrive sends them to this channel again.",
}
_LAST = {
    "timed_out": ", at last it timed out",
    "requeued": ", at last its consumer requeued it",
    "disconnected": ", at last its consumer disconnected",
}
_COLUMNS = [
    column(
        "id", "Id", "link", itemgetter("id"), to=lambda link, one: "", width=190, cellClass="mono"
    ),
    column("offset", "Offset", "value", at=600, of=itemgetter("offset"), width=110),
    column("attempts", "Attempts", "count", of=itemgetter("attempts"), width=100),
    column("left", "Time left", "span", of=lambda one: _left_s(one), width=120, sort="asc"),
    column("about", "About", flex=2, minWidth=220),
    column("node", "Node", at=800, flex=1, minWidth=130),
]


def panel(view: PageView, topic: str, name: str) -> None:
    with parts.section("Messages inside"):
        _Messages(view, topic, name)


class _OfChannel:
    def __init__(self, view: PageView, topic: str, name: str) -> None:
        self._view = view
        self._about = {"topic": topic, "channel": name}
        self._name = name
        hidden = view.deps.options.mask_field
        self._channel = ChannelMessages(view.deps.upstream, topic, name, hidden)

    def _nodes(self) -> list[str]:
        found = self._view.deps.watch.latest.channel(*self._about.values())
        return list(found.nodes) if found else []


class _Messages(_OfChannel):
    def __init__(self, view: PageView, topic: str, name: str) -> None:
        super().__init__(view, topic, name)
        with parts.row():
            self._state = ui.toggle(_STATES, value=IN_FLIGHT, on_change=self._look)
            self._state.props('dense unelevated aria-label="Which messages"')
            parts.grow()
            self._buttons()
        self._note = parts.note(_EXPLAINED[IN_FLIGHT])
        empty = "No message in this state."
        may = view.may(Role.OPERATE)
        self._grid = Grid(_COLUMNS, "key", empty, "Messages inside", "20rem", may)
        layout.poll(view, self._look)

    def _buttons(self) -> None:
        """The buttons for the caller's role, each with the states in which it acts."""
        offered: list[tuple[str, Role, Callable[[], Awaitable[None]], tuple[str, ...]]] = [
            ("Requeue", Role.OPERATE, self._requeue, (IN_FLIGHT, DEFERRED, REQUEUED, BEHIND)),
            ("Redrive", Role.OPERATE, self._redrive, (DEAD,)),
            ("Redrive all", Role.OPERATE, self._redrive_all, (DEAD,)),
            ("Finish", Role.DESTROY, self._finish,
             (IN_FLIGHT, DEFERRED, REQUEUED, BEHIND, HELD)),
        ]  # fmt: skip
        for words_, role, act, where in offered:
            if self._view.may(role):
                colour = "negative" if role is Role.DESTROY else "primary"
                button = ui.button(words_, on_click=act, color=colour).props("flat dense")
                button.bind_visibility_from(self._state, "value", where.__contains__)

    async def _look(self) -> None:
        self._grid.show(await self._rows())

    async def _rows(self) -> list[Row]:
        state = str(self._state.value)
        listed = await self._channel.messages(self._nodes(), state)
        if state != self._state.value:
            return await self._rows()  # somebody wants to see others meanwhile
        bodies = await self._channel.bodies(listed) if state == DEAD else {}
        self._note.set_text(_note(state, listed))
        return [
            self._row(node, message, state, bodies)
            for node, messages in listed.answers.items() for message in messages
        ]  # fmt: skip

    def _row(
        self, node: str, message: Mapping[str, Any], state: str, bodies: Mapping[DeadLetterRef, str]
    ) -> Row:
        if state == DEAD:
            about = _why(message, bodies[dead_letter(node, message)])
        else:
            about = _about(state, message)
        topic = message.get("dead_letter_topic", self._about["topic"])
        id_, offset = message["id"], message["offset"]
        way = self._view.link("messages", topic, node=node, at=offset, open=offset,
                              partition=message.get("partition") or "")  # fmt: skip
        return row_of(
            self._view.link, _COLUMNS, message, key=f"{node} {id_}", id=id_, id_link=way,
            node=node, about=about,
        )  # fmt: skip

    async def _chosen(self) -> list[HeldMessage]:
        rows = await self._grid.chosen()
        if not rows:
            ui.notify("Choose messages first: tick the boxes before them.", type="warning")
        return [HeldMessage(row["node"], row["id"]) for row in rows]

    async def _change(
        self, role: Role, action: str, held: list[HeldMessage], run: Callable[[], Awaitable[str]],
        question: str = "", typed: str = "",
    ) -> None:  # fmt: skip
        named = (f"{one.id} on {one.node}" for one in held)
        detail = words.listed(named, limits.ADMIN_IDS_NOTED)
        await layout.change(self._view, role, action, self._about, run, detail, question, typed)
        await self._look()

    async def _finish(self) -> None:
        held = await self._chosen()
        question = (
            f"Finish {words.count(len(held), 'message')}? This channel will never process "
            f"{'it' if len(held) == 1 else 'them'}; other channels do."
        )
        if held:
            run = partial(self._channel.finish, held)
            await self._change(Role.DESTROY, "finish_message", held, run, question, self._name)

    async def _requeue(self) -> None:
        held = await self._chosen()
        if not held:
            return
        with parts.dialog(f"Requeue {words.count(len(held), 'message')}") as dialog:
            delay = ui.number("Delay, in seconds", value=0, min=0).props("outlined")
        if await dialog:
            delay_ms = int(max(float(delay.value or 0), 0) * 1000)
            run = partial(self._channel.requeue, held, delay_ms)
            await self._change(Role.OPERATE, "requeue_message", held, run)

    async def _redrive(self) -> None:
        held = await self._chosen()
        if held:
            run = partial(self._channel.redrive, held)
            await self._change(Role.OPERATE, "redrive_message", held, run)

    async def _redrive_all(self) -> None:
        question = "Send all dead letters to this channel again?"
        nodes = self._view.deps.watch.latest.once(self._nodes(), *self._about.values())
        run = partial(self._channel.redrive_all, nodes)
        await self._change(Role.OPERATE, "redrive_channel", [], run, question)


def _note(state: str, listed: Listed) -> str:
    parts = [_EXPLAINED[state]]
    if any(len(found) >= limits.ADMIN_LISTED for found in listed.answers.values()):
        parts.append(f"Only the first {limits.ADMIN_LISTED} of a node are shown.")
    parts += [f"A node can't tell: {error}." for error in listed.errors]
    return " ".join(parts)


def _left_s(message: Mapping[str, Any]) -> float | None:
    """Until it times out, or is due."""
    left_ms = message.get("deadline_ms", message.get("due_in_ms"))
    return None if left_ms is None else left_ms / 1000


def _about(state: str, message: Mapping[str, Any]) -> str:
    if state == IN_FLIGHT:
        return _owner(message.get("client"))
    if state == DEFERRED:
        return f"due {words.moment(message['due_ns'])}"
    if state == BEHIND:
        return "for those before it in the order"
    if state == HELD:
        return f"sent {words.count(message['attempts'], 'time')} and never finished"
    return "for the next consumer that is ready"


def _why(message: Mapping[str, Any], body: str) -> str:
    """Of a dead letter: the reason, with its text."""
    sent = words.count(message["attempts"], "time")
    published = words.moment(message["timestamp_ns"])
    last = _LAST.get(message.get("cause") or "", "")  # one from before, or of a restart, has none
    return f"sent {sent} and never finished{last}: {body} (published {published})"


def _owner(client: Mapping[str, Any] | None) -> str:
    if not client:
        return "its consumer has gone"
    return f"held by {client['hostname'] or client['client_id']} ({client['remote_address']})"


# --- replay: a preview with the number of messages comes first ---

ALL = -1  # partitions


def replay_panel(view: PageView, topic: str, name: str) -> None:
    if view.may(Role.OPERATE):
        with parts.section("Replay"):
            _Replay(view, topic, name)


class _Replay(_OfChannel):
    def __init__(self, view: PageView, topic: str, name: str) -> None:
        super().__init__(view, topic, name)
        parts.soft("Go back and process messages again, or on and leave some out.")
        with parts.row():
            kinds = {kind: words for kind, (words, _) in POSITIONS.items()}
            self._kind = ui.select(kinds, value="time", label="To")
            self._kind.style("min-width: 12rem")
            self._text = ui.input(POSITIONS["time"][1])
            self._text.style("min-width: 14rem").on("keydown.enter", self._preview)
            self._partition = ui.select({ALL: "All partitions"}, value=ALL, label="In")
            self._partition.set_visibility(False)
            ui.button("Preview", on_click=self._preview).props("unelevated")
        self._kind.on_value_change(self._on_kind)
        self._result = ui.element("div").props('role="status"')
        layout.follow(self._view, self._offer_partitions)

    def _offer_partitions(self, snapshot: Snapshot) -> None:
        found = snapshot.channel(*self._about.values())
        numbers = sorted({one.partition for one in found.partitions}) if found else []
        there = {ALL: "All partitions"} | {one: f"Partition {one}" for one in numbers}
        self._partition.set_visibility(bool(numbers))
        if there != self._partition.options:
            self._partition.set_options(there)

    def _on_kind(self) -> None:
        _, hint = POSITIONS[str(self._kind.value)]
        self._text.set_visibility(bool(hint))
        self._text.props["label"] = hint
        self._result.clear()

    async def _preview(self) -> None:
        self._result.clear()
        try:
            position = position_of(str(self._kind.value), str(self._text.value or ""))
        except InputInvalid as error:
            with self._result:
                ui.label(str(error)).classes("bad")
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

    def _offer(self, move: Move) -> None:
        role = _role_of(move)
        with parts.row() as row:
            ui.label(move.node).classes("mono")
            ui.label(described(move))
            parts.grow()
            if self._view.may(role):
                act = partial(self._move, move, row)
                button = parts.small_button("Move it there", act, f"Move it on {move.node}")
                button.props("color=negative")
            else:
                parts.soft("Leaving messages out takes the role destroy.")

    async def _move(self, move: Move, row: ui.element) -> None:
        about, what = self._about | {"node": move.node}, described(move)
        run, question = partial(self._channel.seek, move), f"On {move.node}: {what}"
        if await layout.change(self._view, _role_of(move), "seek_channel", about, run, what,
                               question, self._name):  # fmt: skip
            row.delete()  # those of other nodes stay


def _role_of(move: Move) -> Role:
    return Role.DESTROY if move.skipped or move.given_up else Role.OPERATE


def described(move: Move) -> str:
    parts = []
    if move.again:
        parts.append(f"{words.count(move.again, 'message')} would come again")
    if move.skipped:
        parts.append(f"{words.count(move.skipped, 'message')} would never come")
    if move.given_up:
        below = words.count(move.given_up, "message")
        parts.append(f"{below} in flight or deferred below it would be given up")
    what = ", ".join(parts) or "nothing would come again and nothing be left out"
    if move.offset is not None and not move.offsets:
        return f"From offset {move.offset:,}: {what}."
    offsets = ", ".join(f"{offset:,} of partition {one}" for one, offset in move.offsets)
    return f"From offset {offsets}: {what}."
