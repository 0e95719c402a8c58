"""`/message/trace/enable` and `/disable`: Youzan's switches, in terms of our settings.

They set `trace_rate` of a topic, or of a channel where one is named, to 1 or 0. Unlike Youzan's
they last through a restart. `rate` asks for a sample. There is no `slow` switch: the events tell of
every message how long it took.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.broker.broker import Broker
from penstock.errors import NotFound
from penstock.net.api import EMPTY, POST, Answer, HttpError, Parameters, Route
from penstock.net.exchange import Request
from penstock.net.query import parse_query
from penstock.nsqd.routes_topics import read_rate

_NAMES = frozenset(("topic", "channel", "rate"))


def trace_routes(broker: Broker, soon: Callable[[], None]) -> dict[str, Route]:
    def set_rate(parameters: Parameters, rate: float) -> None:
        name = parameters.get("topic")
        if name is None:
            raise HttpError(400, "MISSING_ARG_TOPIC")
        try:
            topic = broker.find_topic(name)
        except NotFound as error:
            raise HttpError(404, "TOPIC_NOT_FOUND") from error
        if "channel" not in parameters:
            topic.configure({"trace_rate": rate})
            return
        try:
            topic.find_channel(parameters["channel"]).configure({"trace_rate": rate})
        except NotFound as error:
            raise HttpError(404, "CHANNEL_NOT_FOUND") from error

    def checked(request: Request) -> Parameters:
        parameters = parse_query(request.query)
        unknown = sorted(set(parameters) - _NAMES)
        if unknown:
            raise HttpError(400, f"INVALID_ARG {unknown[0]}: there are {', '.join(sorted(_NAMES))}")
        return parameters

    def enable(request: Request, answer: Answer) -> None:
        parameters = checked(request)
        try:
            rate = read_rate(parameters.get("rate", "1"))
        except ValueError as error:
            raise HttpError(400, f"INVALID_ARG_RATE {parameters['rate']!r}: {error}") from error
        set_rate(parameters, rate)
        answer(EMPTY)
        soon()

    def disable(request: Request, answer: Answer) -> None:
        set_rate(checked(request), 0.0)
        answer(EMPTY)
        soon()

    return {
        "/message/trace/enable": Route(POST, enable),
        "/message/trace/disable": Route(POST, disable),
    }
