"""Options as Spark hands them over, texts by name, and the words for what is wrong with one.

A bad option, also one that nobody knows, is an error that names it and says what is allowed.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping

from penstock import limits
from penstock.command.environment import nearest
from penstock.errors import ConfigError
from penstock.times import format_time, read_time

logger = logging.getLogger(__name__)

_DURATION = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)?")
_DURATION_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def time_ms(name: str, text: str) -> int:
    try:
        found = read_time(text, time.time_ns())
    except ValueError as error:
        raise ConfigError(name, text, str(error)) from error
    logger.info("%s %s is %s", name, text, format_time(found))
    return found // limits.MS


class Values:
    """Options by name, in any case; `names` are those that there are."""

    def __init__(self, given: Mapping[str, str], names: tuple[str, ...]) -> None:
        self._names = names
        self._given = {name.lower(): value for name, value in given.items()}

    def get(self, name: str) -> str | None:
        return self._given.get(name.lower())

    def refuse_unknown(self) -> None:
        known = {name.lower(): name for name in self._names}
        for name, value in self._given.items():
            if name in known:
                continue
            near = "url" if name.startswith("kafka.") else known.get(nearest(name, known, 0.6), "")
            meant = f"is it {near}? " if near else ""
            rule = f"{meant}the options are {', '.join(self._names)}"
            raise ConfigError(f"option {name}", value, rule)

    def refuse(self, name: str, rule: str) -> None:
        value = self.get(name)
        if value is not None:
            raise ConfigError(f"option {name}", value, rule)

    def required(self, name: str, rule: str) -> str:
        value = self.get(name)
        if not value:
            raise ConfigError(f"option {name}", value, f"it has to be {rule}")
        return value

    def word(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        value = self.get(name)
        if value is None:
            return default
        if value.lower() not in allowed:
            raise ConfigError(f"option {name}", value, f"it is one of {', '.join(allowed)}")
        return value.lower()

    def flag(self, name: str, default: bool) -> bool:
        return self.word(name, ("true", "false"), str(default).lower()) == "true"

    def number(self, name: str, default: int, least: int) -> int:
        value = self.get(name)
        if value is None:
            return default
        if re.fullmatch(r"\d{1,18}", value.strip(), re.ASCII) is None or int(value) < least:
            raise ConfigError(f"option {name}", value, f"it is a whole number, at least {least}")
        return int(value)

    def time_ms(self, name: str) -> int | None:
        """Milliseconds since 1970; None where it is not given."""
        value = self.get(name)
        return None if value is None else time_ms(f"option {name}", value)

    def optional_number(self, name: str, least: int = 1) -> int | None:
        return None if self.get(name) is None else self.number(name, least, least)

    def duration_ms(self, name: str, default: int) -> int:
        value = self.get(name)
        if value is None:
            return default
        match = _DURATION.fullmatch(value.strip().lower())
        if match is None:
            raise ConfigError(f"option {name}", value, 'a duration such as "500ms", "30s", "15m"')
        return int(match[1]) * _DURATION_MS[match[2] or "ms"]
