r"""PUB_EXT and MPUB_EXT: publishes with headers, whose keys choose the partition of each message.

    PUB_EXT <topic> [partition]\n   [size] [headers size, 2 bytes] [headers] [body]
    MPUB_EXT <topic> [partition]\n  [total] [count] ([size] [headers size] [headers] [body]) x count

    COMMAND --PUB_EXT--> EXT_SIZE --> EXT_BODY --appended--> COMMAND
    COMMAND --MPUB_EXT-> MPUB_TOPIC -> MPUB_TOTAL -> MPUB_COUNT -> EXT_MESSAGES
                         -> EXT_DONE --appended--> COMMAND

A command is appended whole or not at all, though to several tails, and then it waits for all their
batches: it is answered once, and with an error when one of them was not stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from penstock.kernel.batch_interface import Section
from penstock.kernel.interface import BadPub, Cut, Event, Verb
from penstock.kernel.pure.headers import parse_headers
from penstock.kernel.pure.publisher import Publisher
from penstock.kernel.pure.reader import SIZE_BYTES, HotStep, Reader

if TYPE_CHECKING:
    from penstock.kernel.pure.route import Route
    from penstock.kernel.pure.sections import Value
    from penstock.kernel.pure.tail import Tail

_PUB_EXT = int(Verb.PUB_EXT)
_MPUB_EXT = int(Verb.MPUB_EXT)
_HEADERS_SIZE_BYTES = 2  # which counts into the size
_MESSAGE_BYTES_MIN = 3


class _Piece(NamedTuple):
    headers: bytes
    key: bytes | None
    trace_id: int | None  # as a publisher gives it, who then hears where the message lies
    context_id: int  # of its trace context, where there is no such id
    has_others: bool
    body: bytes

    def sections(self, extended: bool) -> dict[int, Value]:
        found: dict[int, Value] = {}
        trace_id = self.context_id if self.trace_id is None else self.trace_id
        if trace_id:
            found[Section.TRACE] = trace_id
        if self.key is not None:
            found[Section.KEY] = self.key
        if self.headers and extended:
            found[Section.HEADERS] = self.headers
        return found


class Extended(Publisher):
    def _pub_ext(self, line: bytes, rest: bytes, end: int) -> bool:
        return self._publish(_PUB_EXT, line, rest, end, Extended._ext_size)

    def _mpub_ext(self, line: bytes, rest: bytes, end: int) -> bool:
        self._walk = Extended._ext_messages
        self._least_bytes = SIZE_BYTES + _MESSAGE_BYTES_MIN
        return self._publish(_MPUB_EXT, line, rest, end, Publisher._mpub_topic)

    def _ext_size(self) -> bool:
        size = self._int_at(self._at)
        if size is None:
            return False
        if size < _MESSAGE_BYTES_MIN:
            return self._bad_pub(_PUB_EXT, BadPub.SIZE_INVALID, size, 0)
        if len(self._input) < self._at + SIZE_BYTES + _HEADERS_SIZE_BYTES:
            return False
        if self._misfits(0, size, self._at):
            return False
        self._at += SIZE_BYTES
        self._size = size
        self._step = Extended._ext_body
        return self._ext_body()

    def _misfits(self, index: int, size: int, at: int) -> bool:
        """Is one of the two sizes wrong that stand there? Then an event says so."""
        headers_at = at + SIZE_BYTES
        headers_size = int.from_bytes(
            self._input[headers_at : headers_at + _HEADERS_SIZE_BYTES], "big"
        )
        body_size = size - _HEADERS_SIZE_BYTES - headers_size
        verb, limit = self._verb, self.engine.message_bytes_max
        if body_size < 0:
            self._bad_pub(verb, BadPub.HEADER_SIZE, index, headers_size)
        elif body_size == 0 and verb == _PUB_EXT:
            self._bad_pub(verb, BadPub.SIZE_INVALID, 0, 0)
        elif body_size == 0:
            self._bad_pub(verb, BadPub.MESSAGE_INVALID, index, 0)
        elif body_size > limit:
            reason = BadPub.SIZE_TOO_BIG if verb == _PUB_EXT else BadPub.MESSAGE_TOO_BIG
            self._bad_pub(verb, reason, body_size, limit)
        else:
            return False
        return True

    def _ext_body(self) -> bool:
        end = self._at + self._size
        if len(self._input) < end:
            return False
        if self._passing:
            return self._passed(end)
        piece = self._piece_of(0, bytes(memoryview(self._input)[self._at : end]))
        return piece is not None and self._take([piece], end)

    def _ext_messages(self) -> bool:
        """Move whole messages out of the input, as `Publisher._mpub_bodies` does."""
        while len(self._bodies) < self._count:
            index = len(self._bodies)
            size = self._int_at(self._at)
            if size is None:
                return False
            if size < _MESSAGE_BYTES_MIN:
                return self._bad_pub(_MPUB_EXT, BadPub.MESSAGE_INVALID, index, size)
            if len(self._input) < self._at + SIZE_BYTES + _HEADERS_SIZE_BYTES:
                return False
            if self._misfits(index, size, self._at):
                return False
            total, limit = self._bodies_bytes + SIZE_BYTES + size, self.engine.body_bytes_max
            if total > limit:
                return self._bad_pub(_MPUB_EXT, BadPub.BODY_TOO_BIG, total, limit)
            end = self._at + SIZE_BYTES + size
            if len(self._input) < end:
                return False
            self._bodies.append(bytes(memoryview(self._input)[self._at + SIZE_BYTES : end]))
            self._bodies_bytes = total
            self._at = end
        self._step = Extended._ext_done
        return True

    def _ext_done(self) -> bool:
        if self._passing:
            return self._passed(self._at)
        pieces = []
        for index, message in enumerate(self._bodies):
            piece = self._piece_of(index, message)
            if piece is None:
                return False
            pieces.append(piece)
        if not self._take(pieces, self._at):
            return False
        self._bodies = []
        return True

    def _piece_of(self, index: int, message: bytes) -> _Piece | None:
        """None where its headers are wrong, and an event says so."""
        body_at = _HEADERS_SIZE_BYTES + int.from_bytes(message[:_HEADERS_SIZE_BYTES], "big")
        headers, body = message[_HEADERS_SIZE_BYTES:body_at], message[body_at:]
        if not headers:
            return _Piece(b"", None, None, 0, False, body)
        told = parse_headers(headers)
        if told.wrong_at >= 0:
            self._bad_pub(self._verb, BadPub.HEADER_INVALID, index, told.wrong_at)
            return None
        return _Piece(headers, told.key, told.trace_id, told.context_id, told.has_others, body)

    def _take(self, pieces: Sequence[_Piece], end: int) -> bool:
        """Append each to its tail. False where they are not appended now, or not at all."""
        verb, route = self._verb, self._known_route()
        if route is None:
            return self._emit(Event.TOPIC, self, verb, self._topic)
        if not route.extended and any(piece.has_others for piece in pieces):
            reason = BadPub.HEADER_REFUSED
            return self._end_with(end, Event.BAD_PUB, self, verb, reason, self._topic, 0, 0)
        tails = self._spread(route, pieces, end)
        if not tails or self._is_blocked(verb, Counter(tails)):
            return False
        first = pieces[0]
        if verb == _PUB_EXT and first.trace_id is not None:
            headers = first.headers if route.extended else b""
            said = (headers, first.key, first.trace_id, first.body)
            return self._end_with(end, Event.TRACED, self, verb, tails[0], *said)
        self._use(end, Reader._command)
        for piece, tail in zip(pieces, tails, strict=True):
            sections = piece.sections(route.extended)
            tail.append(piece.body, 0, sections, self)  # type: ignore[arg-type]
        self._appended(list(dict.fromkeys(tails)), verb, len(pieces))
        return True

    def _spread(self, route: Route, pieces: Sequence[_Piece], end: int) -> list[Tail]:
        """The tail of each message; none where one is not there, and an event says so."""
        chosen = route.find(self._partition)
        keyless = sum(piece.key is None for piece in pieces)
        if self._partition < 0 and keyless:
            if route.placed:
                return self._without_tails(b"", end)
            chosen = route.pick(keyless)
        tails = []
        for piece in pieces:
            number = self._partition
            tail = chosen
            if number < 0 and piece.key is not None:
                number = route.place_of_key(piece.key)
                tail = route.find(number)
            if tail is None:
                return self._without_tails(b"%d" % number, end)
            tails.append(tail)
        return tails

    def _without_tails(self, word: bytes, end: int) -> list[Tail]:
        self._end_with(end, Event.BAD_PUB, self, self._verb, BadPub.PARTITION, word, 0, 0)
        return []

    def _end_with(self, end: int, *event: Any) -> bool:
        """The command is used up by what Python hears of it, now or when nothing is owed."""
        if not self.owes():
            self._use(end, Reader._command)
            self._bodies = []
        return self._emit(*event)

    def missing(self) -> tuple[int, Cut, int] | None:
        if self._step == Extended._ext_size:
            has_size = len(self._input) - self._at >= SIZE_BYTES
            return self._verb, Cut.BODY if has_size else Cut.SIZE, 0
        if self._step == Extended._ext_body:
            return self._verb, Cut.BODY, 0
        return super().missing()

    hot: ClassVar[dict[bytes, HotStep]] = {
        **Publisher.hot,
        b"PUB_EXT": _pub_ext,
        b"MPUB_EXT": _mpub_ext,
    }
