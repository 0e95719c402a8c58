"""Where one channel stands in one partition: the state, and the moves that keep it whole.

                      low                next            handed_end
    finished ........ | in flight / done | not delivered  |

First deliveries are found by id in `_ring`; `_order` has them in the order of their offsets, so
that `low` is the offset of the first one there that is still in flight. A message that leaves this
path (timed out, requeued, delayed, touched, with an id of its own, or so old that `low` would fall
too far behind) is a stray, and `low` moves on without it.

`skips` are ranges at or above `next` that the cursor steps over: finished before a restart, strays
restored from the journal, damaged, or dropped by an ephemeral channel. Below `redo_end` a message
was delivered once before the restart.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from penstock.kernel.interface import Locality, Order, Source, Stray, StrayRecord
from penstock.kernel.pure.beyond import Beyond
from penstock.kernel.pure.block import Batch
from penstock.kernel.pure.flight import FLYING, GONE, RINGED, Flight
from penstock.kernel.pure.journal import Notes, cursor_entry, finished_entry, stray_entry
from penstock.kernel.pure.keyorder import KeyOrder
from penstock.kernel.pure.ranges import Ranges
from penstock.kernel.pure.strays import Strays
from penstock.kernel.pure.tags import Tags
from penstock.kernel.pure.trace import in_sample
from penstock.kernel.trace_interface import TraceKind
from penstock.limits import ALLOWANCE_ALL, MESSAGE_TIMEOUT_MAX_NS, PARKED_MAX, RING_SPAN_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.kernel.pure.conn import Conn
    from penstock.kernel.pure.engine import Engine
    from penstock.kernel.pure.tail import Tail
    from penstock.kernel.pure.window import Window


class Cursor:
    def __init__(self, engine: Engine, tail: Tail, start: int) -> None:
        engine.window_number += 1
        self.number = engine.window_number  # in the order in which they were made
        self.tail = tail
        self.owner: Any = None
        self.next = start
        self.redo_end = 0
        self._attempts_max = 0
        self._allowance = ALLOWANCE_ALL
        self.auto_ack_attempts = self.auto_ack_age_ns = self.auto_ack_count = 0
        self._outdated_end = 0  # below it nothing is sent any more
        self.parked_end = 0  # delayed messages below it are parked, but for those in the search
        self.parked_max = PARKED_MAX
        self._search = (
            0,
            0,
        )  # from there to there delayed messages are to be looked for in the log
        self.beyond = Beyond()
        self.timeout_count = 0
        self.requeue_count = 0
        self.finish_count = 0
        self.expired_count = 0
        self.touch_max_ns = MESSAGE_TIMEOUT_MAX_NS
        self.skips_tests = False
        self.forgotten = False
        self.conns: list[Conn] = []
        self.delivered = [0] * len(Locality)
        self.turn = 0  # rotates the first consumer
        self.stray_turn = 0  # who gets the odd one: new messages (0) or strays (1)
        self.strays = Strays()
        self.tags = Tags()
        self.keys = KeyOrder(self)
        self.skips = Ranges()
        self.notes = Notes()
        self._engine = engine
        self._paused = False
        self.count_base = tail.handed_end  # what of it does not count as given to this channel
        self._ring: dict[int, Flight] = {}
        self._order: deque[Flight] = deque()
        self._blocks: tuple[list[Batch], list[Batch]] = ([], [])  # by Source
        self._needed = [False, False]
        self._deadline_ns = 0  # lower bound while something is in flight
        self._dirty = False
        self.trace_below = 0
        self._trace_ids: dict[int, int] = {}  # of messages that have one and are not done
        self._latencies: dict[int, int] | None = None  # None: not measured

    @property
    def low(self) -> int:
        order = self._order
        while order and order[0].state != RINGED:
            order.popleft()
        return order[0].offset if order else self.next

    @property
    def in_flight(self) -> int:
        return len(self._ring) + self.strays.flying

    def ringed(self) -> Iterable[Flight]:
        return self._ring.values()

    def in_flight_of(self, conn_serial: int) -> int:
        flights = [*self._ring.values(), *(one for one in self.strays if one.state == FLYING)]
        return sum(one.conn is not None and one.conn.serial == conn_serial for one in flights)

    @property
    def _me(self) -> Window:
        return self  # type: ignore[return-value]  # there are no others

    def mark(self) -> None:
        """See to deliveries in the next flush."""
        if not self.forgotten:
            self._engine.pumps[self._me] = None

    def mark_dirty(self) -> None:
        if not self._dirty and not self.forgotten:
            self._dirty = True
            self._engine.journals[self._me] = None

    def unlist(self) -> None:
        """It is handed out as dirty. What is taken before that leaves it listed: the turn may have
        more to do for it."""
        self._dirty = False

    # --- consumers ---

    def add_consumer(self, conn: Conn) -> None:
        self.conns.append(conn)
        self.tags.join(self.strays, conn.tag)
        self.mark()

    def remove_consumer(self, conn: Conn) -> None:
        if self.tracing and conn.in_flight:
            for flight in [*self._ring.values(), *self.strays]:
                if flight.conn is conn and flight.state in (RINGED, FLYING):
                    self.trace(TraceKind.DISCONNECTED, flight)
        self.conns.remove(conn)
        if conn.tag:
            self.tags.leave(self.strays, conn.tag)
            self.mark()  # what waited for the last one with a tag is for the others now
        if not self.conns:
            self._drop_blocks()

    def _drop_blocks(self) -> None:
        self._blocks = ([], [])
        self._needed = [False, False]

    def _land(self, flight: Flight) -> Conn | None:
        """The message is no longer in flight; its owner, if that still consumes here, has room."""
        conn = flight.conn
        if conn is None or self not in conn.windows:
            return None
        conn.in_flight -= 1
        return conn

    # --- trace ---

    @property
    def tracing(self) -> bool:
        """Is any message traced?"""
        return bool(self.trace_below or self._trace_ids)

    def mark_traced(self, id: int, trace_id: int) -> None:
        """A message is met. If it has a trace id, all that happens to it is an event."""
        if trace_id and self.tail.traceable:
            self._trace_ids[id] = trace_id

    def forget_traced(self, id: int) -> None:
        self._trace_ids.pop(id, None)

    def trace(self, kind: int, flight: Flight) -> None:
        conn = flight.conn if flight.state in (RINGED, FLYING) else None
        if conn is not None and self not in conn.windows:
            conn = None
        self.trace_one(kind, flight.id, flight.offset, flight.attempts, conn)

    def trace_one(self, kind: int, id: int, offset: int, attempts: int, conn: Conn | None) -> None:
        trace_id = self._trace_ids.get(id)
        if trace_id is None and not (self.trace_below and in_sample(id, self.trace_below)):
            return
        now_ns = self._engine.now_ns
        self._engine.trace.note(
            kind, now_ns, id, offset, attempts, self.tail, self._me, conn, trace_id or 0
        )

    def _trace_range(self, kind: int, start: int, end: int) -> None:
        if self.trace_below and kind:
            now_ns = self._engine.now_ns
            self._engine.trace.note_range(kind, now_ns, start, end, self.tail, self._me)

    def _trace_emptied(self, offset: int) -> None:
        """The cursor is about to be set: what lay below `offset` and was not done is dropped. Some
        of the range may have been done before."""
        end = min(self.low, offset) if self.trace_below else offset
        ringed = [] if self.trace_below else [*self._ring.values()]
        for flight in [*self.strays, *ringed]:
            if flight.offset < end:
                self.trace(TraceKind.EMPTIED, flight)
        self._trace_range(TraceKind.EMPTIED, self.low, offset)

    # --- first deliveries ---

    def ring(
        self,
        ids: Iterable[int],
        timestamp_ns: int,
        attempts: int,
        conn: Conn,
        mono_ns: int,
        key: bytes | None = None,
    ) -> None:
        """A run of messages from `next` on has been sent to `conn`."""
        self._note_deadline(mono_ns + conn.timeout_ns)
        offset = self.next
        order = self._order
        ring = self._ring
        for id in ids:
            flight = Flight(offset, id, attempts, RINGED)
            flight.take_off(conn, mono_ns, timestamp_ns)
            if key is not None:
                self.keys.hold(flight, key)
            ring[id] = flight
            order.append(flight)
            offset += 1
        self.move_to(offset)

    def move_to(self, offset: int) -> None:
        """Move `next` forward, and `low` when it falls too far behind."""
        self.next = offset
        self.notes.cursor_changed = True
        self.mark_dirty()
        while offset - self.low > RING_SPAN_MAX:
            self._stray_from_ring(self._order[0])

    def attempts_next(self) -> int:
        """What a message at the cursor is delivered with."""
        return 2 if self.next < self.redo_end else 1

    def _leave_ring(self, flight: Flight) -> None:
        del self._ring[flight.id]
        flight.state = GONE
        if flight is self._order[0]:
            self.notes.cursor_changed = True

    def _stray_from_ring(self, flight: Flight) -> None:
        self._leave_ring(flight)
        self.strays.add(flight)
        self.strays.fly(flight)
        self._note_stray(flight)

    def _note_stray(self, flight: Flight) -> None:
        self.notes.stray(flight)
        self.mark_dirty()

    def _note_deadline(self, deadline_ns: int) -> None:
        """Something is about to be in flight until then."""
        if not self.in_flight or deadline_ns < self._deadline_ns:
            self._deadline_ns = deadline_ns
        self._engine.active[self._me] = None

    # --- strays ---

    def send_stray(self, flight: Flight, timestamp_ns: int, conn: Conn, mono_ns: int) -> None:
        """A stray is being sent to `conn`."""
        flight.attempts = (flight.attempts + 1) & 0xFFFF
        flight.take_off(conn, mono_ns, timestamp_ns)
        self._note_deadline(flight.deadline_ns)
        self.strays.fly(flight)
        self._note_stray(flight)

    def has(self, id: int) -> bool:
        """Is a message of this id on its way?"""
        return id in self._ring or self.strays.get(id) is not None

    def new_stray(self, id: int, attempts: int) -> Flight:
        """The message at the cursor goes through the strays."""
        flight = Flight(self.next, id, attempts, GONE)
        self.strays.add(flight)
        return flight

    def put_aside(self, id: int, attempts: int, tag: bytes, key: bytes | None = None) -> None:
        """The message at the cursor waits for a consumer of another class than the one at hand."""
        flight = self.new_stray(id, attempts)
        self.keys.hold(flight, key)
        self.strays.wait(flight, self.tags.queue_of(tag))
        self._note_stray(flight)
        self.move_to(self.next + 1)

    def wait_behind(self, id: int, attempts: int, key: bytes) -> None:
        """The message at the cursor waits behind another of its key."""
        flight = self.new_stray(id, attempts)
        self.keys.put_behind(flight, key)
        self._note_stray(flight)
        self.move_to(self.next + 1)

    def park(self, offset: int, id: int, attempts: int, due_ns: int, key: bytes | None) -> None:
        """A message ahead of the cursor waits among the strays, and the cursor steps over it."""
        flight = Flight(offset, id, attempts, GONE)
        flight.key = key
        self.strays.add(flight)
        self.sleep(flight, due_ns)
        self.skips.add(offset, offset + 1)

    # --- the search for delayed messages ---

    @property
    def search_start(self) -> int:
        return max(self._search[0], self.next)

    @property
    def _searching(self) -> bool:
        return self.search_start < self._search[1]

    def widen_search(self, start: int, end: int) -> None:
        if self._searching:
            self._search = (min(self._search[0], start), max(self._search[1], end))
        else:
            if not self.beyond.count:
                self.beyond.clear(start, self._engine.wall_ns)
            self._search = (self.beyond.at, end)
        self._list_search()

    def _list_search(self) -> None:
        if not self.forgotten:
            self._engine.searches[self._me] = None

    def searched_to(self, offset: int) -> None:
        start, end = self._search
        self._search = (max(start, offset), end)
        self.beyond.passed(self._search[0])
        self.mark()

    def _count_anew(self) -> None:
        """A part of what is counted is skipped; only the log says how much of it was delayed."""
        beyond = self.beyond
        start, end = max(beyond.start, self.next), max(beyond.end, self._search[1])
        beyond.clear(start, self._engine.wall_ns)
        self._search = (start, end)
        self._list_search()

    # --- strays, again ---

    def _wait(self, flight: Flight) -> None:
        """It is to be sent, as soon as its order and its attempts allow."""
        is_exhausted = self.is_spent(flight)
        if flight.offset < self._outdated_end and not is_exhausted:
            self.expired_count += 1
            self.trace(TraceKind.SKIPPED, flight)
            self.drop_stray(flight)
            self.mark()
            return
        if is_exhausted and flight.unknown:
            self.keys.exhaust(flight)
            self.wait_in_turn(flight)
        elif not self.keys.must_wait_behind(flight):
            self.wait_in_turn(flight)
        self._note_stray(flight)
        self.mark()

    def wait_in_turn(self, flight: Flight) -> None:
        """Nothing stands before it. For the journal this is no change of what waits already."""
        if self.is_spent(flight):
            self.strays.exhaust(flight)
            self.keys.rest(flight)
        else:
            self.strays.wait(flight)
        self.mark()  # where it is exhausted, its consumer has room for another

    def is_spent(self, flight: Flight) -> bool:
        """Has it used its attempts?"""
        return 0 < self._attempts_max <= flight.attempts

    def sleep(self, flight: Flight, due_ns: int) -> None:
        self.trace(TraceKind.DELAYED, flight)
        self.keys.delay(flight)
        self.strays.sleep(flight, due_ns)
        self._note_stray(flight)
        self._engine.active[self._me] = None

    def drop_stray(self, flight: Flight) -> None:
        self.forget_traced(flight.id)
        self.keys.let_go(flight)
        self.strays.remove(flight)
        self.notes.gone(flight.offset, flight.id)
        self.mark_dirty()

    def rename_stray(self, flight: Flight, id: int) -> None:
        """The same message under another id. The journal knows that before it loses the old one."""
        old_id = flight.id
        self.strays.rename(flight, id)
        self._note_stray(flight)
        self.forget_traced(old_id)
        self.notes.gone(flight.offset, old_id)

    # --- moving the cursor ---

    def step_over(self) -> None:
        """While `next` lies in a skip, go to its end."""
        if self.skips and self.skips.first <= self.next:
            offset = self.skips.step_over(self.next)
            if offset != self.next:
                self.move_to(offset)

    def skip(self, from_offset: int, to_offset: int, kind: int = TraceKind.SKIPPED) -> None:
        start = max(from_offset, self.next)
        if to_offset <= start:
            return
        self._trace_range(kind, start, to_offset)
        self.skips.add(start, to_offset)
        self.notes.finished(start, to_offset)
        self.mark_dirty()
        self.step_over()
        if self.beyond.overlaps(start, to_offset):
            self._count_anew()
        self._needed[Source.FORWARD] = False
        self.mark()

    def empty(self) -> None:
        self.seek(self.tail.handed_end)

    def seek(self, offset: int) -> None:
        if self.tracing:
            self._trace_emptied(offset)
        self._forget_all()
        self.next = offset
        self.notes.reset = True
        self.mark_dirty()
        self.mark()

    def _forget_all(self) -> None:
        for conn in self.conns:
            conn.in_flight -= self.in_flight_of(conn.serial)
        for flight in self._order:
            flight.state = GONE
        self._ring.clear()
        self._order.clear()
        self.strays = Strays()
        self.tags.forget()
        self.keys.clear()
        self.skips.clear()
        self.redo_end = self._outdated_end = self.parked_end = 0
        self._search = (0, 0)
        self.beyond.clear(0, 0)
        self.notes.forget()
        self._trace_ids.clear()
        self._drop_blocks()

    # --- the journal ---

    @property
    def _next_known(self) -> int:
        """What the journal says of `next`: what was delivered before a restart stays delivered."""
        return max(self.next, self.redo_end)

    def take_journal(self) -> bytes:
        return self.notes.take(self.low, self._next_known)

    def snapshot(self) -> bytes:
        entries = [cursor_entry(self.low, self._next_known)]
        at = self.low
        for flight in self._order:
            if flight.state == RINGED:
                if at < flight.offset:
                    entries.append(finished_entry(at, flight.offset))
                at = flight.offset + 1
        if at < self.next:
            entries.append(finished_entry(at, self.next))
        entries += [finished_entry(max(start, self.next), end) for start, end in self.skips]
        strays = sorted(self.strays, key=lambda flight: (flight.offset, flight.id))
        return b"".join(entries + [stray_entry(flight) for flight in strays])

    def restore(
        self,
        low: int,
        next: int,
        finished: Sequence[tuple[int, int]],
        strays: Sequence[StrayRecord],
    ) -> None:
        self._forget_all()
        self.next = low
        self.redo_end = next
        for start, end in finished:
            self.skips.add(max(start, low), end)
        for record in strays:
            self._restore_stray(record)
            if record.offset >= low:
                self.skips.add(record.offset, record.offset + 1)
        self.step_over()
        self.notes.forget()
        self.mark()

    def _restore_stray(self, record: StrayRecord) -> None:
        flight = Flight(record.offset, record.id, record.attempts, GONE)
        flight.unknown = self.keys.order != Order.NONE
        self.strays.add(flight)
        if record.state == Stray.DELAYED:
            self.sleep(flight, record.due_ns)
        else:
            self._wait(flight)
