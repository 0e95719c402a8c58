"""The part of a node's page about its process: processor, memory, connections, and how long its
syncs take. It is what the node's /metrics tell, asked for while somebody looks; an nsqd that has no
such figures (the official one) has no such part.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field

from nicegui import background_tasks, ui

from penstock.errors import PenstockError
from penstock.nsqadmin import words
from penstock.nsqadmin.pages import chart, layout, parts
from penstock.nsqadmin.pages.layout import Opened
from penstock.nsqadmin.snapshot import Snapshot

_METRIC = re.compile(r'^([a-z_]+)(?:\{le="([^"]+)"\})? ([0-9.e+-]+)$', re.MULTILINE)
_EVERY_S = 3.0
_BYTES_MAX = 4_000_000  # of an answer that is looked at


@dataclass
class Metrics:
    values: dict[str, float] = field(default_factory=dict)
    syncs: list[tuple[str, int]] = field(default_factory=list)  # up to so long: so many


def read(text: str) -> Metrics:
    """Those of the process as a whole: lines of topics have other labels and are left out."""
    found = Metrics()
    before = 0
    for name, bound, value in _METRIC.findall(text):
        if not bound:
            found.values[name] = float(value)
        elif name == "nsqd_sync_seconds_bucket":
            count = int(float(value))
            found.syncs.append((_bound(bound), count - before))
            before = count
    return found


def _bound(text: str) -> str:
    return "more" if text == "+Inf" else words.fine(float(text))


def panel(here: Opened, address: str) -> None:
    _Panel(here, address).draw()


class _Panel:
    def __init__(self, here: Opened, address: str) -> None:
        self._here = here
        self._address = address
        self._busy = False
        self._next_s = 0.0
        self._cpu: tuple[float, float] | None = None  # when, and seconds of the processor by then

    def draw(self) -> None:
        with parts.section("Process") as self._box:
            with ui.element("div").classes("tiles"):
                self._tiles = {name: parts.Tile(name) for name in _NAMES}
            self._chart = _chart()
        self._box.set_visibility(False)
        layout.follow(self._here, self._on_snapshot)

    def _on_snapshot(self, snapshot: Snapshot) -> None:
        node = snapshot.nodes.get(self._address)
        if node and node.is_up and not self._busy and time.monotonic() >= self._next_s:
            self._busy = True
            self._next_s = time.monotonic() + _EVERY_S
            background_tasks.create(self._ask())

    async def _ask(self) -> None:
        try:
            answer = await self._here.deps.upstream.raw(self._address, "/metrics")
            self._show(read(answer[:_BYTES_MAX].decode("utf-8", "replace")))
        except PenstockError:
            return  # an nsqd without metrics; one that is down is named by the banner
        finally:
            self._busy = False

    def _show(self, found: Metrics) -> None:
        values = found.values
        if "process_cpu_seconds_total" not in values:
            return
        self._box.set_visibility(True)
        for name, (number, note) in self._told(values).items():
            self._tiles[name].show(number, note)
        series = self._chart.options["series"][0]
        drawn = [count for _, count in found.syncs]
        if series["data"] != drawn:
            self._chart.options["xAxis"]["data"] = [bound for bound, _ in found.syncs]
            series["data"] = drawn
            self._chart.update()

    def _told(self, values: dict[str, float]) -> dict[str, tuple[str, str]]:
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


def _chart() -> ui.echart:
    return chart.drawn("Syncs by how long they took, since it started", 180, {
        "xAxis": {"type": "category", "data": []},
        "series": [{"name": "syncs", "type": "bar", "data": [], "barMaxWidth": 40}],
    })  # fmt: skip
