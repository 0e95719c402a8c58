"""The leader of a partition in one leadership: the commit rule, and the changes of the set.

**Commit.** The committed end is the minimum of the leader's own end and the acknowledgements of
every member of every *possible* set, in this session and after matching. `waits` selects the end
that counts: the synced one, or the written one. At most one append is in flight; the tail of an
earlier leader above the committed end is simply the first one.

**A set is possible** while it is in force or a proposal that was sent could still install it.

| a replica is | its acknowledgements |
|---|---|
| a member of a possible set | are needed |
| demanded: level, and about to be proposed | are needed, from now on |
| anything else: a learner | are ignored, and it is fed all the same |

**Level** is a replica that was matched and has acknowledged everything up to the log's end at the
start of this epoch (an earlier leader may have committed it without this one knowing), and all that
is committed, or all but LEARNER_NEAR_BYTES: under load the last bytes are never complete. Then it
is demanded, so that commits wait for it, and proposed when it has all that was committed until
then. If it does not get there in time, it is demanded no more.

**Proposals**, at most one at a time:

| outcome | then |
|---|---|
| done | the new set is the only possible one |
| refused | the record has changed: it is read |
| unknown | all sets stay possible; the record is read; if it is unchanged, it is touched |
| touched: written unchanged | the revision has changed: no earlier proposal can be applied |

A node that the record neither lists nor wants may move its replica aside, and make another one
later: what such a peer has acknowledged is forgotten, and it is greeted anew when it is wanted.

If the log has state `beside` it, a replica that has all of the log is level only once the shell
reports that it has that state, too: `completed`, in this session.

A replica in `held_off` is fed and never demanded: its node was dropped recently, and has to prove
itself first (`penstock.cluster.membership`).

A record that names another epoch or leader ends the leadership, and so does a follower's refusal
with a higher epoch, a failed write and a failed sync.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from penstock.limits import AUTHORITY_NS, LEARNER_NEAR_BYTES
from penstock.log.epochs import Extent
from penstock.replication.authority import (
    ALL_PERMITS,
    NEVER_NS,
    NO_PERMITS,
    Evidence,
    Isolation,
    Permits,
    permits,
)
from penstock.replication.effects import (
    Authority,
    BeginAt,
    CommitTo,
    Feed,
    Hello,
    Leave,
    MatchAt,
    Propose,
    ReadRecord,
)
from penstock.replication.follower import LogView
from penstock.replication.matching import common_end
from penstock.replication.record import (
    LeaderId,
    Member,
    PartitionRecord,
    elected,
    regrouped,
    resigned,
)

UNMATCHED = -1  # in place of an offset: it is not known yet what this replica has
_LEADERSHIP_BITS = 32  # numbers of one leadership: a process may hold several, whose answers mix


class Outcome(IntEnum):
    DONE = 1
    REFUSED = 2
    UNKNOWN = 3


class Peer:
    """The replica on another node, in one session of the link."""

    def __init__(self, session: int, complete: bool = True) -> None:
        self.session = session
        self.complete = complete  # it has what is kept beside the log
        self.replica = 0
        self.generation = 0
        self.counted = UNMATCHED  # what it has acknowledged, as the topic's durability counts
        self.synced = 0
        self.sent = UNMATCHED
        self.admitted: PartitionRecord | None = None  # in which it is known to be a member


@dataclass(slots=True, eq=False)
class PartitionLeader:
    log: LogView
    record: PartitionRecord
    revision: int
    leader_id: LeaderId
    generation: int
    committed: int
    waits: bool
    evidence: Evidence = field(default_factory=Evidence)
    confirmed_ns: int = 0  # when the record of this leadership was read
    isolation: Isolation = field(default_factory=Isolation)
    beside: bool = False
    permits: Permits = ALL_PERMITS  # until the first tick
    rests: bool = False  # all permits, and no need of a `tick` while all members answer
    held_off: set[int] = field(default_factory=set)
    peers: dict[int, Peer] = field(default_factory=dict)
    over: bool = False
    out: list[Any] = field(default_factory=list)
    end: int = field(init=False)
    start_end: int = field(init=False)
    own: int = field(init=False)
    _certain_ns: int = NEVER_NS  # until then it has all permits, whatever the evidence is
    _own_entry: Member = field(init=False)
    _sets: list[tuple[Member, ...]] = field(init=False)
    _successor: LeaderId | None = None  # who is to lead next
    _demanded: Member | None = None
    _demanded_end: int = 0
    _number: int = 0
    _session: int = 0
    _proposed: Propose | None = None
    _unsettled: Outcome | None = None  # of what was proposed, and is to be read
    _needed: tuple[Member, ...] = ()

    def __post_init__(self) -> None:
        self.end = self.start_end = self.log.written_end
        self.own = self.log.synced_end if self.waits else self.end
        self._own_entry = Member(self.leader_id.node, self.leader_id.replica, self.generation)
        self._sets = [self.record.members]
        self._need()
        self._renew_own_entry()

    # --- conditions of a commit ---

    @property
    def ready(self) -> bool:
        """May the next append be written?"""
        return self.end == self.committed and self.takes_appends

    @property
    def takes_appends(self) -> bool:
        """False during a handover, and without the permit."""
        return not self.over and self._successor is None and self.permits.publishes

    @property
    def possible_sets(self) -> list[tuple[Member, ...]]:
        return self._sets

    def _need(self) -> None:
        needed = dict.fromkeys(member for members in self._sets for member in members)
        self._needed = tuple(member for member in needed if member.node != self.leader_id.node)
        self._certain_ns, self.rests = NEVER_NS, False
        self.advance()

    def _counted(self, member: Member) -> int:
        peer = self.peers.get(member.node)
        if peer is None or peer.replica != member.replica:
            return UNMATCHED
        return peer.counted

    def advance(self) -> None:
        end = self.own
        for member in self._needed:
            counted = self._counted(member)
            if counted < end:
                end = counted
        if end > self.committed and not self.over:
            self.committed = end
            self.out.append(CommitTo(end))
            self._renew_own_entry()
            self._propose_successor()

    @property
    def synced_everywhere(self) -> int:
        """The end that every member of every possible set has on disk: headers repeat it."""
        end = self.log.synced_end
        for member in self._needed:
            peer = self.peers.get(member.node)
            end = min(end, 0 if peer is None or peer.replica != member.replica else peer.synced)
        return end

    # --- authority ---

    def confirmed(self, sent_ns: int) -> None:
        """The coordinator was asked for this record then, and it was the one known here."""
        self.confirmed_ns = max(self.confirmed_ns, sent_ns)

    def tick(self, mono_ns: int) -> None:
        """Update the permits for this turn."""
        if mono_ns <= self._certain_ns:
            return
        if self.over:
            found = NO_PERMITS
        elif self.record.wanted in ((), (self.leader_id.node,)) and not self._needed:
            found, self.rests = ALL_PERMITS, True
        else:
            is_promised = self._is_promised
            known_ns = self._known_ns(is_promised)
            found = permits(mono_ns - known_ns, not self._needed, self.isolation)
            self.rests = is_promised and found == ALL_PERMITS
            if found == ALL_PERMITS:
                self._certain_ns = known_ns + AUTHORITY_NS
        if found != self.permits:
            self.permits = found
            self.out.append(Authority(found))

    @property
    def _is_promised(self) -> bool:
        """Each needed member follows this leadership: its node's heartbeats confirm it."""
        return bool(self._needed) and all(self._counted(m) != UNMATCHED for m in self._needed)

    def _known_ns(self, is_promised: bool) -> int:
        """The latest time at which this leadership is known to have been in force."""
        known_ns = max(self.confirmed_ns, self.evidence.confirmed_ns)
        if is_promised:
            return max(known_ns, self.evidence.from_all(m.node for m in self._needed))
        return known_ns

    # --- own log ---

    def wrote(self, end: int) -> None:
        """An append is in the log up to `end`: it is sent, and then its sync begins."""
        self.end = end
        if not self.waits:
            self.own = end
        for node in self.peers:
            self.feed(node)
        self.advance()

    def synced(self) -> None:
        if self.waits:
            self.own = min(self.log.synced_end, self.end)
            self.advance()

    def failed(self, reason: str) -> None:
        """A write or a sync failed."""
        self.leave(reason)

    def leave(self, reason: str) -> None:
        if not self.over:
            self.over, self.rests, self._certain_ns = True, False, NEVER_NS
            self.out.append(Leave(reason))

    # --- followers ---

    def linked(self, node: int) -> None:
        """Frames flow to and from this node. Each attempt to match it is a session of its own."""
        if self.over:
            return
        session = self._meet(node).session
        self.rests = False
        self.out.append(Hello(node, session, self.record.epoch))

    def _meet(self, node: int) -> Peer:
        self._session += 1
        session = (self.record.epoch << _LEADERSHIP_BITS) + self._session
        peer = self.peers[node] = Peer(session, complete=not self.beside)
        return peer

    def unlinked(self, node: int) -> None:
        if self.peers.pop(node, None) is None:
            return
        self.rests = False
        if self._demanded is not None and self._demanded.node == node and self._proposed is None:
            self._demand(None)

    def extent_reported(
        self, node: int, session: int, replica: int, generation: int, extent: Extent
    ) -> None:
        """A follower's extent: where do our logs differ?"""
        peer = self._peer(node, session)
        if peer is None:
            return
        peer.replica, peer.generation, peer.admitted = replica, generation, None
        self.rests = False
        if self.log.extent().is_unknown and self.record.has(node, replica):
            self.leave("no batch of its log is intact, and another member is there")
            return
        end = common_end(self.log.extent(), extent)
        if end is None:
            self.out.append(BeginAt(node, session, self.log.extent().start))
            return
        chain = self.log.name_before(end)
        if chain is None:
            self.leave(f"no batch ends at {end}, where a follower's log begins to differ")
        else:
            self.out.append(MatchAt(node, session, end, chain))

    def matched(self, node: int, session: int, end: int) -> None:
        peer = self._peer(node, session)
        if peer is not None:
            peer.sent = end
            self.feed(node)

    def acknowledged(
        self, node: int, session: int, epoch: int, replica: int, written: int, synced: int
    ) -> None:
        peer = self._peer(node, session)
        if peer is None or epoch != self.record.epoch or replica != peer.replica:
            return
        if peer.sent == UNMATCHED:
            return
        peer.counted, peer.synced = synced if self.waits else written, synced
        if written >= peer.sent:
            peer.sent = written
            self.feed(node)
        if peer.admitted is not self.record or self._demanded is not None:
            self._consider(node, peer)
        self.advance()
        if self._successor is not None:
            self._propose_successor()

    def refused(self, node: int, session: int, epoch: int) -> None:
        """A follower has promised a higher epoch, or must be matched again."""
        if epoch > self.record.epoch:
            self.leave("a follower has promised a higher epoch")
            return
        peer = self._peer(node, session)
        if peer is not None:
            self.linked(node)

    def _peer(self, node: int, session: int) -> Peer | None:
        peer = self.peers.get(node)
        if self.over or peer is None or peer.session != session:
            return None
        return peer

    def feed(self, node: int) -> None:
        """One append after the other: the next once this one is acknowledged."""
        peer = self.peers.get(node)
        if peer is not None and UNMATCHED < peer.sent < self.end and not self.over:
            self.out.append(Feed(node, peer.session, peer.sent, self.committed))
            peer.sent = self.end

    def fed(self, node: int, end: int) -> None:
        """The shell has sent up to here."""
        self.peers[node].sent = end

    # --- the set ---

    def _consider(self, node: int, peer: Peer) -> None:
        """Has this replica caught up, without being a member in its present generation?"""
        demanded = self._demanded
        if demanded is not None:
            if demanded.node == node and peer.counted >= self._demanded_end:
                self._propose_growth(demanded)
            return
        newcomer = Member(node, peer.replica, peer.generation)
        if newcomer in self.record.members:
            peer.admitted = self.record
            return
        if self._proposed is not None:
            return
        if node in self.held_off or not peer.complete:
            return
        if node not in self.record.wanted or not self._is_level(peer):
            return
        self._demand(newcomer)
        if peer.counted >= self._demanded_end:
            self._propose_growth(newcomer)

    def admit(self, node: int) -> None:
        """Its pause is over."""
        self.held_off.discard(node)
        peer = self.peers.get(node)
        if peer is not None and peer.counted != UNMATCHED and not self.over:
            self._consider(node, peer)

    def note_beside(self, node: int, session: int, complete: bool) -> None:
        """Does that replica have the files that are kept beside the log?"""
        peer = self._peer(node, session)
        if peer is None or peer.complete == complete:
            return
        peer.complete = complete
        if complete and peer.counted != UNMATCHED:
            self._consider(node, peer)

    def _renew_own_entry(self) -> None:
        """The leader has everything, so its entry may have its node's present generation."""
        entry = self._own_entry
        if self.over or self._proposed is not None or self._demanded is not None:
            return
        if entry not in self.record.members and self.committed >= self.start_end:
            self._propose(regrouped(self.record, added=(entry,)), self._generation_of(entry))

    def _generation_of(self, entry: Member) -> tuple[tuple[int, int], ...]:
        return ((entry.node, entry.generation),)

    def _is_level(self, peer: Peer) -> bool:
        if peer.counted < self.start_end:
            return False
        return peer.counted >= self.committed or self._is_near(peer)

    def _is_near(self, peer: Peer) -> bool:
        if peer.counted < self.log.extent().start:
            return False
        return self.log.bytes_from(peer.counted) <= LEARNER_NEAR_BYTES

    def _demand(self, newcomer: Member | None) -> None:
        """Start to require its acknowledgements, or stop, if it was not proposed."""
        self._demanded = newcomer
        self._demanded_end = self.committed
        self._sets = [self.record.members]
        if newcomer is not None:
            self._sets.append(regrouped(self.record, added=(newcomer,)).members)
        self._need()

    def _propose_growth(self, newcomer: Member) -> None:
        if self._proposed is not None:
            return
        self._propose(regrouped(self.record, added=(newcomer,)), self._generation_of(newcomer))

    @property
    def is_changing(self) -> bool:
        """A change of the set, or its settlement, is running."""
        return self._proposed is not None

    def late_members(self) -> tuple[int, ...]:
        """The nodes for which the commit of the append in flight waits."""
        late = [m.node for m in self._needed if self._counted(m) < self.end]
        return tuple(dict.fromkeys(late))

    def withdraw(self, nodes: tuple[int, ...]) -> int | None:
        """Stop requiring a learner among these, if it is not proposed yet. Returns its node: it has
        to be held off, or the next acknowledgement would require it again."""
        demanded = self._demanded
        if demanded is None or demanded.node not in nodes or self._proposed is not None:
            return None
        self._demand(None)
        return demanded.node

    def drop(self, nodes: tuple[int, ...]) -> bool:
        """Leave these out of the set, if it does not become too small. True: it was proposed."""
        gone = tuple(member for member in self.record.members if member.node in nodes)
        kept = len(self.record.members) - len(gone)
        is_free = self._proposed is None and self._demanded is None and not self.over
        is_allowed = kept >= self.record.members_min and self.leader_id.node not in nodes
        if not (is_free and is_allowed and gone):
            return False
        self._propose(regrouped(self.record, gone=gone))
        return True

    def resign(self, reason: str) -> None:
        """Give up the leadership: the members elect another. Its outcome does not matter here."""
        if not self.over:
            self.out.append(self._proposal(resigned(self.record)))
            self.leave(reason)

    def hand_over(self, node: int, incarnation: int) -> bool:
        """Make the member on this node the leader, once appends in flight are committed and it has
        everything. No append begins from now on, until `keep_leadership`. False: it is no
        member."""
        member = self.record.member_on(node) if node != self.leader_id.node else None
        if member is None or self.over or self._successor is not None:
            return False
        self._successor = LeaderId(node, incarnation, member.replica)
        self._propose_successor()
        return True

    def keep_leadership(self) -> None:
        """The handover took too long. A proposed record may still come into force, but commits go
        on until the successor, which every one of them needs, has promised the next epoch."""
        self._successor = None

    def _propose_successor(self) -> None:
        successor = self._successor
        if (
            successor is None
            or self._proposed is not None
            or self._demanded is not None
            or self.over
        ):
            return
        peer = self.peers.get(successor.node)
        has_all = (
            peer is not None and peer.replica == successor.replica and peer.counted >= self.end
        )
        if (
            has_all
            and self.end == self.committed
            and self.record.has(successor.node, successor.replica)
        ):
            self._propose(elected(self.record, successor))

    def _proposal(
        self, record: PartitionRecord, generations: tuple[tuple[int, int], ...] = ()
    ) -> Propose:
        self._number += 1
        number = (self.record.epoch << _LEADERSHIP_BITS) + self._number
        return Propose(number, record, self.revision, generations)

    def _propose(
        self, record: PartitionRecord, generations: tuple[tuple[int, int], ...] = ()
    ) -> None:
        self._proposed = self._proposal(record, generations)
        self._unsettled = None
        if record.members not in self._sets:
            self._sets.append(record.members)
            self._need()
        self.out.append(self._proposed)

    def outcome(self, number: int, outcome: Outcome, revision: int) -> None:
        proposed = self._proposed
        if self.over or proposed is None or proposed.number != number:
            return
        if outcome is Outcome.DONE:
            if proposed.record.epoch != self.record.epoch:
                self.leave("the leadership was handed over")
            else:
                self._adopt(proposed.record, revision)
        else:
            self._unsettled = outcome
            self.out.append(ReadRecord())

    def read(self, revision: int, record: PartitionRecord) -> None:
        """The record as the coordinator has it."""
        if self.over:
            return
        if revision != self.revision:
            self.seen(revision, record)
        elif self._unsettled is Outcome.REFUSED:  # by a comparison of something else
            self._adopt(self.record, self.revision)
        elif self._unsettled is Outcome.UNKNOWN:
            self._propose(self.record)

    def seen(self, revision: int, record: PartitionRecord) -> None:
        """The record has changed."""
        if self.over or revision <= self.revision:
            return
        if record.epoch != self.record.epoch or record.leader != self.leader_id:
            self.leave("the record names another leadership")
        else:
            self._adopt(record, revision)

    def _adopt(self, record: PartitionRecord, revision: int) -> None:
        """The record is in force, and no earlier proposal can be applied any more."""
        self.record, self.revision = record, revision
        self._proposed, self._unsettled, self._demanded = None, None, None
        self._successor = None
        self._sets = [record.members]
        self._need()
        for node, peer in tuple(self.peers.items()):
            if peer.replica and node not in record.wanted and record.member_on(node) is None:
                self._meet(node)
            elif peer.counted != UNMATCHED:
                self._consider(node, peer)
        self._renew_own_entry()

    # --- for tests ---

    def validate(self) -> None:
        if not self.committed <= self.end or self.own > self.end:
            raise RuntimeError(f"ends {self.committed}, {self.own}, {self.end} are out of order")
        if self.record.members not in self._sets:
            raise RuntimeError("the set in force is not among the possible ones")
        if self._proposed is not None and self._proposed.record.members not in self._sets:
            raise RuntimeError("a set that may come into force is not needed")
