"""Arguments of requests, and the errors for missing, invalid and unknown ones.

Which partitions of a topic a request is about says the parameter `partition`, as Youzan's nsqd has
it. Without it, or with -1, it is about all that are led here.

Settings are those of `/topic/config` and `/channel/config`. An empty value goes back to what holds
without one. Nothing is changed when one of the values is not valid.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from penstock import limits
from penstock.broker.channels.channel import Channel
from penstock.broker.options import DURABILITIES
from penstock.broker.topics.topic import Topic
from penstock.durations import DURATION_NS_MAX, parse_duration
from penstock.errors import NotFound
from penstock.net.api import HttpError, Parameters, because
from penstock.net.query import whole_number
from penstock.nsqd.http.deps import Call
from penstock.wire.errors import WireFault
from penstock.wire.names import ANY, is_valid_name, read_partition

FALSE, TRUE = ("false", "0"), ("true", "1")  # how a boolean parameter is written
COUNT_MAX = (1 << 63) - 1
SHOWN = 100  # characters of a value that is refused
SHOWN_OF_NUMBER = 300
_ID_DIGITS = 16
_ID_MAX = (1 << 64) - 1


def missing(name: str) -> HttpError:
    return HttpError(400, f"MISSING_ARG_{name.upper()}")


def invalid(name: str, text: str, rule: object, shown: int | None = SHOWN) -> HttpError:
    return HttpError(400, f"INVALID_ARG_{name.upper()} {text[:shown]!r}: {rule}")


# --- values ---


def number(
    parameters: Parameters, name: str, highest: int = COUNT_MAX, default: int | None = 0
) -> int:
    """`default`: where there is none; None: there has to be one."""
    text = parameters.get(name, "")
    if not text:
        if default is None:
            raise missing(name)
        return default
    found = whole_number(text, highest)
    if found is None:
        raise invalid(name, text, f"a whole number, 0 to {highest}", SHOWN_OF_NUMBER)
    return found


def flag(
    parameters: Parameters, name: str, rule: str = "true or false", default: str = "false"
) -> bool:
    text = parameters.get(name, default)
    if text not in TRUE + FALSE:
        raise invalid(name, text, rule)
    return text in TRUE


def one_of(name: str, text: str, known: Iterable[str]) -> str:
    if text not in known:
        raise invalid(name, text, f"one of {', '.join(known)}")
    return text


def message_id(text: str) -> int:
    try:
        if len(text) != _ID_DIGITS or not text.isalnum():
            raise ValueError
        return int(text, 16)
    except ValueError:
        raise invalid("id", text, f"{_ID_DIGITS} hex digits", None) from None


def message_number(parameters: Parameters) -> int:
    """As in a frame, 16 hex digits, or the number in an answer of `/pubtrace`."""
    text = parameters.get("msgid", "")
    if not text:
        raise missing("msgid")
    if len(text) == _ID_DIGITS:
        return message_id(text)
    found = whole_number(text, _ID_MAX)
    if found is None:
        raise invalid("msgid", text, f"{_ID_DIGITS} hex digits, or a number of other length")
    return found


# --- topics and channels ---


def find_topic(call: Call, checks_name: bool = False) -> Topic:
    name = call.parameters.get("topic")
    if name is None:
        raise missing("topic")
    if checks_name and not is_valid_name(name):
        raise HttpError(400, "INVALID_TOPIC")
    try:
        return call.deps.broker.find_topic(name)
    except NotFound as error:
        raise HttpError(404, "TOPIC_NOT_FOUND") from error


def channel_name(call: Call, checks_names: bool = True) -> tuple[Topic, str]:
    """With its topic; the channel need not exist."""
    for kind in ("topic", "channel"):
        if kind not in call.parameters:
            raise missing(kind)
        if checks_names and not is_valid_name(call.parameters[kind]):
            raise HttpError(400, f"INVALID_ARG_{kind.upper()}")
    return find_topic(call), call.parameters["channel"]


def find_channel(call: Call, checks_names: bool = False, anywhere: bool = False) -> Channel:
    """`anywhere`: also where this node has no replica of the topic."""
    broker, name = call.deps.broker, call.parameters.get("topic", "")
    if anywhere and name not in broker.topics and broker.replica_host is not None:
        broker.replica_host.remote_topic(name)
    topic, name = channel_name(call, checks_names)
    try:
        return topic.find_channel(name)
    except NotFound as error:
        raise HttpError(404, "CHANNEL_NOT_FOUND") from error


def names_of(channel: Channel) -> dict[str, Any]:
    """The beginning of an answer."""
    return {"topic_name": channel.topic.name, "channel_name": channel.name}


# --- partitions ---


def bad_partition(text: object, rule: str) -> HttpError:
    return because(400, "E_BAD_PARTITION", f"partition {str(text)[:SHOWN]!r}: {rule}")


def not_of(topic: Topic, text: object) -> HttpError:
    return bad_partition(text, f"topic {topic.name} has 0 to {topic.partition_count - 1}")


def read_argument(text: str) -> int:
    """The number that a request names; ANY where it leaves the choice. Raises HttpError."""
    try:
        return read_partition(b"partition", text.encode("utf-8", "surrogateescape"))
    except WireFault as error:
        rule = f"a number from 0 to {limits.PARTITIONS_MAX - 1} is expected"
        raise bad_partition(text, rule) from error


def chosen_partition(topic: Topic, parameters: Parameters) -> int:
    """Of the topic, whoever leads it. ANY: all of them."""
    text = parameters.get("partition", "")
    if text in ("", "-1"):
        return ANY
    found = whole_number(text, limits.PARTITIONS_MAX - 1)
    if found is None or found >= topic.partition_count:
        raise not_of(topic, text)
    return found


def chosen_partitions(topic: Topic, parameters: Parameters) -> list[int]:
    """Of the partitions that this node leads."""
    led, chosen = [leader.number for leader in topic.leaders], chosen_partition(topic, parameters)
    if chosen == ANY:
        return led
    if chosen not in led:
        raise bad_partition(chosen, "this node does not lead it")
    return [chosen]


TRUTH = f"one of {', '.join(TRUE + FALSE)}"


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
