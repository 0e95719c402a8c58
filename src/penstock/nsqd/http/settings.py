"""Settings of topics and channels: the arguments of `/topic/config` and `/channel/config`, and how
they are shown.

An empty value goes back to what holds without one. Nothing is changed when one of the values is not
valid.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from penstock import limits
from penstock.broker.channels.channel import Channel
from penstock.broker.options import DURABILITIES
from penstock.broker.topics.settings import AUTO_CREATE_OFF, ChannelOrder, Poison
from penstock.broker.topics.topic import Topic
from penstock.durations import DURATION_NS_MAX, format_duration, parse_duration
from penstock.net.api import HttpError, Parameters
from penstock.net.query import whole_number
from penstock.nsqd.http.arguments import (
    COUNT_MAX,
    FALSE,
    SHOWN,
    SHOWN_OF_NUMBER,
    TRUE,
    TRUTH,
    invalid,
)


class SettingArgument(NamedTuple):
    key: str  # in topic.json
    read: Callable[[str], Any]  # raises ValueError
    empty: Any = None  # what an empty value means
    shown: int | None = SHOWN  # characters of a value that is refused


def read_settings(
    parameters: Parameters,
    settings: Mapping[str, SettingArgument],
    others: Iterable[str],
    shown: int | None = None,
) -> dict[str, Any]:
    """By key. `others`: further keys that the query may have; `shown`: the number of characters
    shown of an unknown name."""
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


def chosen(
    own: Any, settings: Mapping[str, SettingArgument], values: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """Those of the `values` whose settings differ from the default."""
    default = type(own)()
    if own == default:  # as most are, and /stats looks at all
        return {}
    return {
        name: value
        for name, value in values().items()
        if getattr(own, settings[name].key) != getattr(default, settings[name].key)
    }


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


# --- of topics ---

TOPIC = {
    "durability": SettingArgument("durability", read_durability),
    "max_depth": SettingArgument("max_depth", read_count),
    "max_age": SettingArgument("max_age_ns", read_duration),
    "retain_age": SettingArgument("retain_age_ns", read_duration),
    "retain_bytes": SettingArgument("retain_bytes", read_count),
    "trace_rate": SettingArgument("trace_rate", read_rate),
    "ordered": SettingArgument("ordered", read_truth),
    AUTO_CREATE_OFF: SettingArgument(AUTO_CREATE_OFF, read_truth),
}


def own_of_topic(topic: Topic) -> dict[str, Any]:
    return chosen(topic.settings, TOPIC, lambda: topic_values(topic))


def topic_values(topic: Topic) -> dict[str, Any]:
    holds = topic.effective._asdict() | {
        "durability": topic.durability,
        "ordered": bool(topic.settings.ordered),
        AUTO_CREATE_OFF: bool(topic.settings.disable_channel_auto_create),
    }
    return {
        name: format_duration(holds[key]) if read is read_duration else holds[key]
        for name, (key, read, *_) in TOPIC.items()
    }


# --- of channels ---

_attempts = partial(read_count, highest=limits.ATTEMPTS_MAX)


def _one_of(kind: type[ChannelOrder] | type[Poison]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        known = [member.value for member in kind]
        if text not in known:
            raise ValueError(f"it is {' or '.join(known)}")
        return kind(text)

    return read


CHANNEL = {
    "max_attempts": SettingArgument("max_attempts", _attempts, 0, SHOWN_OF_NUMBER),
    "dead_letter_topic": SettingArgument("dead_letter_topic", str, ""),
    "trace_rate": SettingArgument("trace_rate", read_rate, shown=None),
    "ack_retry_cnt": SettingArgument("auto_ack_attempts", _attempts, shown=SHOWN_OF_NUMBER),
    "ack_old_than_time": SettingArgument("auto_ack_age_ns", read_duration),
    "order": SettingArgument("order", _one_of(ChannelOrder), next(iter(ChannelOrder))),
    "poison": SettingArgument("poison", _one_of(Poison), next(iter(Poison))),
}


def channel_values(channel: Channel) -> dict[str, Any]:
    own, bounds = channel.settings, channel.auto_ack
    return {
        "max_attempts": own.max_attempts,
        "dead_letter_topic": channel.dead_letter_topic,
        "trace_rate": channel.trace_rate,
        "ack_retry_cnt": bounds.attempts,
        "ack_old_than_time": format_duration(bounds.age_ns),
        "order": own.order,
        "poison": own.poison,
    }


def own_of_channel(channel: Channel) -> dict[str, Any]:
    return chosen(channel.settings, CHANNEL, lambda: channel_values(channel))
