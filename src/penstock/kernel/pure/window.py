"""One channel on one partition: what its consumers, the clock and people do to the cursor.

What the state is, and how it moves, stands in `cursor.py`.
"""

from __future__ import annotations

from heapq import nsmallest
from typing import TYPE_CHECKING

from penstock.kernel.interface import Cause, Held, Locality, Source, StrayRecord
from penstock.kernel.pure.block import Batch, find_batch, split_block
from penstock.kernel.pure.cursor import Cursor
from penstock.kernel.pure.flight import (
    BEHIND,
    DELAYED,
    EXHAUSTED,
    FLYING,
    RINGED,
    WAITING,
    Flight,
)
from penstock.kernel.pure.latency import bucket_of
from penstock.kernel.trace_interface import TraceKind
from penstock.limits import RING_SPAN_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Buffer


_DONE = int(Held.DONE)
_NOT_IN_FLIGHT = int(Held.NOT_IN_FLIGHT)
_NOT_OWNER = int(Held.NOT_OWNER)
_TIMED_OUT = int(Cause.TIMED_OUT)
_REQUEUED = int(Cause.REQUEUED)
_DISCONNECTED = int(Cause.DISCONNECTED)


class Window(Cursor):
    # --- what people and the broker see ---

    @property
    def paused(self) -> bool:
        return self._paused

    @paused.setter
    def paused(self, value: bool) -> None:
        self._paused = value
        self.mark()

    @property
    def allowance(self) -> int:
        return self._allowance

    @allowance.setter
    def allowance(self, value: int) -> None:
        self._allowance = value
        self.mark()

    def spend(self, length: int) -> None:
        """Of the allowance: so many bytes are sent."""
        self._allowance -= length

    @property
    def ahead(self) -> int:
        """New messages that may be delivered."""
        end = self.tail.handed_end
        if not self.skips:
            return max(end - self.next, 0)
        return max(end - self.next - self.skips.count_below(end), 0)

    @property
    def is_reading(self) -> bool:
        """Does it wait for a block?"""
        return any(self._needed)

    @property
    def depth(self) -> int:
        return self.ahead + self.strays.waiting + self.strays.behind - self.beyond.count

    @property
    def deliverable(self) -> int:
        """What the cursor may come to, delayed messages that are only counted included."""
        ahead = 0 if self.keys.stopped else self.ahead
        return ahead + self.strays.waiting

    @property
    def order(self) -> int:
        return self.keys.order

    @order.setter
    def order(self, value: int) -> None:
        if value == self.order:
            return
        for flight in [*self._ring.values()]:
            self._stray_from_ring(flight)
        self.keys.begin(value)
        self.mark()

    @property
    def aside_max(self) -> int:
        return self.keys.aside_max

    @aside_max.setter
    def aside_max(self, value: int) -> None:
        self.keys.aside_max = value

    @property
    def behind(self) -> int:
        return self.strays.behind

    @property
    def delayed(self) -> int:
        return self.strays.delayed + self.beyond.count

    @property
    def unparked(self) -> int:
        return self.beyond.count

    @property
    def floor(self) -> int:
        return min(self.low, min((flight.offset for flight in self.strays), default=self.low))

    @property
    def message_count(self) -> int:
        return self.tail.handed_end - self.count_base

    @property
    def consumers(self) -> int:
        return len(self.conns)

    @property
    def zone_local_count(self) -> int:
        return self.delivered[Locality.ZONE]

    @property
    def region_local_count(self) -> int:
        return self.delivered[Locality.REGION]

    @property
    def global_count(self) -> int:
        return self.delivered[Locality.GLOBAL] + self.delivered[Locality.UNKNOWN]

    @property
    def prefers(self) -> bool:
        """Is a consumer nearer than others may be?"""
        return any(conn.locality > Locality.GLOBAL for conn in self.conns)

    @property
    def deadline_ns(self) -> int:
        return self._deadline_ns if self.in_flight else 0

    @property
    def due_ns(self) -> int:
        return self.strays.due_ns

    @property
    def journal_dirty(self) -> bool:
        return bool(self.notes)

    # --- the search for delayed messages ---

    @property
    def search_end(self) -> int:
        return self._search[1]

    @property
    def searched(self) -> int:
        found_end = self.search_start if self._searching else self.parked_end
        return min(found_end, self.beyond.start) if self.beyond.count else found_end

    @searched.setter
    def searched(self, offset: int) -> None:
        self.parked_end = min(offset, self.tail.handed_end)

    def recount(self, wall_ns: int) -> None:
        beyond = self.beyond
        has_room = self.strays.delayed <= self.parked_max // 2
        if self._searching or not beyond.count or not (has_room or beyond.due_ns <= wall_ns):
            return
        start = max(beyond.start, self.next)
        beyond.begin(start, wall_ns)
        self._search = (start, beyond.end)
        self._list_search()

    # --- FIN, REQ, TOUCH ---

    def finish(self, conn_serial: int, id: int) -> int:
        flight = self._ring.get(id)
        if flight is None:
            return self._finish_stray(conn_serial, id)
        if flight.conn is None or flight.conn.serial != conn_serial:
            return _NOT_OWNER
        if self.tracing:
            self.trace(TraceKind.FINISHED, flight)
            self.forget_traced(id)
        self._leave_ring(flight)
        self.keys.let_go(flight)
        self.notes.finished(flight.offset, flight.offset + 1)
        if not self._dirty:
            self.mark_dirty()
        self._count_finish(flight)
        return _DONE

    def _finish_stray(self, conn_serial: int, id: int) -> int:
        flight = self.strays.get(id)
        if flight is None or flight.state != FLYING:
            return _NOT_IN_FLIGHT
        if flight.conn is None or flight.conn.serial != conn_serial:
            return _NOT_OWNER
        self.trace(TraceKind.FINISHED, flight)
        self.drop_stray(flight)
        self._count_finish(flight)
        return _DONE

    def _count_finish(self, flight: Flight) -> None:
        self.finish_count += 1
        if self._latencies is not None:
            self._measure(flight, self._latencies)
        conn = self._land(flight)
        if conn is not None:
            conn.finish_count += 1
        self.mark()

    def _measure(self, flight: Flight, latencies: dict[int, int]) -> None:
        if flight.timestamp_ns:
            wall_ns = self._engine.polled_ns + self._engine.wall_ahead_ns
            bucket = bucket_of(wall_ns - flight.timestamp_ns)
            latencies[bucket] = latencies.get(bucket, 0) + 1

    @property
    def measures_latency(self) -> bool:
        return self._latencies is not None

    @measures_latency.setter
    def measures_latency(self, value: bool) -> None:
        if value != self.measures_latency:
            self._latencies = {} if value else None

    def take_latencies(self) -> dict[int, int]:
        taken = self._latencies
        if taken is None:
            return {}
        self._latencies = {}
        return dict(sorted(taken.items()))

    def _take_flying(self, conn_serial: int, id: int) -> Flight | int:
        """The in-flight message as a stray, or why not."""
        flight = self._ring.get(id) or self.strays.get(id)
        if flight is None or flight.state not in (RINGED, FLYING):
            return _NOT_IN_FLIGHT
        if flight.conn is None or flight.conn.serial != conn_serial:
            return _NOT_OWNER
        if flight.state == RINGED:
            self._stray_from_ring(flight)
        return flight

    def requeue(self, conn_serial: int, id: int, delay_ns: int, wall_ns: int) -> int:
        flight = self._take_flying(conn_serial, id)
        if isinstance(flight, int):
            return flight
        self.trace(TraceKind.REQUEUED, flight)
        self.requeue_count += 1
        flight.cause = _REQUEUED
        conn = self._land(flight)
        if conn is not None:
            conn.requeue_count += 1
        if delay_ns > 0 and flight.offset >= self._outdated_end:
            self.sleep(flight, wall_ns + delay_ns)
        else:
            self._wait(flight)
        self.mark()
        return _DONE

    def touch(self, conn_serial: int, id: int, mono_ns: int) -> int:
        flight = self._take_flying(conn_serial, id)
        if isinstance(flight, int):
            return flight
        self.trace(TraceKind.TOUCHED, flight)
        if flight.conn is not None and self in flight.conn.windows:
            flight.deadline_ns = min(
                mono_ns + flight.conn.timeout_ns, flight.delivered_ns + self.touch_max_ns
            )
            self._deadline_ns = min(self._deadline_ns, flight.deadline_ns)
        return _DONE

    # --- timers ---

    def expire(self, mono_ns: int) -> int:
        if not self.in_flight or mono_ns < self._deadline_ns:
            return 0
        due = [flight for flight in self._order if self._is_due(flight, RINGED, mono_ns)]
        again = [flight for flight in self.strays if self._is_due(flight, FLYING, mono_ns)]
        again.sort(key=lambda flight: (flight.deadline_ns, flight.offset))
        for flight in due:
            self._stray_from_ring(flight)
            self._time_out(flight)
        for flight in again:
            self._time_out(flight)
        self._deadline_ns = min((flight.deadline_ns for flight in self._flying()), default=0)
        return len(due) + len(again)

    @staticmethod
    def _is_due(flight: Flight, state: int, mono_ns: int) -> bool:
        return flight.state == state and flight.deadline_ns <= mono_ns

    def _flying(self) -> Iterator[Flight]:
        yield from self._ring.values()
        yield from (flight for flight in self.strays if flight.state == FLYING)

    def _time_out(self, flight: Flight) -> None:
        self.trace(TraceKind.TIMED_OUT, flight)
        flight.cause = _DISCONNECTED if self._land(flight) is None else _TIMED_OUT
        self.timeout_count += 1
        self._wait(flight)

    def release(self, wall_ns: int) -> int:
        released = 0
        while (flight := self.strays.take_due(wall_ns)) is not None:
            self.trace(TraceKind.RELEASED, flight)
            self._wait(flight)
            released += 1
        return released

    # --- messages that have used their attempts ---

    @property
    def exhausted(self) -> int:
        return self.strays.exhausted

    @property
    def attempts_max(self) -> int:
        return self._attempts_max

    @attempts_max.setter
    def attempts_max(self, value: int) -> None:
        """What waits, and what is exhausted and not taken, is judged anew."""
        self._attempts_max = value
        judged = [f for f in self.strays if f.state == WAITING and f.attempts >= value > 0]
        while (flight := self.strays.take_exhausted()) is not None:
            judged.append(flight)
        for flight in sorted(judged, key=lambda flight: (flight.offset, flight.id)):
            self._wait(flight)

    def must_not_redo(self, attempts: int) -> bool:
        """`attempts` is what a message that was in flight at a restart would come with now."""
        return attempts > self._attempts_max > 0

    def exhaust_next(self, id: int, attempts: int, key: bytes | None) -> None:
        """The message at the cursor has used its attempts."""
        flight = self.new_stray(id, attempts)
        self.keys.hold(flight, key)
        self._wait(flight)
        self.move_to(self.next + 1)

    def take_exhausted(self, count_max: int) -> list[StrayRecord]:
        taken: list[StrayRecord] = []
        while len(taken) < count_max:
            flight = self.strays.take_exhausted()
            if flight is None:
                break
            taken.append(
                StrayRecord(flight.offset, flight.id, flight.attempts, EXHAUSTED, 0, flight.cause)
            )
        return taken

    def settle_exhausted(self, id: int, done: bool) -> bool:
        flight = self.strays.get(id)
        if flight is None or not self._has_used_attempts(flight):
            return False
        if done:
            self.trace(TraceKind.DEAD_LETTERED, flight)
            self.drop_stray(flight)
        elif flight.state == EXHAUSTED:
            self._wait(flight)
        return True

    def _has_used_attempts(self, flight: Flight) -> bool:
        """Also one that was taken, and went behind another since."""
        is_behind = flight.state == BEHIND and self.is_spent(flight)
        return flight.state == EXHAUSTED or is_behind

    # --- reading ---

    def find(self, which: int, offset: int) -> Batch | None:
        """The batch that holds `offset`, from memory or from a block read for it."""
        batch = self.tail.find(offset)
        if batch is None and which == Source.STRAY:
            batch = find_batch(self._blocks[Source.STRAY], offset)
        return batch or find_batch(self._blocks[Source.FORWARD], offset)

    def need(self, which: int, offset: int) -> None:
        if not self._needed[which]:
            self._needed[which] = True
            self._engine.need(self, which, offset)

    def load(self, which: int, block: Buffer) -> int:
        batches = split_block(block)
        self._blocks[which][:] = batches
        self._needed[which] = False
        self.mark()
        return len(batches)

    def lose(self, id: int) -> None:
        flight = self.strays.get(id)
        if flight is not None:
            self._lose(flight, TraceKind.CORRUPT)
        self._needed[Source.STRAY] = False
        self.mark()

    def lose_range(self, start: int, end: int, kind: int = TraceKind.SKIPPED) -> int:
        """Drop every stray of [start, end), which is noted as `kind`. Returns how many."""
        lost = [flight for flight in self.strays if start <= flight.offset < end]
        for flight in lost:
            self._lose(flight, kind)
        self._needed[Source.STRAY] = False
        self.mark()
        return len(lost)

    def _lose(self, flight: Flight, kind: int) -> None:
        if flight.state == FLYING:
            self._land(flight)
        self.trace(kind, flight)
        self.drop_stray(flight)

    def outdate(self, offset: int) -> int:
        if offset <= self._outdated_end:
            return 0
        self._outdated_end = offset
        before = self.depth + self.delayed
        passive = (WAITING, DELAYED, BEHIND)
        old = [f for f in self.strays if f.offset < offset and f.state in passive]
        for flight in sorted(old, key=lambda flight: (flight.offset, flight.id)):
            self.trace(TraceKind.SKIPPED, flight)
            self.drop_stray(flight)
        self._needed[Source.STRAY] = False
        self.skip(self.next, offset)
        expired = before - self.depth - self.delayed
        self.expired_count += expired
        self.mark()
        return expired

    # --- for people and tests ---

    def in_flight_records(self, count_max: int) -> list[tuple[int, int, int, int, int]]:
        found: list[tuple[int, int, int, int, int]] = []
        for flight in self._flying():
            if len(found) >= count_max:
                break
            serial = flight.conn.serial if flight.conn else 0
            found.append((flight.offset, flight.id, flight.attempts, serial, flight.deadline_ns))
        return found

    def stray_records(self, state: int, count_max: int) -> list[StrayRecord]:
        found = [
            StrayRecord(one.offset, one.id, one.attempts, state, self._due_of(one))
            for one in self.strays
            if one.state == state
        ]
        return nsmallest(count_max, found, key=lambda record: (record.due_ns, record))

    def unfinished_below(self, offset: int) -> int:
        return sum(one.offset < offset for one in (*self._ring.values(), *self.strays))

    @staticmethod
    def _due_of(flight: Flight) -> int:
        return flight.due_ns if flight.state == DELAYED else 0

    # --- by hand ---

    def holder(self, id: int) -> int:
        flight = self._ring.get(id) or self.strays.get(id)
        if flight is None or flight.state not in (RINGED, FLYING):
            return 0
        return flight.conn.serial if flight.conn is not None else 0

    def settle_stray(self, id: int, due_ns: int) -> bool:
        flight = self.strays.get(id)
        if flight is None or flight.state not in (WAITING, DELAYED, BEHIND):
            return False
        self.trace(TraceKind.FINISHED if due_ns < 0 else TraceKind.REQUEUED, flight)
        if due_ns < 0:
            self.finish_count += 1
            self.drop_stray(flight)
        else:
            self.requeue_count += 1
            if due_ns > 0 and flight.offset >= self._outdated_end:
                self.sleep(flight, due_ns)
            elif flight.state != BEHIND:  # it has to wait for those before it
                self._wait(flight)
        self._needed[Source.STRAY] = False
        self.mark()
        return True

    def validate(self) -> None:
        self.strays.validate(self.tags.queues)
        self.keys.validate()
        self.skips.validate()
        self.beyond.validate(self.next)
        if max(self.parked_end, self.search_end) > self.tail.handed_end:
            raise RuntimeError("delayed messages are looked for beyond what is handed over")
        low = self.low
        if not low <= self.next or self.next - low > RING_SPAN_MAX:
            raise RuntimeError(f"window [{low}, {self.next}) is out of shape")
        ringed = [flight for flight in self._order if flight.state == RINGED]
        if ringed != list(self._ring.values()):
            raise RuntimeError("the ring and its order do not match")
        offsets = [flight.offset for flight in ringed]
        if offsets != sorted(set(offsets)) or (offsets and offsets[-1] >= self.next):
            raise RuntimeError(f"offsets in the ring do not rise below {self.next}: {offsets}")
        both = set(offsets).intersection(flight.offset for flight in self.strays)
        if both:
            raise RuntimeError(f"offsets {both} are strays and in the ring")
        self._validate_flying()

    def _validate_flying(self) -> None:
        for flight in self._flying():
            if flight.deadline_ns < self._deadline_ns:
                raise RuntimeError(f"offset {flight.offset} is due before the earliest deadline")
        for conn in self.conns:  # in all its windows together
            count = sum(window.in_flight_of(conn.serial) for window in conn.windows)
            if conn.in_flight != count:
                raise RuntimeError(
                    f"connection {conn.serial} counts {conn.in_flight} in flight, it has {count}"
                )
