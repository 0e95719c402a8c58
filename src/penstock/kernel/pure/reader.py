"""The input side of a connection: V2 commands out of bytes, however they are cut.

    MAGIC --4 bytes--> COMMAND --PUB--> PUB_SIZE --> PUB_BODY --appended--> COMMAND
                       COMMAND --MPUB-> MPUB_TOPIC -> MPUB_TOTAL -> MPUB_COUNT -> MPUB_BODIES
                                        -> MPUB_DONE --appended--> COMMAND
                       COMMAND --any other--> LINE event, halted --resume--> COMMAND
    halted --read_body--> SIZE -> BODY --BODY event, halted--> COMMAND
    any --close_after_flush--> DRAINING: bytes are dropped

A step returns False when it can't go on: more bytes are needed, or the connection is

* halted: an event is out, and Python has yet to answer it;
* held: an earlier publish is unanswered, and what comes now would overtake its OK;
* stalled: the open batch of the topic is full.

The same step is then taken again later, so no step uses up bytes before it can do its work.
"""

from __future__ import annotations

import re
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.kernel.interface import BadPub, Cut, Event, Held, Verb
from penstock.kernel.pure.hexid import hex_to_id
from penstock.kernel.pure.route import ANY_PARTITION, NO_PARTITION, accepts, partition_of
from penstock.limits import BATCH_BYTES_MAX, LINE_BYTES_MAX, NAME_BYTES_MAX

if TYPE_CHECKING:
    from penstock.kernel.pure.engine import Engine
    from penstock.kernel.pure.route import Route
    from penstock.kernel.pure.tail import Tail
    from penstock.kernel.pure.window import Window

# An enum member costs a look-up on each command.
_PUB = int(Verb.PUB)
_MPUB = int(Verb.MPUB)
MAGIC = b"  V2"
_MAGIC_BYTES = 4
_SIZE_BYTES = 4
_ID_BYTES = 16
_COUNT_DIGITS_MAX = 10  # more can't be in range, and int() refuses thousands of digits
_read_size = struct.Struct(">i").unpack_from
_valid_name = re.compile(rb"[.a-zA-Z0-9_-]+(#ephemeral)?").fullmatch


def name_is_valid(name: bytes) -> bool:
    return len(name) <= NAME_BYTES_MAX and _valid_name(name) is not None


class Reader(ABC):
    """Holds the bytes received and the state they are read in; `Conn` is the rest."""

    def __init__(self, engine: Engine, serial: int) -> None:
        self.engine = engine
        self.serial = serial
        self.windows: tuple[Window, ...] = ()
        self.hit: Window | None = None  # had the message of the latest FIN; None: not subscribed
        self.rdy_now = 0
        self.closing = False
        self.last_command_ns = 0
        self.published: dict[bytes, int] = {}
        self.locked = False
        self.allowed: set[bytes] | None = None
        self.halted = False
        self.held = False
        self.stalled = False
        self._input = bytearray()
        self._at = 0  # what stands before it in the input is used up
        self._step: Callable[[Reader], bool] = Reader._magic
        self._body_size_max = 0
        self._topic = b""
        self._partition = ANY_PARTITION
        self._partition_word = b""
        self._size = 0  # of the body that is being waited for
        self._count = 0  # of the messages that an MPUB announced
        self._bodies: list[bytes] = []
        self._bodies_bytes = 0

    # --- what a connection adds ---

    @abstractmethod
    def owes(self) -> bool:
        """Is a publish unanswered?"""

    @abstractmethod
    def may_owe(self, tail: Tail, verb: int) -> bool: ...

    @abstractmethod
    def owe(self, tail: Tail, verb: int) -> None: ...

    @abstractmethod
    def drop(self, reason: str) -> None: ...

    # --- reading ---

    @property
    def stuck(self) -> bool:
        """More bytes would not help now."""
        return self.halted or self.held or self.stalled

    @property
    def unread(self) -> int:
        return len(self._input)

    @property
    def bodies_kept(self) -> int:
        """Bytes of an MPUB that were moved out of the input."""
        return self._bodies_bytes if self._bodies else 0

    def take_in(self, data: bytes | bytearray | memoryview) -> None:
        self._input += data

    def read_commands(self) -> None:
        """Take whole commands off the input until something is in the way."""
        while not (self.halted or self.held or self.stalled) and self._step(self):
            pass
        if self._at:
            del self._input[: self._at]
            self._at = 0

    def forget_input(self) -> None:
        self._input = bytearray()
        self._bodies = []
        self._at = 0

    def drain(self) -> None:
        """From now on bytes are dropped."""
        self._step = Reader._drop_input
        self.forget_input()

    def expect_body(self, size_max: int) -> None:
        self._body_size_max = size_max
        self._step = Reader._body_size

    def _emit(self, *event: Any) -> bool:
        """An event that Python has to answer. While a publish is unanswered it has to wait."""
        if self.owes():
            self.held = True
        else:
            self.halted = True
            self.engine.events.append(event)
        return False

    def _magic(self) -> bool:
        if len(self._input) < _MAGIC_BYTES:
            return False
        magic = bytes(self._input[:_MAGIC_BYTES])
        self._use(_MAGIC_BYTES, Reader._command)
        return magic == MAGIC or self._emit(Event.BAD_MAGIC, self, magic)

    def _drop_input(self) -> bool:
        self.forget_input()
        return False

    def _use(self, end: int, step: Callable[[Reader], bool]) -> None:
        """A command, or a part of one, is done with."""
        self._at = end
        self._step = step
        self.last_command_ns = self.engine.mono_ns

    # --- command lines ---

    def _command(self) -> bool:
        start = self._at
        end = self._input.find(b"\n", start, start + LINE_BYTES_MAX)
        if end < 0:
            if len(self._input) - start >= LINE_BYTES_MAX:
                self.drop("line too long")
            return False
        line = bytes(self._input[start:end])
        if line[-1:] == b"\r":
            line = line[:-1]
        name, _, rest = line.partition(b" ")
        take = _HOT.get(name)
        if take is None or self.locked:
            return self._line(line, end + 1)
        return take(self, line, rest, end + 1)

    def _line(self, line: bytes, end: int) -> bool:
        """A command for Python."""
        if not self.owes():
            self._use(end, Reader._command)
        return self._emit(Event.LINE, self, line.split(b" "))

    def _nop(self, line: bytes, rest: bytes, end: int) -> bool:
        self._use(end, Reader._command)
        return True

    def _rdy(self, line: bytes, rest: bytes, end: int) -> bool:
        count = self._count_of(line, rest)
        if self.hit is None or not 0 <= count <= self.engine.rdy_count_max:
            return self._line(line, end)
        self._use(end, Reader._command)
        if not self.closing:
            self.rdy_now = count
            self.mark_windows()
        return True

    @staticmethod
    def _count_of(line: bytes, rest: bytes) -> int:
        """The parameter of RDY: 1 when missing, 0 when empty, -1 when it is no count."""
        if len(line) == len(b"RDY"):
            return 1
        digits = rest.partition(b" ")[0].lstrip(b"0") or b"0"
        return int(digits) if digits.isdigit() and len(digits) <= _COUNT_DIGITS_MAX else -1

    def _fin(self, line: bytes, rest: bytes, end: int) -> bool:
        text = rest if len(rest) == _ID_BYTES else rest.partition(b" ")[0]
        id = hex_to_id(text)
        if self.hit is None or (id < 0 and (len(text) != _ID_BYTES or b" " in text)):
            return self._line(line, end)
        self._use(end, Reader._command)
        held = self._finish(self.hit, id) if id >= 0 else Held.NOT_IN_FLIGHT
        if held:
            self.engine.events.append((Event.FIN_FAILED, self, text, held))
        return True

    def _finish(self, hit: Window, id: int) -> int:
        """No two of its windows have a message of one id."""
        held = hit.finish(self.serial, id)
        for window in self.windows if held else ():
            if window is not hit:
                other = window.finish(self.serial, id)
                if other == Held.DONE:
                    self.hit = window
                    return other
                held = max(held, other)  # that another has it says more than that none has
        return held

    def mark_windows(self) -> None:
        """It may have room: see to the deliveries of them all."""
        for window in self.windows:
            window.mark()

    # --- PUB ---

    def _pub(self, line: bytes, rest: bytes, end: int) -> bool:
        return self._publish(_PUB, line, rest, end, Reader._pub_size)

    def _mpub(self, line: bytes, rest: bytes, end: int) -> bool:
        return self._publish(_MPUB, line, rest, end, Reader._mpub_topic)

    def _publish(
        self, verb: int, line: bytes, rest: bytes, end: int, step: Callable[[Reader], bool]
    ) -> bool:
        self._topic, _, more = rest.partition(b" ")
        self._partition_word = more.partition(b" ")[0]
        self._partition = partition_of(self._partition_word)
        if line in _HOT:
            return self._bad_pub(verb, BadPub.PARAMS, 0, 0)
        route = self.engine.routes.get(self._topic)
        if route is None and not name_is_valid(self._topic):
            return self._bad_pub(verb, BadPub.TOPIC_NAME, 0, 0)
        if not self._has_partition(route):
            return self._bad_partition(verb)
        if self._partition > 0 and route is None:
            # before the body: a client may wait for the answer
            return self._emit(Event.TOPIC, self, verb, self._topic)
        self._at = end
        self._step = step
        return True

    def _has_partition(self, route: Route | None) -> bool:
        """Of a topic that is not known yet, any may exist."""
        number = self._partition
        if number < 0 or route is None:
            return number != NO_PARTITION
        return route.find(number) is not None

    def _bad_partition(self, verb: int) -> bool:
        word = self._partition_word
        return self._emit(Event.BAD_PUB, self, verb, BadPub.PARTITION, word, 0, 0)

    def _bad_pub(self, verb: int, reason: BadPub, a: int, b: int) -> bool:
        return self._emit(Event.BAD_PUB, self, verb, reason, self._topic, a, b)

    def _int_at(self, position: int) -> int | None:
        """The 4-byte number at `position`, None while it is not there."""
        if len(self._input) < position + _SIZE_BYTES:
            return None
        value: int = _read_size(self._input, position)[0]
        return value

    def _pub_size(self) -> bool:
        size = self._int_at(self._at)
        if size is None:
            return False
        if size <= 0:
            return self._bad_pub(_PUB, BadPub.SIZE_INVALID, size, 0)
        if size > self.engine.message_bytes_max:
            limit = self.engine.message_bytes_max
            return self._bad_pub(_PUB, BadPub.SIZE_TOO_BIG, size, limit)
        self._at += _SIZE_BYTES
        self._size = size
        self._step = Reader._pub_body
        return self._pub_body()

    def _pub_body(self) -> bool:
        end = self._at + self._size
        if len(self._input) < end:
            return False
        tail = self._open_tail(_PUB, 1)
        if tail is None:
            return False
        body = bytes(memoryview(self._input)[self._at : end])
        self._use(end, Reader._command)
        tail.extend((body,), self)  # type: ignore[arg-type]
        self._appended(tail, _PUB, 1)
        return True

    def _open_tail(self, verb: int, count: int) -> Tail | None:
        """The tail for the publish at hand; None when it can't be appended now."""
        route = self._known_route()
        if route is None:
            self._emit(Event.TOPIC, self, verb, self._topic)
            return None
        tail = route.pick(count) if self._partition < 0 else route.find(self._partition)
        if tail is None:
            self._bad_partition(verb)
        elif not accepts(tail, count):
            self._emit(Event.REFUSED, self, verb, tail, count)
        elif not self.may_owe(tail, verb):
            self.held = True
        elif tail.open_bytes > BATCH_BYTES_MAX:
            self.stalled = True
            tail.stalled.append(self)  # type: ignore[arg-type]
        else:
            return tail
        return None

    def _known_route(self) -> Route | None:
        """None when Python has a say before the publish: no tail yet, or no leave yet."""
        if self.allowed is not None and self._topic not in self.allowed:
            return None
        return self.engine.routes.get(self._topic)

    def _appended(self, tail: Tail, verb: int, count: int) -> None:
        self.published[tail.topic] = self.published.get(tail.topic, 0) + count
        self.owe(tail, verb)

    # --- MPUB ---

    def _mpub_topic(self) -> bool:
        route = self._known_route()
        if route is None:
            return self._emit(Event.TOPIC, self, _MPUB, self._topic)
        if not self._has_partition(route):
            return self._bad_partition(_MPUB)
        self._step = Reader._mpub_total
        return True

    def _mpub_total(self) -> bool:
        total = self._int_at(self._at)
        if total is None:
            return False
        if total <= 0:
            return self._bad_pub(_MPUB, BadPub.BODY_INVALID, total, 0)
        if total > self.engine.body_bytes_max:
            limit = self.engine.body_bytes_max
            return self._bad_pub(_MPUB, BadPub.BODY_TOO_BIG, total, limit)
        self._at += _SIZE_BYTES
        self._step = Reader._mpub_count
        return True

    def _mpub_count(self) -> bool:
        count = self._int_at(self._at)
        if count is None:
            return False
        # a message takes 5 bytes at least
        if not 0 < count <= (self.engine.body_bytes_max - _SIZE_BYTES) // (_SIZE_BYTES + 1):
            return self._bad_pub(_MPUB, BadPub.COUNT_INVALID, count, 0)
        self._at += _SIZE_BYTES
        self._count = count
        self._bodies = []
        self._bodies_bytes = _SIZE_BYTES
        self._step = Reader._mpub_bodies
        return True

    def _mpub_bodies(self) -> bool:
        """Move whole messages out of the input. One still incomplete is not looked at again
        before it is there, so that the work stays in proportion to the bytes."""
        limit = self.engine.message_bytes_max
        body_bytes_max = self.engine.body_bytes_max
        bodies = self._bodies
        have = len(self._input)
        at = self._at
        with memoryview(self._input) as data:
            while len(bodies) < self._count and have >= at + _SIZE_BYTES:
                size = _read_size(data, at)[0]
                total = self._bodies_bytes + _SIZE_BYTES + size
                if not (0 < size <= limit and total <= body_bytes_max):
                    self._at = at
                    return self._bad_message(size, total)
                end = at + _SIZE_BYTES + size
                if have < end:
                    break
                bodies.append(bytes(data[at + _SIZE_BYTES : end]))
                self._bodies_bytes = total
                at = end
        self._at = at
        if len(bodies) < self._count:
            return False
        self._step = Reader._mpub_done
        return True

    def _bad_message(self, size: int, total: int) -> bool:
        if size <= 0:
            return self._bad_pub(_MPUB, BadPub.MESSAGE_INVALID, len(self._bodies), size)
        if size > self.engine.message_bytes_max:
            limit = self.engine.message_bytes_max
            return self._bad_pub(_MPUB, BadPub.MESSAGE_TOO_BIG, size, limit)
        return self._bad_pub(_MPUB, BadPub.BODY_TOO_BIG, total, self.engine.body_bytes_max)

    def _mpub_done(self) -> bool:
        tail = self._open_tail(_MPUB, self._count)
        if tail is None:
            return False
        bodies, self._bodies = self._bodies, []
        self._use(self._at, Reader._command)
        tail.extend(bodies, self)  # type: ignore[arg-type]
        self._appended(tail, _MPUB, len(bodies))
        return True

    def missing(self) -> tuple[int, Cut, int] | None:
        """At the end of the stream: which verb lacks what, and in which message. None between
        commands, and within a line."""
        if self._step == Reader._mpub_bodies:
            has_size = len(self._input) - self._at >= _SIZE_BYTES
            return _MPUB, Cut.MESSAGE if has_size else Cut.MESSAGE_SIZE, len(self._bodies)
        found = _CUTS.get(self._step)
        return None if found is None else (*found, 0)

    # --- bodies that Python asked for ---

    def _body_size(self) -> bool:
        size = self._int_at(self._at)
        if size is None:
            return False
        if not 0 < size <= self._body_size_max:
            self._at += _SIZE_BYTES
            self._step = Reader._command
            return self._emit(Event.BODY_SIZE, self, size)
        self._at += _SIZE_BYTES
        self._size = size
        self._step = Reader._body
        return True

    def _body(self) -> bool:
        end = self._at + self._size
        if len(self._input) < end:
            return False
        body = bytes(memoryview(self._input)[self._at : end])
        self._at = end
        self._step = Reader._command
        return self._emit(Event.BODY, self, body)


_HOT: dict[bytes, Callable[[Reader, bytes, bytes, int], bool]] = {
    b"PUB": Reader._pub,
    b"MPUB": Reader._mpub,
    b"RDY": Reader._rdy,
    b"FIN": Reader._fin,
    b"NOP": Reader._nop,
}
_CUTS: dict[Callable[[Reader], bool], tuple[int, Cut]] = {
    Reader._pub_size: (_PUB, Cut.SIZE),
    Reader._pub_body: (_PUB, Cut.BODY),
    Reader._mpub_total: (_MPUB, Cut.SIZE),
    Reader._mpub_count: (_MPUB, Cut.COUNT),
    Reader._body_size: (0, Cut.SIZE),
    Reader._body: (0, Cut.BODY),
}
