"""What the kernel is: the one typed interface behind which its two forms stand.

The kernel owns the hot verbs (PUB, MPUB, PUB_EXT, MPUB_EXT, RDY, FIN) from socket bytes to batch
bytes and back, and delivery, in whole buffers. Nothing in it makes a Python object per message.
Everything else (IDENTIFY, SUB, REQ, TOUCH, DPUB, CLS, AUTH, every error) comes out as an `Event`
for Python to decide, and goes back in as a call. It does no file I/O and reads no clock: the shell
writes what `Tail.seal` returns, loads what an `Event.NEED` asks for, and passes the time in.
(`Bulk`, in `bulk_interface.py`, stands apart: a thread that serves readers of the log from their
files.)

One turn of the loop, as `net/order.py` drives it:

    events = engine.poll(mono_ns)          # epoll, recv, parse, append to open batches, FIN, RDY
    for each event: decide, answer, resume
    for tail in engine.dirty_tails():      # open batch not empty, and room for a sealed one
        seal, write, and (durability `os`) commit; (durability `disk`) hand to a sync thread
    events = engine.flush(mono_ns, wall_ns)  # settle OKs, deliver, send
    for each event: load the blocks that windows need, flush again
    for window in engine.dirty_windows():  # changes for the channel journal
        window.take_journal()

Times: `mono_ns` is the monotonic clock (message timeouts), `wall_ns` the wall clock (timestamps,
due times of delayed messages, which must survive a restart).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from penstock.kernel.conn_interface import Conn as Conn
from penstock.kernel.search_interface import Searched, Searches
from penstock.kernel.tail_interface import Tail
from penstock.kernel.trace_interface import Noted, TraceKind

if TYPE_CHECKING:
    from typing_extensions import Buffer


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
    PUB_FAILED = 7  # (PUB_FAILED, conn, verb, tail)              its batch failed; halts
    FIN_FAILED = 8  # (FIN_FAILED, conn, id: bytes, Held)         not halting: the soft error
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
    """Why a publish is malformed. `a` and `b` are the numbers that the error text names. What is
    said of PUB holds for PUB_EXT too, and what is said of MPUB for MPUB_EXT."""

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
    """What a client still owed of a command when it ended its stream. The verb is 0 for a body that
    Python asked for."""

    SIZE = 1  # of the body; MPUB: the total
    BODY = 2
    COUNT = 3  # MPUB: of the messages
    MESSAGE_SIZE = 4  # MPUB: of message `index`
    MESSAGE = 5  # MPUB: message `index`


class Pack(IntEnum):
    """How many messages stand in one body."""

    FRAMED = 1  # a 4-byte count, then each message behind its 4-byte size (big-endian)
    LINES = 2  # one a line; empty lines are none, and the last needs no newline


BAD_COUNT = -1  # what `Tail.count_pack` says of a pack whose count is missing or out of range
BAD_MESSAGE = -2  # and of one with a message that is empty, too big, or cut short


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
    """In which order a window sends what it has."""

    NONE = 0
    KEY = 1  # one message of a key after the other; those without a key have no order
    STRICT = 2  # one message after the other


class Cause(IntEnum):
    """How the last attempt of a message ended. In memory only: after a restart it is UNKNOWN."""

    UNKNOWN = 0
    TIMED_OUT = 1
    REQUEUED = 2
    DISCONNECTED = 3  # timed out, and its consumer had gone


class Locality(IntEnum):
    """How near a consumer is, for windows that prefer near ones. UNKNOWN: nobody asked to know."""

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


class Window(Searched, Protocol):
    """One channel on one partition: cursor, messages in flight, strays, deadlines.

    First deliveries live in a ring indexed by offset over [low, next). A message that leaves the
    common path (timed out, requeued, delayed, touched, held so long that the ring would grow past
    its bound) is a stray, kept in a table by id, and `low` moves on without it.

    A delayed message becomes a stray when it is handed to the channel, wherever the cursor stands.
    Those that are in the log alone are looked for there (`search_interface.py`). Beyond
    `parked_max` they are counted, and become strays when there is room or the cursor meets them.

    While a consumer is nearer than GLOBAL, what there is goes to the nearest consumers with room
    first. The others get what is left: it is a preference, and nobody is shut out.
    """

    @property
    def tail(self) -> Tail: ...

    owner: Any
    paused: bool

    @property
    def low(self) -> int: ...
    @property
    def next(self) -> int: ...
    @property
    def depth(self) -> int: ...  # handed_end - next + strays waiting or behind, not delayed
    @property
    def in_flight(self) -> int: ...
    @property
    def delayed(self) -> int: ...

    # May be set at any time. What comes back comes before all that is behind it. What is delayed
    # and was never sent has no order until it is due.
    order: int  # Order

    aside_max: int  # beyond so many messages put aside the cursor waits

    @property
    def behind(self) -> int: ...  # messages put aside; part of the depth

    attempts_max: int  # a message that was sent so often is not sent again; 0: no bound

    @property
    def exhausted(self) -> int: ...  # messages that have used their attempts and are not settled

    allowance: int  # bytes of frames to be sent; at 0 or below nothing is. ALLOWANCE_ALL: no bound

    # What was sent more often, and is older, is done instead of being sent again.
    auto_ack_attempts: int  # 0: off
    auto_ack_age_ns: int  # from its timestamp on, wall

    @property
    def auto_ack_count(self) -> int: ...

    # Messages whose header `zan_test` is true are left out at a consumer's turn, as by its filter.
    skips_tests: bool

    measures_latency: bool  # off at first; to be set before anything is delivered
    trace_below: int  # the sample of this channel's messages that is traced, as of a tail

    # lowest offset still wanted (low or the lowest stray): retention's bound
    @property
    def floor(self) -> int: ...
    @property
    def timeout_count(self) -> int: ...
    @property
    def requeue_count(self) -> int: ...
    @property
    def expired_count(self) -> int: ...  # by `outdate`
    @property
    def message_count(self) -> int: ...  # handed to this channel since start
    @property
    def finish_count(self) -> int: ...
    @property
    def zone_local_count(self) -> int: ...  # delivered to consumers of that Locality
    @property
    def region_local_count(self) -> int: ...
    @property
    def global_count(self) -> int: ...  # those whose locality is UNKNOWN included
    @property
    def consumers(self) -> int: ...
    @property
    def deadline_ns(self) -> int: ...  # lower bound of the next message timeout, mono (0: none)
    @property
    def due_ns(self) -> int: ...  # earliest due time among delayed, wall (0: none)
    @property
    def journal_dirty(self) -> bool: ...

    touch_max_ns: int  # max-msg-timeout, counted from delivery

    def finish(self, conn_serial: int, id: int) -> int: ...  # Held
    def requeue(self, conn_serial: int, id: int, delay_ns: int, wall_ns: int) -> int: ...  # Held
    def touch(self, conn_serial: int, id: int, mono_ns: int) -> int: ...  # Held
    def expire(self, mono_ns: int) -> int:
        """Messages whose deadline has passed become waiting strays. Returns how many."""
        ...

    def release(self, wall_ns: int) -> int:
        """Delayed strays that are due become waiting. Returns how many."""
        ...

    def take_latencies(self) -> dict[int, int]:
        """How many messages took how long, from their timestamp to their FIN, since the last call:
        counts by bucket. Bucket 0 is all below 1,024 ns; then each power of two has 32 buckets of
        equal width; the last of the 1,345 has no end."""
        ...

    def take_exhausted(self, count_max: int) -> list[StrayRecord]:
        """Messages that have used their attempts, each once: to be put elsewhere, and settled. They
        come to be when one times out, is requeued, or its delay ends, and after a restart."""
        ...

    def settle_exhausted(self, id: int, done: bool) -> bool:
        """`done`: it is finished here. Else it is offered again, to `take_exhausted` or, when
        `attempts_max` was raised meanwhile, to a consumer. False: there is none of that id."""
        ...

    def load(self, which: int, block: Buffer) -> int:
        """Give a block of whole sound batches (the caller checked them with check_batch). The
        kernel keeps a reference. Returns the number of batches seen."""
        ...

    def skip(self, from_offset: int, to_offset: int, kind: int = TraceKind.SKIPPED) -> None:
        """Never deliver [from, to): damaged log, or an overflowing ephemeral channel. What lies
        at or above `next` is stepped over when the cursor gets there, and does not count as
        depth. `kind` is what the trace says of it; 0: nothing."""
        ...

    def outdate(self, offset: int) -> int:
        """What is below `offset` is too old to be sent: it is done, whether it was delivered
        before, waits, or is delayed. Only what is in flight stays so; when it comes back, it is
        dropped. Returns how many are gone now. Holds until `seek` or `empty`."""
        ...

    def lose(self, id: int) -> None:
        """Drop a stray whose bytes can't be read."""

    def lose_range(self, start: int, end: int, kind: int = TraceKind.SKIPPED) -> int:
        """Drop every stray of [start, end), which is noted as `kind`. Returns how many."""
        ...

    def empty(self) -> None:
        """Drop everything: the cursor moves to handed_end, in flight and strays are forgotten."""

    def seek(self, offset: int) -> None:
        """Set the cursor; in flight and strays are forgotten."""

    def take_journal(self) -> bytes:
        """Entries of the channel journal (docs/formats.md) since the last call."""
        ...

    def snapshot(self) -> bytes:
        """The whole state as journal entries."""
        ...

    def restore(
        self,
        low: int,
        next: int,
        finished: Sequence[tuple[int, int]],
        strays: Sequence[StrayRecord],
    ) -> None:
        """State from the journal. What is in [low, next), neither finished nor a stray, was in
        flight with one attempt: the cursor goes back to `low`, steps over what is done or a
        stray, and sends the rest up to the old `next` with attempts 2. A snapshot taken meanwhile
        says the old `next`."""
        ...

    def in_flight_records(self, count_max: int) -> list[tuple[int, int, int, int, int]]:
        """(offset, id, attempts, conn serial, deadline mono ns) for people to look at."""
        ...

    def stray_records(self, state: int, count_max: int) -> list[StrayRecord]:
        """Strays in one state, for people: the delayed ones by due time, others by offset."""
        ...

    def unfinished_below(self, offset: int) -> int: ...  # in flight, or strays

    def in_flight_of(self, conn_serial: int) -> int: ...  # a count; it looks at all

    def holder(self, id: int) -> int:
        """Serial of the connection that has this message in flight; 0: it is not in flight."""
        ...

    def settle_stray(self, id: int, due_ns: int) -> bool:
        """What waits or is delayed is done (`due_ns` below 0), is to be sent now (0), or when it is
        due. It counts as a FIN or a REQ does. False: there is none of that id."""
        ...

    def validate(self) -> None: ...


class Engine(Noted, Searches, Protocol):
    """All connections of one daemon, on an epoll of its own that the outer loop watches."""

    # work is left though no socket is ready: call the turn again at once
    @property
    def busy(self) -> bool: ...
    # when poll wants to be called next, mono (0: only on readiness)
    @property
    def deadline_ns(self) -> int: ...

    def __init__(
        self, message_bytes_max: int, body_bytes_max: int, rdy_count_max: int, *, seed: int = 0
    ) -> None:
        """`seed`, of 64 bits, decides what sampled consumers get: the same engine with the same
        input gives the same output."""
        ...

    def fileno(self) -> int: ...
    def open(self, fd: int) -> Conn:
        """Take over a connected, non-blocking socket (the engine closes it in the end)."""
        ...

    def open_detached(self) -> Conn:
        """A connection without a socket: somebody feeds it, and takes its output."""
        ...

    def detach(self, conn: Conn) -> tuple[int, bytes]:
        """Take a connection's socket away from the engine, in mid-stream (it must be halted). It
        lives on as a detached one. Returns the descriptor, which is now the caller's, and the
        input that was not looked at. What is still unsent is found by `take_output`."""
        ...

    def dirty_detached(self) -> list[Conn]:
        """Detached connections that have output to take, whose `reading` may have changed, or
        which have ended; each is named once until the next call. Ask after each flush."""
        ...

    def tail(
        self, topic: bytes, start_offset: int, memory_bytes_max: int, partition: int = 0
    ) -> Tail:
        """Make a tail and take it into the topic's route. All three ends are `start_offset`.

        A publish that names a partition (`PUB topic 3`) goes to that tail; BAD_PUB says that there
        is none, at once where the topic is known, and after TOPIC where it was not. Any other goes
        to the route's current tail. When the open batch of that is sealed, the next in the order of
        numbers becomes the current one that takes publishes and has fewer sealed batches than it
        may have; if all have as many, the next that takes publishes; if none does, REFUSED is about
        the current one. It is left before its batch is sealed, too, when it has as many sealed
        batches as it may and another has not. A tail is refusing for a publish that would end above
        `append_end_max`, too."""
        ...

    def route(self, topic: bytes, count: int = 1) -> Tail:
        """The tail that the next publish of `count` messages without a partition goes to: for what
        Python appends itself. KeyError for a topic without tails."""
        ...

    def route_key(self, topic: bytes, key: bytes) -> Tail:
        """The tail for messages with this key: its number is murmur3_32(key) modulo the topic's
        hash partitions. KeyError for a topic without tails, or without that one."""
        ...

    def set_hash_partitions(self, topic: bytes, count: int) -> None:
        """Over how many partitions keys are spread, until the topic's last tail is forgotten. Not
        set: as many as there are tails. ValueError for a count out of range, KeyError for a topic
        without tails."""

    def set_extended(self, topic: bytes, extended: bool) -> None:
        """May messages of this topic have any headers, and are they kept (not at first)? Else
        headers may name a key and a trace id, which are kept for themselves. KeyError for a topic
        without tails."""

    def set_placed(self, topic: bytes, placed: bool) -> None:
        """Must a publish to this topic name a partition or a key (not at first)? One that does not
        is BAD_PUB for PARTITION, with no word in place of the topic. KeyError for a topic without
        tails."""

    def forget_tail(self, topic: bytes, partition: int = 0) -> None:
        """It leaves the route. Without any, publishes to this topic come out as TOPIC again."""

    def window(self, tail: Tail, start_offset: int) -> Window: ...
    def forget_window(self, window: Window) -> None:
        """Its consumers leave it, and nothing more comes of it."""

    def poll(self, mono_ns: int) -> list[tuple[Any, ...]]: ...
    def dirty_tails(self) -> list[Tail]: ...
    def flush(self, mono_ns: int, wall_ns: int) -> list[tuple[Any, ...]]: ...
    def dirty_windows(self) -> list[Window]: ...
    def tick(self, mono_ns: int, wall_ns: int) -> int:
        """Fire message timeouts and due delays in all windows. Returns the nanoseconds until the
        next one, 0 when there is none."""
        ...

    def wake(self) -> None:
        """Make fileno() readable; safe from any thread."""

    def close(self) -> None: ...
