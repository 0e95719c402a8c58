"""What operators do to topics and channels over HTTP."""

from __future__ import annotations

from penstock.broker.channel import Channel
from penstock.broker.topic import Topic
from penstock.errors import NotFound
from penstock.net.api import EMPTY, POST, HttpError, Parameters, Route
from penstock.net.exchange import Response
from penstock.nsqd.ground import Ground, changing, find_topic, is_valid, keeping
from penstock.nsqd.partitions import chosen_partition


def table(ground: Ground) -> dict[str, Route]:
    verbs = _Verbs(ground)
    at_once = {
        "/topic/delete": verbs.topic_delete,
        "/topic/pause": verbs.topic_pause,
        "/topic/unpause": verbs.topic_unpause,
        "/channel/delete": verbs.channel_delete,
        "/channel/pause": verbs.channel_pause,
        "/channel/unpause": verbs.channel_unpause,
    }
    kept = {
        "/topic/empty": verbs.topic_empty,
        "/channel/create": verbs.channel_create,
        "/channel/empty": verbs.channel_empty,
        "/channel/skip": verbs.channel_skip,
        "/channel/unskip": verbs.channel_unskip,
        "/channel/skipZanTest": verbs.channel_skip_tests,
        "/channel/unskipZanTest": verbs.channel_unskip_tests,
    }
    routes = {path: Route(POST, changing(ground, act)) for path, act in at_once.items()}
    routes |= {path: Route(POST, keeping(ground, act)) for path, act in kept.items()}
    return routes


class _Verbs:
    def __init__(self, ground: Ground) -> None:
        self._ground = ground

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

    def channel_create(self, parameters: Parameters) -> Response:
        topic, name = self._channel_arguments(parameters)
        topic.channel(name)
        return EMPTY

    def channel_delete(self, parameters: Parameters) -> Response:
        channel = self._channel(parameters)
        channel.topic.delete_channel(channel.name)
        return EMPTY

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
