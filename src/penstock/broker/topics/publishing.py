"""Publishing into a topic: its partitions, the choice among them, and the reasons of refusals.

What is taken goes to the one writer of a partition (`group_commit.py`), which answers when it is as
safe as the topic's durability says.

How many unfinished messages a topic may hold, exactly.

The depth that is bounded is that of the channel which has most to do (not delivered, in flight,
requeued or delayed), with what the topic has not handed over yet and what is still being stored. An
ephemeral channel drops what is too much for it, and delays no publish. A node of a cluster counts
in the partitions that it leads, and keeps to their part of the bound.

PUB and MPUB are counted by the kernel: `append_end_max` of the tail is the offset that no publish
may go beyond. It is worked out from a count of the depth. After that count the depth grows by
appends alone, and each of them moves the end of the tail just as far, so the bound stays right
without being looked at: no publish is let in that is too many, and one that is refused has the
count made anew, so room that consumers made is used at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import ceil
from typing import TYPE_CHECKING

from penstock.broker.partition.appends import (
    Content,
    MessagePosition,
    PositionDone,
    PublishDone,
    Sections,
    Stored,
    TracedDone,
    publish_located,
)
from penstock.broker.partition.idempotent import Stamp, StampedDone
from penstock.broker.partition.leader import Leader
from penstock.broker.replicas.forwarding import REHASHING
from penstock.broker.topics.settings import WritesDisabledFor, is_internal
from penstock.errors import (
    PartitionElsewhere,
    PartitionUnknown,
    PenstockError,
    Refused,
    WritesDisabled,
)
from penstock.kernel import Conn, Pack, Tail, murmur3_32
from penstock.trace import events as traceevents

if TYPE_CHECKING:
    from penstock.broker.context import Context
    from penstock.broker.partition.group_commit import GroupCommit
    from penstock.broker.partition.replica import Replica
    from penstock.broker.ports import ClusterMetadata
    from penstock.broker.replicas.outbox import Outbox
    from penstock.broker.topics.retention import AgeBound
    from penstock.broker.topics.topic import Topic
    from penstock.broker.topics.topic_file import TopicFile, TopicStore


INTERNAL = "only nsqd publishes to this topic"
PRODUCER_ID_BYTES = 8
ANY = -1  # partition: the one whose turn it is
PARTITION = 0  # the number of the first one
DRAINING = "draining"  # the reason of all refusals while a drain goes on


class TopicPublishing:
    replicas: dict[int, Replica]  # those that are here, by number
    ordered: bool  # consumers have to ask for strict order
    needs_partition: bool  # a publish must name a partition or a key: there is an order to keep
    depth_bound: DepthBound
    age_bound: AgeBound
    store: TopicStore

    def __init__(self, context: Context, file: TopicFile) -> None:
        self.context = context
        self.name = file.name
        self.internal = is_internal(file.name)
        self.replicated = file.replicated is True  # a cluster places its replicas and leaders
        self.outboxes: dict[int, Outbox] = {}  # to partitions that other nodes lead, by number
        self.partition_count = file.partitions  # of all that the topic has
        self.hash_partitions = file.hash_count  # over how many of them keys are spread
        # The same for producers that number; 0: over as many.
        self.producer_partitions = file.producer_partitions or 0
        self.extended = file.extended is True  # its messages have headers
        self.refusal = ""  # why no publish is taken
        self.trouble = ""  # the same, without what always holds for an internal topic

    # --- partitions ---

    @property
    def leaders(self) -> list[Leader]:
        return [replica.led for replica in self.replicas.values() if replica.led is not None]

    def leader(self, number: int = PARTITION) -> Leader:
        """Raises PartitionElsewhere."""
        replica = self.replicas.get(number)
        if replica is None:
            raise PartitionElsewhere(self.name, number)
        return replica.leader

    def partition(self, number: int) -> Leader | Outbox:
        """Its leader, or the outbox to that. Raises PartitionUnknown and PartitionElsewhere."""
        if not 0 <= number < self.partition_count:
            raise PartitionUnknown(self.name, number, self.partition_count)
        outbox = self.outboxes.get(number)
        return self.leader(number) if outbox is None else outbox

    def leads(self, number: int) -> bool:
        replica = self.replicas.get(number)
        return replica is not None and replica.led is not None

    def takes(self, number: int) -> bool:
        return number in self.outboxes or self.leads(number)

    def check_taken(self) -> None:
        """Raises PartitionElsewhere where no partition accepts publishes here."""
        if not (self.leaders or self.outboxes):
            raise PartitionElsewhere(self.name)

    def partition_of_key(self, key: bytes) -> int:
        """The partition of all messages with this key, in the order of their publishes."""
        return murmur3_32(key) % self.hash_partitions

    def stamped_leader(self, producer_id: int) -> Leader:
        """The leader that knows an idempotent producer; the one to choose if it is new. Another
        partition would store its retry again."""
        key = producer_id.to_bytes(PRODUCER_ID_BYTES, "big")
        count = self.producer_partitions or self.hash_partitions
        home = self.leader(murmur3_32(key) % count)
        if self.partition_count == 1 or home.stamped.knows(producer_id):
            return home
        return next((one for one in self.leaders if one.stamped.knows(producer_id)), home)

    def route(self) -> Leader | Outbox:
        """The partition of the next publish that names none. Raises PartitionElsewhere."""
        try:
            leader: Leader | Outbox = self.context.engine.route(self.name.encode()).owner
        except KeyError as error:  # the kernel has no tail of the topic
            raise PartitionElsewhere(self.name) from error
        return leader

    @property
    def tails(self) -> list[Tail]:
        return [leader.tail for leader in self.leaders]

    def ends(self) -> dict[int, int]:
        """The committed ends, by partition, of partitions that this node leads."""
        return {leader.number: leader.tail.committed_end for leader in self.leaders}

    # --- a topic of a cluster ---

    @property
    def metadata(self) -> ClusterMetadata | None:
        """Where it is changed; None: on this node."""
        replica_host = self.context.replica_host if self.replicated else None
        return replica_host.metadata if replica_host is not None else None

    @property
    def rehashing(self) -> bool:
        """The cluster spreads its keys over another number of partitions: nobody publishes."""
        return self.metadata is not None and self.metadata.is_rehashing(self.name)

    @property
    def exiting(self) -> bool:
        return self.context.exiting

    def check_own(self) -> None:
        """Raises Refused: on one node alone nothing of a cluster's topic is changed."""
        if self.replicated:
            raise Refused(f"topic {self.name} is changed by the cluster")

    # --- publishes ---

    def publish(
        self,
        bodies: list[bytes],
        due_ns: int,
        done: PublishDone,
        partition: int = ANY,
        sections: Sections | None = None,
    ) -> None:
        """From HTTP. `done` is called once, with None when they are as safe as the topic's
        durability says. `sections`: the entries of each in the trailer. Raises Refused."""
        group = self._taking(len(bodies), due_ns, partition)
        append = partial(_append, group.tail, bodies, due_ns, sections)
        group.publish(append, len(bodies), sum(map(len, bodies)), done)
        self._note_held(group)

    def publish_pack(
        self,
        pack: Pack,
        body: bytes,
        count: int,
        due_ns: int,
        done: PublishDone,
        partition: int = ANY,
    ) -> None:
        """The same for the `count` messages of `body`, found intact by `Tail.count_pack`."""
        group = self._taking(count, due_ns, partition)
        append = partial(group.tail.append_pack, pack, body, due_ns)
        group.publish(append, count, len(body), done)
        self._note_held(group)

    def publish_located(
        self, contents: Sequence[Content], due_ns: int, done: TracedDone, partition: int = ANY
    ) -> None:
        """The same with trace ids or headers; `done` receives where the first one lies."""
        group = self._taking(len(contents), due_ns, partition)
        publish_located(group, contents, due_ns, done)
        self._note_held(group)

    def publish_stamped(
        self,
        stamp: Stamp,
        bodies: list[bytes],
        due_ns: int,
        done: StampedDone,
        sections: Sequence[Sections] = (),
    ) -> None:
        """The same for a producer that numbers its messages: a repeat stores nothing. Raises
        SequenceGap and ProducerFenced, too. While draining, only a repeat is answered."""
        if self.refusal not in ("", DRAINING):
            raise self._refused()
        leader = self.stamped_leader(stamp.producer_id)
        if not leader.stamped.is_repeat(stamp, len(bodies)):
            self.check(leader, len(bodies), due_ns)
            leader.group.check_waiting(sum(map(len, bodies)))
        leader.stamped.publish(stamp, bodies, due_ns, done, sections)
        self._note_held(leader.group)

    def _note_held(self, group: GroupCommit | Outbox) -> None:
        """The kernel does not see messages that wait for room in an append: this adjusts the bound
        on the depth."""
        if group.held_count:
            self.depth_bound.renew()

    def publish_dead_letters(
        self, dead_letters: Sequence[Content], done: PositionDone, partition: int = ANY
    ) -> None:
        """Publish messages with their history, all into one batch; `done` receives the position of
        the first. Raises Refused, also for temporary reasons."""
        group = self._taking(len(dead_letters), 0, partition, moved=True)
        report = partial(_report_position, group.tail.partition, done)
        publish_located(group, dead_letters, 0, report)

    def append(self, conn: Conn, verb: int, body: bytes, due_ns: int) -> None:
        """Of a V2 connection that the kernel left to Python (DPUB), and answers. Raises Refused."""
        leader = self.route()
        self.check(leader, 1, due_ns)
        leader.group.check_append(len(body))
        leader.tail.append(body, due_ns)
        conn.appended(leader.tail, verb)

    def _taking(
        self, count: int, due_ns: int, partition: int, moved: bool = False
    ) -> GroupCommit | Outbox:
        """The writer of that partition, or of the next one in turn. Raises Refused."""
        leader = self.route() if partition == ANY else self.partition(partition)
        self.check(leader, count, due_ns, moved)
        return leader.group

    def check(
        self, leader: Leader | Outbox, count: int, due_ns: int = 0, moved: bool = False
    ) -> None:
        """Raises Refused. `moved`: the messages only change their topic, so neither a drain nor
        disabled publishing forbids it."""
        if self.refusal and not (moved and self.refusal in (DRAINING, WritesDisabled.REASON)):
            raise self._refused()
        if due_ns:
            self.age_bound.check(due_ns - self.context.clock.wall_ns())
        if leader.number not in self.outboxes:  # its leader counts elsewhere
            self.depth_bound.check(count)
        if leader.refusal:  # while others take publishes
            raise Refused(leader.refusal)

    def _refused(self) -> Refused:
        disabled = self.refusal == WritesDisabled.REASON
        return WritesDisabled() if disabled else Refused(self.refusal)

    def refusal_of(self, count: int) -> str:
        """Why so many messages are refused now; empty when they are accepted."""
        return self.refusal or self.depth_bound.reason(count)

    def refusal_by(self, asked: Mapping[int, int]) -> str:
        """Why these partitions do not take so many messages now; empty when they do: the kernel
        has room for them."""
        reasons = [self.refusal, *(self.partition(number).refusal for number in asked)]
        first = next(filter(None, reasons), "")
        here = {number: count for number, count in asked.items() if self.leads(number)}
        return first or self.depth_bound.reason(sum(here.values()), here)

    def _is_disabled(self, writes: WritesDisabledFor) -> bool:
        if writes == WritesDisabledFor.ORDERED:
            return self.ordered
        return writes == WritesDisabledFor.ALL and not self.internal

    def refresh_refusal(self) -> None:
        """Decide again whether publishes are accepted, and tell the kernel."""
        context = self.context
        always = INTERNAL if self.name == traceevents.TOPIC else ""
        first = "exiting" if context.exiting else REHASHING if self.rehashing else ""
        last = DRAINING if context.draining else ""  # that too where others write
        if self._is_disabled(context.writes_disabled):
            last = last or WritesDisabled.REASON
        reasons = []
        for leader in self.leaders:
            reasons.append(first or leader.refusal or last)
            leader.tail.refusing = bool(always or reasons[-1])
        for outbox in self.outboxes.values():
            reasons.append(first or last)
            outbox.tail.refusing = bool(always or reasons[-1])
        if not reasons:
            self.trouble = PartitionElsewhere(self.name).reason
        else:
            self.trouble = reasons[0] if all(reasons) else ""
        self.refusal = always or self.trouble


def _append(tail: Tail, bodies: list[bytes], due_ns: int, sections: Sections | None) -> None:
    for body in bodies:
        tail.append(body, due_ns, sections)


def _report_position(partition: int, done: PositionDone, answer: PenstockError | Stored) -> None:
    if isinstance(answer, Stored):
        done(None, MessagePosition(partition, answer.offset))
    else:
        done(answer, MessagePosition(partition, 0))


UNBOUNDED = 1 << 62
_OFFSET_MAX = (1 << 63) - 1  # the kernel's offsets are signed


class DepthBound:
    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self.messages_max = 0  # 0: no bound

    def set(self, messages_max: int) -> None:
        self.messages_max = messages_max
        self.renew()

    def renew(self, asked: Mapping[int, int] | None = None) -> int:
        """Recompute, and tell the kernel. Returns the number of messages that there is room for.
        Where it suffices for the requested ones, by partition, these come first."""
        tails = self._topic.tails
        if not self.messages_max:
            for tail in tails:
                tail.append_end_max = 0
            return UNBOUNDED
        topic = self._topic
        part = len(tails) / topic.partition_count if topic.replicated else 1
        room = max(ceil(self.messages_max * part) - self.depth, 0)
        if not tails:
            return room
        first = asked if asked and sum(asked.values()) <= room else {}
        # so that all together take no more than the room
        share, rest = divmod(room - sum(first.values()), len(tails))
        for index, tail in enumerate(tails):
            end = tail.written_end + tail.open_count + share + (index < rest)
            tail.append_end_max = min(end + first.get(tail.partition, 0), _OFFSET_MAX)
        return room

    @property
    def depth(self) -> int:
        topic = self._topic
        if topic.ephemeral and not topic.channels:
            return 0  # its queue drops what is too much
        deepest = 0
        for channel in topic.channels.values():
            if not channel.ephemeral:
                deepest = max(deepest, channel.unfinished)
        for leader in topic.leaders:
            deepest += leader.group.uncommitted
            deepest += leader.tail.committed_end - leader.tail.handed_end
        return deepest

    def reason(self, count: int, asked: Mapping[int, int] | None = None) -> str:
        """Empty when so many are accepted, with `asked` for each partition."""
        if not self.messages_max:
            return ""
        room = self.renew(asked)
        if count <= room:
            return ""
        reason = f"topic depth limit of {self.messages_max} messages is reached"
        return f"{reason}: {count} are more than the {room} left" if room else reason

    def check(self, count: int) -> None:
        reason = self.reason(count)
        if reason:
            raise Refused(reason)
