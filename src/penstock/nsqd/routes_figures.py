"""Figures that Youzan's nsqd tells beside `/stats`, as far as one node has them: where a channel
stands, what was published in each hour, failed publishes, and who has a copy of what.
"""

from __future__ import annotations

from typing import Any

from penstock.broker.channel import Channel
from penstock.broker.topic import Topic
from penstock.errors import NotFound
from penstock.kernel import Stray
from penstock.net.api import GET, Answer, HttpError, Parameters, Route, json_response
from penstock.net.exchange import Request
from penstock.net.query import parse_query
from penstock.nsqd.ground import Ground
from penstock.nsqd.partitions import chosen_partitions
from penstock.nsqd.routes_channels import find_channel

Row = dict[str, Any]


def table(ground: Ground) -> dict[str, Route]:
    figures = _Figures(ground)
    return {
        "/message/stats": Route(GET, figures.message_stats),
        "/message/historystats": Route(GET, figures.history),
        "/serverstats": Route(GET, figures.server),
        "/coordinator/stats": Route(GET, figures.coordinator),
    }


class _Figures:
    def __init__(self, ground: Ground) -> None:
        self._ground = ground

    def _topic(self, parameters: Parameters) -> Topic:
        if "topic" not in parameters:
            raise HttpError(400, "MISSING_ARG_TOPIC")
        try:
            return self._ground.broker.find_topic(parameters["topic"])
        except NotFound as error:
            raise HttpError(404, "TOPIC_NOT_FOUND") from error

    def message_stats(self, request: Request, answer: Answer) -> None:
        parameters = parse_query(request.query)
        topic = self._topic(parameters)
        partitions = chosen_partitions(topic, parameters)
        channels = list(topic.channels.values())
        if "channel" in parameters:
            channels = [find_channel(self._ground.broker, parameters)]
        rows = [_place(channel, number) for channel in channels for number in partitions]
        answer(json_response({"topic_name": topic.name, "channels": rows}))

    def history(self, request: Request, answer: Answer) -> None:
        parameters = parse_query(request.query)
        topic = self._topic(parameters)
        hourly = self._ground.broker.hourly
        each = [hourly.of(topic, number) for number in chosen_partitions(topic, parameters)]
        answer(json_response({"hourly_pub_size": [sum(hour) for hour in zip(*each, strict=True)]}))

    def server(self, request: Request, answer: Answer) -> None:
        ground = self._ground
        refused = ground.protocol.refused_count + ground.refusals.count
        answer(json_response({"server_pub_failed_cnt": refused}))

    def coordinator(self, request: Request, answer: Answer) -> None:
        parameters = parse_query(request.query)
        broker, identity = self._ground.broker, self._ground.identity
        topics = [self._topic(parameters)] if "topic" in parameters else broker.topics.values()
        me = {"hostname": identity.hostname, "node_id": str(self._ground.options.node_id)}
        rows = [
            {"node": me["node_id"], "name": topic.name, "partition": number,
             "isr_stats": [me], "catchup_stats": []}
            for topic in topics
            for number in chosen_partitions(topic, parameters)
        ]  # fmt: skip
        answer(json_response({"topic_coord_stats": rows}))


def _place(channel: Channel, number: int) -> Row:
    """Offsets are of the partition's log."""
    window = channel.windows[number]
    return {
        "channel_name": channel.name,
        "partition": number,
        "low": window.low,  # below it all is done, but for what was requeued or delayed
        "next": window.next,
        "floor": window.floor,
        "end": window.tail.handed_end,
        "in_flight": window.in_flight,
        "requeued": len(window.stray_records(Stray.WAITING, window.depth or 1)),
        "delayed": window.delayed,
        "exhausted": window.exhausted,
    }
