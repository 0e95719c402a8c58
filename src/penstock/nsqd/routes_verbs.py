"""What operators do to topics and channels over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from penstock.broker.channel import Channel
from penstock.broker.placed import ask_for_channel, ask_to_delete
from penstock.broker.ports import ChannelDone
from penstock.broker.topic import Topic
from penstock.errors import NotFound, PenstockError
from penstock.net.api import EMPTY, POST, Answer, Guard, HttpError, Parameters, Route
from penstock.net.exchange import Request, Response
from penstock.net.query import parse_query
from penstock.nsqd.ground import (
    Ground,
    answer_when_held,
    changing,
    find_topic,
    is_valid,
    keeping,
    unavailable,
)
from penstock.nsqd.partitions import chosen_partition


def table(ground: Ground, guard: Guard) -> dict[str, Route]:
    verbs = _Verbs(ground, guard)
    at_once = {
        "/topic/delete": verbs.topic_delete,
        "/topic/pause": verbs.topic_pause,
        "/topic/unpause": verbs.topic_unpause,
        "/channel/pause": verbs.channel_pause,
        "/channel/unpause": verbs.channel_unpause,
    }
    kept = {
        "/topic/empty": verbs.topic_empty,
        "/channel/empty": verbs.channel_empty,
        "/channel/skip": verbs.channel_skip,
        "/channel/unskip": verbs.channel_unskip,
        "/channel/skipZanTest": verbs.channel_skip_tests,
        "/channel/unskipZanTest": verbs.channel_unskip_tests,
    }
    routes = {path: Route(POST, changing(ground, act)) for path, act in at_once.items()}
    routes |= {path: Route(POST, keeping(ground, act)) for path, act in kept.items()}
    routes["/channel/create"] = Route(POST, verbs.channel_create)
    routes["/channel/delete"] = Route(POST, verbs.channel_delete)
    return routes


class _Verbs:
    def __init__(self, ground: Ground, guard: Guard) -> None:
        self._ground = ground
        self._guard = guard

    # --- topics ---

    def _topic(self, parameters: Parameters, checks_name: bool = False) -> Topic:
        return find_topic(self._ground, parameters, checks_name)

    def topic_delete(self, parameters: Parameters) -> Response:
        self._ground.broker.delete_topic(self._topic(parameters).name)
        return EMPTY

    def topic_empty(self, parameters: Parameters) -> Response:
        self._topic(parameters, checks_name=True).empty()
        return EMPTY

    def topic_pause(self, parameters: Parameters) -> Response:
        self._topic(parameters).pause()
        return EMPTY

    def topic_unpause(self, parameters: Parameters) -> Response:
        self._topic(parameters).unpause()
        return EMPTY

    # --- channels ---

    def _channel_arguments(self, parameters: Parameters) -> tuple[Topic, str]:
        names = []
        for kind in ("topic", "channel"):
            name = parameters.get(kind)
            if name is None:
                raise HttpError(400, f"MISSING_ARG_{kind.upper()}")
            if not is_valid(name):
                raise HttpError(400, f"INVALID_ARG_{kind.upper()}")
            names.append(name)
        return self._topic(parameters), names[1]

    def _channel(self, parameters: Parameters) -> Channel:
        topic, name = self._channel_arguments(parameters)
        try:
            return topic.find_channel(name)
        except NotFound as error:
            raise HttpError(404, "CHANNEL_NOT_FOUND") from error

    def channel_create(self, request: Request, answer: Answer) -> None:
        """In a cluster it is answered when every partition has confirmed the channel."""
        topic, name = self._channel_arguments(parse_query(request.query))
        leaders = topic.leaders

        def go_on(error: PenstockError | None) -> None:
            if error is not None:
                raise unavailable(error)
            topic.channel(name)
            answer_when_held(leaders, EMPTY, answer)
            self._ground.soon()

        ask_for_channel(topic, name, self._guarded(request, answer, go_on))

    def channel_delete(self, request: Request, answer: Answer) -> None:
        channel = self._channel(parse_query(request.query))

        def go_on(error: PenstockError | None) -> None:
            if isinstance(error, NotFound):
                raise HttpError(404, "CHANNEL_NOT_FOUND")
            if error is not None:
                raise unavailable(error)
            answer(EMPTY)
            self._ground.soon()

        ask_to_delete(channel.topic, channel.name, self._guarded(request, answer, go_on))

    def _guarded(
        self, request: Request, answer: Answer, go_on: Callable[[PenstockError | None], None]
    ) -> ChannelDone:
        return lambda error: self._guard(request, answer, partial(go_on, error))

    def channel_empty(self, parameters: Parameters) -> Response:
        self._channel(parameters).empty()
        return EMPTY

    def channel_pause(self, parameters: Parameters) -> Response:
        self._channel(parameters).pause()
        return EMPTY

    def channel_unpause(self, parameters: Parameters) -> Response:
        self._channel(parameters).unpause()
        return EMPTY

    def channel_skip(self, parameters: Parameters) -> Response:
        channel = self._channel(parameters)
        channel.skips.begin(chosen_partition(channel.topic, parameters))
        return EMPTY

    def channel_unskip(self, parameters: Parameters) -> Response:
        channel = self._channel(parameters)
        channel.skips.end(chosen_partition(channel.topic, parameters))
        return EMPTY

    def channel_skip_tests(self, parameters: Parameters) -> Response:
        """Of all partitions: a load test goes through the whole topic."""
        channel = self._channel(parameters)
        chosen_partition(channel.topic, parameters)
        channel.skips.begin_tests()
        return EMPTY

    def channel_unskip_tests(self, parameters: Parameters) -> Response:
        channel = self._channel(parameters)
        chosen_partition(channel.topic, parameters)
        channel.skips.end_tests()
        return EMPTY
