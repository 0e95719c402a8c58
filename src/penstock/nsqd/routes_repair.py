"""What Youzan's nsqd has for channels that are stuck: one message finished by its id, delayed
messages finished or sent now, and the place of the channel looked at again.

All of them act on every partition of the topic that is led here, or on the one that `partition`
names. What is settled is in the channel journal before the answer is given, and where there are
other replicas on the disks of all that need it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from penstock import limits
from penstock.broker import byhand, delayed
from penstock.broker.channel import Channel
from penstock.broker.leader import Leader
from penstock.broker.reading import TopicReader
from penstock.broker.search import find_id
from penstock.errors import NotFound
from penstock.net.api import EMPTY, POST, Answer, Guard, HttpError, Parameters, Route, json_response
from penstock.net.exchange import Request
from penstock.net.query import parse_query, whole_number
from penstock.net.slices import in_turns
from penstock.nsqd.ground import Ground, answer_when_held
from penstock.nsqd.partitions import chosen_partitions
from penstock.nsqd.routes_channels import find_channel, read_number
from penstock.nsqd.routes_log import message_id, told

_ID_DIGITS = 16
_ID_MAX = (1 << 64) - 1
Settle = Callable[[Channel, list[int]], delayed.Work]


def table(ground: Ground, guard: Guard) -> dict[str, Route]:
    repair = _Repair(ground, guard)
    return {
        "/message/finish": Route(POST, repair.finish),
        "/channel/fixconfirmed": Route(POST, repair.fix_confirmed),
        "/channel/finishmemdelayed": Route(POST, partial(repair.settle, delayed.finish_retried)),
        "/channel/emptydelayed": Route(POST, partial(repair.settle, delayed.finish)),
        "/channel/requeuedelayed": Route(POST, repair.requeue_delayed),
    }


class _Repair:
    def __init__(self, ground: Ground, guard: Guard) -> None:
        self._ground = ground
        self._guard = guard

    def finish(self, request: Request, answer: Answer) -> None:
        parameters = parse_query(request.query)
        channel = find_channel(self._ground.broker, parameters)
        partitions = chosen_partitions(channel.topic, parameters)
        id = _message_id(parameters)
        leaders = _leaders(channel, partitions)

        def done(_: None) -> None:
            answer_when_held(leaders, EMPTY, answer)
            self._ground.soon()

        work = told(_finish(channel, partitions, id))
        in_turns(request, answer, self._guard, work, done)

    def fix_confirmed(self, request: Request, answer: Answer) -> None:
        parameters = parse_query(request.query)
        channel = find_channel(self._ground.broker, parameters)
        places = {}
        leaders = _leaders(channel, chosen_partitions(channel.topic, parameters))
        for leader in leaders:
            number, window = leader.number, channel.windows[leader.number]
            leader.load_again()
            leader.store_cursors()
            places[str(number)] = {"low": window.low, "next": window.next, "floor": window.floor}
        self._ground.soon()
        response = json_response({**_names(channel), "partitions": places})
        answer_when_held(leaders, response, answer)

    def requeue_delayed(self, request: Request, answer: Answer) -> None:
        parameters = parse_query(request.query)
        if "offset" not in parameters:
            raise HttpError(400, "MISSING_ARG_OFFSET")
        hours = read_number("offset", parameters["offset"], limits.DELAY_HOURS_MAX)
        until_ns = self._ground.clock.wall_ns() + hours * 3600 * limits.SECOND

        def release(channel: Channel, partitions: list[int]) -> delayed.Work:
            return delayed.release(channel, partitions, until_ns)

        self.settle(release, request, answer)

    def settle(self, settle: Settle, request: Request, answer: Answer) -> None:
        parameters = parse_query(request.query)
        channel = find_channel(self._ground.broker, parameters)
        partitions = chosen_partitions(channel.topic, parameters)
        leaders, work = _leaders(channel, partitions), settle(channel, partitions)

        def done(count: int) -> None:
            self._ground.soon()
            counts = {"settled": count, "left": channel.delayed}
            response = json_response({**_names(channel), **counts})
            answer_when_held(leaders, response, answer)

        in_turns(request, answer, self._guard, told(work), done)


def _leaders(channel: Channel, partitions: list[int]) -> list[Leader]:
    return [channel.topic.leader(number) for number in partitions]


def _names(channel: Channel) -> dict[str, Any]:
    return {"topic_name": channel.topic.name, "channel_name": channel.name}


def _message_id(parameters: Parameters) -> int:
    """As it stands in a frame, 16 hex digits, or as the number that `/pubtrace` answers."""
    text = parameters.get("msgid", "")
    if not text:
        raise HttpError(400, "MISSING_ARG_MSGID")
    if len(text) == _ID_DIGITS:
        return message_id(text)
    number = whole_number(text, _ID_MAX)
    if number is None:
        rule = f"{_ID_DIGITS} hex digits, or a number of other length"
        raise HttpError(400, f"INVALID_ARG_MSGID {text[:100]!r}: {rule}")
    return number


def _finish(channel: Channel, partitions: list[int], id: int) -> Generator[None, None, None]:
    """In flight, waiting or delayed; else where the channel has not come to it yet."""
    try:
        byhand.finish(channel, id, partitions)
    except NotFound:
        readers = [TopicReader(channel.topic, number) for number in partitions]
        found = yield from find_id(readers, id)
        if found is None or not byhand.finish_ahead(channel, *found):
            byhand.finish(channel, id, partitions)  # the channel may have come to it meanwhile
