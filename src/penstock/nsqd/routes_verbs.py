"""What operators do to topics and channels over HTTP."""

from __future__ import annotations

from functools import partial

from penstock.broker import changes
from penstock.broker.channel import Channel
from penstock.broker.ports import MetadataDone
from penstock.broker.topic import Topic
from penstock.errors import NotFound, PenstockError
from penstock.net.api import EMPTY, POST, Answer, Guard, HttpError, Parameters, Route
from penstock.net.exchange import Request, Response
from penstock.net.query import parse_query
from penstock.nsqd.ground import (
    Ground,
    agreeing,
    answer_when_held,
    find_topic,
    is_valid,
    keeping,
    unavailable,
)
from penstock.nsqd.partitions import chosen_partition


def table(ground: Ground, guard: Guard) -> dict[str, Route]:
    verbs = _Verbs(ground, guard)
    kept = {
        "/topic/empty": verbs.topic_empty,
        "/channel/empty": verbs.channel_empty,
    }
    agreed = {
        "/topic/pause": verbs.topic_pause,
        "/topic/unpause": verbs.topic_unpause,
        "/channel/delete": verbs.channel_delete,
        "/channel/pause": verbs.channel_pause,
        "/channel/unpause": verbs.channel_unpause,
        "/channel/skip": verbs.channel_skip,
        "/channel/unskip": verbs.channel_unskip,
        "/channel/skipZanTest": verbs.channel_skip_tests,
        "/channel/unskipZanTest": verbs.channel_unskip_tests,
    }
    routes = {path: Route(POST, keeping(ground, act)) for path, act in kept.items()}
    routes |= {path: Route(POST, agreeing(ground, guard, act)) for path, act in agreed.items()}
    delete = agreeing(ground, guard, verbs.topic_delete, ends_topic=True)
    routes["/topic/delete"] = Route(POST, delete)
    routes["/channel/create"] = Route(POST, verbs.channel_create)
    return routes


class _Verbs:
    def __init__(self, ground: Ground, guard: Guard) -> None:
        self._ground = ground
        self._guard = guard

    # --- topics ---

    def _topic(self, parameters: Parameters, checks_name: bool = False) -> Topic:
        return find_topic(self._ground, parameters, checks_name)

    def topic_delete(self, parameters: Parameters, done: MetadataDone) -> None:
        changes.delete_topic(self._ground.broker, self._topic(parameters), done)

    def topic_empty(self, parameters: Parameters) -> Response:
        self._topic(parameters, checks_name=True).empty()
        return EMPTY

    def topic_pause(self, parameters: Parameters, done: MetadataDone) -> None:
        changes.pause_topic(self._topic(parameters), done)

    def topic_unpause(self, parameters: Parameters, done: MetadataDone) -> None:
        changes.unpause_topic(self._topic(parameters), done)

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
        """In a cluster it is answered when every partition has confirmed the channel, whoever leads
        it by then."""
        topic, name = self._channel_arguments(parse_query(request.query))
        leaders = topic.leaders if topic.metadata is None else ()

        def go_on(error: PenstockError | None) -> None:
            if error is not None:
                raise unavailable(error)
            topic.channel(name)
            answer_when_held(leaders, EMPTY, answer)
            self._ground.soon()

        def done(error: PenstockError | None) -> None:
            self._guard(request, answer, partial(go_on, error))

        changes.ask_for_channel(topic, name, done)

    def channel_delete(self, parameters: Parameters, done: MetadataDone) -> None:
        channel = self._channel(parameters)
        changes.delete_channel(channel.topic, channel.name, done)

    def channel_empty(self, parameters: Parameters) -> Response:
        self._channel(parameters).empty()
        return EMPTY

    def channel_pause(self, parameters: Parameters, done: MetadataDone) -> None:
        changes.pause_channel(self._channel(parameters), done)

    def channel_unpause(self, parameters: Parameters, done: MetadataDone) -> None:
        changes.unpause_channel(self._channel(parameters), done)

    def channel_skip(self, parameters: Parameters, done: MetadataDone) -> None:
        channel = self._channel(parameters)
        partition = chosen_partition(channel.topic, parameters)
        count = channel.topic.partition_count
        changes.skip(channel, lambda before: before.begun(partition, count), done)

    def channel_unskip(self, parameters: Parameters, done: MetadataDone) -> None:
        channel = self._channel(parameters)
        partition = chosen_partition(channel.topic, parameters)
        count = channel.topic.partition_count
        changes.skip(channel, lambda before: before.ended(partition, count), done)

    def channel_skip_tests(self, parameters: Parameters, done: MetadataDone) -> None:
        self._skip_tests(parameters, True, done)

    def channel_unskip_tests(self, parameters: Parameters, done: MetadataDone) -> None:
        self._skip_tests(parameters, False, done)

    def _skip_tests(self, parameters: Parameters, skipped: bool, done: MetadataDone) -> None:
        """Of all partitions: a load test goes through the whole topic."""
        channel = self._channel(parameters)
        chosen_partition(channel.topic, parameters)
        changes.skip(channel, lambda before: before._replace(tests=skipped), done)
