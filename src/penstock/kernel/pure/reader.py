"""The input side of a connection: V2 commands out of bytes, however they are cut.

    MAGIC --4 bytes--> COMMAND --a publish--> (publisher.py, extended.py) --appended--> COMMAND
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

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.kernel.interface import Cut, Event, Held
from penstock.kernel.pure.hexid import hex_to_id
from penstock.limits import LINE_BYTES_MAX

if TYPE_CHECKING:
    from penstock.kernel.pure.engine import Engine
    from penstock.kernel.pure.window import Window

# Of a connection, whose later parts have steps of their own.
Step = Callable[[Any], bool]
HotStep = Callable[[Any, bytes, bytes, int], bool]

MAGIC = b"  V2"
SIZE_BYTES = 4
_MAGIC_BYTES = 4
_ID_BYTES = 16
_COUNT_DIGITS_MAX = 10  # more can't be in range, and int() refuses thousands of digits
read_size = struct.Struct(">i").unpack_from


class Reader(ABC):
    """Holds the bytes received and the state they are read in."""

    def __init__(self, engine: Engine, serial: int) -> None:
        self.engine = engine
        self.serial = serial
        self.windows: tuple[Window, ...] = ()
        self.hit: Window | None = None  # had the message of the latest FIN; None: not subscribed
        self.rdy_now = self.rdy_asked = 0
        self.rdy_cap = 0  # an operator lets it have no more; 0: all
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
        self._step: Step = Reader._magic
        self._body_size_max = 0
        self._size = 0  # of the body that is being waited for

    # --- what a connection adds ---

    @abstractmethod
    def owes(self) -> bool:
        """Is a publish unanswered?"""

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

    def _use(self, end: int, step: Step) -> None:
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
        take = self.hot.get(name)
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
            self.ask_rdy(count)
            self.mark_windows()
        return True

    def ask_rdy(self, count: int) -> None:
        self.rdy_asked = count
        self.rdy_now = min(count, self.rdy_cap) if self.rdy_cap else count

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

    def _int_at(self, position: int) -> int | None:
        """The 4-byte number at `position`, None while it is not there."""
        if len(self._input) < position + SIZE_BYTES:
            return None
        value: int = read_size(self._input, position)[0]
        return value

    def missing(self) -> tuple[int, Cut, int] | None:
        """At the end of the stream: which verb lacks what, and in which message. None between
        commands, and within a line."""
        if self._step == Reader._body_size:
            return 0, Cut.SIZE, 0
        return (0, Cut.BODY, 0) if self._step == Reader._body else None

    # --- bodies that Python asked for ---

    def _body_size(self) -> bool:
        size = self._int_at(self._at)
        if size is None:
            return False
        if not 0 < size <= self._body_size_max:
            self._at += SIZE_BYTES
            self._step = Reader._command
            return self._emit(Event.BODY_SIZE, self, size)
        self._at += SIZE_BYTES
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

    hot: ClassVar[dict[bytes, HotStep]] = {b"RDY": _rdy, b"FIN": _fin, b"NOP": _nop}
