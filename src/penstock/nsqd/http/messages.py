"""The contents of a channel, and operators' commands on its messages; docs/http.md has their
arguments and answers.

What is settled is in the channel journal before the answer is given, and where there are other
replicas on the disks of all that need it.
"""

from collections.abc import Callable, Generator
from typing import Any

from penstock import limits
from penstock.broker.channels import operator, reading
from penstock.broker.channels.channel import Channel
from penstock.broker.partition.leader import Leader
from penstock.broker.topics.topic import Topic
from penstock.errors import NotFound, StorageError
from penstock.kernel import Stray, StrayRecord
from penstock.net.api import EMPTY, HttpError, Parameters, json_response
from penstock.net.exchange import Response
from penstock.net.query import whole_number
from penstock.nsqd.http import arguments
from penstock.nsqd.http.deps import Call, refusal

Row = dict[str, Any]
Settle = Callable[[Channel, list[int]], operator.Work]
_List = Callable[[Call, Channel, int], list[Row]]


def finish_by_number(call: Call) -> None:
    channel = call.channel()
    partitions = call.partitions(channel.topic)
    id = arguments.message_number(call.parameters)
    leaders = _leaders(channel, partitions)

    work = _finish(channel, partitions, id)
    call.in_turns(work, lambda _: call.answer_when_held(leaders, EMPTY))


def fix_confirmed(call: Call) -> None:
    channel = call.channel()
    partitions = {}
    leaders = _leaders(channel, call.partitions(channel.topic))
    for leader in leaders:
        window = channel.windows[leader.number]
        leader.load_again()
        leader.store_cursors()
        cursor = {"low": window.low, "next": window.next, "floor": window.floor}
        partitions[str(leader.number)] = cursor
    response = json_response({**arguments.names_of(channel), "partitions": partitions})
    call.answer_when_held(leaders, response)


def requeue_delayed(call: Call) -> None:
    if "offset" not in call.parameters:
        raise arguments.missing("offset")
    hours = call.number("offset", limits.DELAY_HOURS_MAX)
    until_ns = call.deps.clock.wall_ns() + hours * 3600 * limits.SECOND
    settle(lambda channel, partitions: operator.release(channel, partitions, until_ns), call)


def settle(act: Settle, call: Call) -> None:
    channel = call.channel()
    partitions = call.partitions(channel.topic)
    leaders, work = _leaders(channel, partitions), act(channel, partitions)

    def done(count: int) -> None:
        counts = {"settled": count, "left": channel.delayed}
        call.answer_when_held(leaders, json_response({**arguments.names_of(channel), **counts}))

    call.in_turns(work, done)


def _leaders(channel: Channel, partitions: list[int]) -> list[Leader]:
    return [channel.topic.leader(number) for number in partitions]


def _finish(channel: Channel, partitions: list[int], id: int) -> Generator[None, None, None]:
    """In flight, waiting or delayed; otherwise ahead of the channel."""
    try:
        operator.finish(channel, id, partitions)
    except NotFound:
        readers = [reading.TopicReader(channel.topic, number) for number in partitions]
        found = yield from reading.find_id(readers, id)
        if found is None or not operator.finish_ahead(channel, *found):
            operator.finish(channel, id, partitions)  # the channel may have come to it meanwhile


# --- a position in the log ---


def set_offset(call: Call) -> None:
    channel, parameters = call.channel(), call.parameters
    position = _position(call)
    dry_run = call.flag("dry_run")
    partitions = _partitions(channel.topic, position, parameters)

    def done(offsets: reading.Offsets) -> None:
        if channel.deleted:
            raise HttpError(404, "CHANNEL_NOT_FOUND")
        moves = {one: reading.move_of(channel, offset, one) for one, offset in offsets.items()}
        response = json_response(_document(channel, moves, dry_run))
        if dry_run:
            call.answer(response)
            return
        leaders = _leaders(channel, list(offsets))
        channel.seek(offsets)
        call.answer_when_held(leaders, response)

    call.in_turns(reading.resolve(channel.topic, position, partitions), done)


def _position(call: Call) -> reading.Position:
    text = call.parameters.get("position") or call.request.body.decode("utf-8", "replace")
    if not text:
        raise arguments.missing("position")
    try:
        return reading.parse_position(text, call.deps.clock.wall_ns())
    except ValueError as error:
        raise arguments.invalid("position", text, error) from error


def _partitions(topic: Topic, position: reading.Position, parameters: Parameters) -> list[int]:
    """The partitions to search: the named one, or all of them."""
    numbers = [leader.number for leader in topic.leaders]
    text = parameters.get("partition", "")
    if text and text != "-1":
        number = whole_number(text, arguments.COUNT_MAX)
        if number is None:
            raise arguments.invalid("partition", text, "a whole number")
        if number not in numbers:
            raise HttpError(404, "PARTITION_NOT_FOUND")
        return [number]
    if position.kind in reading.OF_ONE and topic.partition_count > 1:  # others may be led elsewhere
        rule = f"{position.kind} is a position in one partition's log"
        raise HttpError(400, f"MISSING_ARG_PARTITION {rule}")
    return numbers


def _document(
    channel: Channel, moves: dict[int, reading.CursorMove], dry_run: bool
) -> dict[str, Any]:
    """`offset` is null where several partitions have one each."""
    document: dict[str, Any] = {
        **arguments.names_of(channel),
        "offset": next(iter(moves.values())).offset if len(moves) == 1 else None,
        **_counts(list(moves.values())),
        "dry_run": dry_run,
    }
    if channel.topic.partition_count > 1:
        document["partitions"] = [
            {"partition": number, "offset": move.offset, **_counts([move])}
            for number, move in moves.items()
        ]
    return document


def _counts(moves: list[reading.CursorMove]) -> dict[str, int]:
    return {
        "messages_again": sum(move.again for move in moves),
        "messages_skipped": sum(move.skipped for move in moves),
        "messages_given_up": sum(move.given_up for move in moves),
    }


# --- messages of a channel ---


def listed(call: Call) -> None:
    channel = call.channel(anywhere=call.parameters.get("state") == "dead")
    state = arguments.one_of("state", call.parameters.get("state", "in_flight"), _LISTS)
    count_max = call.number("limit", limits.LISTED_MESSAGES_MAX)
    try:
        rows = _LISTS[state](call, channel, count_max or limits.LISTED_MESSAGES)
    except StorageError as error:
        raise refusal(error) from error
    messages = [{**row, "state": state} for row in rows]
    call.answer(
        json_response({**arguments.names_of(channel), "state": state, "messages": messages})
    )


def finish(call: Call) -> Response:
    channel = call.channel()
    return _settled(lambda id: operator.finish(channel, id), call.parameters)


def requeue(call: Call) -> Response:
    channel = call.channel()
    ms_max = call.deps.options.max_req_timeout_ns // limits.MS
    delay_ns = call.number("delay_ms", ms_max) * limits.MS
    wall_ns = call.deps.clock.wall_ns()
    return _settled(lambda id: operator.requeue(channel, id, delay_ns, wall_ns), call.parameters)


def _settled(settle: Callable[[int], None], parameters: Parameters) -> Response:
    if not parameters.get("id"):
        raise arguments.missing("id")
    try:
        settle(arguments.message_id(parameters["id"]))
    except NotFound as error:
        raise HttpError(404, "MESSAGE_NOT_FOUND") from error
    return EMPTY


# --- lists by state ---


def _in_flight(call: Call, channel: Channel, count_max: int) -> list[Row]:
    """The next to time out first; of very many, the first of the lowest offsets."""
    records = [
        (number, record)
        for number, window in channel.windows.items()
        for record in window.in_flight_records(limits.IN_FLIGHT_LOOKED_AT)
    ]
    records.sort(key=lambda one: (one[1][4], one[1][0]))
    now_ns = call.deps.clock.mono_ns()
    return [
        {
            "partition": number,
            "offset": offset,
            "id": f"{id:016x}",
            "attempts": attempts,
            "deadline_ms": max(deadline_ns - now_ns, 0) // limits.MS,
            "client": _client(call, serial),
        }
        for number, (offset, id, attempts, serial, deadline_ns) in records[:count_max]
    ]


def _client(call: Call, serial: int) -> Row | None:
    """None: the client is gone, and the message waits for its time-out."""
    session = call.deps.protocol.sessions.get(serial)
    if session is None:
        return None
    return {
        "client_id": session.settings.client_id,
        "hostname": session.settings.hostname,
        "remote_address": session.remote,
    }


def _deferred(call: Call, channel: Channel, count_max: int) -> list[Row]:
    now_ns = call.deps.clock.wall_ns()
    return [
        {
            **_stray(number, record),
            "due_ns": record.due_ns,
            "due_in_ms": max(record.due_ns - now_ns, 0) // limits.MS,
        }
        for number, record in _strays(channel, Stray.DELAYED, count_max)
    ]


def _waiting(state: Stray) -> _List:
    return lambda call, channel, count_max: [
        _stray(*one) for one in _strays(channel, state, count_max)
    ]


def _held(call: Call, channel: Channel, count_max: int) -> list[Row]:
    """They have used their attempts, and are kept."""
    if not channel.held:
        return []  # others are on their way to the dead letters
    return [_stray(*one) for one in _strays(channel, Stray.EXHAUSTED, count_max)]


def _dead(call: Call, channel: Channel, count_max: int) -> list[Row]:
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
        for one in call.deps.broker.dead_letters.waiting(channel, count_max)
    ]


_LISTS: dict[str, _List] = {
    "in_flight": _in_flight,
    "deferred": _deferred,
    "requeued": _waiting(Stray.WAITING),
    # Put aside until those before them in the order are done. Where the cursor waits instead of
    # putting more aside, what it has not come to is in the log alone.
    "behind": _waiting(Stray.BEHIND),
    "held": _held,
    "dead": _dead,
}


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
