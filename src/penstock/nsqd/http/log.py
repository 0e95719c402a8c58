"""Reading stored messages, without a channel: `/log/positions`, `/log/fetch`, `/log/offset` and
`/message/get`. For programs that read a log by offset, and for people who look for one message.

Nothing here may hold up publishing. A fetch is bounded. The loop only finds the file and the
position in it; a thread checks the batches there, and then sends them from the file to the socket
(`net/bulk.py`). Where damage is found, or at the very end, the loop does the reading: block by
block, one a turn, as it also searches for a message.

A topic that was deleted and made again begins at offset 0 with other messages. Its identity tells:
who sends the one that he knows is refused rather than given something else.

Offsets are a partition's: whoever names an offset names the partition too, unless there is one. An
id or a trace is looked for in all of them.
"""

import base64
import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from penstock import limits
from penstock.broker.channels.reading import Range, TopicReader, find_id, find_value
from penstock.broker.partition.appends import MessagePosition
from penstock.broker.topics.settings import is_internal
from penstock.broker.topics.topic import Topic
from penstock.errors import PenstockError
from penstock.kernel import BulkResult, BulkStatus, Section
from penstock.log.messages import Message
from penstock.net.api import JSON, NSQ_HEADER, HttpError, Parameters, json_response
from penstock.net.bulk import FileBody
from penstock.net.exchange import Response
from penstock.net.query import parse_pairs, whole_number
from penstock.nsqd.http.arguments import (
    COUNT_MAX,
    SHOWN_OF_NUMBER,
    TRUE,
    invalid,
    message_id,
    missing,
    whole,
)
from penstock.nsqd.http.deps import Call, refusal
from penstock.nsqd.pattern import Pattern, PatternInvalid
from penstock.trace.search import RULE, read_trace_id

BINARY = "application/octet-stream"


# --- starts and ends of logs ---


def positions(call: Call) -> None:
    member = call.deps.member
    if member is not None and not (member.view.is_listed and member.view.nodes):
        # It would say that topics of the cluster are not there, and to a stream that they are lost.
        raise HttpError(503, "FAILED this node has not read what the cluster has yet")
    pairs = parse_pairs(call.request.query)
    names = [value for key, value in pairs if key == "topic"]
    froms = _froms(pairs)
    pattern = call.parameters.get("pattern")
    if len(names) > limits.LOG_TOPICS_MAX:
        raise HttpError(400, f"INVALID_ARG_TOPIC at most {limits.LOG_TOPICS_MAX} of them")
    topics = call.deps.broker.topics
    wanted, unknown = set(names), [name for name in names if name not in topics]
    ended_logs = call.deps.broker.ended.logs_of(wanted)
    ended = {
        name: {identity: ends[0] for identity, ends in logs.items() if 0 in ends}
        for name, logs in ended_logs.items()
    }
    matches = _matcher(pattern) if pattern is not None else lambda name: not names

    def parts() -> Iterator[bytes]:
        yield b'{"topics":{'
        comma = ""
        for name in sorted(topics):
            topic = topics.get(name)
            if topic is None or not (name in wanted or matches(name)):
                yield b""  # a place to rest: matching takes its time
                continue
            document = _json(_positions(topic, froms.get(name, {})))
            yield f"{comma}{json.dumps(name)}:{document}".encode()
            comma = ","
        yield f'}},"missing":{_json(unknown)},"ended":{_json(ended)}'.encode()
        yield f',"ended_partitions":{_json(ended_logs)}'.encode()
        if member is not None:
            is_wanted = wanted.__contains__ if names else matches
            yield f",{_json(member.state.elsewhere(is_wanted))[1:-1]}".encode()
        yield b"}"

    call.in_slices(parts(), JSON)


# --- batches ---


def fetch(call: Call) -> None:
    topic = _topic(call)
    reader = _reader(call, topic)
    from_offset = call.number("from", default=None)
    to_offset = call.number("to", default=COUNT_MAX)
    if to_offset < from_offset:
        raise HttpError(400, f"INVALID_ARG_TO {to_offset}: it is below from={from_offset}")
    bytes_max = call.number("bytes_max", default=limits.LOG_FETCH_BYTES)
    bytes_max = min(bytes_max, limits.LOG_FETCH_BYTES_MAX)

    def in_loop() -> None:
        call.in_turns(reader.fetch(from_offset, to_offset, bytes_max), done)

    def done(found: Range) -> None:
        headers = _range_headers(topic, found.base_offset, found.next_offset)
        call.answer(Response(200, b"".join(found.blocks), BINARY, headers))

    try:
        file_range = reader.file_range(from_offset)
    except PenstockError as error:
        raise refusal(error) from error
    if file_range is None or to_offset == from_offset:
        in_loop()
        return

    def checked(result: BulkResult) -> None:
        if result.status != BulkStatus.DONE or result.start == result.end:
            release()
            call.go_on(in_loop)
            return
        reader.log.remember(file_range, result.next_offset, result.end)
        length = result.end - result.start
        body = FileBody(bulk, file_range.descriptor, result.start, length, release)
        headers = _range_headers(topic, result.base_offset, result.next_offset)
        call.answer(Response(200, b"", BINARY, headers, file=body))

    def release() -> None:
        reader.log.release(file_range)

    bulk = call.deps.bulk
    limit = -1 if file_range.limit is None else file_range.limit
    where = (file_range.descriptor, file_range.position, file_range.expected, file_range.end, limit)
    wanted = from_offset, min(to_offset, reader.end), bytes_max
    bulk.give(lambda kernel, token: kernel.check(token, *where, *wanted), checked)


def offset(call: Call) -> None:
    """The offset of a time, or this many bytes behind another offset."""
    parameters = call.parameters
    reader = _reader(call, _topic(call))
    end = reader.committed if parameters.get("committed") in TRUE else reader.end
    if "from" in parameters:
        first = call.number("from", default=None)
        length = call.number("bytes", default=None)
        find = partial(reader.after_bytes, first, length, end)
    else:
        timestamp_ns = call.number("timestamp_ms", default=None) * limits.MS
        find = partial(reader.find_time, timestamp_ns, end)
    try:
        call.answer(json_response({"offset": find()}))
    except PenstockError as error:
        raise refusal(error) from error


# --- one message ---


def message(call: Call) -> None:
    topic = _topic(call)

    def done(found: tuple[int, Message]) -> None:
        partition, message = found
        document = {"topic": topic.name, "partition": partition, **_message(message)}
        call.answer(json_response(document))

    call.in_turns(_search(call, topic), done)


def _topic(call: Call) -> Topic:
    """The topic, if it is the intended one."""
    topic, identity = call.topic(), call.parameters.get("identity")
    if identity and identity != topic.identity:
        raise HttpError(409, "IDENTITY_CHANGED", details={"identity": topic.identity})
    return topic


def _reader(call: Call, topic: Topic, default: int | None = 0) -> TopicReader:
    partition = call.number("partition", default=default)
    if not topic.leads(partition):
        raise HttpError(404, "PARTITION_NOT_FOUND")
    return TopicReader(topic, partition)


def _range_headers(topic: Topic, base_offset: int, next_offset: int) -> tuple[tuple[str, str], ...]:
    return (
        ("X-Penstock-Identity", topic.identity),
        ("X-Penstock-Base-Offset", str(base_offset)),
        ("X-Penstock-Next-Offset", str(next_offset)),
        *NSQ_HEADER,
    )


def _matcher(text: str) -> Callable[[str], bool]:
    """A pattern has to match the whole name. Internal topics are for requests that ask for them: by
    name, or by a pattern that begins like their names."""
    try:
        pattern, own_too = Pattern(f"^(?:{text})$"), text.startswith("_")
    except PatternInvalid as error:
        raise invalid("pattern", text, error, None) from error
    return lambda name: (own_too or not is_internal(name)) and pattern.matches(name)


def _froms(pairs: Sequence[tuple[str, str]]) -> dict[str, dict[int, int]]:
    """Each `from` is an offset of the topic named before it: of its first partition, or after the
    number of another one. By topic and partition."""
    found: dict[str, dict[int, int]] = {}
    topic = ""
    for key, value in pairs:
        if key == "topic":
            topic = value
        elif key == "from":
            if not topic:
                rule = "it follows the topic that it is an offset of"
                raise HttpError(400, f"INVALID_ARG_FROM {rule}")
            partition, offset = _partition_offset(value)
            found.setdefault(topic, {})[partition] = offset
    return found


def _partition_offset(text: str) -> tuple[int, int]:
    """`offset`, or `partition:offset`."""
    before, colon, after = text.partition(":")
    partition = whole_number(before, limits.PARTITIONS_MAX - 1) if colon else 0
    if partition is None or (colon and not after):
        rule = f"partition:offset, with a partition 0 to {limits.PARTITIONS_MAX - 1}"
        raise invalid("from", text, rule, SHOWN_OF_NUMBER)
    offset = after if colon else text
    if not offset:
        raise missing("from")
    return partition, whole("from", offset)


def _positions(topic: Topic, froms: Mapping[int, int]) -> dict[str, Any]:
    """`froms`: offsets by partition, from which on bytes are to be counted."""
    partitions = {}
    for leader in topic.leaders:
        reader = TopicReader(topic, leader.number)
        partition = {
            "earliest": reader.earliest,
            "end": reader.end,
            "committed": reader.committed,
            "bytes": leader.log.bytes_stored,
        }
        if leader.number in froms:
            partition["bytes_from"] = reader.bytes_from(froms[leader.number])
        partitions[str(leader.number)] = partition
    return {"identity": topic.identity, "partitions": partitions}


def _search(call: Call, topic: Topic) -> Generator[None, None, tuple[int, Message]]:
    given = [name for name in ("id", "offset", "trace_id") if call.parameters.get(name)]
    if len(given) != 1:
        raise HttpError(400, "MISSING_ARG_ID give one of id, offset, trace_id")
    if given == ["offset"]:
        only = 0 if topic.partition_count == 1 else None
        reader = _reader(call, topic, only)
        return reader.partition, reader.message(call.number("offset", default=None))
    found = yield from _find(_readers(call, topic), call.parameters)
    if found is None:
        raise HttpError(404, "MESSAGE_NOT_FOUND")
    return found.partition, TopicReader(topic, found.partition).message(found.offset)


def _find(
    readers: Sequence[TopicReader], parameters: Parameters
) -> Generator[None, None, MessagePosition | None]:
    if parameters.get("id"):
        return (yield from find_id(readers, message_id(parameters["id"])))
    text = parameters["trace_id"]
    trace_id = read_trace_id(text)
    if not trace_id:
        raise invalid("trace_id", text, RULE, SHOWN_OF_NUMBER)
    return (yield from find_value(readers, Section.TRACE, trace_id))


def _readers(call: Call, topic: Topic) -> list[TopicReader]:
    if call.parameters.get("partition", "-1") not in ("", "-1"):
        return [_reader(call, topic)]
    return [TopicReader(topic, leader.number) for leader in topic.leaders]


def _message(message: Message) -> dict[str, Any]:
    sections = message.sections
    headers, key = sections.get(Section.HEADERS), sections.get(Section.KEY)
    return {
        "offset": message.offset,
        "id": f"{message.id:016x}",
        "timestamp_ns": message.timestamp_ns,
        "due_ns": sections.get(Section.DUE),
        "attempts": sections.get(Section.ATTEMPTS, 0),
        "trace_id": sections.get(Section.TRACE),
        "key_base64": _base64(key) if isinstance(key, bytes) else None,
        "headers": _headers(headers) if isinstance(headers, bytes) else None,
        "body": _text(message.body),
        "body_base64": _base64(message.body),
    }


def _headers(headers: bytes) -> Any:
    try:
        return json.loads(headers)
    except ValueError:
        return _text(headers)


def _text(data: bytes) -> str | None:
    """None for bytes that are no text: the other form names them."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
