"""`POST /channel/setoffset`: a channel goes back, or on, to a place in the log.

The place is the body, as Youzan's nsqd takes it, or the parameter `position`
(`broker/positions.py`). With `dry_run=true` nothing is changed, and the answer says what would be.

Of a topic with several partitions all are moved, or the one that `partition` names. The answer has
sums, and below them what becomes of each partition.
"""

from __future__ import annotations

from typing import Any

from penstock.broker.broker import Broker
from penstock.broker.channel import Channel
from penstock.broker.positions import (
    OF_ONE,
    Move,
    Places,
    Position,
    move_of,
    parse_position,
    resolve,
)
from penstock.broker.topic import Topic
from penstock.errors import NotFound
from penstock.net.api import POST, Answer, Guard, HttpError, Parameters, Route, json_response
from penstock.net.exchange import Request
from penstock.net.query import parse_query, whole_number
from penstock.net.slices import in_turns
from penstock.nsqd.ground import FALSE, TRUE, Ground, answer_when_held
from penstock.nsqd.routes_log import ANY, OFFSET_MAX, told


def table(ground: Ground, guard: Guard) -> dict[str, Route]:
    def setoffset(request: Request, answer: Answer) -> None:
        parameters = parse_query(request.query)
        channel = _find(ground.broker, parameters)
        position = _position(request, parameters, ground.clock.wall_ns())
        dry_run = _is_dry(parameters)
        partitions = _partitions(channel.topic, position, parameters)

        def done(places: Places) -> None:
            if channel.deleted:
                raise HttpError(404, "CHANNEL_NOT_FOUND")
            moves = {one: move_of(channel, offset, one) for one, offset in places.items()}
            response = json_response(_document(channel, moves, dry_run))
            if dry_run:
                answer(response)
                return
            leaders = [channel.topic.leader(partition) for partition in places]
            channel.seek_all(places)
            ground.soon()
            answer_when_held(leaders, response, answer)

        work = told(resolve(channel.topic, position, partitions))
        in_turns(request, answer, guard, work, done)

    return {"/channel/setoffset": Route(POST, setoffset)}


def _find(broker: Broker, parameters: Parameters) -> Channel:
    for kind in ("topic", "channel"):
        if kind not in parameters:
            raise HttpError(400, f"MISSING_ARG_{kind.upper()}")
    try:
        return broker.find_topic(parameters["topic"]).find_channel(parameters["channel"])
    except NotFound as error:
        raise HttpError(404, f"{error.kind.upper()}_NOT_FOUND") from error


def _partitions(topic: Topic, position: Position, parameters: Parameters) -> list[int]:
    """Where to look for the place: in the partition that is named, or in all of them."""
    numbers = [leader.number for leader in topic.leaders]
    text = parameters.get("partition", "")
    if text and text != ANY:
        number = whole_number(text, OFFSET_MAX)
        if number is None:
            raise HttpError(400, f"INVALID_ARG_PARTITION {text[:100]!r}: a whole number")
        if number not in numbers:
            raise HttpError(404, "PARTITION_NOT_FOUND")
        return [number]
    if position.kind in OF_ONE and len(numbers) > 1:
        rule = f"{position.kind} is a place in one partition's log"
        raise HttpError(400, f"MISSING_ARG_PARTITION {rule}")
    return numbers


def _document(channel: Channel, moves: dict[int, Move], dry_run: bool) -> dict[str, Any]:
    """`offset` is null where several partitions have one each."""
    document: dict[str, Any] = {
        "topic_name": channel.topic.name,
        "channel_name": channel.name,
        "offset": next(iter(moves.values())).offset if len(moves) == 1 else None,
        **_counts(list(moves.values())),
        "dry_run": dry_run,
    }
    if len(channel.windows) > 1:
        document["partitions"] = [
            {"partition": number, "offset": move.offset, **_counts([move])}
            for number, move in moves.items()
        ]
    return document


def _counts(moves: list[Move]) -> dict[str, int]:
    return {
        "messages_again": sum(move.again for move in moves),
        "messages_skipped": sum(move.skipped for move in moves),
        "messages_given_up": sum(move.given_up for move in moves),
    }


def _position(request: Request, parameters: Parameters, now_ns: int) -> Position:
    text = parameters.get("position") or request.body.decode("utf-8", "replace")
    if not text:
        raise HttpError(400, "MISSING_ARG_POSITION")
    try:
        return parse_position(text, now_ns)
    except ValueError as error:
        raise HttpError(400, f"INVALID_ARG_POSITION {text[:100]!r}: {error}") from error


def _is_dry(parameters: Parameters) -> bool:
    text = parameters.get("dry_run", "false")
    if text not in (*TRUE, *FALSE):
        raise HttpError(400, f"INVALID_ARG_DRY_RUN {text[:100]!r}: true or false")
    return text in TRUE
