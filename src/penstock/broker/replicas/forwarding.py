"""Batches for a partition that another node leads: sent to it, and received from others.

| the sending node | the leader's node |
|---|---|
| SendBatch, over the bulk lane | not led here: NOT_LED |
| | its keys are being rehashed: NOT_LED, too, so it is sent again |
| | keys are spread over another number here than there: refused |
| | led here: one publish; answered as it ends |
| the answer: stored, refused, unknown or NOT_LED | |
| the link ends: unknown | |

The answer is certain to arrive while the link lasts, since each publish ends, with its leadership
at the latest. No clock is needed here. A batch from another node is never forwarded again: at most
one hop. Its position, ids and time are the leader's, as for any other publish. One whose header
names a producer is stored once: a repeat is answered when the first is. The field of the leader's
epoch says over how many partitions the sender spreads keys; 0: it has chosen by no key. Of messages
that move, that of the first sequence has the number of the one channel that they are for; 0: all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock.broker.commits.blocks import checked_header, put_in_place
from penstock.broker.partition.appends import Content
from penstock.broker.partition.idempotent import Stamp
from penstock.broker.ports import Led, MetadataDone, PeerLane
from penstock.broker.replicas.clustered_topic import when_held
from penstock.errors import LeadershipEnded, PenstockError, PublishUnknown, Refused
from penstock.kernel import encode_batch
from penstock.replication.frames import Target, encode
from penstock.replication.side_frames import BatchAnswered, Ending, ForwardFrame, SendBatch

if TYPE_CHECKING:
    from penstock.broker.channels.channel import Channel
    from penstock.broker.partition.leader import Leader
    from penstock.broker.replicas.context import ReplicationContext
    from penstock.broker.replicas.outbox import Outbox
    from penstock.broker.replicas.replica_host import ReplicaHost

REHASHING = "the keys of the topic are being rehashed: publish again"
REHASHED = "the keys of the topic were rehashed: publish again"
NO_PRODUCER = -1  # of a batch whose publisher numbers nothing


class ForwardAnswer(NamedTuple):
    ending: Ending
    offset: int = 0
    id: int = 0
    reason: str = ""

    def error(self, topic: str) -> PenstockError | None:
        if self.ending is Ending.STORED:
            return None
        if self.ending is Ending.UNKNOWN:
            return PublishUnknown(f"topic {topic}", self.reason)
        return Refused(self.reason)


Answered = Callable[[ForwardAnswer], None]


class _Sent(NamedTuple):
    node: int
    done: Answered


class Forwarding:
    def __init__(
        self, replication: ReplicationContext, host: ReplicaHost, wake: Callable[[], None]
    ) -> None:
        self._node = replication.node
        self._incarnation = replication.incarnation
        self._peers = replication.peers
        self._epoch_ledger = replication.epoch_ledger
        self._host = host
        self._wake = wake
        self.lack = host.lack
        self._number = 0
        self._sent: dict[int, _Sent] = {}
        self.outboxes: set[Outbox] = set()  # in use
        self._waiting: dict[Outbox, None] = {}  # for a leader

    # --- the node that sends ---

    def wait(self, outbox: Outbox) -> None:
        """`tick` looks for its leader again."""
        self._waiting[outbox] = None

    def tick(self, mono_ns: int) -> None:
        waiting, self._waiting = self._waiting, {}
        for outbox in waiting:
            outbox.tick(mono_ns)

    def leader_of(self, topic: str, partition: int) -> Led | None:
        """None: there is none that can be reached."""
        return next(filter(self._is_reached, self._host.led(topic, partition)), None)

    def _is_reached(self, led: Led) -> bool:
        if led.node == self._node:
            return self._host.leader(led.target) is not None
        return self._host.is_linked(led.node)

    def send(self, led: Led, batch: bytes, done: Answered, moved: bool = False) -> None:
        """Raises Refused where the batch is larger than a payload may be."""
        if led.node == self._node:
            self._take(led.target, batch, moved, done)
            return
        self._number += 1
        try:
            frames = encode(led.target, SendBatch(self._incarnation, self._number, moved, batch))
        except ValueError as error:
            raise Refused(str(error)) from error
        self._sent[self._number] = _Sent(led.node, done)
        self._peers.send(led.node, PeerLane.BULK, frames)

    def carry(
        self,
        topic: str,
        dead_letters: Sequence[Content],
        done: MetadataDone,
        partition: int | None = None,
        channel: int = 0,
    ) -> None:
        """Dead letters to the leader of a partition, of this one or of some, and on their way back
        to this channel. Raises Refused where none can be reached."""
        reached = [one for one in self._host.led(topic, partition) if self._is_reached(one)]
        if not reached:
            which = "a partition" if partition is None else f"partition {partition}"
            raise Refused(f"no leader of {which} of topic {topic} can be reached")
        led = reached[self._number % len(reached)]
        sections: dict[int, dict[int, int | bytes]] = {}
        for index, dead_letter in enumerate(dead_letters):
            for section, value in dead_letter.sections.items():
                sections.setdefault(section, {})[index] = value
        bodies = [one.body for one in dead_letters]
        batch = encode_batch(bodies, 0, 0, 0, first_sequence=channel, sections=sections)
        self.send(led, batch, lambda answer: done(answer.error(topic)), moved=True)

    def _answered(self, node: int, frame: BatchAnswered) -> None:
        sent = self._sent.get(frame.number)
        if frame.session != self._incarnation or sent is None or sent.node != node:
            return  # to an earlier incarnation, or of a link that has ended meanwhile
        del self._sent[frame.number]
        reason = f"node {node}: {frame.reason}"
        sent.done(ForwardAnswer(frame.ending, frame.offset, frame.id, reason))

    def unlinked(self, node: int) -> None:
        lost = [number for number, sent in self._sent.items() if sent.node == node]
        for sent in [self._sent.pop(number) for number in lost]:
            reason = f"the link to node {node}, which led it, has ended"
            sent.done(ForwardAnswer(Ending.UNKNOWN, reason=reason))
        for outbox in self.outboxes:
            outbox.look()

    # --- the node that leads ---

    def receive(self, node: int, target: Target, frame: ForwardFrame) -> None:
        if isinstance(frame, BatchAnswered):
            self._answered(node, frame)
            return
        session, number = frame.session, frame.number

        def done(answer: ForwardAnswer) -> None:
            reply = BatchAnswered(session, number, *answer)
            self._peers.send(node, PeerLane.LIVE, encode(target, reply))

        self._take(target, bytes(frame.batch), frame.moved, done)

    def _take(self, target: Target, batch: bytes, moved: bool, done: Answered) -> None:
        leader = self._host.leader(target)
        if leader is None or leader.topic.exiting:
            trouble = self._epoch_ledger.trouble  # an elected node with a full disk, say
            reason = f"it does not lead the partition{trouble and ': '}{trouble}"
            done(ForwardAnswer(Ending.NOT_LED, reason=reason))
            return
        if leader.topic.rehashing:
            done(ForwardAnswer(Ending.NOT_LED, reason=REHASHING))
            return
        try:
            _publish(leader, batch, moved, done)
        except PenstockError as error:
            done(ForwardAnswer(Ending.REFUSED, reason=str(error)))
        self._wake()


def _ending_of(error: PenstockError) -> Ending:
    if isinstance(error, PublishUnknown):
        return Ending.UNKNOWN
    return Ending.NOT_LED if isinstance(error, LeadershipEnded) else Ending.REFUSED


def _owner_of(leader: Leader, number: int) -> Channel:
    """Raises Refused."""
    for channel in leader.topic.channels.values():
        if channel.number == number:
            return channel
    raise Refused(f"topic {leader.topic.name} has no channel of number {number}")


def _publish(leader: Leader, batch: bytes, moved: bool, done: Answered) -> None:
    """Publish as a batch of its own. Raises PenstockError when it is refused."""
    header = checked_header(batch, 0)
    if header.leader_epoch not in (0, leader.topic.hash_partitions):
        raise Refused(REHASHED)
    leader.topic.check(leader, header.count, moved=moved)
    leader.group.check_waiting(len(batch))
    stamp = Stamp(header.producer_id, header.producer_epoch, header.first_sequence)
    owner = _owner_of(leader, header.first_sequence) if moved and header.first_sequence else None
    first = (0, 0)

    def encode_here(offset: int, id: int, wall_ns: int, synced_end: int, epoch: int) -> bytes:
        nonlocal first
        first = offset, id
        located = bytearray(batch)
        producer = stamp if stamp.producer_id else (0, 0, 0)
        put_in_place(located, offset, id, wall_ns, synced_end, epoch, producer)
        return bytes(located)

    def ended(error: PenstockError | None, stored: object = None) -> None:
        if error is not None:
            done(ForwardAnswer(_ending_of(error), reason=str(error)))
        elif owner is not None:
            leader.topic.step_over(leader.number, first[0], first[0] + header.count, owner)
            when_held([leader], held)
        else:
            done(ForwardAnswer(Ending.STORED, *first))

    def held(error: PenstockError | None) -> None:
        """That other channels have stepped over it has to survive a change of leaders."""
        ending = Ending.STORED if error is None else Ending.UNKNOWN
        done(ForwardAnswer(ending, *first, reason=str(error or "")))

    if stamp.producer_id:
        leader.stamped.publish_batch(stamp, header.count, len(batch), encode_here, ended)
    else:
        leader.group.publish_whole(encode_here, header.count, len(batch), ended, NO_PRODUCER)
    leader.topic.depth_bound.renew()
