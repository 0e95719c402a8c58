"""Settings of topics and channels as the query names them: `/topic/config`, `/channel/config`.

An empty value goes back to what holds without one. Nothing is changed when one of the values is not
valid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from penstock.broker.options import DURABILITIES
from penstock.durations import DURATION_NS_MAX, parse_duration
from penstock.net.api import HttpError, Parameters
from penstock.net.query import whole_number
from penstock.nsqd.http.arguments import COUNT_MAX, FALSE, SHOWN, TRUE, invalid

TRUTH = f"one of {', '.join(TRUE + FALSE)}"


class Setting(NamedTuple):
    key: str  # in topic.json
    read: Callable[[str], Any]  # raises ValueError
    empty: Any = None  # what an empty value means
    shown: int | None = SHOWN  # characters of a value that is refused


def read_settings(
    parameters: Parameters,
    settings: Mapping[str, Setting],
    others: Iterable[str],
    shown: int | None = None,
) -> dict[str, Any]:
    """By key. `others`: what else may be in the query; `shown`: characters of a strange name."""
    wanted: dict[str, Any] = {}
    for name, text in parameters.items():
        if name in others:
            continue
        if name not in settings:
            known = ", ".join(settings)
            raise HttpError(400, f"INVALID_ARG {name[:shown]}: no such setting; there are {known}")
        setting = settings[name]
        try:
            wanted[setting.key] = setting.read(text) if text else setting.empty
        except ValueError as error:
            raise invalid(name, text, error, setting.shown) from error
    return wanted


def chosen(own: Any, default: Any, settings: Mapping[str, Setting]) -> list[str]:
    """The names of those that are not as by default."""
    return [
        name for name, (key, *_) in settings.items() if getattr(own, key) != getattr(default, key)
    ]


def read_durability(text: str) -> str:
    if text not in DURABILITIES:
        raise ValueError(f"one of {', '.join(DURABILITIES)}")
    return text


def read_count(text: str, highest: int = COUNT_MAX) -> int:
    count = whole_number(text, highest)
    if count is None:
        raise ValueError(f"a whole number, 0 to {highest}")
    return count


def read_duration(text: str) -> int:
    duration_ns = parse_duration(text)
    if not 0 <= duration_ns <= DURATION_NS_MAX:
        raise ValueError("a duration such as 90s or 24h, not below 0")
    return duration_ns


def read_rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = -1.0
    if not 0 <= rate <= 1:
        raise ValueError("a number from 0 to 1")
    return rate


def read_truth(text: str) -> bool:
    if text not in TRUE + FALSE:
        raise ValueError(TRUTH)
    return text in TRUE
