"""`/channel/config` and `/channel/redrive`: how often a channel sends a message, and what becomes
of those that it gives up on (`broker/deadletters.py`).

A GET of the configuration tells, a POST changes the settings that are named in the query and tells
too. An empty value goes back to the default. Nothing is changed when one of the values is not
valid. A redrive answers when all that it sent back is safe, with their number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock import limits
from penstock.broker.broker import Broker
from penstock.broker.changes import configure_channel
from penstock.broker.channel import Channel
from penstock.broker.ports import MetadataDone
from penstock.broker.settings import ChannelOrder, ChannelSettings, Poison
from penstock.durations import format_duration
from penstock.errors import NotFound, PenstockError, Refused
from penstock.net.api import (
    GET_POST,
    POST,
    Answer,
    Guard,
    HttpError,
    Parameters,
    Route,
    error_response,
    json_response,
)
from penstock.net.exchange import Request, Response
from penstock.net.query import parse_query, whole_number
from penstock.nsqd.ground import Ground, agreeing, unavailable
from penstock.nsqd.routes_log import message_id
from penstock.nsqd.routes_topics import read_duration, read_rate

COUNT_MAX = (1 << 63) - 1


def table(ground: Ground, guard: Guard) -> dict[str, Route]:
    broker, soon = ground.broker, ground.soon

    def change(parameters: Parameters, done: MetadataDone) -> None:
        channel = find_channel(broker, parameters)
        changes = _changes(parameters)
        try:
            channel.check(changes)
        except Refused as error:
            raise HttpError(400, f"INVALID_ARG {error.reason}") from error
        configure_channel(channel, changes, done)

    def tell(parameters: Parameters) -> Response:
        return _tell(find_channel(broker, parameters))

    changed = agreeing(ground, guard, change, tell)

    def config(request: Request, answer: Answer) -> None:
        if request.method == "POST":
            changed(request, answer)
        else:
            answer(tell(parse_query(request.query)))

    def redrive(request: Request, answer: Answer) -> None:
        parameters = parse_query(request.query)
        channel = find_channel(broker, parameters)
        count_max = read_number("count", parameters.get("count", ""), COUNT_MAX)
        id = message_id(parameters["id"]) if parameters.get("id") else None

        def done(count: int, error: PenstockError | None) -> None:
            if error is not None:
                reason = error.reason if isinstance(error, Refused) else str(error)
                details = unavailable(error).details
                failed = HttpError(503, f"FAILED after {count} messages: {reason}", details=details)
                answer(error_response(failed))
            else:
                answer(json_response({"redriven": count}))

        try:
            broker.redrive(channel, count_max, done, id)
        except NotFound:
            answer(json_response({"redriven": 0}))  # there never was a dead letter
        except Refused as error:
            raise HttpError(409, f"FAILED {error.reason}") from error
        soon()

    def set_order(parameters: Parameters, done: MetadataDone) -> None:
        """Youzan's: strict order, or none."""
        channel = find_channel(broker, parameters)
        text = parameters.get("order", "")
        if text not in ("true", "false"):
            raise HttpError(400, f"INVALID_ARG_ORDER {text[:100]!r}: it is true or false")
        order = ChannelOrder.STRICT if text == "true" else ChannelOrder.NONE
        configure_channel(channel, {"order": order}, done)

    return {
        "/channel/setorder": Route(POST, agreeing(ground, guard, set_order)),
        "/channel/config": Route(GET_POST, config),
        "/channel/redrive": Route(POST, redrive),
    }


def find_channel(broker: Broker, parameters: Parameters) -> Channel:
    names = []
    for kind in ("topic", "channel"):
        if kind not in parameters:
            raise HttpError(400, f"MISSING_ARG_{kind.upper()}")
        names.append(parameters[kind])
    try:
        topic = broker.find_topic(names[0])
    except NotFound as error:
        raise HttpError(404, "TOPIC_NOT_FOUND") from error
    try:
        return topic.find_channel(names[1])
    except NotFound as error:
        raise HttpError(404, "CHANNEL_NOT_FOUND") from error


def read_number(name: str, text: str, highest: int) -> int:
    number = whole_number(text, highest) if text else 0
    if number is None:
        rule = f"a whole number, 0 to {highest}"
        raise HttpError(400, f"INVALID_ARG_{name.upper()} {text[:300]!r}: {rule}")
    return number


def _rate(name: str, text: str) -> float | None:
    try:
        return read_rate(text) if text else None
    except ValueError as error:
        raise HttpError(400, f"INVALID_ARG_TRACE_RATE {text!r}: {error}") from error


def _attempts(name: str, text: str) -> int:
    return read_number(name, text, limits.ATTEMPTS_MAX)


def _auto_ack_attempts(name: str, text: str) -> int | None:
    return _attempts(name, text) if text else None


def _age(name: str, text: str) -> int | None:
    try:
        return read_duration(text) if text else None
    except ValueError as error:
        raise HttpError(400, f"INVALID_ARG_{name.upper()} {text[:100]!r}: {error}") from error


def _one_of(kind: type[ChannelOrder] | type[Poison]) -> Callable[[str, str], Any]:
    def read(name: str, text: str) -> Any:
        known = [member.value for member in kind]
        if text and text not in known:
            rule = " or ".join(known)
            raise HttpError(400, f"INVALID_ARG_{name.upper()} {text[:100]!r}: it is {rule}")
        return kind(text) if text else kind(known[0])

    return read


# by the name in the query: the name in topic.json, and how a value is read
_SETTINGS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "max_attempts": ("max_attempts", _attempts),
    "dead_letter_topic": ("dead_letter_topic", lambda name, text: text),
    "trace_rate": ("trace_rate", _rate),
    "ack_retry_cnt": ("auto_ack_attempts", _auto_ack_attempts),
    "ack_old_than_time": ("auto_ack_age_ns", _age),
    "order": ("order", _one_of(ChannelOrder)),
    "poison": ("poison", _one_of(Poison)),
}


def _changes(parameters: Parameters) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    for name, text in parameters.items():
        if name in _SETTINGS:
            key, read = _SETTINGS[name]
            changes[key] = read(name, text)
        elif name not in ("topic", "channel"):
            known = ", ".join(_SETTINGS)
            raise HttpError(400, f"INVALID_ARG {name}: no such setting; there are {known}")
    return changes


def _tell(channel: Channel) -> Response:
    """What holds, and by `own` which of it the channel has chosen itself."""
    chosen, default = channel.settings, ChannelSettings()
    own = [
        name
        for name, (key, _) in _SETTINGS.items()
        if getattr(chosen, key) != getattr(default, key)
    ]
    bounds = channel.auto_ack
    return json_response(
        {
            "topic_name": channel.topic.name,
            "channel_name": channel.name,
            "max_attempts": channel.settings.max_attempts,
            "dead_letter_topic": channel.dead_letter_topic,
            "trace_rate": channel.trace_rate,
            "ack_retry_cnt": bounds.attempts,
            "ack_old_than_time": format_duration(bounds.age_ns),
            "order": channel.settings.order,
            "poison": channel.settings.poison,
            "dead_letter_count": channel.dead_letter_count,
            "held_count": channel.held,
            "own": own,
        }
    )
