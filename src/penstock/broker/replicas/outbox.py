"""Publishes to a partition that another node leads: they gather here and are sent to it in batches.

To the kernel an outbox is like a leader, a tail that publishers append to. Its append goes to the
leader's node instead of into a log (`forwarding.py`), and the answer settles it:

| answer | the publishers of the append receive |
|---|---|
| stored | OK |
| refused | the leader's reason: nothing is stored |
| unknown, or the link ended | that it is not known whether it was stored |
| NOT_LED | nothing yet: nothing is stored, and it goes to the next leader |
| NOT_LED again, FORWARD_WAIT_NS later | the reason: nothing is stored |
| no leader for FORWARD_WAIT_NS | that there is none: nothing is stored |
| none for FORWARD_LACK_NS, and too few replicas live | which are missing: nothing is stored |
| none yet, and the topic leaves this node | that it is not known |

While no leader can be reached, publishes that name neither partition nor key go to the topic's
other partitions. A leader may live and be out of this node's reach for long.

One append is in flight at a time, and messages that arrive meanwhile form the next. When this node
itself begins to lead the partition, the outbox is retired: it accepts nothing more, and its
messages go to the new leader, here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock import limits
from penstock.broker.partition.appends import PublishDone
from penstock.broker.partition.gathering import RowGathering
from penstock.broker.replicas.forwarding import REHASHED, ForwardAnswer
from penstock.errors import PenstockError, PublishUnknown, Refused, TooMuchWaiting
from penstock.kernel import Tail
from penstock.replication.side_frames import Ending

if TYPE_CHECKING:
    from penstock.broker.replicas.forwarding import Forwarding
    from penstock.broker.topics.topic import Topic


class Outbox:
    """It replaces a `Leader` and its `GroupCommit` for publishes to a partition led elsewhere."""

    held_count = 0
    refusal = ""

    def __init__(
        self, topic: Topic, number: int, forwarding: Forwarding, tail: Tail | None = None
    ) -> None:
        """`tail`: of a leadership that has ended."""
        self.topic = topic
        self.number = number
        self.group = self
        self.failure = ""  # why the last append that failed was not stored
        self.sealed_base = self.sealed_base_id = 0  # of the append that was answered last
        self._context = context = topic.context
        self._forwarding = forwarding
        forwarding.outboxes.add(self)
        self._name = topic.name.encode()
        self.tail = tail or context.engine.tail(self._name, 0, 0, number)
        self.tail.owner = self
        self.tail.sealed_max = 1
        self.tail.traceable, self.tail.trace_below = False, 0  # the leader notes publishes
        self.tail.waiting_bytes_max = context.options.waiting_bytes_max
        self._open_done: list[PublishDone] = []
        self._append_done: list[PublishDone] = []
        self._append = b""  # sealed, and not answered; empty: there is none
        self._is_sent = False
        self._since_ns = 0  # since when it looks for a leader that stores; 0: it does not
        self._gathering = RowGathering(context.gathering, context.clock)
        self._append_count = 0  # messages

    cursors = None  # of channels: they are where the partition is led

    # --- publishers ---

    def publish(
        self, append: Callable[[], object], count: int, length: int, done: PublishDone
    ) -> None:
        """Raises TooMuchWaiting."""
        self.check_waiting(length)
        append()
        self._open_done.append(done)

    def check_waiting(self, length: int) -> None:
        waiting, most = self.tail.open_bytes + len(self._append), self.tail.waiting_bytes_max
        if waiting and 0 < most < waiting + length:
            raise TooMuchWaiting(waiting + length, most)

    check_append = check_waiting

    # --- appends ---

    @property
    def is_empty(self) -> bool:
        return not (self._append or self.tail.open_count)

    def write(self, wall_ns: int) -> None:
        """Send gathered publishes, and those that the first target did not store."""
        if self._is_sent or (self.is_empty and self.tail.sealed_max):
            return
        led = self._forwarding.leader_of(self.topic.name, self.number)
        if led is None:
            self._wait()
            return
        if not self.tail.sealed_max:
            self.tail.sealed_max = 1
            if self.is_empty:
                return
        if not self._append:
            count, gathering = self.tail.open_count, self._gathering
            if gathering.due_ns and gathering.waits(self, count, self.tail.open_bytes):
                return
            gathering.wrote()
            self._append_count = count
            spread = self.topic.hash_partitions
            self._append = b"".join(self.tail.seal(0, wall_ns, 0, spread, may_be_short=False))
            self._open_done, self._append_done = [], self._open_done
        self._is_sent = True
        try:
            self._forwarding.send(led, self._append, self._answered)
        except Refused as error:
            self._answered(ForwardAnswer(Ending.REFUSED, reason=str(error)))

    def look(self) -> None:
        """A link has ended: is it the leader's?"""
        if not self._is_sent and self._forwarding.leader_of(self.topic.name, self.number) is None:
            self._wait()

    def stay(self) -> list[tuple[Any, ...]]:
        """As in `GroupCommit`: nothing is stored here that the kernel could continue."""
        return []

    def _answered(self, answer: ForwardAnswer) -> None:
        self._is_sent = False
        if not self._append:
            return  # it was closed meanwhile, and its publishers have heard
        if answer.ending is Ending.NOT_LED:
            if self._has_waited(self._context.clock.mono_ns()):
                self._fail(f"no leader of partition {self.number} stored it: {answer.reason}")
            else:
                self._wait()
            return
        append, self._append, self._since_ns = self._append, b"", 0
        error = answer.error(self.topic.name)
        if error is None:
            self.sealed_base, self.sealed_base_id = answer.offset, answer.id
            self._gathering.committed(self._append_count, len(append), self.tail.open_count)
            self.tail.commit_to(self.tail.written_end)
        else:
            self.failure = answer.reason
            unknown = answer.ending is Ending.UNKNOWN
            self.tail.fail_from(self.tail.committed_end, unknown)
        waiting, self._append_done = self._append_done, []
        for done in waiting:
            done(error)
        self.write(self._context.clock.wall_ns())
        self._context.engine.wake()

    def _wait(self) -> None:
        if not self.is_empty:
            self._since_ns = self._since_ns or self._context.clock.mono_ns()
        elif self not in self._forwarding.outboxes:
            return
        self.tail.sealed_max = 0
        self._forwarding.wait(self)

    def tick(self, mono_ns: int) -> None:
        self.write(self._context.clock.wall_ns())
        if self._is_sent:
            return
        lack = self._forwarding.lack(self.topic.name, self.number)
        if lack and self._has_waited(mono_ns, limits.FORWARD_LACK_NS):
            self._fail(lack)
        elif self._has_waited(mono_ns):
            seconds = limits.FORWARD_WAIT_NS // limits.SECOND
            self._fail(f"no leader of partition {self.number} was reached for {seconds} s")

    def _has_waited(self, mono_ns: int, wait_ns: int = limits.FORWARD_WAIT_NS) -> bool:
        return bool(self._since_ns) and mono_ns - self._since_ns >= wait_ns

    def rehashed(self) -> None:
        """Keys are spread over another number of partitions: what waits may belong to others."""
        if not self.is_empty:
            self._fail(REHASHED)

    def _fail(self, reason: str) -> None:
        """An append on its way may be stored; nothing else is."""
        error: PenstockError = Refused(reason)
        if self._is_sent:
            error = PublishUnknown(f"topic {self.topic.name}", reason)
        self.failure, self._append, self._since_ns = reason, b"", 0
        self.tail.fail_from(self.tail.committed_end, self._is_sent)
        self.tail.drop_open()
        appended, self._append_done = self._append_done, []
        opened, self._open_done = self._open_done, []
        for done in appended:
            done(error)
        for done in opened:
            done(Refused(reason))
        self._context.engine.wake()

    # --- the end ---

    def retire(self) -> None:
        """This node leads the partition from now on: its publishes go to the leader."""
        self._context.engine.detach_tail(self._name, self.number)
        self._forwarding.outboxes.discard(self)
        self._wait()

    def adopt(self, done: list[PublishDone]) -> None:
        """Publishes gathered for an ended leadership go to the next leader."""
        self.tail.handing = False
        self._open_done = done
        self.retire()

    def close(self, reason: str) -> None:
        self._forwarding.outboxes.discard(self)
        self._fail(reason)
        self._context.engine.forget_tail(self._name, self.number)


def retire_outbox(topic: Topic, number: int) -> None:
    """The partition is about to be led here."""
    outbox = topic.outboxes.pop(number, None)
    if outbox is not None:
        outbox.retire()


def renew_outboxes(topic: Topic, forwarding: Forwarding) -> None:
    """An outbox for each partition that this node does not lead."""
    missing = [
        number
        for number in range(topic.partition_count)
        if not (number in topic.outboxes or topic.leads(number))
    ]
    for number in missing:
        topic.outboxes[number] = Outbox(topic, number, forwarding)
    if missing:
        topic.prepare_route()
        topic.refresh_refusal()
