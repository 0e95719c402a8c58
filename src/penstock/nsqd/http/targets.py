"""The parameters of a publish over HTTP: partition or key, delay, producer and sequence, and
headers (docs/http.md, docs/headers.md).

Half of a stamp is refused, not taken as an ordinary publish. Producers that number their messages
have a partition of their own, by which nsqd knows a repeat: they may name no other.

A header of the request wins over a member of `ext` with its name; without such headers `ext` is
stored as it came. On topics that have headers a `traceparent` of a request becomes one of what it
publishes: a service whose requests carry one, as OpenTelemetry's instruments do, need do nothing
for it. A publisher's own header of that name wins. What is no `traceparent` means nothing, as the
W3C has it, and is left out.
"""

import json
from typing import NamedTuple

from penstock import limits
from penstock.broker.partition.appends import Sections
from penstock.broker.partition.idempotent import SEQUENCE_END_MAX, Stamp
from penstock.broker.topics.publishing import ANY
from penstock.broker.topics.topic import Topic
from penstock.errors import PartitionUnknown
from penstock.kernel import Headers, Section, parse_headers
from penstock.kernel.traceparent import MEMBER, parse_traceparent
from penstock.net.api import HttpError, Parameters
from penstock.net.exchange import Request
from penstock.net.query import whole_number
from penstock.nsqd.http.arguments import bad_partition, invalid, missing, not_of, read_argument
from penstock.nsqd.http.deps import Deps

_STAMP = frozenset(("producer_id", "producer_epoch", "sequence"))
_ID_MAX = (1 << 64) - 1
_DELAY_DIGITS_MAX = 19  # more would not fit a 64-bit number
_PREFIX = b"x-nsqext-"
_SHOWN_BYTES = 100
_TRACEPARENT = MEMBER.encode()


class Joined(NamedTuple):
    headers: bytes  # their JSON
    context_id: int  # the message's trace id; 0: none


class PublishTarget(NamedTuple):
    partition: int = ANY
    sections: Sections | None = None  # of each message


ANYWHERE = PublishTarget()


def target_of(topic: Topic, parameters: Parameters) -> PublishTarget:
    """Raises HttpError."""
    partition = partition_of(topic, parameters)
    key = parameters.get("key")
    if key is None:
        if not is_stamped(parameters):
            check_partition(topic, partition)
        return PublishTarget(partition) if partition != ANY else ANYWHERE
    if "partition" in parameters:
        raise invalid("key", key, "a publish names a key or a partition, not both")
    if is_stamped(parameters):
        raise own_partition(key)
    return _keyed(topic, key)


def check_partition(topic: Topic, partition: int) -> None:
    """Raises HttpError: in an ordered topic a publish names its partition or key."""
    if partition == ANY and topic.needs_partition:
        raise bad_partition("", "a publish to this topic needs a partition or a key")


def partition_of(topic: Topic, parameters: Parameters) -> int:
    text = parameters.get("partition")
    if text is None:
        return ANY
    number = read_argument(text)
    if number == ANY:
        return ANY
    try:
        leader = topic.partition(number)
    except PartitionUnknown as error:
        raise not_of(topic, number) from error
    if is_stamped(parameters):
        own = topic.stamped_leader(stamp_of(parameters).producer_id)
        if own is not leader:
            raise bad_partition(number, f"this producer publishes to partition {own.number}")
    return number


def _keyed(topic: Topic, text: str) -> PublishTarget:
    try:
        key = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise invalid("key", text, "it is no UTF-8") from error
    headers = _encoded({"key": text})
    if not key or len(headers) > limits.HEADERS_BYTES_MAX:
        raise invalid("key", text, f"1 byte to {limits.HEADERS_BYTES_MAX} of them as JSON")
    sections: dict[int, int | bytes] = {Section.KEY: key}
    if topic.extended:
        sections[Section.HEADERS] = headers
    return PublishTarget(topic.partition_of_key(key), sections)


def own_partition(key: str) -> HttpError:
    return invalid("key", key, "a producer that numbers its messages has a partition of its own")


# --- numbers ---


def due_ns_of(deps: Deps, parameters: Parameters) -> int:
    """`defer` is in milliseconds; 0: at once. Raises HttpError."""
    if "defer" not in parameters:
        return 0
    text = parameters["defer"]
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _DELAY_DIGITS_MAX):
        raise HttpError(400, "INVALID_DEFER")
    delay_ns = int(text) * limits.MS
    if not 0 <= delay_ns <= deps.options.max_req_timeout_ns:
        raise HttpError(400, "INVALID_DEFER")
    return deps.clock.wall_ns() + delay_ns if delay_ns else 0


def is_stamped(parameters: Parameters) -> bool:
    return not _STAMP.isdisjoint(parameters)


def stamp_of(parameters: Parameters) -> Stamp:
    producer_id = _number(parameters, "producer_id", 1, _ID_MAX)
    sequence = _number(parameters, "sequence", 0, SEQUENCE_END_MAX - 1)
    epoch = 0
    if "producer_epoch" in parameters:
        epoch = _number(parameters, "producer_epoch", 0, (1 << 16) - 1)
    return Stamp(producer_id, epoch, sequence)


def trace_id_of(parameters: Parameters) -> int:
    trace_id = whole_number(parameters.get("trace_id", ""), _ID_MAX)
    if trace_id is None:
        raise HttpError(400, "INVALID_TRACE_ID")
    return trace_id


def _number(parameters: Parameters, name: str, least: int, most: int) -> int:
    text = parameters.get(name)
    if text is None:
        raise missing(name)
    number = whole_number(text, most)
    if number is None or number < least:
        raise HttpError(400, f"INVALID_{name.upper()}")
    return number


# --- headers ---


def headers_of(request: Request, parameters: Parameters) -> tuple[bytes, Headers]:
    """The JSON, and its contents. Raises HttpError."""
    own = _own(request)
    if "ext" not in parameters and not own:
        raise HttpError(400, "MISSING_ARG_EXT")
    data = parameters.get("ext", "{}").encode("utf-8", "surrogateescape")
    found = _checked(data)
    if own:
        data = _encoded({**json.loads(data), **own})
        found = _checked(data)
    return data, found


def _checked(data: bytes) -> Headers:
    if len(data) > limits.HEADERS_BYTES_MAX:
        raise _wrong(f"{len(data)} bytes of JSON are more than {limits.HEADERS_BYTES_MAX}")
    found = parse_headers(data)
    if found.wrong_at >= 0:
        raise _wrong(f"ext is no flat object of strings from byte {found.wrong_at} on")
    return found


def _own(request: Request) -> dict[str, str]:
    """The members given by headers of the request."""
    own: dict[str, str] = {}
    for name, value in request.headers(_PREFIX):
        if not name:
            raise _wrong("X-Nsqext- has no name behind the dash")
        member = name.decode("ascii")
        if member in own:
            raise _wrong_header(member, value, "it is there twice")
        try:
            own[member] = value.decode("utf-8")
        except UnicodeDecodeError as error:
            raise _wrong_header(member, value, "it is no UTF-8") from error
        if parse_headers(_encoded({member: own[member]})).wrong_at >= 0:
            raise _wrong_header(member, value, "it is no decimal number of 64 bits")
    return own


def _encoded(members: dict[str, str]) -> bytes:
    return json.dumps(members, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


def _wrong(rule: str) -> HttpError:
    return HttpError(400, f"E_INVALID_JSON_HEADER {rule}")


def _wrong_header(member: str, value: bytes, rule: str) -> HttpError:
    shown = repr(value[:_SHOWN_BYTES])[1:]  # without the b
    return _wrong(f"X-Nsqext-{member} {shown}: {rule}")


# --- trace contexts ---


def joined(request: Request, headers: bytes) -> Joined | None:
    """The headers with the trace context of the request; None where it has none, where they have
    one already, and where they have no room for it."""
    value = request.header(_TRACEPARENT)
    context = parse_traceparent(value) if value is not None else None
    if value is None or context is None:
        return None
    members = json.loads(headers)
    if MEMBER in members:
        return None
    members[MEMBER] = value.decode("latin-1")
    data = _encoded(members)
    if len(data) > limits.HEADERS_BYTES_MAX:
        return None
    return Joined(data, context.context_id)


def with_context(request: Request, sections: Sections | None) -> Sections | None:
    """The same for the trailer's entries of a message."""
    given = sections or {}
    headers = given.get(Section.HEADERS, b"{}")
    found = joined(request, headers) if isinstance(headers, bytes) else None
    if found is None:
        return sections
    more: dict[int, int | bytes] = {**given, Section.HEADERS: found.headers}
    if found.context_id:
        more[Section.TRACE] = found.context_id
    return more
