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

from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import Buffer

from penstock.kernel.types import Filter, StrayRecord, TraceKind

class LogEnd:
    """Where a log ends: what the next batch of it gets, and how far it may be written at once."""

    file: Any  # a `log.disk.File`; what it is when this is set counts
    position: int  # in that file
    prepared: int  # the end of its prepared part
    last_position: int  # of the newest batch
    index_position: int  # a batch from here on is one for the index
    age_end_ns: int  # a batch of a later time is one for the next segment
    synced_end: int
    last_timestamp_ns: int
    last_id: int
    node_id: int
    epoch: int  # the leader's

class Tail:
    """The writing end of one partition: open batch, sealed batches, newest committed batches.

    Three ends of a tail, all offsets: `written_end` (sealed), `committed_end` (safe), `handed_end`
    (given to channels; it stands still while the topic is paused or has no channel). `handed_end <=
    committed_end <= written_end`.

    Batch life: open (gathering) -> sealed (in a queue, being written and synced) -> committed (kept
    in memory while there is room, newest first) -> dropped, or -> failed. With `sealed_max` batches
    in the queue the open one gathers on.
    """

    @property
    def topic(self) -> bytes: ...
    @property
    def partition(self) -> int: ...  # its number

    owner: Any
    refusing: bool  # PUB and MPUB come out as REFUSED
    append_end_max: int  # so does what would end above it, whole (0: no bound)
    handing: bool  # handed_end follows committed_end

    @property
    def open_count(self) -> int: ...
    @property
    def open_bytes(self) -> int: ...
    @property
    def sealed_count(self) -> int: ...  # messages of sealed batches: written_end - committed_end
    @property
    def sealed_batches(self) -> int: ...

    # Bytes of publishes that wait for room in the open batch. The kernel counts those of its
    # connections, until there is room again; the broker adds and takes off what it keeps itself.
    waiting_bytes: int
    # What would go above this is CROWDED; one publish may always wait (0: no bound).
    waiting_bytes_max: int

    sealed_max: int  # with so many sealed batches, `dirty_tails` leaves it out; 0: routes do, too

    @property
    def written_end(self) -> int: ...
    @property
    def committed_end(self) -> int: ...

    handed_end: int  # may be set lower once, before the first window exists (a restart's backlog)

    @property
    def memory_start(self) -> int: ...  # first offset still in memory (== committed_end when none)
    @property
    def message_count(self) -> int: ...  # appended since start
    @property
    def message_bytes(self) -> int: ...
    def append(
        self,
        body: bytes,
        due_ns: int = 0,
        sections: Mapping[int, int | bytes] | None = None,
        by: Conn | None = None,
    ) -> None:
        """One message into the open batch. `due_ns` 0: at once. `sections`: what else the trailer
        is to say of it, by `Section`. `by`: who publishes it. The caller sees to the limits."""

    def append_parts(self, parts: list[Buffer]) -> None:
        """One message, due at once, whose body comes in pieces."""

    def count_pack(self, pack: int, body: Buffer, count_max: int, message_bytes_max: int) -> int:
        """How many messages `body` holds, all of them right; or BAD_COUNT or BAD_MESSAGE."""

    def append_pack(self, pack: int, body: Buffer, due_ns: int = 0) -> int:
        """All messages of `body` into the open batch, in order; none when one is malformed
        (ValueError). The caller has seen to the limits (`count_pack`). Returns their count."""

    def seal(
        self,
        base_id: int,
        timestamp_ns: int,
        synced_end: int,
        leader_epoch: int = 0,
        may_be_short: bool = True,
    ) -> list[Buffer]:
        """Close the open batch; base offset is `written_end`. Returns the buffers to write, in
        order; they stay valid until the batch is committed or fails. One message alone has the
        short form, if it has one; not where the batch is yet to get its position (`put_position`).
        RuntimeError when `sealed_max` batches are sealed already."""

    def store(self, end: LogEnd, wall_ns: int) -> bool:
        """The same, written at `end` and committed, in one call and without an object for it; then
        `end` is behind it. False: nothing has happened, as there is more to do than to write (a new
        segment, the index, unprepared room), it has a trailer, is traced, or another is sealed.
        Raises what `file.pwritev` does; then the batch is open as before, and part of it may stand
        in the file."""

    def seal_batch(self, data: bytes) -> list[Buffer]:
        """The same for a whole batch from elsewhere (`encode_batch`, base offset `written_end`).
        The open batch stays open. As part of an append that is begun, it needs no room. ValueError
        for what is not such a batch."""

    def adopt(self, count: int, size: int) -> None:
        """This many messages, with `size` bytes of bodies, stand in the log behind what was written
        before, and are safe. They are visible from now on and have to be read from there: none
        of the tail is in memory any more. Nothing may be sealed; the open batch stays open."""

    def commit_to(self, offset: int) -> None:
        """Every sealed batch that ends at or below `offset` is safe: visible to windows, and its
        publishers get OK at the next flush. ValueError when `offset` lies inside a batch or above
        `written_end`; nothing happens when it is committed already."""

    def fail_from(self, offset: int, unknown: bool = False) -> None:
        """The sealed batch at `offset` was not stored, and so none behind it: `written_end` goes
        back to `offset`, publishers get PUB_FAILED. `unknown`: other nodes may store it. ValueError
        when no sealed batch begins there, unless it is the end of all."""

    def doubt(self) -> None:
        """Publishers of what is sealed get PUB_FAILED, unknown, and wait no longer. It stays
        sealed: `commit_to` or `fail_from` comes yet."""

    def hand(self) -> None: ...  # set handed_end to committed_end once (unpause, first channel)
    def begin_at(self, offset: int) -> None:
        """What lies below `offset` and was not handed is dropped, and does not count as handed.
        The caller has the windows step over it."""

    def rest(self) -> None: ...  # drop committed batches while those of all tails are too many
    def drop_open(self) -> None: ...  # refuse the open batch: its publishers get PUB_FAILED
    def validate(self) -> None: ...

    # --- tracing ---

    traceable: bool  # off at first; then messages with trace ids are traced, here and in windows
    trace_below: int  # and those whose id's hash is below it: 0 none, TRACE_ALL all (publishes)

    def note_stored(self, data: Buffer) -> None:
        """One whole, intact batch was published, and stands in the log without having been here
        (`adopt` follows). Raises ValueError for anything else."""

class Window:
    """One channel on one partition: cursor, messages in flight, strays, deadlines.

    First deliveries live in a ring indexed by offset over [low, next). A message that leaves the
    common path (timed out, requeued, delayed, touched, held so long that the ring would grow past
    its bound) is a stray, kept in a table by id, and `low` moves on without it.

    A delayed message becomes a stray when it is handed to the channel, wherever the cursor stands.
    Those that are in the log alone are looked for there (see below). Beyond
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

    def release(self, wall_ns: int) -> int:
        """Delayed strays that are due become waiting. Returns how many."""

    def take_latencies(self) -> dict[int, int]:
        """How many messages took how long, from their timestamp to their FIN, since the last call:
        counts by bucket. Bucket 0 is all below 1,024 ns; then each power of two has 32 buckets of
        equal width; the last of the 1,345 has no end."""

    def take_exhausted(self, count_max: int) -> list[StrayRecord]:
        """Messages that have used their attempts, each once: to be put elsewhere, and settled. They
        come to be when one times out, is requeued, or its delay ends, and after a restart."""

    def settle_exhausted(self, id: int, done: bool) -> bool:
        """`done`: it is finished here. Else it is offered again, to `take_exhausted` or, when
        `attempts_max` was raised meanwhile, to a consumer. False: there is none of that id."""

    def load(self, which: int, block: Buffer) -> int:
        """Give a block of whole intact batches (the caller checked them with check_batch). The
        kernel keeps a reference. Returns the number of batches seen."""

    def skip(self, from_offset: int, to_offset: int, kind: int = TraceKind.SKIPPED) -> None:
        """Never deliver [from, to): damaged log, or an overflowing ephemeral channel. What lies
        at or above `next` is stepped over when the cursor gets there, and does not count as
        depth. `kind` is what the trace says of it; 0: nothing."""

    def outdate(self, offset: int) -> int:
        """What is below `offset` is too old to be sent: it is done, whether it was delivered
        before, waits, or is delayed. Only what is in flight stays so; when it comes back, it is
        dropped. Returns how many are gone now. Holds until `seek` or `empty`."""

    def lose_range(self, start: int, end: int, kind: int = TraceKind.SKIPPED) -> int:
        """Drop every stray of [start, end), which is noted as `kind`. Returns how many."""

    def empty(self) -> None:
        """Drop everything: the cursor moves to handed_end, in flight and strays are forgotten."""

    def seek(self, offset: int) -> None: ...  # set the cursor; in flight and strays are forgotten
    def take_journal(self) -> bytes:
        """Entries of the channel journal (docs/formats.md) since the last call."""

    def snapshot(self) -> bytes: ...  # the whole state as journal entries
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

    def in_flight_records(self, count_max: int) -> list[tuple[int, int, int, int, int]]:
        """(offset, id, attempts, conn serial, deadline mono ns) for people to look at."""

    def stray_records(self, state: int, count_max: int) -> list[StrayRecord]:
        """Strays in one state, for people: the delayed ones by due time, others by offset."""

    def unfinished_below(self, offset: int) -> int: ...  # in flight, or strays
    def holder(self, id: int) -> int:
        """Serial of the connection that has this message in flight; 0: it is not in flight."""

    def settle_stray(self, id: int, due_ns: int) -> bool:
        """What waits or is delayed is done (`due_ns` below 0), is to be sent now (0), or when it is
        due. It counts as a FIN or a REQ does. False: there is none of that id."""

    def validate(self) -> None: ...

    # --- the search for delayed messages ---
    #
    # A window says from where to where delayed messages are to be looked for, the broker reads what
    # there is, and `Engine.search` makes strays of them. It changes nothing but what counts as
    # delayed: whatever is not found yet, the cursor meets in its place.

    @property
    def search_start(self) -> int: ...  # from here to `search_end` the log is to be searched
    @property
    def search_end(self) -> int: ...  # at or below `search_start`: nothing is

    searched: int  # delayed messages below it are strays, or done; may be set after `restore`
    parked_max: int  # so many delayed messages become strays before the cursor meets them

    @property
    def unparked(self) -> int: ...  # delayed messages beyond that, which are only counted
    def recount(self, wall_ns: int) -> None:
        """Search again what is only counted, if there is room for some of it, or some is due."""

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
    tag: bytes  # messages that name it are for this consumer (filters.pxi); set before `subscribe`
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
    def take_output(self) -> bytes: ...  # detached connections: bytes to send (all that is there)
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

    @property
    def quiet(self) -> bool:
        """After a flush: nothing more is to be done now or later, but for what comes from outside
        and for timers."""

    # when poll wants to be called next, mono (0: only on readiness)
    @property
    def deadline_ns(self) -> int: ...
    def __init__(
        self, message_bytes_max: int, body_bytes_max: int, rdy_count_max: int, *, seed: int = 0
    ) -> None:
        """`seed`, of 64 bits, decides what sampled consumers get: the same engine with the same
        input gives the same output."""

    def fileno(self) -> int: ...
    def open(self, fd: int) -> Conn:
        """Take over a connected, non-blocking socket (the engine closes it in the end)."""

    def open_detached(self) -> Conn:
        """A connection without a socket: somebody feeds it, and takes its output."""

    def detach(self, conn: Conn) -> tuple[int, bytes]:
        """Take a connection's socket away from the engine, in mid-stream (it must be halted). It
        lives on as a detached one. Returns the descriptor, which is now the caller's, and the
        input that was not looked at. What is still unsent is found by `take_output`."""

    def dirty_detached(self) -> list[Conn]:
        """Detached connections that have output to take, whose `reading` may have changed, or
        which have ended; each is named once until the next call. Ask after each flush."""

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

    def route(self, topic: bytes, count: int = 1) -> Tail:
        """The tail that the next publish of `count` messages without a partition goes to: for what
        Python appends itself. KeyError for a topic without tails."""

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

    def dirty_windows(self) -> list[Window]: ...
    def tick(self, mono_ns: int, wall_ns: int) -> int:
        """Fire message timeouts and due delays in all windows. Returns the nanoseconds until the
        next one, 0 when there is none."""

    def wake(self) -> None: ...  # make fileno() readable; safe from any thread
    def close(self) -> None: ...

    # --- the search for delayed messages ---

    def take_searches(self) -> list[Window]:
        """Windows whose part of the log to be searched has grown since the last call."""

    def search(self, window: Window, blocks: Sequence[Buffer], end: int, ids_from: int) -> None:
        """`blocks` are all batches with a trailer that hold offsets from the window's
        `search_start` to `end`, whole and checked. No message from its `next` on has an id below
        `ids_from` by the log's own count."""

    # --- tracing ---

    @property
    def trace_pending(self) -> bool: ...  # is there anything for `take_trace`?
    # is there a whole chunk, so that waiting for more saves nothing?
    @property
    def trace_full(self) -> bool: ...
    def take_trace(self) -> list[tuple[list[Any], bytes]]:
        """Records in chunks: what they name by number from 1, and they as in docs/formats.md."""

    def set_time(self, wall_ns: int) -> None: ...  # for events outside of a turn
