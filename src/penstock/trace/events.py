"""The events of the internal topic `_trace`: how a message body of it is laid out.

A body is one chunk of what happened in a daemon, oldest first. It opens with a table of the names
that occur in it (topics, channels, clients); then come events of 48 bytes each, which name them by
number. docs/formats.md has the bytes.

    header 16 | name lengths u16 x names | names, UTF-8, end to end | zeros up to 8 | records

A record is one event. But the same thing often happens at one time to messages that lie one behind
the other: all of that is one record, a run, with the first message's id and offset and their count.
Readers see no runs: what they get is one event for each message (`kernel/codec/traceruns.py`).

So an event costs next to nothing where it happens, and a reader may take the records of a whole
chunk, with no object for an event: `decode_records` for tables, `decode` for people, `find` for one
message among many.

What the columns of an event mean:

- `time_ns`: the wall clock. Of `published`: the time of the batch, which is the message's own
  timestamp but for dead letters and replays.
- `message_id`, `offset`: of the message in its topic's log. `count` is 1, but where a whole range
  [offset, offset + count) of a channel met the same fate at once (`skipped`, `emptied`, `corrupt`):
  then `message_id` is 0, and readers match by topic, channel, partition and offset. (In a record
  with an id it is the length of the run.) `started` and `switched` are about no message at all.
- `trace_id`: 0 when the message has none.
- `channel`: none for what happens to the topic itself, which is `published`.
- `attempts`: deliveries so far, this one included.
- `client`: the consumer, or the publisher of `published`; none when nobody did it.

An event of a kind that this version does not know is an error of the whole body: a number without
a name would be counted as something else.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import TraceBroken
from penstock.kernel import expand_events, pick_events
from penstock.kernel.layout import TRACE_RECORD
from penstock.limits import TRACE_CHUNK_EVENTS

if TYPE_CHECKING:
    from typing_extensions import Buffer

TOPIC = "_trace"  # where the bodies are
MAGIC = 0x31545350  # "PST1"
VERSION = 2
VERSIONS = (1, VERSION)  # 1 had no runs
EVENT_BYTES = TRACE_RECORD.size
NAMES_MAX = 0xFFFF  # number 0 is "none"
NAME_BYTES_MAX = 512  # clients choose their own; what is longer is cut
_HEAD = struct.Struct("<IHHII")  # magic, version, bytes of an event, names, events
_NAMED = (18, 19, 20)  # where a record has the numbers of topic, channel and client, in two bytes
_KIND_AT = 46


class Kind(IntEnum):
    """The kinds of events. `label` is the name in tables and on screens."""

    PUBLISHED = 1  # stored as safe as the topic asks
    SENT = 2
    FINISHED = 3
    REQUEUED = 4  # by its consumer, whatever the delay
    TIMED_OUT = 5
    TOUCHED = 6
    DELAYED = 7  # begins a wait: published with one, or requeued with one
    RELEASED = 8  # the wait is over
    DEAD_LETTERED = 9  # stored in the dead-letter topic, done here
    SKIPPED = 10  # never to be sent (again): too old, its channel skipped or ephemeral, or auto-ack
    FILTERED = 11  # by the sample rate of a consumer; done here
    DISCONNECTED = 12  # its consumer left; it comes again when its time is up
    EMPTIED = 13  # by an operator: emptied, or the cursor was set
    STARTED = 14  # the daemon: what was out with consumers comes again
    SWITCHED = 15  # the trace rate of a topic or channel; `count` has it, in billionths
    CORRUPT = 16  # never to be sent (again): its bytes in the log can't be read, so it is lost

    @property
    def label(self) -> str:
        return self.name.lower()


ABOUT_NO_MESSAGE = frozenset((Kind.STARTED, Kind.SWITCHED))
RATE_ALL = 1_000_000_000  # `count` of SWITCHED when all is traced
_KINDS = frozenset(map(int, Kind))
KIND_LABELS: tuple[str, ...] = ("", *(kind.label for kind in Kind))  # by number


class Event(NamedTuple):
    kind: Kind
    time_ns: int
    topic: str
    channel: str | None
    partition: int
    offset: int
    message_id: int
    attempts: int = 0
    client: str | None = None
    trace_id: int = 0
    count: int = 1  # type: ignore[assignment]  # hides tuple.count, which nobody needs here


def encode(events: Iterable[Event]) -> bytes:
    """Encode one body. The daemon's own bodies come from the kernel's records; this is for its
    other events, and for tests. An event with a message id and a count above 1 becomes a run."""
    numbers: dict[str, int] = {}

    def number(name: str | None) -> int:
        return numbers.setdefault(name, len(numbers) + 1) if name else 0

    records = b"".join(
        TRACE_RECORD.pack(
            event.time_ns,
            event.message_id,
            event.offset,
            event.trace_id,
            event.count,
            number(event.topic),
            number(event.channel),
            number(event.client),
            event.attempts,
            event.partition,
            event.kind,
            0,
        )
        for event in events
    )
    return b"".join(parts_of(list(numbers), records))


def parts_of(names: Sequence[str], records: Buffer) -> list[Buffer]:
    """A body of encoded events, without a copy of them: the bytes before them, and the events. Name
    1 is the first of `names`."""
    texts = [name.encode("utf-8", "replace")[:NAME_BYTES_MAX] for name in names]
    body = memoryview(records)
    if len(texts) > NAMES_MAX or len(body) % EVENT_BYTES:
        raise ValueError(f"{len(texts)} names and {len(body)} bytes of events make no body")
    head = _HEAD.pack(MAGIC, VERSION, EVENT_BYTES, len(texts), len(body) // EVENT_BYTES)
    lengths = struct.pack(f"<{len(texts)}H", *map(len, texts))
    table = b"".join([head, lengths, *texts])
    return [table + bytes(-len(table) % 8), body]


def _open(body: Buffer) -> tuple[list[str], memoryview]:
    """The names and the records. Raises TraceBroken."""
    data = memoryview(body).cast("B")
    if len(data) < _HEAD.size:
        raise TraceBroken(f"{len(data)} bytes are too few")
    magic, version, event_bytes, name_count, event_count = _HEAD.unpack_from(data, 0)
    if magic != MAGIC:
        raise TraceBroken(f"it begins with {bytes(data[:4])!r}")
    if version not in VERSIONS or event_bytes != EVENT_BYTES:
        raise TraceBroken(f"version {version}, events of {event_bytes} bytes")
    position = _HEAD.size + 2 * name_count
    if name_count > NAMES_MAX or position > len(data):
        raise TraceBroken(f"{name_count} names do not fit it")
    names = [""]
    for length in struct.unpack_from(f"<{name_count}H", data, _HEAD.size):
        names.append(bytes(data[position : position + length]).decode("utf-8", "replace"))
        position += length
    position += -position % 8
    if len(data) != position + event_count * EVENT_BYTES:
        raise TraceBroken(f"{event_count} events do not fill its {len(data)} bytes")
    return names, data[position:]


def decode_records(body: Buffer) -> tuple[list[str], memoryview]:
    """The names, of which the first is "", and the records, one for each event. Raises
    TraceBroken."""
    names, records = _open(body)
    try:
        return names, _checked(names, expand_events(records, TRACE_CHUNK_EVENTS))
    except ValueError as error:
        raise TraceBroken(str(error)) from error


def _checked(names: list[str], singles: Buffer) -> memoryview:
    """What stands for something in these records does."""
    events = memoryview(singles).cast("B")
    halves = events.cast("H")
    numbers = b"".join(bytes(halves[at :: EVENT_BYTES // 2]) for at in _NAMED)
    unknown = set(bytes(events[_KIND_AT::EVENT_BYTES])) - _KINDS
    if unknown:
        raise TraceBroken(f"events of kind {min(unknown)}, which is not known")
    if numbers and max(memoryview(numbers).cast("H")) >= len(names):
        raise TraceBroken("an event names what is not in the table")
    return events


def decode(body: Buffer) -> list[Event]:
    """Raises TraceBroken."""
    return list(_events(*decode_records(body)))


def _events(names: list[str], records: Buffer) -> Iterator[Event]:
    for record in TRACE_RECORD.iter_unpack(records):
        time_ns, id, offset, trace_id, count, topic, channel, client, *rest = record
        attempts, partition, kind, _ = rest
        yield Event(
            Kind(kind), time_ns, names[topic], names[channel] or None, partition, offset, id,
            attempts, names[client] or None, trace_id, count,
        )  # fmt: skip


def find(body: Buffer, message_id: int = 0, trace_id: int = 0) -> Iterator[Event]:
    """The events of one message, or of all with one trace id (0: none), and no others. Other events
    cost next to nothing. Ranges without an id do not match. Raises TraceBroken."""
    if message_id or trace_id:
        yield from _pick(body, message_id, trace_id)


def ranges(body: Buffer) -> Iterator[Event]:
    """The events about a whole range of offsets. Raises TraceBroken."""
    for event in _pick(body, 0, 0):
        if event.kind not in ABOUT_NO_MESSAGE:
            yield event


def _pick(body: Buffer, message_id: int, trace_id: int) -> Iterator[Event]:
    names, records = _open(body)
    try:
        picked = pick_events(records, message_id, trace_id, TRACE_CHUNK_EVENTS)
    except ValueError as error:
        raise TraceBroken(str(error)) from error
    yield from _events(names, _checked(names, picked))
