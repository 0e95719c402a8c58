"""Rules taken away one by one, in worlds whose histories are a seed and the rules.

A world's `switches` names its rules and within how many histories the absence of each is noticed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Switch(NamedTuple):
    off: str  # the rule
    seeds_max: int


class Harness:
    """`play` plays the history of a seed with these rules, and raises `broken`. `rules`: all."""

    def __init__(
        self, play: Callable[[int, Any], object], broken: type[Exception], rules: Any
    ) -> None:
        self._play = play
        self._broken = broken
        self.rules = rules

    def find(self, first: int, count: int, rules: Any = None) -> str | None:
        """The first seed that shows something broken, and what."""
        for seed in range(first, first + count):
            try:
                self._play(seed, self.rules if rules is None else rules)
            except self._broken as error:
                return f"seed {seed}: {error}"
        return None

    def without(self, switch: Switch) -> str | None:
        """The same, without this rule."""
        rules = self.rules._replace(**{switch.off: False})
        return self.find(0, switch.seeds_max, rules)
