"""Order among the messages of one channel in one partition: of each key, or of all.

A message **holds** its key from the moment it is sent until it is done: while it is in flight,
waits to be sent again, is delayed by a REQ, or is exhausted and not settled. Meanwhile its key is
busy, and other messages of it are put aside **behind** it, in the order of the log. When no message
holds the key any more, the first of them does, and is the next to be sent.

An order may begin while several messages of a key are in flight: all of them hold it. One that is
to be sent again while others hold the key gives up its hold and goes behind, so the last of them
that ends lets the first in the order of the log go.

With `Order.KEY` the key is the one that the batch's trailer has, and messages without one have no
order. With `Order.STRICT` all messages have one key, and the cursor waits where it would put one
aside. So it does with `Order.KEY` when too many are aside.

What a window has when it is restored, or told to keep an order, has keys that are **unknown** here:
they stand in the log. They are read before anything else is sent: first those of messages that hold
them, being in flight or delayed after they were sent; then the others, sent before or not, in the
order of the log, as far as the cursor has come. What is delayed and was never sent has no order
until it is due.

A message that has used its attempts holds its key like any other, and waits for its turn like any
other: where one that stands before it is not done, as after a change of the order, or where that
was scheduled and comes due, it goes behind, and is exhausted again when its turn comes. Nor does
the cursor wait for it where it stands before it. Else one that is held for ever would hold up what
comes before it.
"""

from __future__ import annotations

from bisect import insort
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from penstock.kernel.interface import Order, Source
from penstock.kernel.pure.flight import BEHIND, DELAYED, EXHAUSTED, FLYING, RINGED, WAITING, Flight
from penstock.limits import ASIDE_MAX

if TYPE_CHECKING:
    from penstock.kernel.pure.block import Batch
    from penstock.kernel.pure.cursor import Cursor
    from penstock.kernel.pure.window import Window

_ALL = b""  # the key of every message where the order is strict
_IN_FLIGHT, _DELAYED, _TO_SEND = 0, 1, 2  # in which order keys are looked up
_STATES = {_IN_FLIGHT: FLYING, _DELAYED: DELAYED}  # in which a message has the rank


def _place(flight: Flight) -> tuple[int, int]:
    return flight.offset, flight.id


class Busy:
    """A key that is busy."""

    def __init__(self) -> None:
        self.holders = 0  # more than one only of what was sent before there was this order
        self.is_crowded = False  # it is held since before there was this order, or by several
        self.behind: list[Flight] = []
        self._exhausted: Flight | None = None  # the last one that held it in this state

    def rest(self, flight: Flight) -> None:
        """A holder has used its attempts: it is not sent."""
        self._exhausted = flight

    @property
    def resting(self) -> Flight | None:
        """What holds it, if that is exhausted, and nothing else does."""
        flight = self._exhausted
        is_resting = flight is not None and flight.holds and flight.state == EXHAUSTED
        return flight if is_resting and self.holders == 1 else None


class KeyOrder:
    def __init__(self, cursor: Cursor) -> None:
        self.order = int(Order.NONE)
        self.aside_max = ASIDE_MAX
        self._cursor = cursor
        self._busy: dict[bytes, Busy] = {}
        self._unknown: list[tuple[int, int, int]] = []  # a heap: which first, offset, id
        self._stopped: tuple[int, bytes] = (-1, b"")  # where the cursor waits, and for which key

    def key_of(self, batch: Batch, offset: int) -> bytes | None:
        """None: there is no order for this message."""
        if self.order == Order.NONE:
            return None
        return _ALL if self.order == Order.STRICT else batch.key(offset - batch.base_offset)

    # --- at the cursor ---

    def is_busy(self, key: bytes | None) -> bool:
        return key in self._busy

    def stops(self, key: bytes) -> bool:
        """Has the cursor to wait, at a message whose key is busy?"""
        if self._has_room or self._cursor_passes(key):
            return False
        self._stopped = (self._cursor.next, key)
        return True

    @property
    def _has_room(self) -> bool:
        return self.order == Order.KEY and self._cursor.strays.behind < self.aside_max

    @property
    def stopped(self) -> bool:
        offset, key = self._stopped
        if self.order == Order.STRICT:
            offset, key = self._cursor.next, _ALL
        if offset != self._cursor.next or self._has_room or key not in self._busy:
            return False
        return not self._cursor_passes(key)

    def _cursor_passes(self, key: bytes) -> bool:
        """Does what the cursor is at stand before what holds its key, and is exhausted?"""
        flight = self._busy[key].resting
        return flight is not None and self._cursor.next < flight.offset

    # --- who holds a key, and who is behind ---

    def hold(self, flight: Flight, key: bytes | None) -> None:
        flight.key = key
        if key is not None:
            flight.holds = True
            busy = self._busy.setdefault(key, Busy())
            busy.holders += 1
            busy.is_crowded |= busy.holders > 1

    def put_behind(self, flight: Flight, key: bytes) -> None:
        """Its key is busy."""
        flight.key = key
        insort(self._busy[key].behind, flight, key=_place)
        self._cursor.strays.stand_behind(flight)
        self._pass_exhausted(key)

    def rest(self, flight: Flight) -> None:
        """It is exhausted, and is not sent."""
        if flight.holds and flight.key is not None:
            self._busy[flight.key].rest(flight)

    def _pass_exhausted(self, key: bytes) -> None:
        """What is exhausted holds up nothing that stands before it."""
        busy = self._busy[key]
        flight = busy.resting
        if flight is not None and busy.behind and _place(busy.behind[0]) < _place(flight):
            self._go_behind(flight, key)

    def _go_behind(self, flight: Flight, key: bytes) -> None:
        """It held its key."""
        self.put_behind(flight, key)
        self._give_up_hold(flight, key)

    def must_wait_behind(self, flight: Flight) -> bool:
        """A stray is to be sent: does it go behind another? If not, it holds its key now."""
        if flight.unknown:
            self._put_aside_unknown(flight)
            return True
        if flight.key is None:
            return False
        if self._unknown and self._unknown[0][0] == _IN_FLIGHT:
            self._look_up_later(flight)
            return True
        if flight.holds:
            return self._has_to_give_way(flight)
        if flight.key in self._busy:
            self.put_behind(flight, flight.key)
            return True
        self.hold(flight, flight.key)
        return False

    def _put_aside_unknown(self, flight: Flight) -> None:
        self._await_known(flight, _TO_SEND)
        self._cursor.strays.stand_behind(flight)

    def _look_up_later(self, flight: Flight) -> None:
        """Keys of messages in flight are not known yet; one may be the same, so it is sent after
        them."""
        self.let_go(flight)
        flight.key, flight.unknown = None, True
        self._put_aside_unknown(flight)

    def _has_to_give_way(self, flight: Flight) -> bool:
        """It holds its key: do others, too, or did one of them go behind that stands before it?"""
        key = flight.key
        if key is None:
            return False
        busy = self._busy[key]
        if not (busy.is_crowded or self._cursor.is_spent(flight)):
            return False
        if busy.holders == 1 and not (busy.behind and _place(busy.behind[0]) < _place(flight)):
            return False
        self._go_behind(flight, key)
        return True

    def let_go(self, flight: Flight) -> None:
        """It is done, or delayed before it was sent: the next of its key comes."""
        key = flight.key
        if key is None:
            return
        if flight.state == BEHIND:
            self._busy[key].behind.remove(flight)
        if flight.holds:
            self._give_up_hold(flight, key)

    def _give_up_hold(self, flight: Flight, key: bytes) -> None:
        flight.holds = False
        busy = self._busy[key]
        busy.holders -= 1
        if busy.holders:
            self._pass_exhausted(key)
        else:
            busy.is_crowded = False
            if busy.behind:
                self._send(busy.behind.pop(0))
            else:
                del self._busy[key]
                self._cursor.mark()  # it may have stopped at this key

    def _send(self, flight: Flight) -> None:
        """Nothing stands before it any more."""
        self.hold(flight, flight.key)
        self._cursor.wait_in_turn(flight)

    def delay(self, flight: Flight) -> None:
        """What was not sent yet has no order until it is due."""
        if flight.attempts == 0 or flight.state == BEHIND:
            self.let_go(flight)
        else:
            self._await_known(flight, _DELAYED)

    def clear(self) -> None:
        """All messages are forgotten."""
        self._busy.clear()
        self._unknown.clear()
        self._stopped = (-1, b"")

    # --- keys that are not known ---

    def begin(self, order: int) -> None:
        """Another order holds from now on."""
        cursor = self._cursor
        self.clear()
        self.order = order
        for flight in sorted(cursor.strays, key=_place):
            flight.key, flight.holds, flight.unknown = None, False, order != Order.NONE
            if flight.state in (WAITING, BEHIND):
                if not self.must_wait_behind(flight):
                    cursor.wait_in_turn(flight)
            elif flight.state == FLYING:
                heappush(self._unknown, (_IN_FLIGHT, flight.offset, flight.id))
            elif flight.state == EXHAUSTED:
                self.exhaust(flight)
            elif flight.attempts:
                self._await_known(flight, _DELAYED)

    def exhaust(self, flight: Flight) -> None:
        """It has used its attempts before its key is known."""
        self._await_known(flight, _TO_SEND)

    def _await_known(self, flight: Flight, rank: int) -> None:
        """It is not in flight. What holds its key comes first: nothing is to be sent beside it."""
        if flight.unknown:
            heappush(self._unknown, (rank, flight.offset, flight.id))

    def knows_all(self, window: Window) -> bool:
        """Has everything below the cursor its key? False: a block has to be read first."""
        while self._unknown:
            rank, offset, id = self._unknown[0]
            flight = window.strays.get(id)
            if flight is not None and self._is_awaited(flight, rank, offset):
                if rank == _TO_SEND and offset >= window.next:
                    return True
                batch = None if self.order == Order.STRICT else window.find(Source.STRAY, offset)
                if batch is None and self.order != Order.STRICT:
                    window.need(Source.STRAY, offset)
                    return False
                flight.unknown = False
                self._learn(flight, _ALL if batch is None else self.key_of(batch, offset))
                if flight.holds and flight.key is not None:
                    self._busy[flight.key].is_crowded = True
            heappop(self._unknown)
        return True

    @staticmethod
    def _is_awaited(flight: Flight, rank: int, offset: int) -> bool:
        """What is not in flight or not delayed any more stands in the heap once more, after what
        is."""
        is_outlived = flight.state != _STATES.get(rank, flight.state)
        return flight.unknown and flight.offset == offset and not is_outlived

    def _learn(self, flight: Flight, key: bytes | None) -> None:
        is_free = key is None or key not in self._busy
        if flight.state == FLYING or (flight.state == EXHAUSTED and is_free):
            self.hold(flight, key)
            if flight.state == EXHAUSTED:
                self.rest(flight)
        elif flight.state == DELAYED:
            flight.key = key
            if flight.attempts:
                self.hold(flight, key)
        elif key is not None and key in self._busy:
            self.put_behind(flight, key)
        else:
            flight.key = key
            self._send(flight)

    # --- for tests ---

    def validate(self) -> None:
        flights = [*self._cursor.strays, *self._cursor.ringed()]
        for key, busy in self._busy.items():
            holders = sum(flight.holds for flight in flights if flight.key == key)
            if not 0 < holders == busy.holders:
                raise RuntimeError(f"key {key!r} has {holders} holders, {busy.holders} are counted")
            if busy.behind != sorted(busy.behind, key=_place):
                raise RuntimeError(f"what is behind key {key!r} is out of order")
        behind = {flight.id for busy in self._busy.values() for flight in busy.behind}
        awaited = {id for _, _, id in self._unknown}
        for flight in flights:
            self._validate_one(flight, behind, awaited)

    def _validate_one(self, flight: Flight, behind: set[int], awaited: set[int]) -> None:
        id = flight.id
        if flight.holds and flight.key not in self._busy:
            raise RuntimeError(f"message {id:016x} holds key {flight.key!r}, which is not busy")
        if (flight.state == BEHIND and not flight.unknown) != (id in behind):
            raise RuntimeError(f"message {id:016x} is aside, and behind nothing")
        if flight.state == BEHIND and flight.unknown and id not in awaited:
            raise RuntimeError(f"the key of message {id:016x} will never be known")
        is_sent = flight.state in (WAITING, FLYING, RINGED) and flight.key is not None
        if is_sent and not flight.holds:
            raise RuntimeError(f"message {id:016x} does not hold its key {flight.key!r}")
        if flight.state == WAITING and flight.unknown:
            raise RuntimeError(f"message {id:016x} waits to be sent with a key that is not known")
