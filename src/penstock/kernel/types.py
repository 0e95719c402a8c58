"""Values that the kernel takes and returns: events and verbs, records, headers and columns.

The compiled kernel has the same numbers in enums of its own; tests/kernel/test_contract.py holds
them against each other.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

# --- commands and events ---


class Verb(IntEnum):
    """The publishing verbs, as they stand in events."""

    PUB = 1
    MPUB = 2
    DPUB = 3
    PUB_EXT = 4
    MPUB_EXT = 5


class Event(IntEnum):
    """The kinds of event; each is a tuple whose first member is one of these.

    "halts" means: no further byte of this connection is looked at until `resume`, `read_body` or
    `close_after_flush` is called on it.
    """

    LINE = 1  # (LINE, conn, params: list[bytes])           a command for Python; halts
    BODY = 2  # (BODY, conn, body: bytes)                   what read_body asked for; halts
    BODY_SIZE = 3  # (BODY_SIZE, conn, size: int)                announced size refused; halts
    BAD_PUB = 4  # (BAD_PUB, conn, verb, BadPub, topic, a: int, b: int)  halts; for PARTITION
    #              the word that names it stands in place of the topic
    TOPIC = 5  # (TOPIC, conn, verb, topic: bytes)           valid, but no tail yet; halts
    REFUSED = 6  # (REFUSED, conn, verb, tail, count: int)     the tail takes none, or not so many;
    #              halts, and `resume` reads the same command anew
    PUB_FAILED = 7  # (PUB_FAILED, conn, verb, tail, unknown)     its batch failed; halts
    FIN_FAILED = 8  # (FIN_FAILED, conn, id: bytes, Held)         not its own; halts
    NEED = 9  # (NEED, window, which: int, offset: int)     load a block, flush again
    BAD_MAGIC = 10  # (BAD_MAGIC, conn, magic: bytes)             halts
    CLOSED = 11  # (CLOSED, conn, reason: str)                 gone; the engine closed the fd
    CUT = 12  # (CUT, conn, verb, Cut, index: int)          its stream ended within a command; halts
    TRACED = 13  # (TRACED, conn, verb, tail, headers: bytes, key: bytes | None, trace_id: int,
    #              body: bytes): a PUB_EXT whose answer says where the message lies; it is found
    #              right, and not appended. `headers` is empty on a topic that keeps none; halts
    SPREAD_REFUSED = 14  # (SPREAD_REFUSED, conn, verb, [(tail, count), ...]): as REFUSED, of an
    #                      MPUB_EXT whose keys are of several partitions; one of them refuses
    CROWDED = 15  # (CROWDED, conn, verb, tail, length: int)  the open batch is full, and too many
    #               bytes wait for room already: these may not; halts


class BadPub(IntEnum):
    """Why a publish is malformed. `a` and `b` are the numbers in the error text. Texts about PUB
    hold for PUB_EXT too, those about MPUB for MPUB_EXT."""

    TOPIC_NAME = 1
    SIZE_INVALID = 2  # PUB: size <= 0 (a = size)
    SIZE_TOO_BIG = 3  # PUB: a = size, b = limit
    BODY_INVALID = 4  # MPUB total <= 0 (a)
    BODY_TOO_BIG = 5  # MPUB total > limit (a, b)
    COUNT_INVALID = 6  # MPUB count out of range (a)
    MESSAGE_INVALID = 7  # MPUB message: a = index, b = size
    MESSAGE_TOO_BIG = 8  # MPUB message: a = size, b = limit
    PARAMS = 9  # no topic given
    PARTITION = 10  # of the topic there is none with that number; in place of the topic stands the
    #                 word, as the client wrote it
    HEADER_SIZE = 11  # headers longer than their message: a = index, b = size of the headers
    HEADER_INVALID = 12  # a = index, b = position of the first byte that cannot be
    HEADER_REFUSED = 13  # right, but the topic is not extended. The command is used up: the
    #                      connection can go on


class Cut(IntEnum):
    """The incomplete part of a command when a client ended its stream. The verb is 0 for a body
    that Python requested."""

    SIZE = 1  # of the body; MPUB: the total
    BODY = 2
    COUNT = 3  # MPUB: of the messages
    MESSAGE_SIZE = 4  # MPUB: of message `index`
    MESSAGE = 5  # MPUB: message `index`


class Pack(IntEnum):
    """The number of messages in one body."""

    FRAMED = 1  # a 4-byte count, then each message behind its 4-byte size (big-endian)
    LINES = 2  # one a line; empty lines are none, and the last needs no newline


BAD_COUNT = -1  # what `Tail.count_pack` says of a pack whose count is missing or out of range
BAD_MESSAGE = -2  # and of one with a message that is empty, too big, or cut short

# --- channels ---


class Held(IntEnum):
    """The answer of finish, requeue and touch."""

    DONE = 0
    NOT_IN_FLIGHT = 1
    NOT_OWNER = 2


class Stray(IntEnum):
    """States of a message that lives outside its window."""

    WAITING = 1
    DELAYED = 2
    IN_FLIGHT = 3
    EXHAUSTED = 5  # has used its attempts; in the journal it is WAITING
    BEHIND = 6  # put aside until those before it in the order are done; in the journal WAITING


class Order(IntEnum):
    """The order in which a window sends its messages."""

    NONE = 0
    KEY = 1  # one message of a key after the other; those without a key have no order
    STRICT = 2  # one message after the other


class Cause(IntEnum):
    """The end of a message's last attempt. In memory only: after a restart it is UNKNOWN."""

    UNKNOWN = 0
    TIMED_OUT = 1
    REQUEUED = 2
    DISCONNECTED = 3  # timed out, and its consumer had gone


class Locality(IntEnum):
    """The locality of a consumer, for windows that prefer near ones. UNKNOWN: not set."""

    UNKNOWN = 0
    GLOBAL = 1
    REGION = 2
    ZONE = 3


class Source(IntEnum):
    """Which of a window's two blocks a NEED is about."""

    FORWARD = 0
    STRAY = 1


class StrayRecord(NamedTuple):
    offset: int
    id: int
    attempts: int
    state: int  # Stray
    due_ns: int
    cause: int = 0  # Cause; of what is exhausted


# --- filters ---


class Rule(NamedTuple):
    name: bytes  # of the header, in UTF-8
    value: bytes = b""  # which it is to have
    matches: Callable[[str], bool] | None = None


class Filter(NamedTuple):
    rules: tuple[Rule, ...]  # one at least
    every: bool = False  # are all to match? Else one is enough
    inverse: bool = False  # what does not match passes


# --- traces ---


class TraceKind(IntEnum):
    """The kind of an event of a message."""

    PUBLISHED = 1
    SENT = 2
    FINISHED = 3
    REQUEUED = 4
    TIMED_OUT = 5
    TOUCHED = 6
    DELAYED = 7
    RELEASED = 8
    DEAD_LETTERED = 9
    SKIPPED = 10
    FILTERED = 11
    DISCONNECTED = 12
    EMPTIED = 13
    CORRUPT = 16  # 14 and 15 are about no message, and not of the kernel


TRACE_ALL = (1 << 64) - 1  # of `trace_below`: every message

# --- batches ---


class BatchHeader(NamedTuple):
    """The fixed header of `docs/formats.md`, without magic and crc."""

    length: int
    flags: int
    producer_epoch: int
    base_offset: int
    base_id: int
    timestamp_ns: int
    synced_end: int
    producer_id: int
    first_sequence: int
    leader_epoch: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs here
    bodies_length: int


class Section(IntEnum):
    """The known sections of a batch's trailer. Below 64 integers, from 64 bytes."""

    TIMESTAMP = 1
    ID = 2
    DUE = 3
    ATTEMPTS = 4
    TRACE = 5
    KEY = 64
    HEADERS = 65


class BatchCheck(IntEnum):
    """The result of a check at a position of a segment."""

    INTACT = 0
    SHORT = 1  # the buffer ends before the batch does
    NO_MAGIC = 2  # not a batch at all (zeros, or foreign bytes)
    BAD_FIELDS = 3  # magic, but impossible numbers
    BAD_CRC = 4


class Values(NamedTuple):
    """The values of messages in a section of bytes: a binary column in Arrow's layout, with
    nulls."""

    present: bytearray  # a bit for each message, the lowest first
    offsets: bytearray  # i64 x (count + 1)
    values: bytearray


class Columns(NamedTuple):
    """Arrow layout: fixed-width columns as contiguous little-endian buffers, a binary column as i64
    value offsets (count + 1 of them) and the bodies end to end."""

    count: int  # type: ignore[assignment]  # as above
    offsets: bytearray  # i64: message offset
    timestamps: bytearray  # i64: nanoseconds
    ids: bytearray  # u64
    attempts: bytearray  # u16: 0 unless carried in
    body_offsets: bytearray  # i64 x (count + 1): LargeBinary
    bodies: bytearray
    sections: tuple[Values | None, ...] = ()  # as asked for; None: no message has that one


class Headers(NamedTuple):
    """The parsed JSON headers of a message."""

    wrong_at: int  # the first byte that cannot be; -1: they are right, and the rest says more
    key: bytes | None
    trace_id: int | None
    has_others: bool  # members that only an extended topic keeps
    context_id: int = 0  # of a `traceparent` whose caller records it (`traceparent.py`); 0: none


# --- bulk data ---


class BulkStatus(IntEnum):
    DONE = 0
    CORRUPT = 1  # what stands at `start` is not an intact batch
    FAILED = 2  # `error` says why


class BulkResult(NamedTuple):
    """The outcome of a job of `Bulk`."""

    token: int
    status: BulkStatus
    error: int  # an errno
    start: int  # in the file
    end: int
    base_offset: int  # check: of the first batch
    next_offset: int  # check: after the last one
    data: bytes  # read
