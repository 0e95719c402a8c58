"""The settings of a topic or a channel, on its page: their values and sources, and a form. An empty
field means the default. Settings that only a flag of nsqd decides are shown below."""

from functools import partial

from nicegui import ui

from penstock.errors import PenstockError
from penstock.nsqadmin import settings
from penstock.nsqadmin.access import Role
from penstock.nsqadmin.pages import layout, parts
from penstock.nsqadmin.pages.layout import PageView
from penstock.nsqadmin.settings import Setting, SettingValues

Field = ui.input | ui.select


def panel(view: PageView, topic: str, channel: str = "") -> None:
    _Panel(view, {"topic": topic, "channel": channel} if channel else {"topic": topic})


class _Panel:
    def __init__(self, view: PageView, about: dict[str, str]) -> None:
        self._view = view
        self._about = about
        self._fields: dict[str, tuple[Field, SettingValues]] = {}
        with parts.section("Settings"):
            self._note = parts.note("Asking …")
            self._area = ui.element("div").classes("settings")
            with parts.row():
                self._save_button = ui.button("Save settings", on_click=self._save)
                self._save_button.props("unelevated").set_visibility(False)
            flags = ui.expansion("What nsqd's flags decide for all topics").props("dense")
            flags.on_value_change(lambda event: self._show_flags() if event.value else None)
            with flags:
                self._flags = ui.element("div")
        ui.timer(0.05, self._show, once=True)

    def _nodes(self) -> list[str]:
        latest, about = self._view.deps.watch.latest, self._about
        having = latest.topics.get(about["topic"])
        nodes = having.nodes if having else []
        if "channel" in about:
            channel = latest.channel(about["topic"], about["channel"])
            nodes = channel.nodes if channel else []
        return [node for node in nodes if latest.nodes[node].is_up]

    async def _show(self) -> None:
        found, notes = await settings.read(self._view.deps.upstream, self._nodes(), self._about)
        self._note.set_text("; ".join(notes) or ("" if found else "No node has it."))
        self._note.set_visibility(bool(self._note.text))
        self._area.clear()
        self._fields.clear()
        with self._area:
            for held in found:
                self._row(held)
        changeable = any(self._view.may(held.setting.role) for held in found)
        self._save_button.set_visibility(changeable)

    def _row(self, held: SettingValues) -> None:
        setting = held.setting
        field = _field(setting, held)
        field.set_enabled(self._view.may(setting.role))
        self._fields[setting.name] = (field, held)
        if held.own:
            field.classes("changed")
        with ui.element("div"):
            with parts.row():
                ui.label(held.origin).classes("changed-word" if held.own else "soft")
                if held.own and self._view.may(setting.role):
                    revert = partial(self._apply, {setting.name: ""})
                    parts.small_button("Revert", revert, f"Revert {setting.name}")
            ui.label(setting.note).classes("soft note")

    def _changes(self) -> dict[str, str]:
        """Only changed values, so that differences between nodes stay elsewhere."""
        found = {}
        for name, (field, held) in self._fields.items():
            value = str(field.value or "").strip()
            if value != held.chosen and self._view.may(held.setting.role):
                found[name] = value
        return found

    async def _save(self) -> None:
        changes = self._changes()
        if not changes:
            ui.notify("Nothing is changed.")
            return
        await self._apply(changes)

    async def _apply(self, changes: dict[str, str]) -> None:
        view, about = self._view, self._about
        role, detail = settings.roles_of(about, changes), settings.detail(changes)
        question = f"{detail}: messages that are too old then are dropped."
        kind, name = list(about.items())[-1]
        run = partial(settings.write, view.deps.upstream, self._nodes(), about, changes)
        if await layout.change(view, role, f"configure_{kind}", about, run, detail,
                               question if role >= Role.DESTROY else "", name):  # fmt: skip
            await self._show()

    async def _show_flags(self) -> None:
        self._flags.clear()
        for node in self._nodes():
            try:
                found = await settings.flags(self._view.deps.upstream, node)
            except PenstockError as error:
                found = [("does not tell", str(error))]
            with self._flags:
                parts.soft(node)
                parts.facts(dict(found), mono=False)


def _field(setting: Setting, held: SettingValues) -> Field:
    default = f"{held.shown} by default" if held.shown and not held.own else ""
    if setting.choices:
        options = {"": default or "by default"} | {one: one for one in setting.choices}
        return ui.select(options, value=held.chosen, label=setting.words)
    field = ui.input(setting.words, value=held.chosen, placeholder=default)
    return field.props("stack-label")
