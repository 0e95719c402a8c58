"""Room on the disk, by hand: `/topic/greedyclean` and `/topic/cleanunused`, as in Youzan's nsqd.

A greedy clean removes at once what retention would keep for a while longer: whole segments of
which no channel needs anything, but for `bytes` of them. Files of deleted topics are removed by
themselves here, and tried again when a disk refuses; `/topic/cleanunused` does it now, and names
what is in the way.
"""

from __future__ import annotations

from penstock.errors import NotFound
from penstock.net.api import POST, HttpError, Parameters, Route, json_response
from penstock.net.exchange import Response
from penstock.nsqd.ground import FALSE, TRUE, Ground, changing
from penstock.nsqd.partitions import chosen_partitions
from penstock.nsqd.routes_channels import COUNT_MAX, read_number


def table(ground: Ground) -> dict[str, Route]:
    cleaning = _Cleaning(ground)
    return {
        "/topic/greedyclean": Route(POST, changing(ground, cleaning.greedy)),
        "/topic/cleanunused": Route(POST, changing(ground, cleaning.unused)),
    }


class _Cleaning:
    def __init__(self, ground: Ground) -> None:
        self._ground = ground

    def greedy(self, parameters: Parameters) -> Response:
        if "topic" not in parameters:
            raise HttpError(400, "MISSING_ARG_TOPIC")
        try:
            topic = self._ground.broker.find_topic(parameters["topic"])
        except NotFound as error:
            raise HttpError(404, "TOPIC_NOT_FOUND") from error
        kept_bytes = read_number("bytes", parameters.get("bytes", ""), COUNT_MAX)
        wall_ns = self._ground.clock.wall_ns()
        rows = []
        for number in chosen_partitions(topic, parameters):
            leader = topic.leader(number)
            row = {"partition": number, "segments_removed": leader.clean(wall_ns, kept_bytes)}
            log = leader.log
            rows.append(row | {"earliest": log.start_offset, "stored_bytes": log.bytes_stored})
        topic.touch()
        return json_response({"topic_name": topic.name, "partitions": rows})

    def unused(self, parameters: Parameters) -> Response:
        text = parameters.get("dryrun", "false")
        if text not in TRUE + FALSE:
            raise HttpError(400, f"INVALID_ARG_DRYRUN {text[:100]!r}: true or false")
        removed, left = self._ground.broker.directories.clean(text in TRUE)
        return json_response({"removed": removed, "left": left})
