"""What tails and channels are, in the plainest words that can be run.

What is committed to a tail is handed to all of its channels: each gets a copy. A copy waits, is
delayed, or is in flight at one consumer until a deadline. Finished copies are forgotten. Nothing
here is clever, fast, or shared with the product.

The model does not say what is delivered next, but where there is an order. It says whether a
delivery is allowed, and what must be there in the end. Times are nanoseconds: `mono_ns` for message
timeouts, `wall_ns` for delays.

Random histories hold the kernel against it (`test_model.py`).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from penstock.kernel import Order


class State(Enum):
    WAITING = "waiting"
    DELAYED = "delayed"
    IN_FLIGHT = "in flight"
    EXHAUSTED = "exhausted"  # it has used its attempts


class Answer(Enum):
    """What becomes of a FIN, REQ or TOUCH."""

    DONE = ""
    NOT_IN_FLIGHT = "ID not in flight"
    NOT_OWNER = "client does not own message"


class Forbidden(AssertionError):
    """The product did what the model does not allow."""


@dataclass(slots=True)
class Copy:
    """One message in one channel."""

    body: bytes
    state: State = State.WAITING
    attempts: int = 0
    due_ns: int = 0  # wall: when a delayed copy may go
    owner: int = 0  # the consumer that has it in flight
    delivered_ns: int = 0  # mono
    deadline_ns: int = 0  # mono
    key: bytes = b""  # with an order: what comes one after the other
    offset: int = 0
    tag: bytes = b""  # whose consumers get it, if there are any
    is_scheduled: bool = False  # it was published with a delay
    has_turn: bool = False  # with an order: it was sent, and nothing else is until it is done
    is_older: bool = False  # it was here when the order, or the daemon, began


@dataclass(slots=True)
class ConsumerModel:
    number: int
    timeout_ns: int
    rdy: int = 0
    closing: bool = False
    tag: bytes = b""


@dataclass(slots=True)
class ChannelModel:
    name: str
    paused: bool = False
    copies: dict[bytes, Copy] = field(default_factory=dict)
    consumers: dict[int, ConsumerModel] = field(default_factory=dict)
    requeues: int = 0
    timeouts: int = 0
    attempts_max: int = 0  # 0: no bound
    order: Order = Order.NONE
    passed: tuple[int, int] = (0, 0)  # the instant of the last look at timers: mono, wall

    # --- numbers ---

    def in_state(self, state: State) -> list[Copy]:
        return [copy for copy in self.copies.values() if copy.state is state]

    def held_by(self, number: int) -> list[Copy]:
        return [copy for copy in self.in_state(State.IN_FLIGHT) if copy.owner == number]

    def room_of(self, consumer: ConsumerModel) -> int:
        if consumer.closing:
            return 0
        return consumer.rdy - len(self.held_by(consumer.number))

    def is_for(self, copy: Copy, consumer: ConsumerModel) -> bool:
        """Those of its tag, or where there are none those without one."""
        present = {one.tag for one in self.consumers.values()}
        return consumer.tag == (copy.tag if copy.tag in present else b"")

    def has_room(self, copy: Copy) -> bool:
        """Could a consumer have it now?"""
        consumers = self.consumers.values()
        return any(self.is_for(copy, one) and self.room_of(one) > 0 for one in consumers)

    def beside(self, copy: Copy) -> Iterator[Copy]:
        """The others that the order has something to say about."""
        if self.order is Order.STRICT or (self.order is Order.KEY and copy.key):
            for one in self.copies.values():
                if one is not copy and (self.order is Order.STRICT or one.key == copy.key):
                    yield one

    def may_go(self, copy: Copy) -> bool:
        """Is it its turn? A message has its turn until it is done, also while it is delayed by a
        REQ."""
        return not any(self._goes_before(one, copy) for one in self.beside(copy))

    def must_go(self, copy: Copy) -> bool:
        """Is it its turn for sure? What is exhausted since before the order may not be found before
        a copy that was published with a delay is due."""
        return self.may_go(copy) and not (
            copy.is_scheduled
            and any(
                one.state is State.EXHAUSTED and one.is_older and one.offset < copy.offset
                for one in self.beside(copy)
            )
        )

    def _goes_before(self, one: Copy, copy: Copy) -> bool:
        """Of two that the order holds for. What was published with a delay has no place among those
        that were never sent. What is exhausted holds up nothing that stands before it."""
        stands_before = one.offset < copy.offset
        if one.state is State.EXHAUSTED:
            return stands_before and not (one.is_older and copy.is_scheduled)
        if one.has_turn or one.state is not State.WAITING:
            return one.has_turn
        return stands_before and not one.is_scheduled and not copy.is_scheduled

    def keep_order(self, order: Order) -> None:
        if order is not self.order:
            self.order = order
            self._begin_order()

    def _begin_order(self) -> None:
        """Whose turn it is, offsets say, but for what is in flight or delayed by a REQ."""
        for copy in self.copies.values():
            copy.is_older = True
            copy.has_turn &= copy.state in (State.IN_FLIGHT, State.DELAYED)

    # --- what happens to copies ---

    def accept(
        self,
        body: bytes,
        due_ns: int,
        wall_ns: int,
        key: bytes = b"",
        offset: int = 0,
        tag: bytes = b"",
    ) -> None:
        if body in self.copies:
            raise Forbidden(f"{self.name}: {body!r} came twice from its topic")
        state = State.DELAYED if due_ns > wall_ns else State.WAITING
        self.copies[body] = Copy(
            body, state, due_ns=due_ns, key=key, offset=offset, tag=tag, is_scheduled=due_ns > 0
        )

    def wait(self, copy: Copy) -> None:
        """It is to be sent again, unless it was sent often enough. With an order it keeps its turn,
        but where it was here before that began: then offsets say whose turn it is."""
        is_exhausted = 0 < self.attempts_max <= copy.attempts
        copy.state = State.EXHAUSTED if is_exhausted else State.WAITING
        copy.has_turn &= not is_exhausted and not copy.is_older

    def limit_attempts(self, attempts_max: int) -> None:
        self.attempts_max = attempts_max
        for copy in self.in_state(State.WAITING) + self.in_state(State.EXHAUSTED):
            self.wait(copy)

    def empty(self) -> None:
        """Also of what is on its way to the dead letters; nobody can say how much that is."""
        self.copies.clear()

    def pass_time(self, mono_ns: int, wall_ns: int) -> None:
        if self.passed == (mono_ns, wall_ns):
            return
        self.passed = mono_ns, wall_ns
        for copy in list(self.copies.values()):
            if copy.state is State.IN_FLIGHT and copy.deadline_ns <= mono_ns:
                self.wait(copy)
                self.timeouts += 1
            elif copy.state is State.DELAYED and copy.due_ns <= wall_ns:
                self.wait(copy)

    def deliver(self, number: int, body: bytes, attempts: int, mono_ns: int, wall_ns: int) -> None:
        """A consumer was sent this. Raises Forbidden when it should not have been."""
        self.pass_time(mono_ns, wall_ns)
        consumer, copy = self.consumers.get(number), self.copies.get(body)
        what = f"{self.name}: {body[:12]!r} to consumer {number}"
        if consumer is None:
            raise Forbidden(f"{what}, who is not subscribed")
        if copy is None:
            raise Forbidden(f"{what}: not a message of this channel, or finished")
        if self.paused:
            raise Forbidden(f"{what}: the channel is paused")
        if copy.state is not State.WAITING:
            raise Forbidden(f"{what}: it is {copy.state.value}; {copy}")
        if self.room_of(consumer) <= 0:
            raise Forbidden(f"{what}: beyond its RDY of {consumer.rdy}")
        if attempts != copy.attempts + 1:
            raise Forbidden(f"{what}: attempts {attempts}, expected {copy.attempts + 1}")
        if not self.is_for(copy, consumer):
            raise Forbidden(f"{what}: it is for others; {copy}, {consumer}")
        if not self.may_go(copy):
            raise Forbidden(f"{what}: others come before it; {copy}, {[*self.beside(copy)]}")
        copy.state, copy.has_turn = State.IN_FLIGHT, True
        copy.attempts = attempts
        copy.owner = number
        copy.delivered_ns = mono_ns
        copy.deadline_ns = mono_ns + consumer.timeout_ns

    def _held(self, number: int, body: bytes) -> tuple[Copy | None, Answer]:
        copy = self.copies.get(body)
        if copy is None or copy.state is not State.IN_FLIGHT:
            return None, Answer.NOT_IN_FLIGHT
        if copy.owner != number:
            return None, Answer.NOT_OWNER
        return copy, Answer.DONE

    def finish(self, number: int, body: bytes) -> Answer:
        copy, answer = self._held(number, body)
        if copy is not None:
            del self.copies[body]
        return answer

    def requeue(self, number: int, body: bytes, delay_ns: int, wall_ns: int) -> Answer:
        copy, answer = self._held(number, body)
        if copy is not None:
            self.requeues += 1
            copy.due_ns = wall_ns + delay_ns
            if delay_ns:
                copy.state = State.DELAYED
            else:
                self.wait(copy)
        return answer

    def touch(self, number: int, body: bytes, touch_max_ns: int, mono_ns: int) -> Answer:
        copy, answer = self._held(number, body)
        if copy is not None:
            longest = copy.delivered_ns + touch_max_ns
            copy.deadline_ns = min(mono_ns + self.consumers[number].timeout_ns, longest)
            self.passed = 0, 0
        return answer

    def restart(self) -> None:
        """Consumers are gone and counters begin again; copies and their attempts stay."""
        self.consumers.clear()
        self.requeues = self.timeouts = 0
        for copy in self.in_state(State.IN_FLIGHT):
            self.wait(copy)
        self._begin_order()


class Stored(NamedTuple):
    """A message of a tail."""

    body: bytes
    due_ns: int
    key: bytes
    tag: bytes


@dataclass(slots=True)
class TailModel:
    """The writing end of a partition: batches are sealed, and then committed or failed from some
    place on. Channels get what is committed, in order, while it is handed."""

    start: int = 0
    handing: bool = True
    sealed: list[list[Stored]] = field(default_factory=list)
    log: list[Stored] = field(default_factory=list)  # committed
    handed: int = 0  # so many of the log went to channels

    @property
    def ends(self) -> tuple[int, int, int]:
        """Handed, committed and written end."""
        committed = self.start + len(self.log)
        return self.start + self.handed, committed, committed + sum(map(len, self.sealed))

    def seal(self, batch: list[Stored]) -> None:
        self.sealed.append(batch)

    def commit(self, batches: int) -> None:
        for batch in self.sealed[:batches]:
            self.log += batch
        del self.sealed[:batches]

    def fail_from(self, batch: int) -> None:
        del self.sealed[batch:]

    def hand(self, channels: Iterable[ChannelModel], wall_ns: int) -> None:
        if not self.handing:
            return
        for channel in channels:
            self._give(channel, self.handed, len(self.log), wall_ns)
        self.handed = len(self.log)

    def seek(self, channel: ChannelModel, offset: int, wall_ns: int) -> None:
        """All from there on comes again, and nothing else."""
        channel.empty()
        self._give(channel, offset - self.start, self.handed, wall_ns)

    def _give(self, channel: ChannelModel, first: int, end: int, wall_ns: int) -> None:
        for index, (body, due_ns, key, tag) in enumerate(self.log[first:end], first):
            channel.accept(body, due_ns, wall_ns, key, self.start + index, tag)
