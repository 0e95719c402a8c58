"""All nsqds, and one of them: its address, its contents, its disk."""

import re
import time
from functools import partial
from operator import attrgetter

from nicegui import ui

from penstock import limits
from penstock.nsqadmin import noderecords, words
from penstock.nsqadmin.access import Role
from penstock.nsqadmin.api import out_of_date
from penstock.nsqadmin.history import series_of_node
from penstock.nsqadmin.pages import chart, layout, partitions, parts, resource, states
from penstock.nsqadmin.pages.grid import Grid, Link, Row, column, row_of, to_node, to_topic
from penstock.nsqadmin.pages.layout import NoSuchPage, PageView
from penstock.nsqadmin.pages.resource import OnNode
from penstock.nsqadmin.replication import NodeRole
from penstock.nsqadmin.snapshot import NodeState, Snapshot
from penstock.nsqadmin.upstream import NsqdAddress
from penstock.nsqdapi.calls import Call

_HEIGHT = "calc(100vh - 150px)"


_ALL = [
    to_node(attrgetter("address")),
    column("hostname", "Host", at=1350, of=lambda one: one.producer.hostname, flex=1, minWidth=80),
    column("state", "State", "state", states.node_badge, width=132),
    column("in_rate", "In", "rate"),
    column("out_rate", "Out", "rate", at=500),
    column("depth", "Depth", "count", at=500),
    column("topics", "Topics", "count", at=800,
           of=lambda one: len(one.document.get("topics") or ())),
    column("disk", "Disk", "share", at=700, context={"full": parts.FULL}, width=165),
    column("unsynced", "Not synced", "bytes", at=1300, minWidth=98,
           of=lambda one: one.unsynced_bytes if one.disk else None),
    column("sync", "Last sync", "past", at=1000, minWidth=112,
           of=lambda one: one.disk.get("last_sync_seconds_ago")),
    column("version", "Version", "state", at=600, width=140),
    column("place", "Zone", at=1300, of=lambda one: _zone(one.producer), width=90),
    column("lookupds", "nsqlookupds", at=1400, flex=1, minWidth=130, of=lambda one: ", ".join(
        remote.partition("/")[0] for remote in one.producer.remote_addresses)),
    column("since", "Runs for", "age", at=700, minWidth=88,
           of=lambda one: _runs_s(one) // 60 * 60 or _runs_s(one) // 10 * 10),
]  # fmt: skip


# Of a node of a cluster, behind its state.
_ROLE = [
    column("number", "Number", "value", at=1450, headerTooltip="Its number in the cluster"),
    column("leads", "Leads", "count", minWidth=70, headerTooltip="Partitions that it leads"),
    column("in_sync", "In sync", "count", at=500, minWidth=76,
           headerTooltip="Its replicas that have everything that is acknowledged"),
]  # fmt: skip
_FOR_A_WHILE = ("draining", "maintenance")


def draw_all(view: PageView) -> None:
    with parts.heading("Nodes"):
        count = parts.soft()
    empty = "No nsqd is known: start one with -lookupd-tcp-address, or name it to nsqadmin."
    role = _ROLE if view.deps.watch.latest.cluster.name else []
    grid = Grid([*_ALL[:3], *role, *_ALL[3:]], "node", empty, "Nodes", _HEIGHT)

    def show(snapshot: Snapshot) -> None:
        count.set_text(f"{len(snapshot.nodes):,}")
        grid.show(all_rows(view.link, snapshot))

    layout.follow(view, show)


def all_rows(link: Link, snapshot: Snapshot) -> list[Row]:
    old = out_of_date([one.producer for one in snapshot.nodes.values() if one.producer.version])
    roles = snapshot.cluster.roles()
    return [
        _all_row(link, one, roles.get(one.address), one.address in old)
        for one in snapshot.nodes.values()
    ]


def _all_row(link: Link, node: NodeState, role: NodeRole | None, is_old: bool) -> Row:
    used, left = states.disk_of(node)
    version = node.producer.version
    state, level = _badge(node, role)
    numbers = role._asdict() if role is not None else {}
    return row_of(
        link, _ALL, node, disk=used, disk_words=left, stale=bool(node.stale_s),
        version=f"{version} (out of date)" if is_old else version,
        version_level="warn" if is_old else "plain",
        **numbers | {"state": state, "state_level": level},
    )  # fmt: skip


def _badge(node: NodeState | None, role: NodeRole | None) -> states.Badge:
    badge = states.node_badge(node)
    if role is not None and role.state in _FOR_A_WHILE and badge[1] == "good":
        return role.state, "warn"
    return badge


def _zone(producer: NsqdAddress) -> str:
    names = (producer.topology_region, producer.topology_zone)
    return "/".join(one for one in names if one)


def _runs_s(node: NodeState) -> int:
    return max(0, int(time.time()) - node.start_s) if node.start_s else 0


# --- one of them ---

_TOPICS = [to_topic(minWidth=150, sort="asc"), *resource.TOPIC_ON_NODE]


async def check(view: PageView, address: str) -> None:
    if view.deps.watch.is_unknown(address):
        raise NoSuchPage(f"There is no node {address}: no nsqlookupd knows it, and it was not seen"
                         " before or has been forgotten")  # fmt: skip


def draw(view: PageView, address: str) -> None:
    frame = resource.Frame(view, _figures_of(None), "nodes", address)
    with frame.body:
        empty = "No topic of it is known."
        resource.table(view, "Topics", _TOPICS, "topic", empty,
                       lambda snapshot: _topic_rows(view, snapshot.nodes.get(address)),
                       "24rem")  # fmt: skip
        partitions.replicas(view, lambda cluster: cluster.of_node(address), to_topic())
        chart.pair(view, series_of_node(address))
        _Process(view, address)
        taking = _tombstone(view, address) if view.may(Role.DESTROY) else ui.element("div")
        forgetting = _forget(view, address) if view.may(Role.DESTROY) else ui.element("div")

    def show(snapshot: Snapshot) -> None:
        node = snapshot.nodes.get(address)
        role = snapshot.cluster.roles().get(address)
        taking.set_visibility(bool(node and node.can_be_asked and role is None))
        forgetting.set_visibility(bool(node and not node.is_listed and node.error))
        frame.show(snapshot, [_badge(node, role)], _why(snapshot, node), _figures_of(node),
                   stale_s=node.stale_s if node else 0)  # fmt: skip

    layout.follow(view, show)


def _topic_rows(view: PageView, node: NodeState | None) -> list[Row]:
    if node is None:
        return []
    rows = (OnNode(node, str(row.get("topic_name", "")), row)
            for row in node.document.get("topics") or ())  # fmt: skip
    return [row_of(view.link, _TOPICS, one, stale=bool(node.stale_s)) for one in rows]


def _why(snapshot: Snapshot, node: NodeState | None) -> str:
    if node is None:
        return "No nsqlookupd that answers knows this node."
    if node.error and not node.seen_s:
        return f"It does not answer: {node.error}. Nothing is known of it."
    if node.error:
        gone = "" if node.is_listed else " No nsqlookupd knows it any more."
        held = noderecords.words_of(noderecords.holding(snapshot, node))
        return f"It last answered at {words.clock(node.seen_s)}: {node.error}.{gone} {held}"
    if not node.is_listed:
        return "It answers, and no nsqlookupd knows it: no consumer finds it."
    if node.stale_s:
        return f"It has not answered for {words.span(node.stale_s)}."
    return node.health if node.is_unhealthy else node.warning


def _figures_of(node: NodeState | None) -> resource.Figures:
    found = node or NodeState("", NsqdAddress("", "", 0, 0, ""))
    disk = found.disk
    free, size = disk.get("free_bytes"), disk.get("size_bytes")
    slowest_s, last_s = disk.get("sync_slowest_seconds"), disk.get("last_sync_seconds_ago")
    is_full = (free or 0) < (size or 0) * limits.ADMIN_DISK_FREE_SHARE
    is_slow = (slowest_s or 0) > limits.ADMIN_SYNC_SLOW_S
    unknown = words.UNKNOWN if found.document else ("–", "")
    runs_s = _runs_s(found)
    return {
        "In": (words.rate(found.in_rate), "published"),
        "Out": (words.rate(found.out_rate), "finished"),
        "Depth": (words.number(found.depth), "messages wait"),
        "On disk": (words.size(found.stored_bytes),
                    f"{words.size(found.unsynced_bytes)} not synced") if disk else unknown,
        "Disk left": (
            words.size(free) if free is not None else "unknown",
            ("nearly full: " if is_full else "") + (f"of {words.size(size)}" if size else ""),
            "bad" if is_full else "",
        ),
        "Last sync": (words.span(last_s) if last_s is not None else "none", "ago")
        if disk else unknown,
        "Slowest sync": (
            words.span(slowest_s) if slowest_s else "none",
            "slow, last minute" if is_slow else "in the last minute",
            "warn" if is_slow else "",
        ) if disk else unknown,
        "Runs for": (words.span(runs_s) if runs_s else "–", found.producer.version),
    }  # fmt: skip


def _forget(view: PageView, address: str) -> ui.element:
    async def go() -> None:
        latest = view.deps.watch.latest
        if (node := latest.nodes.get(address)) is None:
            return
        held = noderecords.words_of(noderecords.holding(latest, node))
        text = f"Forget {address}? {held} If it starts again, it is known again with all of it."
        run, about = partial(view.deps.watch.forget, address), {"node": address}
        if await layout.change(view, Role.DESTROY, "forget_node", about, run, "", text, address):
            parts.go(view.link("nodes"))

    panel = parts.section("Gone for good?")
    with panel, parts.row():
        ui.label("It stays on the list with what it held, until it answers or is forgotten.")
        ui.button("Forget this node", on_click=go).props("flat color=negative")
    return panel


def _tombstone(view: PageView, address: str) -> ui.element:
    """Take a topic off this node: consumers are sent elsewhere first."""

    async def go() -> None:
        topic = str(name.value or "")
        words_ = (
            f"Delete {topic} on {address}? Its messages there are lost; other nodes keep theirs."
        )
        if topic:
            await layout.do(view, view.deps.actions.tombstone(address, topic), words_, topic)

    panel = parts.section("Take a topic off this node")
    with panel, parts.row():
        name = ui.input("Topic")
        ui.button("Delete there", on_click=go).props("flat color=negative")
    return panel


# --- its process, from /metrics, if the nsqd has it ---

_METRIC = re.compile(r'^([a-z_]+)(?:\{le="([^"]+)"\})? ([0-9.e+-]+)$', re.MULTILINE)
_EVERY_S = 3.0
_METRICS = Call("/metrics", (), lambda body, _: body[:_BYTES_MAX].decode("utf-8", "replace"))
_BYTES_MAX = 4_000_000  # of an answer that is looked at


def read_metrics(text: str) -> tuple[dict[str, float], dict[str, int]]:
    """Metrics of the whole process: lines of topics have other labels and are left out. And the
    number of syncs by how long they took at most."""
    values, syncs, before = dict[str, float](), dict[str, int](), 0
    for name, bound, value in _METRIC.findall(text):
        if not bound:
            values[name] = float(value)
        elif name == "nsqd_sync_seconds_bucket":
            count = int(float(value))
            shown = "more" if bound == "+Inf" else words.fine(float(bound))
            syncs[shown], before = count - before, count
    return values, syncs


class _Process:
    def __init__(self, view: PageView, address: str) -> None:
        self._view = view
        self._address = address
        self._cpu: tuple[float, float] | None = None  # when, and seconds of the processor by then
        with parts.section("Process") as self._box:
            with ui.element("div").classes("tiles"):
                self._tiles = {name: parts.Tile(name) for name in _NAMES}
            self._chart = chart.drawn("Syncs by how long they took, since it started", 180, {
                "xAxis": {"type": "category", "data": []},
                "series": [{"name": "syncs", "type": "bar", "data": [], "barMaxWidth": 40}],
            })  # fmt: skip
        self._box.set_visibility(False)
        layout.poll(self._view, self._ask, _EVERY_S)

    async def _ask(self) -> None:
        """An nsqd without metrics has no such part."""
        upstream, latest = self._view.deps.upstream, self._view.deps.watch.latest
        node = latest.nodes.get(self._address)
        if node and node.is_up:
            answer = await upstream.call(self._address, _METRICS)
            self._show(*read_metrics(answer))

    def _show(self, values: dict[str, float], syncs: dict[str, int]) -> None:
        if "process_cpu_seconds_total" not in values:
            return
        self._box.set_visibility(True)
        for name, (number, note) in self._readings(values).items():
            self._tiles[name].show(number, note)
        series = self._chart.options["series"][0]
        if series["data"] != list(syncs.values()):
            self._chart.options["xAxis"]["data"] = list(syncs)
            series["data"] = list(syncs.values())
            self._chart.update()

    def _readings(self, values: dict[str, float]) -> dict[str, tuple[str, str]]:
        count = values.get("nsqd_sync_seconds_count", 0)
        mean_s = values.get("nsqd_sync_seconds_sum", 0) / count if count else 0
        return {
            "Processor": (self._cpu_share(values["process_cpu_seconds_total"]), "of one core"),
            "Memory": (words.size(values.get("process_resident_memory_bytes", 0)), "resident"),
            "Connections": (words.number(values.get("nsqd_connections", 0)), "of clients"),
            "Open files": (words.number(values.get("process_open_fds", 0)), "sockets among them"),
            "Syncs": (words.number(count), f"{words.fine(mean_s)} each" if count else "none yet"),
            "Refused": (words.number(values.get("nsqd_publishes_refused_total", 0)), "publishes"),
        }

    def _cpu_share(self, cpu_s: float) -> str:
        now_s, before = time.monotonic(), self._cpu
        self._cpu = (now_s, cpu_s)
        if before is None or now_s <= before[0] or cpu_s < before[1]:
            return "–"
        return f"{100 * (cpu_s - before[1]) / (now_s - before[0]):.0f} %"


_NAMES = ("Processor", "Memory", "Connections", "Open files", "Syncs", "Refused")
