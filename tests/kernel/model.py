"""What tails and channels are, in the plainest words that can be run.

What is committed to a tail goes to all of its channels: each gets a copy. A copy waits, is delayed,
or is in flight at one consumer until a deadline. Finished copies are forgotten. Nothing here is
clever, fast, or shared with the product.

The model does not say what is delivered next, but where there is an order. It says whether a
delivery is allowed, and what must be there in the end. Times are nanoseconds: `mono_ns` for message
timeouts, `wall_ns` for delays.

Random histories hold the kernel against it (`test_model.py`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from penstock.kernel import Order


class State(Enum):
    WAITING = "waiting"
    DELAYED = "delayed"
    IN_FLIGHT = "in flight"


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


@dataclass(slots=True)
class ConsumerModel:
    number: int
    timeout_ns: int
    rdy: int = 0
    closing: bool = False


@dataclass(slots=True)
class ChannelModel:
    name: str
    paused: bool = False
    copies: dict[bytes, Copy] = field(default_factory=dict)
    consumers: dict[int, ConsumerModel] = field(default_factory=dict)
    requeues: int = 0
    timeouts: int = 0
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

    def waits(self, mono_ns: int, wall_ns: int) -> list[int]:
        """How long until each timeout and each release."""
        return [copy.deadline_ns - mono_ns for copy in self.in_state(State.IN_FLIGHT)] + [
            copy.due_ns - wall_ns for copy in self.in_state(State.DELAYED)
        ]

    def beside(self, copy: Copy) -> list[Copy]:
        """The others that the order has something to say about."""
        if self.order is Order.NONE or (self.order is Order.KEY and not copy.key):
            return []
        return [
            one
            for one in self.copies.values()
            if one is not copy and (self.order is Order.STRICT or one.key == copy.key)
        ]

    def may_go(self, copy: Copy) -> bool:
        """Is it its turn? A message has its turn until it is done, also while it is delayed by a
        REQ. One that was published with a delay has no place among those that were never sent."""
        others = self.beside(copy)
        if copy.attempts:
            return not any(one.state is State.IN_FLIGHT for one in others)
        if any(one.attempts for one in others):
            return False
        return copy.due_ns > 0 or not any(
            one.state is State.WAITING and not one.due_ns and one.offset < copy.offset
            for one in others
        )

    # --- what happens to copies ---

    def accept(
        self, body: bytes, due_ns: int, wall_ns: int, key: bytes = b"", offset: int = 0
    ) -> None:
        if body in self.copies:
            raise Forbidden(f"{self.name}: {body!r} came twice from its topic")
        state = State.DELAYED if due_ns > wall_ns else State.WAITING
        self.copies[body] = Copy(body, state, due_ns=due_ns, key=key, offset=offset)

    def empty(self) -> None:
        self.copies.clear()

    def pass_time(self, mono_ns: int, wall_ns: int) -> None:
        if self.passed == (mono_ns, wall_ns):
            return
        self.passed = mono_ns, wall_ns
        for copy in list(self.copies.values()):
            if copy.state is State.IN_FLIGHT and copy.deadline_ns <= mono_ns:
                copy.state = State.WAITING
                self.timeouts += 1
            elif copy.state is State.DELAYED and copy.due_ns <= wall_ns:
                copy.state = State.WAITING

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
        if not self.may_go(copy):
            raise Forbidden(f"{what}: others come before it; {copy}, {self.beside(copy)}")
        copy.state = State.IN_FLIGHT
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
            copy.state = State.DELAYED if delay_ns else State.WAITING
        return answer

    def touch(self, number: int, body: bytes, touch_max_ns: int, mono_ns: int) -> Answer:
        copy, answer = self._held(number, body)
        if copy is not None:
            longest = copy.delivered_ns + touch_max_ns
            copy.deadline_ns = min(mono_ns + self.consumers[number].timeout_ns, longest)
            self.passed = 0, 0
        return answer


class Stored(NamedTuple):
    """A message of a tail."""

    body: bytes
    due_ns: int
    key: bytes


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
        for place in range(self.handed, len(self.log)):
            body, due_ns, key = self.log[place]
            for channel in channels:
                channel.accept(body, due_ns, wall_ns, key, self.start + place)
        self.handed = len(self.log)
