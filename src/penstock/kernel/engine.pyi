"""The kernel: client connections on an epoll of its own, from socket bytes to batches and back.

The kernel owns the hot verbs (PUB, MPUB, PUB_EXT, MPUB_EXT, RDY, FIN) from socket bytes to batch
bytes and back, and delivery, in whole buffers. Nothing in it makes a Python object per message.
Everything else (IDENTIFY, SUB, REQ, TOUCH, DPUB, CLS, AUTH, every error) comes out as an `Event`
for Python to decide, and goes back in as a call. It does no file I/O and reads no clock: the shell
writes what `Tail.seal` returns, loads what an `Event.NEED` asks for, and passes the time in. For
publishers that wait for each answer, where that alone would cost more than the message, the kernel
writes to a file that it is given (`Tail.store`) and waits for the next publish (`Engine.stay`).
(`Bulk`, in `bulk.pyi`, stands apart: a thread that serves readers of the log from their
files.)

One turn of the loop, as `net/turn.py` drives it:

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

from collections.abc import Sequence
from typing import Any

from typing_extensions import Buffer

from penstock.kernel.types import Filter
from penstock.kernel.window import LogEnd, Tail, Window

class Conn:
    """One V2 client connection: input and output buffers, states, counters."""

    @property
    def serial(self) -> int: ...  # unique for the life of the engine, never 0

    owner: Any  # the session object of the daemon; the kernel never looks inside
    rdy_limit: int  # RDY counts no further, whatever the client says; 0: as it says
    rdy: int  # for all windows together; setting it marks them for delivery
    closing: bool  # after CLS: no deliveries, RDY ignored, FIN still taken

    @property
    def windows(self) -> Sequence[Window]: ...  # subscribed, in that order; one RDY is for all
    @property
    def window(self) -> Window | None: ...  # the first of them
    # mono time of the latest command read; 0 before the magic
    @property
    def last_command_ns(self) -> int: ...

    locked: bool  # every command comes out as LINE, the hot ones too
    allowed: set[bytes] | None  # when set: a publish to another topic comes out as TOPIC

    # what its message frames have between id and body (framing.pxi); set before `subscribe`
    enveloped: bool  # the partition, and the headers or the key
    extended: bool  # the headers
    detailed: bool  # the position

    sample_rate: int  # 0: all
    tag: bytes  # messages that name it are for this consumer (filters.pxd); set before `subscribe`
    timeout_ns: int  # message timeout of this consumer
    locality: int  # Locality; set before `subscribe`

    # counters
    @property
    def in_flight(self) -> int: ...  # in all windows
    @property
    def message_count(self) -> int: ...
    @property
    def finish_count(self) -> int: ...
    @property
    def requeue_count(self) -> int: ...
    @property
    def published(self) -> dict[bytes, int]: ...  # topic -> messages appended (all verbs)
    @property
    def unsent(self) -> int: ...  # bytes waiting for the socket
    @property
    def pending(self) -> int: ...  # publishes appended, not yet answered
    @property
    def reading(self) -> bool: ...  # detached ones: may be fed now (a little more does no harm)
    @property
    def ended(self) -> bool: ...  # CLOSED was, or is about to be, reported
    def feed(self, data: Buffer) -> None:
        """Detached connections: bytes that arrived. Events appear at the next poll."""

    def feed_eof(self) -> None: ...
    def take_output(self) -> bytes:
        """Detached connections: bytes to send (all that is there)."""
        ...

    def reply(self, frame_type: int, data: bytes) -> None:
        """Queue one frame (0 response, 1 error, 2 message); sent at the next flush."""

    def resume(self) -> None:
        """Look at this connection's bytes again. After TOPIC the same command is read anew."""

    def pass_over(self) -> None:
        """After TOPIC, REFUSED, SPREAD_REFUSED and CROWDED: the publish is answered with an error
        behind which the connection goes on. From `resume` on all of it is read, also what has yet
        to come, and not appended; sizes that are wrong are BAD_PUB as ever. RuntimeError where no
        event waits for its answer."""

    def read_body(self, size_max: int) -> None:
        """After LINE: read a 4-byte size and that many bytes -> BODY, or BODY_SIZE when the size
        is < 1 or > size_max. Memory grows only with bytes received."""
        ...

    def appended(self, tail: Tail, verb: int) -> None:
        """Python appended one publish of this connection (DPUB) to `tail`: owe an OK."""

    def set_filter(self, filter: Filter | None) -> None:
        """What does not pass is finished, and not sent to this consumer nor to another of its
        channel. What was sent already stays in flight."""

    def subscribe(self, window: Window) -> None:
        """Consume from this window, too; RuntimeError for one that it has already. RDY counts what
        is in flight in all of them. FIN goes by the id alone: it is looked for in the window that
        had the latest, then in the others. For that, no two messages in flight on a connection
        may have the same id, so all partitions of a node draw theirs from one range
        (`ids/guid.py`). A message that brought an id of its own is sent with the log's while
        another window of the consumer has a message of that id."""

    def leave(self, window: Window | None = None) -> None:
        """Stop consuming from it (None: from all). What is in flight stays so until it times out,
        and counts no longer for RDY."""

    def find(self, id: int) -> Window | None:
        """The one of `windows` that has this message, in flight or as a stray: for `requeue` and
        `touch`."""
        ...

    def close_after_flush(self) -> None:
        """Send what is queued, half-close, then read and drop (bounded) until the peer closes."""

    def close(self) -> None:
        """Drop it now. CLOSED is still reported."""

    def output_every(self, bytes_max: int, timeout_ns: int) -> None:
        """Hold deliveries back until so many bytes or so much time (0, 0: send every turn)."""

class Engine:
    """All connections of one daemon, on an epoll of its own that the outer loop watches."""

    # work is left though no socket is ready: call the turn again at once
    @property
    def busy(self) -> bool: ...
    @property
    def has_work(self) -> bool:
        """Something was done between two turns that the next one is to carry out."""
        ...

    @property
    def quiet(self) -> bool:
        """After a flush: nothing more is to be done now or later, but for what comes from outside
        and for timers."""
        ...

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

    def set_hash_partitions(self, topic: bytes, count: int) -> None:
        """Over how many partitions keys are spread: a message with a key is for the one with the
        number murmur3_32(key) modulo that. It holds until the topic's last tail is forgotten. Not
        set: as many as there are tails. ValueError for a count out of range, KeyError for a topic
        without tails."""

    def set_extended(self, topic: bytes, extended: bool) -> None:
        """May messages of this topic have any headers, and are they kept (not at first)? Else
        headers may name a key and a trace id, which are kept for themselves. KeyError for a topic
        without tails."""

    def require_partition(self, topic: bytes, needs_partition: bool) -> None:
        """Must a publish to this topic name a partition or a key (not at first)? One that does not
        is BAD_PUB for PARTITION, with no word in place of the topic. KeyError for a topic without
        tails."""

    def detach_tail(self, topic: bytes, partition: int = 0) -> Tail | None:
        """It takes no more publishes, and another tail may have its number. What it holds is
        settled as before."""

    def forget_tail(self, topic: bytes, partition: int = 0) -> None:
        """It leaves the route. Without any, publishes to this topic come out as TOPIC again."""

    def window(self, tail: Tail, start_offset: int) -> Window: ...
    def forget_window(self, window: Window) -> None:
        """Its consumers leave it, and nothing more comes of it."""

    def poll(self, mono_ns: int) -> list[tuple[Any, ...]]: ...
    def dirty_tails(self) -> list[Tail]: ...
    def flush(self, mono_ns: int, wall_ns: int) -> list[tuple[Any, ...]]: ...
    def watch_outside(self, fd: int) -> None:
        """That of the outer loop: readable when anything that the loop watches is."""

    @property
    def staying(self) -> bool: ...  # is `stay` worth its call?
    def stay(self, tail: Tail, end: LogEnd) -> list[tuple[Any, ...]]:
        """After a turn that stored publishes to `tail` alone: wait for more of them, a short time,
        store each at `end` and answer it, as `poll`, `Tail.store` and `flush` would. Ends when
        anything else is to be done; returns what a flush does, raises what `Tail.store` does."""
        ...

    def dirty_windows(self) -> list[Window]: ...
    def tick(self, mono_ns: int, wall_ns: int) -> int:
        """Fire message timeouts and due delays in all windows. Returns the nanoseconds until the
        next one, 0 when there is none."""
        ...

    def wake(self) -> None:
        """Make fileno() readable; safe from any thread."""

    def close(self) -> None: ...

    # --- the search for delayed messages ---

    def take_searches(self) -> list[Window]:
        """Windows whose part of the log to be searched has grown since the last call."""
        ...

    def search(self, window: Window, blocks: Sequence[Buffer], end: int, ids_from: int) -> None:
        """`blocks` are all batches with a trailer that hold offsets from the window's
        `search_start` to `end`, whole and checked. No message from its `next` on has an id below
        `ids_from` by the log's own count."""
        ...

    # --- tracing ---

    @property
    def trace_pending(self) -> bool: ...  # is there anything for `take_trace`?
    # is there a whole chunk, so that waiting for more saves nothing?
    @property
    def trace_full(self) -> bool: ...
    def take_trace(self) -> list[tuple[list[Any], bytes]]:
        """Records in chunks: what they name by number from 1, and they as in docs/formats.md."""
        ...

    def set_time(self, wall_ns: int) -> None: ...  # for events outside of a turn
