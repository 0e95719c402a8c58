"""What of a run's settings others may see.

The report of a run is read by everybody who may look at nsqadmin, or read the topic. So the values
of `conf` and `storage-option` are hidden, whatever they are: who can tell which of them is a key?
Of URLs the user, the password and the query are, wherever they stand in a text. What was hidden
once is hidden in every other text too, as in an error that repeats it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from penstock import limits
from penstock.command.flags import Kind
from penstock.durations import format_duration
from penstock.pipelines.runs import Option, cut
from penstock.pipelines.settings import Setting, Settings

HIDDEN = "***"
_USER = re.compile(r"(?<=://)[^/?#\s@]*@")
_QUERY = re.compile(r"(\w://[^\s?]*)\?[^\s'\"]*")
_CHARS_MIN = 4  # of what is hidden wherever it stands: "2g" is in every second text
_PLAIN = ("true", "false")
_LISTED_MAX = 20  # of a list: topics of an archive have a pattern where they are many
_OPTION_CHARS_MAX = 500


class Screen:
    """Between the settings and those who may see them."""

    def __init__(self, table: Sequence[Setting], settings: Settings) -> None:
        self._table = table
        self._settings = settings
        values = sorted(set(_secrets(table, settings)), key=len, reverse=True)
        self._values = [
            value for value in values if len(value) >= _CHARS_MIN and value not in _PLAIN
        ]

    def text(self, text: str, chars_max: int = limits.RUN_TEXT_CHARS) -> str:
        for value in self._values:
            text = text.replace(value, HIDDEN)
        text = text.encode("utf-8", "replace").decode()  # a path may hold bytes that are no text
        return cut(_QUERY.sub(rf"\1?{HIDDEN}", _USER.sub(f"{HIDDEN}@", text)), chars_max)

    def options(self) -> dict[str, Option]:
        """What somebody has set."""
        chosen = [one for one in self._table if one.name in self._settings.explicit]
        return {one.name: self._option(one) for one in chosen[: limits.RUN_OPTIONS_MAX]}

    def _option(self, setting: Setting) -> Option:
        name, kind = setting.name, setting.kind
        if kind is Kind.BOOL:
            return self._settings.flag(name)
        if kind is Kind.INT:
            return self._settings.number(name)
        if kind is Kind.DURATION:
            return format_duration(round(self._settings.seconds(name) * limits.SECOND))
        if kind is Kind.STRING:
            return self.text(self._settings.text(name), _OPTION_CHARS_MAX)
        values = self._settings.texts(name)
        shown = [self._member(kind, value) for value in values[:_LISTED_MAX]]
        more = len(values) - len(shown)
        return [*shown, f"… and {more:,} more"] if more else shown

    def _member(self, kind: Kind, value: str) -> str:
        if kind is Kind.REPEATED:
            name, equals, _ = value.partition("=")
            value = f"{name}{equals}{HIDDEN}" if equals else HIDDEN
        return self.text(value, _OPTION_CHARS_MAX)


def _secrets(table: Sequence[Setting], settings: Settings) -> Iterator[str]:
    for setting in table:
        if setting.kind is Kind.REPEATED:
            for pair in settings.texts(setting.name):
                yield pair.partition("=")[2] or pair
