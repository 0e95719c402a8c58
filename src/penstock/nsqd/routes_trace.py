"""`/message/trace/enable` and `/disable`: Youzan's switches, in terms of our settings.

They set `trace_rate` of a topic, or of a channel where one is named, to 1 or 0. Unlike Youzan's
they last through a restart. `rate` asks for a sample. There is no `slow` switch: the events tell of
every message how long it took.
"""

from __future__ import annotations

from penstock.broker.changes import configure_channel, configure_topic
from penstock.broker.ports import MetadataDone
from penstock.errors import NotFound
from penstock.net.api import POST, Guard, HttpError, Parameters, Route
from penstock.nsqd.ground import Ground, agreeing, find_topic
from penstock.nsqd.routes_topics import read_rate

_NAMES = frozenset(("topic", "channel", "rate"))


def table(ground: Ground, guard: Guard) -> dict[str, Route]:
    def enable(parameters: Parameters, done: MetadataDone) -> None:
        _check(parameters)
        try:
            rate = read_rate(parameters.get("rate", "1"))
        except ValueError as error:
            raise HttpError(400, f"INVALID_ARG_RATE {parameters['rate']!r}: {error}") from error
        _set_rate(ground, parameters, rate, done)

    def disable(parameters: Parameters, done: MetadataDone) -> None:
        _check(parameters)
        _set_rate(ground, parameters, 0.0, done)

    return {
        "/message/trace/enable": Route(POST, agreeing(ground, guard, enable)),
        "/message/trace/disable": Route(POST, agreeing(ground, guard, disable)),
    }


def _check(parameters: Parameters) -> None:
    unknown = sorted(set(parameters) - _NAMES)
    if unknown:
        raise HttpError(400, f"INVALID_ARG {unknown[0]}: there are {', '.join(sorted(_NAMES))}")


def _set_rate(ground: Ground, parameters: Parameters, rate: float, done: MetadataDone) -> None:
    topic, changes = find_topic(ground, parameters), {"trace_rate": rate}
    if "channel" not in parameters:
        configure_topic(topic, changes, done)
        return
    try:
        channel = topic.find_channel(parameters["channel"])
    except NotFound as error:
        raise HttpError(404, "CHANNEL_NOT_FOUND") from error
    configure_channel(channel, changes, done)
