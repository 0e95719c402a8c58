"""The messages of a topic, as they are stored: browse, search, follow, read, publish, download.

Deep link: /messages/TOPIC?node=HOST:PORT&partition=N&at=PLACE&contains=TEXT&where=TERMS&open=OFFSET
&on=HOST:PORT#N. Without a node all that have the topic are shown, and without a partition all of
them, merged by time.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

from nicegui import ui

from penstock import limits
from penstock.errors import PenstockError
from penstock.nsqadmin import criteria, messages, words
from penstock.nsqadmin.access import Role
from penstock.nsqadmin.browse import Line, OffsetSpan, Page, Search, TopicLogs
from penstock.nsqadmin.messages import NEWEST, LogAddress
from penstock.nsqadmin.pages import downloads, message, parts
from penstock.nsqadmin.pages.grid import Grid, Row, column, row_of
from penstock.nsqadmin.pages.layout import PageView

_ALL = ""
_PRESETS = {
    "newest": "Newest first",
    "oldest": "From the oldest on",
    "-1m": "From 1 minute ago on",
    "-10m": "From 10 minutes ago on",
    "-1h": "From 1 hour ago on",
    "-1d": "From 1 day ago on",
}
_COLUMNS = [
    column("order", "", hide=True),
    column("time", "Stored (UTC)", width=205),
    column("offset", "Offset", "value", at=560, width=110, flex=0),
    column("preview", "Body", flex=1, minWidth=160, cellClass="mono"),
    column("key", "Key", at=1100, width=110),
    column("size", "Bytes", "count", at=700, width=90, flex=0),
    column("attempts", "Attempts", "count", at=1000, width=100, flex=0),
    column("id", "Id", at=900, width=170, cellClass="mono"),
]
_NODE_COLUMN = column("node", "Node", at=900, width=150)
_PARTITION_COLUMN = column("partition", "Partition", "count", at=560, width=100, flex=0)
_WATCH_TAB = "penstock.watchTab()"


async def draw(view: PageView, topic: str) -> None:
    known = view.deps.watch.latest.topics.get(topic)
    if known is None or not known.nodes:
        await view.deps.watch.fresh()  # it may be younger than the last look
    await _Browser(view, topic).draw()


class _Browser:
    def __init__(self, view: PageView, topic: str) -> None:
        self._view = view
        self._topic = topic
        self._nodes: list[str] = []
        self._there: list[LogAddress] = []  # of a topic with several partitions
        self._page = Page()  # what is shown
        self._find_logs()
        self._partitions = sorted({one.partition for one in self._there})  # none: there is one
        self._asked = view.asked("node", "partition", "at", "contains", "where")
        self._is_newest_first = True
        self._is_back = True  # the direction of the last look
        self._search = Search()
        self._open = ("", -1)
        self._form: list[str] = []  # of bodies, chosen last
        self._followed_until_s = 0.0  # of the monotonic clock; 0: nothing is followed
        self._skipped = 0
        self._is_hidden = False

    def _find_logs(self) -> None:
        """The topic may come to other nodes meanwhile, and in a cluster leaders move."""
        state = self._view.deps.watch.latest.topics.get(self._topic)
        if state is not None:
            self._nodes = state.nodes or state.registered or self._nodes
            parts = [LogAddress(one.node, one.partition) for one in state.partitions]
            self._there = parts or self._there
        spans = {self._now_at(at): span for at, span in self._page.spans.items()}
        self._page = replace(self._page, spans=spans)

    def _now_at(self, address: str) -> str:
        """A cluster's log goes on under the next leader of its partition."""
        old, in_cluster = LogAddress.read(address), self._view.deps.watch.latest.cluster.name
        at = [one for one in self._there if one.partition == old.partition]
        return str(at[0]) if in_cluster and at and old not in at else address

    async def draw(self) -> None:
        view, topic = self._view, self._topic
        trail = (("Topics", view.link("topics")), (topic, view.link("topics", topic)))
        with parts.heading(f"Messages of {topic}", *trail):
            parts.grow()
            if view.may(Role.OPERATE) and self._nodes:
                parts.small_button("Publish one", self._publish)
        if not self._nodes:
            ui.label("No nsqd that answers has this topic.").classes("empty")
            return
        self._controls()
        self._below()
        with ui.element("div").classes("browser") as self._panes:
            self._draw_grid()
            self._detail = ui.element("div").classes("pane")
        ui.on("message-open", lambda event: self._open_key(event.args))
        ui.on("message-tab", lambda event: self._on_tab(bool(event.args)))
        self._timer = ui.timer(1.0, self._follow, active=False)
        await self._go(self._asked["at"])
        logs, (address, offset) = self._logs().by_address, view.asked("on", "open").values()
        address = address or next(iter(logs))
        if offset.isascii() and offset.isdigit() and address in logs:
            await self._show_message(address, int(offset))

    def _controls(self) -> None:
        asked = self._asked
        with parts.row():
            nodes = {_ALL: "All nodes"} | {node: node for node in self._nodes}
            chosen = asked["node"] if asked["node"] in self._nodes else _ALL
            self._node = ui.select(nodes, value=chosen, label="Node")
            self._node.set_visibility(len(self._nodes) > 1)
            of_all = {_ALL: "All partitions"} | {str(one): str(one) for one in self._partitions}
            chosen = asked["partition"] if asked["partition"] in of_all else _ALL
            self._partition = ui.select(of_all, value=chosen, label="Partition")
            self._partition.set_visibility(len(self._partitions) > 1)
            self._position_field()
            self._contains = ui.input("Contains", value=asked["contains"])
            self._where = ui.input("Where, such as status=paid price>10", value=asked["where"])
            self._where.style("min-width: 17rem; flex: 1")
            for field in (self._contains, self._where):
                field.props("clearable").on("keydown.enter", self._again)
            ui.button("Show", on_click=self._again).props("unelevated")
            self._follow_button = ui.button("Follow", on_click=self._turn_follow)
            self._follow_button.props("outline")
        self._node.on_value_change(self._again)
        self._partition.on_value_change(self._again)

    def _position_field(self) -> None:
        self._at = ui.input(
            "From: newest, time, -10m, offset, id, trace:N", value=self._asked["at"] or "newest"
        )
        self._at.style("min-width: 21rem")
        self._at.on("keydown.enter", self._again)
        with self._at.add_slot("append"):
            more = ui.button(icon="schedule").props("flat dense round")
            parts.named(more, "Choose where to begin")
            with more, parts.named(ui.menu().props("role=dialog"), "Where to begin") as menu:
                for text, label in _PRESETS.items():
                    ui.menu_item(label, lambda text=text: self._begin(text)).props("role=button")
                with ui.element("div").classes("moment"):
                    moment = ui.input("A time (UTC)").props("type=datetime-local step=1 dense")
                    parts.named(moment, "A time, in UTC")
                    button = parts.small_button("Go there")

                    async def go() -> None:
                        menu.close()
                        if moment.value:
                            await self._begin(str(moment.value))

                    button.on_click(go)

    def _below(self) -> None:
        with parts.row():
            self._note = parts.note()
            self._stop_button = parts.small_button("Stop searching", self._stop)
            self._on_button = parts.small_button("Go on searching", self._go_on)
            parts.grow()
            parts.small_button("Earlier", partial(self._move, True))
            parts.small_button("Later", partial(self._move, False))
            parts.small_button("Download …", self._save)
            self._stop_button.set_visibility(False)
            self._on_button.set_visibility(False)

    def _draw_grid(self) -> None:
        of_node = [_NODE_COLUMN] if len(self._nodes) > 1 else []
        of_partition = [_PARTITION_COLUMN] if self._partitions else []
        columns = [*_COLUMNS[:2], *of_node, *of_partition, *_COLUMNS[2:]]
        self._grid = Grid(columns, "at", "No message here.", "Messages", "var(--browser)")
        self._grid.element.options[":onCellFocused"] = "(p) => penstock.focused(p)"
        self._grid.element.on("cellClicked", lambda event: self._open_key(event.args["data"]["at"]))

    def _logs(self) -> TopicLogs:
        deps = self._view.deps
        hidden = deps.options.mask_field
        return TopicLogs(deps.upstream, self._addresses(), self._topic, hidden)

    def _addresses(self) -> list[LogAddress]:
        self._find_logs()
        nodes = [str(self._node.value)] if self._node.value else self._nodes
        partition = str(self._partition.value or "")
        split = {one.node for one in self._there}
        addresses = [LogAddress(node) for node in nodes if node not in split]
        addresses += [one for one in self._there if one.node in nodes]
        chosen = [one for one in addresses if partition in ("", str(one.partition))]
        return chosen or addresses

    # --- moving ---

    async def _begin(self, position: str) -> None:
        self._at.set_value(position)
        await self._go(position)

    async def _again(self) -> None:
        await self._go(str(self._at.value or ""))

    async def _go(self, position: str) -> None:
        """From a position on, or back from the end."""
        self._end_follow()
        self._is_newest_first = self._is_back = position.strip() in NEWEST
        self._close()
        logs = self._logs()
        if await self._look(partial(logs.page, position)):
            self._remember()

    async def _look(self, ask: Callable[[Search], Awaitable[Page]], searched: int = 0) -> bool:
        """One search at a time: the last one counts. `searched`: so many were already."""
        self._search.is_stopped = True
        mine = self._search = Search(searched=searched, on_progress=self._on_progress)
        try:
            mine.criteria = criteria.read(
                str(self._contains.value or ""), str(self._where.value or "")
            )
            self._stop_button.set_visibility(bool(mine.criteria))
            page = await ask(mine)
        except PenstockError as error:
            if mine is self._search:
                self._fail(error)
            return False
        finally:
            if mine is self._search:
                self._stop_button.set_visibility(False)
        if mine is self._search:
            self._show(page)
        return mine is self._search

    def _on_progress(self, search: Search) -> None:
        if search is self._search and search.criteria:
            self._note.set_text(f"Searching … {self._searched()}")

    def _stop(self) -> None:
        self._search.is_stopped = True

    def _further(self, is_back: bool) -> Callable[[Search], Awaitable[Page]]:
        """Back from where the page begins, or on from where it ends."""
        logs = self._logs()
        offsets = {at: span.first if is_back else span.following
                   for at, span in self._page.spans.items() if at in logs.by_address}  # fmt: skip
        return partial(logs.read, offsets, is_back=is_back)

    async def _go_on(self) -> None:
        """Continue the search from its end; the results stay."""
        further = self._further(self._is_back)
        before = self._page
        if await self._look(further, self._search.searched):
            page = self._page
            spans = {node: _joined(span, page.spans.get(node, span))
                     for node, span in before.spans.items()}  # fmt: skip
            first, last = (page, before) if self._is_back else (before, page)
            self._show(replace(page, spans=spans, lines=first.lines + last.lines))

    async def _move(self, is_back: bool) -> None:
        self._end_follow()
        ask, before = self._further(is_back), self._page
        self._is_back = is_back
        if await self._look(ask) and not self._page.lines and self._page.is_end:
            self._show(before)
            ui.notify("There is nothing earlier." if is_back else "There is nothing later yet.")

    def _show(self, page: Page) -> None:
        self._page = page
        self._grid.show([self._row(one) for one in page.lines])
        sort = "desc" if self._is_newest_first else "asc"
        state = {"state": [{"colId": "order", "sort": sort}], "defaultState": {"sort": None}}
        self._grid.element.run_grid_method("applyColumnState", state)
        self._note_found()

    def _note_found(self) -> None:
        parts = [_summary(self._page.lines)]
        if self._search.criteria:
            parts.append(self._searched())
        if self._page.is_end and self._search.criteria:
            parts.append("that is all" if self._is_back else "that is all so far")
        parts += [f"can't tell: {error}" for error in self._page.errors]
        self._note.set_text("; ".join(part for part in parts if part))
        is_more = bool(self._search.criteria) and not self._page.is_end
        self._on_button.set_visibility(is_more and not self._followed_until_s)

    def _searched(self) -> str:
        search = self._search
        where = "back to" if self._is_back else "up to"
        at = f" {where} {words.moment(search.reached_ns)}" if search.reached_ns else ""
        return f"searched {words.count(search.searched, 'message')}{at}"

    def _fail(self, error: PenstockError) -> None:
        self._page = Page()
        self._grid.show([])
        self._on_button.set_visibility(False)
        self._note.set_text(str(error))

    def _remember(self) -> None:
        address, offset = self._open
        self._view.show_address(
            "messages", self._topic, node=self._node.value, partition=self._partition.value,
            at=self._at.value, contains=self._contains.value, where=self._where.value,
            open=offset if offset >= 0 else "",
            on=address if len(self._logs().by_address) > 1 else "",
        )  # fmt: skip

    def _row(self, line: Line) -> Row:
        one = line.message
        by_time = f"{one.timestamp_ns:020d}" if len(self._page.spans) > 1 else ""
        node, partition = LogAddress.read(line.address)
        return row_of(
            self._view.link, _COLUMNS, one,
            at=f"{line.address} {one.offset}",
            order=f"{by_time}{one.offset:020d}",
            node=node, partition=partition, size=line.body_bytes,
            time=words.moment(one.timestamp_ns).removesuffix(" UTC"),
            key=messages.preview(one.key) if one.key is not None else "",
            preview=messages.preview(one.body),
        )  # fmt: skip

    # --- following ---

    async def _turn_follow(self) -> None:
        if self._followed_until_s:
            self._end_follow()
            self._note_found()
            return
        await self._begin("newest")
        self._followed_until_s = time.monotonic() + limits.ADMIN_FOLLOW_S
        self._skipped = 0
        self._follow_button.set_text("Stop following")
        ui.run_javascript(_WATCH_TAB)
        self._timer.activate()
        self._note_followed()

    def _end_follow(self) -> None:
        self._followed_until_s = 0.0
        self._timer.deactivate()
        self._follow_button.set_text("Follow")

    def _on_tab(self, is_hidden: bool) -> None:
        self._is_hidden = is_hidden
        if self._followed_until_s:
            self._timer.active = not is_hidden
            self._note_followed()

    async def _follow(self) -> None:
        """The latest messages. Of more than a person can read, the newest."""
        if time.monotonic() > self._followed_until_s:
            self._end_follow()
            self._note.set_text("Following has ended after a while: Follow goes on.")
            return
        logs, most = self._logs(), limits.ADMIN_FOLLOWED_AT_ONCE
        try:
            ends = await logs.ends()
            firsts = {node: span.following for node, span in self._page.spans.items()}
            starts = {node: max(firsts.get(node, end), end - most) for node, end in ends.items()}
            search = replace(self._search, count=most * len(ends), searched=0)
            page = await logs.read(starts, search)
        except PenstockError as error:
            self._note.set_text(f"Following: {error}")
            return
        if not self._followed_until_s:
            return  # it was stopped meanwhile
        self._skipped += sum(starts[node] - firsts.get(node, starts[node]) for node in starts)
        spans = {node: OffsetSpan(firsts.get(node, span.first), span.following)
                 for node, span in page.spans.items()}  # fmt: skip
        lines = (*self._page.lines, *page.lines)[-limits.ADMIN_FOLLOWED_SHOWN :]
        self._page = replace(self._page, spans={**self._page.spans, **spans}, lines=lines)
        if page.lines:
            self._grid.show([self._row(one) for one in lines])
        self._note_followed()

    def _note_followed(self) -> None:
        skipped = f"; {self._skipped:,} came too quickly to be shown" if self._skipped else ""
        paused = "Paused while the tab is hidden" if self._is_hidden else "Following"
        at_most = limits.ADMIN_FOLLOWED_SHOWN
        self._note.set_text(
            f"{paused}: {words.count(len(self._page.lines), 'message')} of the newest"
            f" {at_most:,}{skipped}"
        )
        self._on_button.set_visibility(False)

    async def _open_key(self, key: object) -> None:
        address, _, offset = str(key).rpartition(" ")
        shown = {(one.address, str(one.message.offset)) for one in self._page.lines}
        if (address, offset) in shown and (address, int(offset)) != self._open:
            await self._show_message(address, int(offset))

    async def _show_message(self, address: str, offset: int) -> None:
        self._open = (address, offset)
        found, text = None, "This message is not stored any more."
        try:
            found = await self._logs().by_address[self._now_at(address)].message(offset)
        except (KeyError, PenstockError) as error:
            text = str(error)
        if self._open != (address, offset):
            return  # somebody has gone on meanwhile
        if found is None:
            self._open = ("", -1)  # a click on it tries again
            ui.notify(text, type="warning")
            return
        self._panes.classes(add="open")
        self._detail.clear()
        with self._detail:
            at = LogAddress.read(self._now_at(address))
            message.panel(self._view, self._topic, at, found, self._form, self._shut)
        self._remember()

    def _shut(self) -> None:
        self._close()
        self._remember()

    def _close(self) -> None:
        self._open = ("", -1)
        self._panes.classes(remove="open")
        self._detail.clear()

    async def _publish(self) -> None:
        node = str(self._node.value or self._nodes[0])
        if await message.publish(self._view, self._topic, self._nodes, node):
            await self._begin("newest")

    async def _save(self) -> None:
        spans = dict(self._page.spans)
        asked = (str(self._contains.value or ""), str(self._where.value or ""))
        await downloads.ask(self._view, self._topic, self._logs(), spans, asked)


def _joined(one: OffsetSpan, other: OffsetSpan) -> OffsetSpan:
    return OffsetSpan(min(one.first, other.first), max(one.following, other.following))


def _summary(lines: Sequence[Line]) -> str:
    """ "100 messages, offsets 17 to 116"."""
    count = words.count(len(lines), "message")
    if not lines or len({one.address for one in lines}) > 1:
        return count
    first, last = lines[0].message.offset, lines[-1].message.offset
    return f"{count}, offset {first:,}" + (f" to {last:,}" if last != first else "")
