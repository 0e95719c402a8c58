"""Delivery: from a window to its consumers, in the order and shares that the rules give.

While there are messages and consumers with room, each consumer in turn gets up to its fair share.
When both new messages and waiting strays are there, each share is split between the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.kernel.interface import Locality, Order, Source
from penstock.kernel.layout import MESSAGE_HEAD
from penstock.kernel.pure.extframe import between
from penstock.kernel.pure.parking import park_delayed, park_next, special_at_cursor
from penstock.kernel.pure.shares import PASSED_BY, PUT_OFF, Phase, gather_siblings, offer, share_out
from penstock.kernel.pure.sifting import Fate, Sifting
from penstock.kernel.trace_interface import TraceKind
from penstock.limits import CHUNK_BYTES, REFILL_NS

if TYPE_CHECKING:
    from penstock.kernel.pure.block import Batch, Special
    from penstock.kernel.pure.conn import Conn
    from penstock.kernel.pure.engine import Engine
    from penstock.kernel.pure.flight import Flight
    from penstock.kernel.pure.window import Window

_HEAD_BYTES = MESSAGE_HEAD.size  # of a frame, before the body
_SIZE_BYTES = 4  # the first field of the frame does not count itself
_MESSAGE_TYPE = 2
_BEYOND_ALL = max(Locality) + 1


def message_head(size: int, timestamp_ns: int, attempts: int, id: int) -> bytes:
    return MESSAGE_HEAD.pack(
        _HEAD_BYTES - _SIZE_BYTES + size, _MESSAGE_TYPE, timestamp_ns, attempts, b"%016x" % id
    )


def pump_all(engine: Engine) -> None:
    """See to all windows that are listed. Those whose consumers have others beside them go on in
    rounds, until nothing more is sent within the shares; then the rest is for any."""
    gather_siblings(engine)
    pumps, engine.pumps = engine.pumps, {}
    rest = sorted(pumps, key=lambda window: window.number)
    rest, sent = _pump_round(rest, engine, Phase.FIRST)
    for phase in (Phase.NEXT, Phase.SPLIT):
        while rest and sent:
            rest, sent = _pump_round(rest, engine, phase)
        sent = 1
    for window in rest:
        pump(window, engine, free=True)


def _pump_round(windows: list[Window], engine: Engine, phase: Phase) -> tuple[list[Window], int]:
    """Those are returned that have more to send, and a consumer with room for others; and how many
    messages were sent."""
    share_out(windows, phase)
    sent_before = engine.sent_count
    rest = [window for window in windows if not window.forgotten and pump(window, engine)]
    return rest, engine.sent_count - sent_before


def pump(window: Window, engine: Engine, free: bool = False) -> bool:
    """Deliver while there are messages and consumers with room. Was a consumer passed by for the
    sake of its other windows?"""
    park_delayed(window, engine)
    patient = engine.mono_ns < engine.refills.get(window, engine.mono_ns + 1)
    if not patient:
        del engine.refills[window]
    if window.conns and not window.paused and not window.keys.knows_all(window):
        return False
    prefers = window.prefers
    least, nearer = 0, _BEYOND_ALL
    while not window.paused and window.allowance > 0 and window.deliverable > 0:
        if prefers:
            patient = False  # to wait for a better refill would send messages further away
            places = (conn.locality for conn in window.conns if conn.room() > 0)
            least = max((place for place in places if place < nearer), default=0)
        conns = [conn for conn in window.conns if conn.locality >= least]
        offers = [offer(conn, window, patient, free) for conn in conns]
        if PUT_OFF in offers:
            engine.refills.setdefault(window, engine.mono_ns + REFILL_NS)
        ready = sum(count > 0 for count in offers)
        if ready == 0:
            return PASSED_BY in offers
        sent = _pump_once(window, engine, least, patient, free, ready)
        if sent == 0 and least > 0 and window.tags:
            nearer = least  # what there is may be for others, which are further away
            continue
        if sent == 0:
            return PASSED_BY in offers
        nearer = _BEYOND_ALL
        engine.sent_count += sent
    return False


def _pump_once(
    window: Window, engine: Engine, least: int, patient: bool, free: bool, ready: int
) -> int:
    """Each consumer gets up to its share of what there is. Returns how many were sent."""
    conns = window.conns
    first = window.turn % len(conns)
    share = -(-window.deliverable // ready)
    sent = 0
    for conn in conns[first:] + conns[:first]:
        if conn.locality >= least:
            quota = min(offer(conn, window, patient, free), share)
            count = Delivery(window, conn, engine).run(quota)
            if count and len(conn.windows) > 1 and not free:
                conn.shares.spend(window, count)
            sent += count
    if sent:
        window.turn = (first + 1) % len(conns)
    return sent


class Delivery:
    """One share of messages for one consumer."""

    def __init__(self, window: Window, conn: Conn, engine: Engine) -> None:
        self._window = window
        self._conn = conn
        self._engine = engine
        self._parts: list[bytes] = []  # of frames
        self._sifting = Sifting(window, conn, engine)
        self._is_long = conn.extended or conn.detailed or conn.enveloped
        self._size = len(conn.output)
        self._sent = 0

    def run(self, quota: int) -> int:
        """Up to `quota` messages; returns how many."""
        window = self._window
        if quota <= 0:
            return 0
        more = window.next < window.tail.handed_end
        split = more and window.strays.waiting > 0
        if window.strays.waiting:
            self._send_strays((quota + window.stray_turn) // 2 if split else quota)
        if more:
            self._send_new(quota)
            self._send_strays(quota)  # new messages may all be delayed, or have to be read first
        if self._sent:
            window.stray_turn ^= split  # an attempt that has to read first is no turn
            window.delivered[self._conn.locality] += self._sent
            data = b"".join(self._parts)
            window.spend(len(data))
            self._conn.deliver(data, self._sent)
        return self._sent

    def _put(self, batch: Batch, index: int, special: Special, attempts: int) -> None:
        body = batch.body(index)
        if self._is_long:
            body = between(self._conn, batch, index, self._window.tail.partition) + body
        self._parts.append(message_head(len(body), special.timestamp_ns, attempts, special.id))
        self._parts.append(body)
        self._size += _HEAD_BYTES + len(body)
        self._sent += 1

    # --- strays ---

    def _send_strays(self, quota: int) -> None:
        window = self._window
        while self._sent < quota and self._size < CHUNK_BYTES:
            flight, is_own = self._next_stray()
            if flight is None:
                return
            batch = window.find(Source.STRAY, flight.offset)
            if batch is None:
                window.need(Source.STRAY, flight.offset)
                return
            index = flight.offset - batch.base_offset
            if not (is_own or self._is_mine(batch, index)):
                continue
            if self._sifting.is_left_out(batch, index, flight.id, flight.attempts):
                self._sifting.note_left_out(flight.id, flight.offset, flight.attempts)
                window.drop_stray(flight)
                continue
            self._know_apart(flight, batch.ids(index, 1)[0])
            special = batch.special(index)._replace(id=flight.id)
            window.mark_traced(flight.id, special.trace_id)
            if self._is_hopeless(flight, special.timestamp_ns):
                window.trace(TraceKind.SKIPPED, flight)
                window.auto_ack_count += 1
                window.drop_stray(flight)
                continue
            window.send_stray(flight, special.timestamp_ns, self._conn, self._engine.mono_ns)
            window.trace(TraceKind.SENT, flight)
            self._put(batch, index, special, flight.attempts)

    def _know_apart(self, flight: Flight, log_id: int) -> None:
        """A stray gets the log's own id if another window of the consumer has a message of the id
        that it came with: a FIN means one message."""
        window, conn = self._window, self._conn
        if flight.id != log_id and not window.has(log_id) and conn.has_beside(window, flight.id):
            window.rename_stray(flight, log_id)

    def _is_hopeless(self, flight: Flight, timestamp_ns: int) -> bool:
        """Was it sent so often, and is it so old, that it is not sent again?"""
        window = self._window
        if not 0 < window.auto_ack_attempts < flight.attempts:
            return False
        return self._engine.wall_ns - timestamp_ns > window.auto_ack_age_ns

    def _next_stray(self) -> tuple[Flight | None, bool]:
        """Of those that wait: the consumer's own, or one that may be."""
        window = self._window
        if window.tags:
            flight = window.strays.first_of(window.tags.queue_of(self._sifting.mine))
            if flight is not None:
                return flight, True
        return window.strays.first_of(window.strays.queue), False

    def _is_mine(self, batch: Batch, index: int) -> bool:
        """Else it waits for others from now on."""
        window = self._window
        tag = self._sifting.class_of(batch, index)
        if tag == self._sifting.mine:
            return True
        window.tags.queue_of(tag).append(window.strays.queue.popleft())
        return False

    # --- new messages ---

    def _send_new(self, quota: int) -> None:
        window = self._window
        while self._sent < quota and self._size < CHUNK_BYTES:
            window.step_over()
            end = window.tail.handed_end
            if window.next >= end or window.keys.stopped or not window.keys.knows_all(window):
                return
            batch = window.find(Source.FORWARD, window.next)
            if batch is None:
                window.need(Source.FORWARD, window.next)
                return
            again = window.next < window.redo_end
            special = batch.base_offset + batch.special_from(window.next - batch.base_offset)
            ordered = window.order != Order.NONE
            if again or ordered or special == window.next or self._conn.sample_rate:
                if not self._send_one(batch):
                    return
                continue
            end = min(end, special, window.next + quota - self._sent)
            if window.skips:
                end = min(end, window.skips.first)
            if not self._send_next(batch, end - window.next):
                return

    def _send_next(self, batch: Batch, count: int) -> bool:
        """Messages that have nothing special. False: they are for others, and stay there."""
        sifting = self._sifting
        if sifting.sifts:
            fate, count = sifting.run(batch, self._window.next - batch.base_offset, count)
            if fate is not Fate.SENT_NOW:
                return sifting.sift_out(batch, fate, count)
        self._send_run(batch, count)
        return True

    def _send_run(self, batch: Batch, count: int) -> None:
        """The common case: a row of messages of one batch that have nothing special, as many as
        fit the chunk."""
        window = self._window
        index = window.next - batch.base_offset
        starts = batch.starts
        data = batch.data
        attempts = window.attempts_next()
        timestamp_ns = batch.timestamp_ns
        parts = self._parts
        size = self._size
        ids = batch.ids(index, count)
        done = 0
        for id in ids:
            rest = data[starts[index + done] : starts[index + done + 1]]
            if self._is_long:
                rest = between(self._conn, batch, index + done, window.tail.partition) + rest
            frame_bytes = _HEAD_BYTES + len(rest)
            if done and size + frame_bytes > CHUNK_BYTES:
                break
            parts.append(message_head(len(rest), timestamp_ns, attempts, id))
            parts.append(rest)
            size += frame_bytes
            done += 1
        self._size = size
        self._sent += done
        if window.trace_below:
            for place, id in enumerate(ids[:done]):
                window.trace_one(TraceKind.SENT, id, window.next + place, attempts, self._conn)
        window.ring(ids[:done], timestamp_ns, attempts, self._conn, self._engine.mono_ns)

    def _send_one(self, batch: Batch) -> bool:
        """A message that may be special: due later, with an id or attempts of its own, or sampled
        away. One that was in flight before a restart goes through the strays, whose attempts are
        journalled: the next restart counts on from there. False: it is for others, and stays
        where it is."""
        window, sifting = self._window, self._sifting
        index = window.next - batch.base_offset
        special = special_at_cursor(window, batch, self._conn)
        attempts = window.attempts_next()
        key = window.keys.key_of(batch, window.next)
        if special.due_ns > self._engine.wall_ns:
            park_next(window, special, key)
            return True
        busy = key is not None and window.keys.is_busy(key)
        if key is not None and busy and window.keys.stops(key):
            return False
        fate = Fate.SENT_NOW
        if not busy:
            fate = sifting.fate(batch, index, special.id, special.attempts)
        if fate is Fate.ASIDE and not sifting.has_room_aside():
            return False
        window.mark_traced(special.id, special.trace_id)
        window.beyond.met(window.next, special.due_ns)
        if key is not None and busy:
            window.wait_behind(special.id, special.attempts + attempts - 1, key)
        elif fate is Fate.LEFT_OUT:
            sifting.leave_one_out(special)
        elif attempts > 1 and window.must_not_redo(special.attempts + attempts):
            # its last attempt was in flight when the daemon ended
            window.exhaust_next(special.id, special.attempts + attempts - 1, key)
        elif fate is Fate.ASIDE:
            tag = sifting.class_of(batch, index)
            window.put_aside(special.id, special.attempts + attempts - 1, tag, key)
        elif special.own_id or special.attempts or attempts > 1:
            flight = window.new_stray(special.id, special.attempts + attempts - 1)
            window.keys.hold(flight, key)
            window.send_stray(flight, special.timestamp_ns, self._conn, self._engine.mono_ns)
            window.trace(TraceKind.SENT, flight)
            self._put(batch, index, special, flight.attempts)
            window.move_to(window.next + 1)
        else:
            self._put(batch, index, special, attempts)
            window.trace_one(TraceKind.SENT, special.id, window.next, attempts, self._conn)
            ids = (special.id,)
            mono_ns = self._engine.mono_ns
            window.ring(ids, special.timestamp_ns, attempts, self._conn, mono_ns, key)
        return True
