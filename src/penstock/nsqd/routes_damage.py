"""An operator's word that readers need not wait for what is corrupt: `/topic/concede`.

Only a partition of several replicas waits; a node by itself steps over what is corrupt anyway, and
then there is nothing to concede. The answer names the offsets, and comes when the set has it on its
disks that the channels have passed them.
"""

from __future__ import annotations

from penstock.errors import NotFound
from penstock.net.api import POST, Answer, HttpError, Route, json_response
from penstock.net.exchange import Request
from penstock.net.query import parse_query
from penstock.nsqd.ground import Ground, answer_when_held
from penstock.nsqd.partitions import chosen_partitions


def table(ground: Ground) -> dict[str, Route]:
    return {"/topic/concede": Route(POST, _Conceding(ground).concede)}


class _Conceding:
    def __init__(self, ground: Ground) -> None:
        self._ground = ground

    def concede(self, request: Request, answer: Answer) -> None:
        parameters = parse_query(request.query)
        if "topic" not in parameters:
            raise HttpError(400, "MISSING_ARG_TOPIC")
        try:
            topic = self._ground.broker.find_topic(parameters["topic"])
        except NotFound as error:
            raise HttpError(404, "TOPIC_NOT_FOUND") from error
        leaders = [topic.leader(number) for number in chosen_partitions(topic, parameters)]
        rows = [
            {"partition": leader.number, "from": start, "to": end}
            for leader in leaders
            for start, end in leader.concede_damage()
        ]
        self._ground.soon()
        response = json_response({"topic_name": topic.name, "conceded": rows})
        answer_when_held(leaders, response, answer)
