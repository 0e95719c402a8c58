"""Values in the arguments of requests, and the errors for missing, invalid and unknown ones."""

from collections.abc import Iterable
from typing import Any

from penstock import limits
from penstock.broker.channels.channel import Channel
from penstock.broker.topics.topic import Topic
from penstock.net.api import HttpError, Parameters, because
from penstock.net.query import whole_number
from penstock.wire.errors import WireFault
from penstock.wire.names import read_partition

FALSE, TRUE = ("false", "0"), ("true", "1")  # how a boolean parameter is written
COUNT_MAX = (1 << 63) - 1
SHOWN = 100  # characters of a value that is refused
SHOWN_OF_NUMBER = 300
TRUTH = f"one of {', '.join(TRUE + FALSE)}"
_ID_DIGITS = 16
_ID_MAX = (1 << 64) - 1


def missing(name: str) -> HttpError:
    return HttpError(400, f"MISSING_ARG_{name.upper()}")


def invalid(name: str, text: str, rule: object, shown: int | None = SHOWN) -> HttpError:
    return HttpError(400, f"INVALID_ARG_{name.upper()} {text[:shown]!r}: {rule}")


# --- values ---


def whole(name: str, text: str, highest: int = COUNT_MAX) -> int:
    found = whole_number(text, highest)
    if found is None:
        raise invalid(name, text, f"a whole number, 0 to {highest}", SHOWN_OF_NUMBER)
    return found


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
