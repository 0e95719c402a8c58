"""PUB and MPUB: from bytes to the open batch.

COMMAND --PUB--> PUB_SIZE --> PUB_BODY --appended--> COMMAND
COMMAND --MPUB-> MPUB_TOPIC -> MPUB_TOTAL -> MPUB_COUNT -> MPUB_BODIES
                 -> MPUB_DONE --appended--> COMMAND
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from penstock.kernel.interface import BadPub, Cut, Event, Verb
from penstock.kernel.pure.reader import SIZE_BYTES, HotStep, Reader, Step, read_size
from penstock.kernel.pure.route import ANY_PARTITION, NO_PARTITION, accepts, partition_of
from penstock.limits import BATCH_BYTES_MAX, NAME_BYTES_MAX

if TYPE_CHECKING:
    from penstock.kernel.pure.engine import Engine
    from penstock.kernel.pure.route import Route
    from penstock.kernel.pure.tail import Tail

# An enum member costs a look-up on each command.
PUB = int(Verb.PUB)
MPUB = int(Verb.MPUB)
SINGLE = (PUB, int(Verb.PUB_EXT))  # their body is one message
_valid_name = re.compile(rb"[.a-zA-Z0-9_-]+(#ephemeral)?").fullmatch


def name_is_valid(name: bytes) -> bool:
    return len(name) <= NAME_BYTES_MAX and _valid_name(name) is not None


class Publisher(Reader):
    def __init__(self, engine: Engine, serial: int) -> None:
        super().__init__(engine, serial)
        self._verb = 0  # of the publish at hand
        self._topic = b""
        self._partition = ANY_PARTITION
        self._partition_word = b""
        self._count = 0  # of the messages that an MPUB announced
        self._walk: Step = Publisher._mpub_bodies
        self._least_bytes = 0  # of one of them
        self._bodies: list[bytes] = []
        self._bodies_bytes = 0
        self._passing = False  # the publish at hand is refused: it is read, and not appended

    @abstractmethod
    def may_owe(self, tails: Sequence[Tail], verb: int) -> bool:
        """Is there room for one more publish into these tails?"""

    @abstractmethod
    def owe(self, tails: Sequence[Tail], verb: int) -> None:
        """One publish into the open batches of these tails is to be answered, once."""

    @property
    def bodies_kept(self) -> int:
        """Bytes of an MPUB that were moved out of the input."""
        return self._bodies_bytes if self._bodies else 0

    def forget_input(self) -> None:
        super().forget_input()
        self._bodies = []

    def missing(self) -> tuple[int, Cut, int] | None:
        cut = _CUTS.get(self._step)
        if cut is not None:
            return self._verb, cut, 0
        if self._step != self._walk:
            return super().missing()
        has_size = len(self._input) - self._at >= SIZE_BYTES
        return self._verb, Cut.MESSAGE if has_size else Cut.MESSAGE_SIZE, len(self._bodies)

    # --- a publish that is refused ---

    def pass_over(self) -> None:
        if not self.halted:
            raise RuntimeError("no publish waits for an answer")
        self._passing = True

    def _passed(self, end: int) -> bool:
        """All of the refused publish has come."""
        self._passing = False
        self._bodies = []
        self._use(end, Reader._command)
        return True

    # --- PUB ---

    def _pub(self, line: bytes, rest: bytes, end: int) -> bool:
        return self._publish(PUB, line, rest, end, Publisher._pub_size)

    def _mpub(self, line: bytes, rest: bytes, end: int) -> bool:
        self._walk, self._least_bytes = Publisher._mpub_bodies, SIZE_BYTES + 1
        return self._publish(MPUB, line, rest, end, Publisher._mpub_topic)

    def _publish(self, verb: int, line: bytes, rest: bytes, end: int, step: Step) -> bool:
        self._topic, _, more = rest.partition(b" ")
        self._verb = verb
        self._partition_word = more.partition(b" ")[0]
        self._partition = partition_of(self._partition_word)
        if line in self.hot:
            return self._bad_pub(verb, BadPub.PARAMS, 0, 0)
        route = self.engine.routes.get(self._topic)
        if route is None and not name_is_valid(self._topic):
            return self._bad_pub(verb, BadPub.TOPIC_NAME, 0, 0)
        if not (self._passing or self._has_target(verb, route)):
            return False
        self._at = end
        self._step = step
        return True

    def _has_target(self, verb: int, route: Route | None) -> bool:
        """If not, an event says so."""
        if not self._has_partition(route):
            return self._bad_partition(verb)
        if self._lacks_place(verb, route):
            return self._emit(Event.BAD_PUB, self, verb, BadPub.PARTITION, b"", 0, 0)
        if self._partition > 0 and route is None:
            # before the body: a client may wait for the answer
            return self._emit(Event.TOPIC, self, verb, self._topic)
        return True

    def _has_partition(self, route: Route | None) -> bool:
        """Of a topic that is not known yet, any may exist."""
        number = self._partition
        if number < 0 or route is None:
            return number != NO_PARTITION
        return route.find(number) is not None

    def _lacks_place(self, verb: int, route: Route | None) -> bool:
        """The other verbs may have keys."""
        placed = route is not None and route.placed
        return placed and self._partition < 0 and verb in (PUB, MPUB)

    def _bad_partition(self, verb: int) -> bool:
        word = self._partition_word
        return self._emit(Event.BAD_PUB, self, verb, BadPub.PARTITION, word, 0, 0)

    def _bad_pub(self, verb: int, reason: BadPub, a: int, b: int) -> bool:
        return self._emit(Event.BAD_PUB, self, verb, reason, self._topic, a, b)

    def _pub_size(self) -> bool:
        size = self._int_at(self._at)
        if size is None:
            return False
        if size <= 0:
            return self._bad_pub(PUB, BadPub.SIZE_INVALID, size, 0)
        if size > self.engine.message_bytes_max:
            limit = self.engine.message_bytes_max
            return self._bad_pub(PUB, BadPub.SIZE_TOO_BIG, size, limit)
        self._at += SIZE_BYTES
        self._size = size
        self._step = Publisher._pub_body
        return self._pub_body()

    def _pub_body(self) -> bool:
        end = self._at + self._size
        if len(self._input) < end:
            return False
        if self._passing:
            return self._passed(end)
        tail = self._open_tail(PUB, 1)
        if tail is None:
            return False
        body = bytes(memoryview(self._input)[self._at : end])
        self._use(end, Reader._command)
        tail.extend((body,), self)  # type: ignore[arg-type]
        self._appended([tail], PUB, 1)
        return True

    def _open_tail(self, verb: int, count: int) -> Tail | None:
        """The tail for the publish at hand; None when it can't be appended now."""
        route = self._known_route()
        if route is None:
            self._emit(Event.TOPIC, self, verb, self._topic)
            return None
        if self._lacks_place(verb, route):  # since it was held, or its body was under way
            self._emit(Event.BAD_PUB, self, verb, BadPub.PARTITION, b"", 0, 0)
            return None
        tail = route.pick(count) if self._partition < 0 else route.find(self._partition)
        if tail is None:
            self._bad_partition(verb)
        elif not self._is_blocked(verb, {tail: count}):
            return tail
        return None

    def _is_blocked(self, verb: int, counts: Mapping[Tail, int]) -> bool:
        """Can so many messages for these tails not be appended now?"""
        for tail, count in counts.items():
            if not accepts(tail, count):
                if len(counts) == 1:
                    self._emit(Event.REFUSED, self, verb, tail, count)
                else:
                    self._emit(Event.SPREAD_REFUSED, self, verb, list(counts.items()))
                return True
        if not self.may_owe(list(counts), verb):
            self.held = True
            return True
        for tail in counts:
            if tail.open_size > BATCH_BYTES_MAX:
                length = self._size if verb in SINGLE else self._bodies_bytes
                if tail.stall(self, length):  # type: ignore[arg-type]
                    self.stalled = True
                else:
                    self._emit(Event.CROWDED, self, verb, tail, length)
                return True
        return False

    def _known_route(self) -> Route | None:
        """None when Python has a say before the publish: no tail yet, or no leave yet."""
        if self.allowed is not None and self._topic not in self.allowed:
            return None
        return self.engine.routes.get(self._topic)

    def _appended(self, tails: Sequence[Tail], verb: int, count: int) -> None:
        topic = tails[0].topic
        self.published[topic] = self.published.get(topic, 0) + count
        self.owe(tails, verb)

    # --- MPUB ---

    def _mpub_topic(self) -> bool:
        route = self._known_route()
        if route is None and not self._passing:
            return self._emit(Event.TOPIC, self, self._verb, self._topic)
        if not (self._passing or self._has_partition(route)):
            return self._bad_partition(self._verb)
        self._step = Publisher._mpub_total
        return True

    def _mpub_total(self) -> bool:
        total = self._int_at(self._at)
        if total is None:
            return False
        if total <= 0:
            return self._bad_pub(self._verb, BadPub.BODY_INVALID, total, 0)
        if total > self.engine.body_bytes_max:
            limit = self.engine.body_bytes_max
            return self._bad_pub(self._verb, BadPub.BODY_TOO_BIG, total, limit)
        self._at += SIZE_BYTES
        self._step = Publisher._mpub_count
        return True

    def _mpub_count(self) -> bool:
        count = self._int_at(self._at)
        if count is None:
            return False
        if not 0 < count <= (self.engine.body_bytes_max - SIZE_BYTES) // self._least_bytes:
            return self._bad_pub(self._verb, BadPub.COUNT_INVALID, count, 0)
        self._at += SIZE_BYTES
        self._count = count
        self._bodies = []
        self._bodies_bytes = SIZE_BYTES
        self._step = self._walk
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
            while len(bodies) < self._count and have >= at + SIZE_BYTES:
                size = read_size(data, at)[0]
                total = self._bodies_bytes + SIZE_BYTES + size
                if not (0 < size <= limit and total <= body_bytes_max):
                    self._at = at
                    return self._bad_message(size, total)
                end = at + SIZE_BYTES + size
                if have < end:
                    break
                bodies.append(bytes(data[at + SIZE_BYTES : end]))
                self._bodies_bytes = total
                at = end
        self._at = at
        if len(bodies) < self._count:
            return False
        self._step = Publisher._mpub_done
        return True

    def _bad_message(self, size: int, total: int) -> bool:
        if size <= 0:
            return self._bad_pub(MPUB, BadPub.MESSAGE_INVALID, len(self._bodies), size)
        if size > self.engine.message_bytes_max:
            limit = self.engine.message_bytes_max
            return self._bad_pub(MPUB, BadPub.MESSAGE_TOO_BIG, size, limit)
        return self._bad_pub(MPUB, BadPub.BODY_TOO_BIG, total, self.engine.body_bytes_max)

    def _mpub_done(self) -> bool:
        if self._passing:
            return self._passed(self._at)
        tail = self._open_tail(MPUB, self._count)
        if tail is None:
            return False
        bodies, self._bodies = self._bodies, []
        self._use(self._at, Reader._command)
        tail.extend(bodies, self)  # type: ignore[arg-type]
        self._appended([tail], MPUB, len(bodies))
        return True

    hot: ClassVar[dict[bytes, HotStep]] = {**Reader.hot, b"PUB": _pub, b"MPUB": _mpub}


_CUTS: dict[Step, Cut] = {
    Publisher._pub_size: Cut.SIZE,
    Publisher._pub_body: Cut.BODY,
    Publisher._mpub_total: Cut.SIZE,
    Publisher._mpub_count: Cut.COUNT,
}
