"""Small parts that pages are made of: texts, headings with the way to them, panels, tiles, curves.

Text of others goes into an element as text. Where HTML is made by hand it is escaped.
"""

import csv
import io
import json
import re
import string
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any, TypeVar

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

for _field in (ui.input, ui.number, ui.select):
    _field.default_props("dense outlined")  # all fields of forms look alike

E = TypeVar("E", bound=ui.element)

_FORMULA = re.compile(r"[=+@\t\r]|-(?![\d.]+\Z)")
_WORD_SHOWN = "(e) => emit(e.currentTarget.textContent.trim())"
FULL = 90  # percent: a bar that is fuller warns
_DIGITS = string.digits + string.ascii_lowercase


def written(tag: str, words: str) -> TextElement:
    """An element of any kind with a text."""
    return TextElement(tag=tag, text=words)


def go(way: str) -> None:
    """Lead the browser to an address of ours; `ui.navigate` would put the base path in front."""
    ui.run_javascript(f"location.assign({json.dumps(way)})")


def named(element: E, words: str) -> E:
    """Give an element a name for screen readers. Foreign text never goes through `props(...)`,
    which reads it as a list of properties, scripts among them."""
    element.props["aria-label"] = words
    return element


def heading(words: str, *trail: tuple[str, str]) -> ui.element:
    """A row with the page's name. `trail`: the pages above it, as (text, address)."""
    row = ui.element("div").classes("heading")
    with row:
        if trail:
            with ui.element("nav").classes("trail").props('aria-label="Breadcrumb"'):
                for shown, way in trail:
                    with ui.element("span"):
                        ui.link(shown, way)
        ui.html(f"<h1>{escape(words)}</h1>", sanitize=False)
    return row


def tabs(label: str, ways: Sequence[tuple[str, str]], at: str) -> None:
    """Pages about the same thing, as (words, address); `at` are the words of this one."""
    with named(ui.element("nav").classes("tabs"), label):
        for words, way in ways:
            link = ui.link(words, way)
            if words == at:
                link.props('aria-current="true"')


def section(words: str) -> ui.element:
    panel = ui.element("section").classes("panel")
    with panel:
        ui.html(f"<h2>{escape(words)}</h2>", sanitize=False)
    return panel


def row(classes: str = "heading") -> ui.element:
    return ui.element("div").classes(classes)


def grow() -> None:
    """Later elements of the row are right-aligned."""
    ui.element("div").classes("grow")


def small_button(words: str, act: Callable[..., Any] | None = None, name: str = "") -> ui.button:
    """Without a frame. `name` is for screen readers, where its words do not say enough."""
    button = ui.button(words, on_click=act).props("flat dense")
    return named(button, name) if name else button


def soft(words: str = "") -> ui.label:
    return ui.label(words).classes("soft")


def more(found: Sequence[object], most: int) -> None:
    if len(found) > most:
        soft(f"and {len(found) - most:,} more")


def note(words: str = "") -> ui.label:
    """Screen readers announce its changes."""
    return soft(words).props('role="status"')


def facts(found: Mapping[str, str], mono: bool = True) -> None:
    """Names and their values; those without one are left out."""
    with ui.element("dl").classes("facts"):
        for name, value in found.items():
            if value:
                with ui.element("dt"):
                    ui.label(name)
                with ui.element("dd"):
                    ui.label(value).classes("mono" if mono else "")


def as_csv(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A spreadsheet takes a text that begins like a formula for one: here it stays a text. A
    number, as of a large sum, may be a text here."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(names)
    writer.writerows(map(_as_cell, row) for row in rows)
    return text.getvalue()


def _as_cell(value: object) -> object:
    is_formula = isinstance(value, str) and _FORMULA.match(value)
    return f"'{value}" if is_formula else value


def show_age(element: ui.element, stale_s: float) -> None:
    """Old figures are grey; the banner explains it, and tables show their age."""
    element.classes(remove="" if stale_s else "stale", add="stale" if stale_s else "")


@contextmanager
def dialog(
    question: str, sure: str = "Go on", classes: str = "", colour: str = "primary", name: str = "",
    is_kept: bool = False,
) -> Iterator[ui.dialog]:  # fmt: skip
    """Its inputs go into it. Awaited, it is True or None; with a name only when the person has
    typed it. It goes when it has closed, unless it is kept to be shown again."""
    with named(ui.dialog(), question) as asking, ui.card().classes(classes):
        if not is_kept:
            asking.on("hide", asking.delete)
        ui.label(question)
        yield asking
        typed = ui.input(f"Type {name} to confirm").props("autofocus") if name else None

        def submit() -> None:
            asking.submit(True if typed is None or typed.value == name else None)

        with ui.row():
            ui.button("Cancel", on_click=lambda: asking.submit(None)).props("flat")
            button = ui.button(sure, color=colour, on_click=submit)
        if typed is not None:
            button.bind_enabled_from(typed, "value", lambda value: value == name)


class Redrawn:
    """An area that is redrawn when its contents change."""

    def __init__(self, classes: str = "") -> None:
        self._area = ui.element("div").classes(classes)
        self._shown: object = None

    def show(self, what: object, draw: Callable[[], None]) -> None:
        if what != self._shown:
            self._shown = what
            self._area.clear()
            with self._area:
                draw()


class Badge:
    """A state in a word, with a colour: good, warn, bad or soft. Hidden without a word."""

    def __init__(self) -> None:
        self._label = ui.label().classes("badge")
        self.show("")

    def show(self, words: str, level: str = "soft") -> None:
        self._label.set_text(words)
        self._label.classes(remove="good warn bad soft", add=level)
        self._label.set_visibility(bool(words))


class Switch:
    """One button for two actions of which one applies: Pause, or Unpause. With a mixed state it has
    both. A click brings the word that its browser has shown: somebody else may have acted since."""

    def __init__(self, off: str, on: str, act: Callable[[bool], Awaitable[None]]) -> None:
        """`act` is called with the wanted state."""
        self._words = (off, on)
        self._buttons = [ui.button().props("flat dense") for _ in range(2)]
        for button in self._buttons:
            button.on("click", lambda event: act(event.args == off), js_handler=_WORD_SHOWN)

    def show(self, is_on: bool, is_partly: bool, is_possible: bool) -> None:
        button, rest = self._buttons
        button.set_text(self._words[is_on])
        rest.set_text(self._words[not is_on])
        button.set_visibility(is_possible)
        rest.set_visibility(is_possible and is_partly)


class Tile(ui.element):
    """One number with its name above and a note below."""

    def __init__(self, label: str) -> None:
        super().__init__("div")
        with self.classes("tile"):
            ui.label(label).classes("label")
            self._number = ui.label().classes("number")
            self._note = ui.label().classes("note")

    def show(self, number: str, note: str, level: str = "") -> None:
        """`level`: warn or bad for an unhealthy number; the note has to explain it."""
        self._number.set_text(number)
        self._note.set_text(note)
        self.classes(remove="warn bad", add=level)


class Curve(ui.element):
    """A small curve without axes: the recent course. The numbers are beside it."""

    def __init__(self) -> None:
        super().__init__("penstock-curve")
        self.classes("curve")

    def show(self, values: Sequence[float]) -> None:
        if self.props.get("of") != (digits := curve(values)):
            self.props["of"] = digits


class Bar(ui.element):
    """A share as a bar, with a text beside it."""

    def __init__(self, label: str) -> None:
        super().__init__("div")
        with self.classes("share"):
            self._bar = named(ui.element("progress").props("max=100"), label)
            self._words = ui.label().classes("soft small")

    def show(self, percent: float | None, words: str) -> None:
        """None: it is not known, and nothing is shown."""
        self.set_visibility(percent is not None)
        self._words.set_text(words)
        if percent is not None and self._bar.props.get("value") != round(percent, 1):
            self._bar.props["value"] = round(percent, 1)
            self._bar.classes(remove="full", add="full" if percent > FULL else "")


def curve(values: Sequence[float]) -> str:
    """A digit for each point, as the browser draws it (`static/grid.js`)."""
    top = max(values, default=0.0)
    return "".join(_DIGITS[round(35 * value / top)] for value in values) if top else ""
