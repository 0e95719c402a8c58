"""The nodes as a strip of small cards: whether each is up, what goes through, what its disk has."""

from __future__ import annotations

from nicegui import ui

from penstock.nsqadmin.pages import layout, words
from penstock.nsqadmin.pages.layout import Opened
from penstock.nsqadmin.snapshot import NodeState, Snapshot

_SHOWN_MAX = 12  # more are on the page of the nodes


class Strip:
    def __init__(self, here: Opened) -> None:
        self._here = here
        self._cards: dict[str, _Card] = {}

    def draw(self) -> None:
        with layout.section("Nodes"):
            self._place = ui.element("div").classes("nodes")
            self._more = ui.link("", self._here.link("nodes"))
        layout.follow(self._here, self._show)

    def _show(self, snapshot: Snapshot) -> None:
        shown = sorted(snapshot.nodes.values(), key=lambda one: (one.is_up, one.address))
        more = len(shown) - _SHOWN_MAX
        self._more.set_text(f"{more} more" if more > 0 else "")
        self._more.set_visibility(more > 0)
        shown = shown[:_SHOWN_MAX]
        if [one.address for one in shown] != list(self._cards):
            self._place.clear()
            with self._place:
                self._cards = {one.address: _Card(self._here, one.address) for one in shown}
                if not shown:
                    ui.label("No nsqd is known.").classes("soft")
        for one in shown:
            self._cards[one.address].show(one)


class _Card:
    def __init__(self, here: Opened, address: str) -> None:
        with ui.element("div").classes("node"):
            with ui.element("div").classes("heading split"):
                ui.link(address, here.link("nodes", address))
                self._badge = layout.Badge()
            self._rates = ui.label().classes("soft small")
            self._disk = layout.Bar(f"Disk of {address}")

    def show(self, node: NodeState) -> None:
        self._badge.show(*state_of(node))
        if node.is_up:
            self._rates.set_text(
                f"{words.rate(node.in_rate)} in, {words.rate(node.out_rate)} out,"
                f" {words.number(node.depth)} wait"
            )
        else:
            age = f"; figures {words.aged(node.stale_s)}" if node.document else ""
            self._rates.set_text(f"{node.error}{age}")
        self._disk.show(*disk_of(node))


def state_of(node: NodeState) -> tuple[str, str]:
    """In a word, with its colour."""
    if node.error:
        return "down", "bad"
    if node.stale_s or not node.answered_s:
        return f"no answer for {words.span(node.stale_s)}" if node.stale_s else "asked", "soft"
    return ("not healthy", "bad") if node.is_unhealthy else ("up", "good")


def disk_of(node: NodeState) -> tuple[float | None, str]:
    """The share that is used, and what is left in words."""
    disk = node.document.get("disk") or {}
    free, size = disk.get("free_bytes"), disk.get("size_bytes")
    if free is None or not size:
        return None, ""
    return 100 * (1 - free / size), f"{words.size(free)} left"
