"""What is inside a channel, for people: `/channel/messages`, and `/channel/message/finish` and
`/channel/message/requeue` for one of them (`broker/byhand.py`).

A list is bounded. It names messages; what is in them is read with `/message/get`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock import limits
from penstock.broker import byhand
from penstock.broker.channel import Channel
from penstock.errors import NotFound, StorageError
from penstock.kernel import Stray, StrayRecord
from penstock.net.api import EMPTY, GET, POST, Answer, HttpError, Parameters, Route, json_response
from penstock.net.exchange import Request, Response
from penstock.net.query import parse_query
from penstock.nsqd.ground import Ground, keeping
from penstock.nsqd.routes_channels import find_channel, read_number
from penstock.nsqd.routes_log import message_id, refusal

Row = dict[str, Any]


def table(ground: Ground) -> dict[str, Route]:
    inside = _Inside(ground)
    return {
        "/channel/messages": Route(GET, inside.messages),
        "/channel/message/finish": Route(POST, keeping(ground, inside.finish)),
        "/channel/message/requeue": Route(POST, keeping(ground, inside.requeue)),
    }


class _Inside:
    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._lists: dict[str, Callable[[Channel, int], list[Row]]] = {
            "in_flight": self._in_flight,
            "deferred": self._deferred,
            "requeued": self._requeued,
            "behind": self._behind,
            "held": self._held,
            "dead": self._dead,
        }

    def messages(self, request: Request, answer: Answer) -> None:
        parameters = parse_query(request.query)
        channel = find_channel(self._ground.broker, parameters)
        state = parameters.get("state", "in_flight")
        listed = self._lists.get(state)
        if listed is None:
            rule = ", ".join(self._lists)
            raise HttpError(400, f"INVALID_ARG_STATE {state[:100]!r}: one of {rule}")
        highest = limits.LISTED_MESSAGES_MAX
        count_max = read_number("limit", parameters.get("limit", ""), highest)
        try:
            rows = listed(channel, count_max or limits.LISTED_MESSAGES)
        except StorageError as error:
            raise refusal(error) from error
        answer(
            json_response(
                {
                    "topic_name": channel.topic.name,
                    "channel_name": channel.name,
                    "state": state,
                    "messages": [{**row, "state": state} for row in rows],
                }
            )
        )

    def _in_flight(self, channel: Channel, count_max: int) -> list[Row]:
        """Those that time out first; of very many, the first of the lowest offsets."""
        records = [
            (number, record)
            for number, window in channel.windows.items()
            for record in window.in_flight_records(limits.IN_FLIGHT_LOOKED_AT)
        ]
        records.sort(key=lambda one: (one[1][4], one[1][0]))
        now_ns = self._ground.clock.mono_ns()
        return [
            {
                "partition": number,
                "offset": offset,
                "id": f"{id:016x}",
                "attempts": attempts,
                "deadline_ms": max(deadline_ns - now_ns, 0) // limits.MS,
                "client": self._client(serial),
            }
            for number, (offset, id, attempts, serial, deadline_ns) in records[:count_max]
        ]

    def _client(self, serial: int) -> Row | None:
        """None: it is gone, and the message waits for its time-out."""
        session = self._ground.protocol.sessions.get(serial)
        if session is None:
            return None
        return {
            "client_id": session.settings.client_id,
            "hostname": session.settings.hostname,
            "remote_address": session.remote,
        }

    def _deferred(self, channel: Channel, count_max: int) -> list[Row]:
        now_ns = self._ground.clock.wall_ns()
        return [
            {
                **_stray(number, record),
                "due_ns": record.due_ns,
                "due_in_ms": max(record.due_ns - now_ns, 0) // limits.MS,
            }
            for number, record in _strays(channel, Stray.DELAYED, count_max)
        ]

    def _requeued(self, channel: Channel, count_max: int) -> list[Row]:
        return [_stray(*one) for one in _strays(channel, Stray.WAITING, count_max)]

    def _behind(self, channel: Channel, count_max: int) -> list[Row]:
        """Put aside until those before them in the order are done. Where the cursor waits instead
        of putting more aside, what it has not come to is in the log alone."""
        return [_stray(*one) for one in _strays(channel, Stray.BEHIND, count_max)]

    def _held(self, channel: Channel, count_max: int) -> list[Row]:
        """They have used their attempts, and stay."""
        if not channel.held:
            return []  # others are on their way to the dead letters
        return [_stray(*one) for one in _strays(channel, Stray.EXHAUSTED, count_max)]

    def _dead(self, channel: Channel, count_max: int) -> list[Row]:
        return [
            {
                "partition": one.partition,  # of the dead-letter topic
                "offset": one.stored.offset,  # in it
                "id": f"{one.stored.id:016x}",
                "attempts": one.attempts,
                "cause": one.cause or None,  # of the last attempt's end
                "timestamp_ns": one.stored.timestamp_ns,
                "body_bytes": len(one.stored.body),
                "dead_letter_topic": channel.dead_letter_topic,
            }
            for one in self._ground.broker.dead_letters_of(channel, count_max)
        ]

    def finish(self, parameters: Parameters) -> Response:
        channel = find_channel(self._ground.broker, parameters)
        return _settled(lambda id: byhand.finish(channel, id), parameters)

    def requeue(self, parameters: Parameters) -> Response:
        channel = find_channel(self._ground.broker, parameters)
        ms_max = self._ground.options.max_req_timeout_ns // limits.MS
        delay_ns = read_number("delay_ms", parameters.get("delay_ms", ""), ms_max) * limits.MS
        wall_ns = self._ground.clock.wall_ns()
        return _settled(lambda id: byhand.requeue(channel, id, delay_ns, wall_ns), parameters)


def _strays(channel: Channel, state: Stray, count_max: int) -> list[tuple[int, StrayRecord]]:
    """With their partitions: the delayed ones by due time, others by offset."""
    found = [
        (number, record)
        for number, window in channel.windows.items()
        for record in window.stray_records(state, count_max)
    ]
    delayed = state is Stray.DELAYED
    found.sort(key=lambda one: (one[1].due_ns if delayed else 0, one[1].offset, one[0]))
    return found[:count_max]


def _stray(partition: int, record: StrayRecord) -> Row:
    return {
        "partition": partition,
        "offset": record.offset,
        "id": f"{record.id:016x}",
        "attempts": record.attempts,
    }


def _settled(settle: Callable[[int], None], parameters: Parameters) -> Response:
    if not parameters.get("id"):
        raise HttpError(400, "MISSING_ARG_ID")
    try:
        settle(message_id(parameters["id"]))
    except NotFound as error:
        raise HttpError(404, "MESSAGE_NOT_FOUND") from error
    return EMPTY
