"""One click for a report: gather a bundle, show its findings, download it."""

from nicegui import context, ui

from penstock import limits
from penstock.errors import PenstockError
from penstock.nsqadmin import words
from penstock.nsqadmin.access import Role
from penstock.nsqadmin.attention import folded
from penstock.nsqadmin.diagnostics import ACTION, Kept
from penstock.nsqadmin.pages import guard, layout, overview, parts
from penstock.nsqadmin.pages.layout import PageView


class Diagnostics:
    def __init__(self, view: PageView) -> None:
        self._view = view
        parts.heading("Diagnostics")
        with parts.section("Gather"):
            parts.soft(
                "Asks every nsqd and nsqlookupd for all that it says of itself, twice some seconds"
                " apart, and makes one file of it to attach to a report. Bodies of messages and"
                " secrets are never in it; names of topics, channels, clients and hosts are."
            )
            with parts.row():
                self._seconds = ui.number(
                    "Seconds between samples", value=limits.BUNDLE_SECONDS, min=1,
                    max=limits.BUNDLE_SECONDS_MAX, precision=0,
                ).style("width: 13rem")  # fmt: skip
                self._button = ui.button("Gather", on_click=self._gather).props("unelevated")
            self._bar = parts.written("progress", "").props("max=1 value=0")
            parts.named(self._bar, "How much is gathered")
            self._bar.set_visibility(False)
            self._note = parts.note()
        with parts.section("What is wrong"):
            self._when = parts.soft()
            self._found = ui.element("div")
        with parts.section("Files"):
            parts.soft(
                f"The last {limits.BUNDLE_KEPT} are here for an hour, then they are gone. What is"
                " wrong in one is also shown by: penstock bundle analyze FILE"
            )
            self._files = ui.element("div")
        self._show()

    async def _gather(self) -> None:
        view, client = self._view, context.client
        deps = view.deps
        if not layout.may_still(view, Role.OPERATE, ACTION, {}):
            return
        seconds = min(max(int(self._seconds.value or 1), 1), limits.BUNDLE_SECONDS_MAX)

        def report(share: float, doing: str) -> None:
            if guard.is_open(client):
                self._bar.props["value"] = round(share, 3)
                self._bar.update()
                self._note.set_text(f"{share:.0%}: {doing}")

        self._button.disable()
        self._bar.set_visibility(True)
        report(0.0, "asking")
        try:
            with deps.audit.entry(view.caller, (ACTION,), {}, f"{seconds} s"):
                made = await deps.diagnostics.make(deps, view.caller.shown, seconds, report)
        except (PenstockError, OSError) as error:
            text = f"It could not be gathered: {error}"
        else:
            text = f"Gathered: {words.count(len(made.findings), 'finding')}."
        self._button.enable()
        self._bar.set_visibility(False)
        self._note.set_text(text)
        self._show()

    # --- findings ---

    def _show(self) -> None:
        kept = self._view.deps.diagnostics.kept
        none = "Nothing is gathered yet. Gather, and it is judged here."
        self._when.set_text(f"As of {words.clock(kept[-1].made_s)}." if kept else none)
        self._found.clear()
        with self._found:
            if kept and not kept[-1].findings:
                ui.label("Nothing. All daemons answer and agree, and every channel moves.")
            for found in folded(kept[-1].findings if kept else (), "They are in the file."):
                overview.finding(self._view, found)
        self._files.clear()
        with self._files:
            for one in reversed(kept):
                self._file(one)

    def _file(self, kept: Kept) -> None:
        with parts.row():
            way = self._view.link("api", "diagnostics", f"{kept.id}.zip")
            link = ui.link(f"Download {kept.name}", way).props("download")
            link.props["download"] = kept.name
            about = f"{words.size(kept.size)}, {words.clock(kept.made_s)}, by {kept.who}"
            parts.soft(about)
        if kept.failures:
            count = words.count(len(kept.failures), "question")
            shown = "; ".join(
                f"{one.folder} {one.asked}: {one.reason}" for one in kept.failures[:5]
            )
            parts.soft(f"{count} had no answer: {shown}")
