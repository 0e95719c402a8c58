"""`POST /channel/setoffset`: a channel goes back, or on, to a place in the log.

The place is the body, as Youzan's nsqd takes it, or the parameter `position`
(`broker/positions.py`). With `dry_run=true` nothing is changed, and the answer says what would be.
"""

from __future__ import annotations

from penstock.broker.broker import Broker
from penstock.broker.channel import Channel
from penstock.broker.positions import Position, move_of, parse_position, resolve
from penstock.errors import NotFound
from penstock.net.api import POST, Answer, Guard, HttpError, Parameters, Route, json_response
from penstock.net.exchange import Request
from penstock.net.query import parse_query
from penstock.net.slices import in_turns
from penstock.nsqd.ground import FALSE, TRUE, Ground
from penstock.nsqd.routes_log import told


def table(ground: Ground, guard: Guard) -> dict[str, Route]:
    def setoffset(request: Request, answer: Answer) -> None:
        parameters = parse_query(request.query)
        channel = _find(ground.broker, parameters)
        position = _position(request, parameters)
        dry_run = _is_dry(parameters)

        def done(offset: int) -> None:
            if channel.deleted:
                raise HttpError(404, "CHANNEL_NOT_FOUND")
            move = move_of(channel, offset)
            if not dry_run:
                channel.seek(offset)
                ground.soon()
            answer(
                json_response(
                    {
                        "topic_name": channel.topic.name,
                        "channel_name": channel.name,
                        "offset": move.offset,
                        "messages_again": move.again,
                        "messages_skipped": move.skipped,
                        "messages_given_up": move.given_up,
                        "dry_run": dry_run,
                    }
                )
            )

        in_turns(request, answer, guard, told(resolve(channel.topic, position)), done)

    return {"/channel/setoffset": Route(POST, setoffset)}


def _find(broker: Broker, parameters: Parameters) -> Channel:
    for kind in ("topic", "channel"):
        if kind not in parameters:
            raise HttpError(400, f"MISSING_ARG_{kind.upper()}")
    try:
        return broker.find_topic(parameters["topic"]).find_channel(parameters["channel"])
    except NotFound as error:
        raise HttpError(404, f"{error.kind.upper()}_NOT_FOUND") from error


def _position(request: Request, parameters: Parameters) -> Position:
    text = parameters.get("position") or request.body.decode("utf-8", "replace")
    if not text:
        raise HttpError(400, "MISSING_ARG_POSITION")
    try:
        return parse_position(text)
    except ValueError as error:
        raise HttpError(400, f"INVALID_ARG_POSITION {text[:100]!r}: {error}") from error


def _is_dry(parameters: Parameters) -> bool:
    text = parameters.get("dry_run", "false")
    if text not in (*TRUE, *FALSE):
        raise HttpError(400, f"INVALID_ARG_DRY_RUN {text[:100]!r}: true or false")
    return text in TRUE
