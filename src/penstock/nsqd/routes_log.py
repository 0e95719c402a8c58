"""Reading what is stored, without a channel: `/log/positions`, `/log/fetch`, `/log/offset` and
`/message/get`. For programs that read a log by offset, and for people who look for one message.

Nothing here may hold up publishing. A fetch is bounded. The loop only finds the file and the place
in it; a thread checks the batches there, and then sends them from the file to the socket
(`net/bulk.py`). Where damage is found, or at the very end, the loop does the reading: block by
block, one a turn, as it also searches for a message.

A topic that was deleted and made again begins at offset 0 with other messages. Its identity tells:
who sends the one that he knows is refused rather than given something else.

Offsets are a partition's: whoever names an offset names the partition too, unless there is one. An
id or a trace is looked for in all of them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from penstock import limits
from penstock.broker.internal import is_internal
from penstock.broker.reading import Range, TopicReader
from penstock.broker.search import Found, find_id, find_value
from penstock.broker.topic import Topic
from penstock.errors import (
    LogDamaged,
    NotFound,
    OffsetBeyondEnd,
    OffsetGone,
    PenstockError,
    StorageError,
)
from penstock.kernel import BulkResult, BulkStatus, Section
from penstock.log.reader import Message, Stretch
from penstock.net.api import (
    GET,
    JSON,
    NSQ_HEADER,
    Answer,
    Guard,
    HttpError,
    Parameters,
    Route,
    json_response,
)
from penstock.net.bulk import FileBody
from penstock.net.exchange import Request, Response
from penstock.net.query import parse_pairs, parse_query, whole_number
from penstock.net.slices import in_slices, in_turns
from penstock.nsqd.ground import TRUE, Ground
from penstock.nsqd.pattern import Pattern, PatternInvalid
from penstock.trace.ids import RULE, read_trace_id

BINARY = "application/octet-stream"
OFFSET_MAX = (1 << 63) - 1
ANY = "-1"  # Youzan's number of whichever partition there is
_ID_DIGITS = 16
_Result = TypeVar("_Result")


def table(ground: Ground, guard: Guard) -> dict[str, Route]:
    log = _Log(ground, guard)
    return {
        "/log/positions": Route(GET, log.positions),
        "/log/fetch": Route(GET, log.fetch),
        "/log/offset": Route(GET, log.offset),
        "/message/get": Route(GET, log.message),
    }


class _Log:
    def __init__(self, ground: Ground, guard: Guard) -> None:
        self._ground = ground
        self._guard = guard

    # --- where logs begin and end ---

    def positions(self, request: Request, answer: Answer) -> None:
        pairs = parse_pairs(request.query)
        names = [value for key, value in pairs if key == "topic"]
        froms = _froms(pairs)
        pattern = parse_query(request.query).get("pattern")
        if len(names) > limits.LOG_TOPICS_MAX:
            raise HttpError(400, f"INVALID_ARG_TOPIC at most {limits.LOG_TOPICS_MAX} of them")
        topics = self._ground.broker.topics
        wanted, missing = set(names), [name for name in names if name not in topics]
        ended_logs = self._ground.broker.ended.logs_of(wanted)
        ended = {
            name: {identity: ends[0] for identity, ends in logs.items()}
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
            yield f'}},"missing":{_json(missing)},"ended":{_json(ended)}'.encode()
            yield f',"ended_partitions":{_json(ended_logs)}}}'.encode()

        def done(body: bytes) -> None:
            answer(Response(200, body, JSON, NSQ_HEADER))

        in_slices(request, answer, self._guard, parts(), done, self._ground.clock)

    # --- batches ---

    def fetch(self, request: Request, answer: Answer) -> None:
        parameters = parse_query(request.query)
        topic = self._topic(parameters)
        reader = _reader(topic, parameters)
        from_offset = _number(parameters, "from")
        to_offset = _number(parameters, "to", OFFSET_MAX)
        if to_offset < from_offset:
            raise HttpError(400, f"INVALID_ARG_TO {to_offset}: it is below from={from_offset}")
        bytes_max = _number(parameters, "bytes_max", limits.LOG_FETCH_BYTES)
        bytes_max = min(bytes_max, limits.LOG_FETCH_BYTES_MAX)

        def in_loop() -> None:
            work = told(reader.fetch(from_offset, to_offset, bytes_max))
            in_turns(request, answer, self._guard, work, done)

        def done(found: Range) -> None:
            headers = _range_headers(topic, found.base_offset, found.next_offset)
            answer(Response(200, b"".join(found.blocks), BINARY, headers))

        stretch = _stretch(reader, from_offset)
        if stretch is None or to_offset == from_offset:
            in_loop()
            return

        def checked(result: BulkResult) -> None:
            if result.status != BulkStatus.DONE or result.start == result.end:
                release()
                self._guard(request, answer, in_loop)
                return
            reader.remember(stretch, result.next_offset, result.end)
            length = result.end - result.start
            body = FileBody(bulk, stretch.descriptor, result.start, length, release)
            headers = _range_headers(topic, result.base_offset, result.next_offset)
            answer(Response(200, b"", BINARY, headers, file=body))

        def release() -> None:
            reader.release(stretch)

        bulk = self._ground.bulk
        bulk.check(
            stretch.descriptor,
            stretch.position,
            stretch.expected,
            stretch.end,
            -1 if stretch.limit is None else stretch.limit,
            from_offset,
            min(to_offset, reader.end),
            bytes_max,
            checked,
        )

    def offset(self, request: Request, answer: Answer) -> None:
        """Of a time, or this many bytes behind another offset."""
        parameters = parse_query(request.query)
        reader = _reader(self._topic(parameters), parameters)
        end = reader.committed if parameters.get("committed") in TRUE else reader.end
        if "from" in parameters:
            first, length = _number(parameters, "from"), _number(parameters, "bytes")
            find = partial(reader.after_bytes, first, length, end)
        else:
            timestamp_ns = _number(parameters, "timestamp_ms") * limits.MS
            find = partial(reader.find_time, timestamp_ns, end)
        try:
            offset = find()
            answer(json_response({"offset": offset}))
        except PenstockError as error:
            raise refusal(error) from error

    # --- one message ---

    def message(self, request: Request, answer: Answer) -> None:
        parameters = parse_query(request.query)
        topic = self._topic(parameters)

        def done(found: tuple[int, Message]) -> None:
            partition, message = found
            document = {"topic": topic.name, "partition": partition, **_message(message)}
            answer(json_response(document))

        in_turns(request, answer, self._guard, told(_search(topic, parameters)), done)

    def _topic(self, parameters: Parameters) -> Topic:
        return find_topic(self._ground, parameters)


def find_topic(ground: Ground, parameters: Parameters) -> Topic:
    """The topic, if it is the one that is meant."""
    name = parameters.get("topic")
    if name is None:
        raise HttpError(400, "MISSING_ARG_TOPIC")
    topic = ground.broker.topics.get(name)
    if topic is None:
        raise HttpError(404, "TOPIC_NOT_FOUND")
    identity = parameters.get("identity")
    if identity and identity != topic.identity:
        raise HttpError(409, "IDENTITY_CHANGED", details={"identity": topic.identity})
    return topic


def _reader(topic: Topic, parameters: Parameters, default: int | None = 0) -> TopicReader:
    """Of the partition that is named."""
    partition = _number(parameters, "partition", default)
    if not topic.leads(partition):
        raise HttpError(404, "PARTITION_NOT_FOUND")
    return TopicReader(topic, partition)


def _stretch(reader: TopicReader, from_offset: int) -> Stretch | None:
    try:
        return reader.stretch(from_offset)
    except PenstockError as error:
        raise refusal(error) from error


def _range_headers(topic: Topic, base_offset: int, next_offset: int) -> tuple[tuple[str, str], ...]:
    return (
        ("X-Penstock-Identity", topic.identity),
        ("X-Penstock-Base-Offset", str(base_offset)),
        ("X-Penstock-Next-Offset", str(next_offset)),
        *NSQ_HEADER,
    )


def refusal(error: PenstockError) -> HttpError:
    """The answer to a read that cannot be done."""
    if isinstance(error, OffsetGone):
        return HttpError(410, "OFFSET_GONE", details={"earliest": error.edge})
    if isinstance(error, OffsetBeyondEnd):
        return HttpError(416, "OFFSET_BEYOND_END", details={"end": error.edge})
    if isinstance(error, LogDamaged):
        hurt = {"from": error.from_offset, "to": error.to_offset}
        return HttpError(422, "LOG_DAMAGED", details=hurt)
    if isinstance(error, NotFound):
        return HttpError(404, f"{error.kind.upper()}_NOT_FOUND")
    reason = error.reason if isinstance(error, StorageError) else str(error)
    return HttpError(503, f"FAILED {reason}")


def told(work: Generator[None, None, _Result]) -> Generator[None, None, _Result]:
    """The same work, with what it raises as the answer of a route."""
    try:
        return (yield from work)
    except HttpError:
        raise
    except PenstockError as error:
        raise refusal(error) from error


def _number(parameters: Parameters, name: str, default: int | None = None) -> int:
    text = parameters.get(name, "")
    if not text:
        if default is None:
            raise HttpError(400, f"MISSING_ARG_{name.upper()}")
        return default
    number = whole_number(text, OFFSET_MAX)
    if number is None:
        rule = f"a whole number, 0 to {OFFSET_MAX}"
        raise HttpError(400, f"INVALID_ARG_{name.upper()} {text[:300]!r}: {rule}")
    return number


def _matcher(text: str) -> Callable[[str], bool]:
    """Penstock's own topics are for those who ask for them: by name, or by a pattern that begins as
    their names do."""
    matches, own_too = _pattern(text).matches, text.startswith("_")
    return lambda name: (own_too or not is_internal(name)) and matches(name)


def _pattern(text: str) -> Pattern:
    """It has to fit the whole name."""
    try:
        return Pattern(f"^(?:{text})$")
    except PatternInvalid as error:
        raise HttpError(400, f"INVALID_ARG_PATTERN {text!r}: {error}") from error


def _froms(pairs: Sequence[tuple[str, str]]) -> dict[str, dict[int, int]]:
    """Each `from` is an offset of the topic that is named before it: of its first partition, or
    after the number of another one. By topic and partition."""
    found: dict[str, dict[int, int]] = {}
    topic = ""
    for key, value in pairs:
        if key == "topic":
            topic = value
        elif key == "from":
            if not topic:
                raise HttpError(
                    400, "INVALID_ARG_FROM it follows the topic that it is an offset of"
                )
            partition, offset = _placed(value)
            found.setdefault(topic, {})[partition] = offset
    return found


def _placed(text: str) -> tuple[int, int]:
    """`offset`, or `partition:offset`."""
    before, colon, after = text.partition(":")
    partition = whole_number(before, limits.PARTITIONS_MAX - 1) if colon else 0
    if partition is None or (colon and not after):
        rule = f"partition:offset, with a partition 0 to {limits.PARTITIONS_MAX - 1}"
        raise HttpError(400, f"INVALID_ARG_FROM {text[:300]!r}: {rule}")
    return partition, _number({"from": after if colon else text}, "from")


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


def _search(topic: Topic, parameters: Parameters) -> Generator[None, None, tuple[int, Message]]:
    """The message, and the partition that has it."""
    given = [name for name in ("id", "offset", "trace_id") if parameters.get(name)]
    if len(given) != 1:
        raise HttpError(400, "MISSING_ARG_ID give one of id, offset, trace_id")
    if given == ["offset"]:
        only = 0 if topic.partition_count == 1 else None
        reader = _reader(topic, parameters, only)
        return reader.partition, reader.message(_number(parameters, "offset"))
    found = yield from _find(_readers(topic, parameters), parameters)
    if found is None:
        raise HttpError(404, "MESSAGE_NOT_FOUND")
    return found.partition, TopicReader(topic, found.partition).message(found.offset)


def _find(
    readers: Sequence[TopicReader], parameters: Parameters
) -> Generator[None, None, Found | None]:
    if parameters.get("id"):
        return (yield from find_id(readers, message_id(parameters["id"])))
    text = parameters["trace_id"]
    trace_id = read_trace_id(text)
    if not trace_id:
        raise HttpError(400, f"INVALID_ARG_TRACE_ID {text[:300]!r}: {RULE}")
    return (yield from find_value(readers, Section.TRACE, trace_id))


def _readers(topic: Topic, parameters: Parameters) -> list[TopicReader]:
    """Of the partition that is named, or of all."""
    if parameters.get("partition", ANY) not in ("", ANY):
        return [_reader(topic, parameters)]
    return [TopicReader(topic, leader.number) for leader in topic.leaders]


def message_id(text: str) -> int:
    try:
        if len(text) != _ID_DIGITS or not text.isalnum():
            raise ValueError
        return int(text, 16)
    except ValueError:
        rule = f"{_ID_DIGITS} hex digits"
        raise HttpError(400, f"INVALID_ARG_ID {text!r}: {rule}") from None


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
    """None for what is not text: the other form says what it is."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
