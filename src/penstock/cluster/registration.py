"""A node registers: first its start, then its incarnation.

1. Once the view is current, it writes `members/<id>`: generation, lost memory, incarnation.
2. Once the view has that, it asks for a lease.
3. It puts `nodes/<id>` with the lease, over whatever stands there.
4. It keeps the lease, each third of its time.

`members/<id>` comes first: what the node had before a loss of memory is suspect before anybody
takes it for alive. It is compared; `nodes/<id>` is not: a start takes over the key of the
incarnation before it, whose lease then holds nothing.

**Who is refused.** A second machine with this id has another uuid, but for one that an operator has
started in the place of the first. A node that finds a higher generation of itself was set back, or
cloned: it ends. So does one that finds its own generation with another incarnation: each start has
one of its own, written to its disk first, so that one which was set back to before the last start
has that one's number again.

The lease is kept from the loop's own turn, so that a process whose loop hangs is missed. `Leased`
is what any daemon does that is known by a key with a lease.
"""

from collections.abc import Callable, Iterable

from penstock.cluster import keys
from penstock.cluster.coordinator import (
    NO_LEASE,
    Coordinator,
    Delete,
    Failed,
    Granted,
    LeaseGone,
    Put,
    RevisionIs,
    Settled,
    Transaction,
)
from penstock.cluster.documents import MEMBERSHIP, NODE, Membership, NodeDocument
from penstock.cluster.view import View, revision_of
from penstock.limits import COORDINATOR_RETRY_NS, NODE_LEASE_NS
from penstock.replication.authority import NEVER_NS
from penstock.replication.leader import Outcome

KEEP_SHARE = 3  # of a lease's time: two attempts may fail


class Leased:
    """A key of this process that exists while the process lives, and replaces an older value. A
    subclass may need to act first: `_may_begin`."""

    def __init__(self, key: str, coordinator: Coordinator, value: Callable[[], bytes]) -> None:
        self.key = key
        self.coordinator = coordinator
        self.is_registered = False  # the key is there, and the lease as far as is known
        self._value = value
        self._lease = NO_LEASE
        self._kept_ns = NEVER_NS  # when the lease was asked to last that it lasts
        self._due_ns = NEVER_NS  # the next attempt
        self._is_waiting = False
        self._now_ns = 0

    def is_held(self, mono_ns: int) -> bool:
        """The lease is valid, as far as this process knows."""
        return self.is_registered and mono_ns - self._kept_ns < NODE_LEASE_NS

    def lease(self) -> int:
        """For other keys that go with the process; NO_LEASE: it has none."""
        return self._lease if self.is_held(self._now_ns) else NO_LEASE

    def tick(self, mono_ns: int, is_current: bool) -> None:
        """`is_current`: the view is up to date, as far as a watch can tell."""
        self._now_ns = mono_ns
        if self.is_registered:
            self._keep()
            return
        if not is_current or self._is_waiting or mono_ns < self._due_ns or not self._may_begin():
            return
        if self._lease == NO_LEASE:
            self._grant()
        else:
            self._register()

    def _may_begin(self) -> bool:
        return True

    def _transact(self, transaction: Transaction, done: Callable[[Settled], None]) -> None:
        self._is_waiting = True
        self._due_ns = self._now_ns + COORDINATOR_RETRY_NS
        self.coordinator.transact(transaction, done)

    def _grant(self) -> None:
        self._is_waiting = True
        self._due_ns = self._now_ns + COORDINATOR_RETRY_NS
        sent_ns = self._now_ns
        self.coordinator.grant(NODE_LEASE_NS, lambda answer: self._granted(sent_ns, answer))

    def _granted(self, sent_ns: int, answer: Granted | Failed) -> None:
        self._is_waiting = False
        if isinstance(answer, Granted):
            self._lease, self._kept_ns = answer.lease, sent_ns
            self._due_ns = self._now_ns

    def _register(self) -> None:
        change = Put(self.key, self._value(), self._lease)
        self._transact(Transaction((), (change,)), self._registered)

    def _registered(self, settled: Settled) -> None:
        self._is_waiting = False
        if settled.outcome is Outcome.DONE:
            self.is_registered = True
            self._due_ns = self._kept_ns + NODE_LEASE_NS // KEEP_SHARE
        elif settled.outcome is Outcome.REFUSED:  # the lease is gone
            self._lease = NO_LEASE

    def key_gone(self) -> None:
        """Another node has taken this process for dead."""
        if self.is_registered:
            self.is_registered = False
            self._due_ns = self._now_ns

    def _keep(self) -> None:
        if self._is_waiting or self._now_ns < self._due_ns:
            return
        self._is_waiting = True
        self._due_ns = self._now_ns + NODE_LEASE_NS // KEEP_SHARE
        sent_ns = self._now_ns
        self.coordinator.keep(self._lease, lambda answer: self._kept(sent_ns, answer))

    def _kept(self, sent_ns: int, answer: Granted | LeaseGone | Failed) -> None:
        self._is_waiting = False
        if isinstance(answer, Granted):
            self._kept_ns = sent_ns
        elif isinstance(answer, LeaseGone):
            self._lease = NO_LEASE
            self.is_registered = False
            self._due_ns = self._now_ns
        else:
            self._due_ns = min(self._due_ns, self._now_ns + COORDINATOR_RETRY_NS)


def leave(coordinator: Coordinator, registered: Iterable[Leased], done: Callable[[], None]) -> None:
    """The process ends: its keys are removed now, so that nobody waits for their leases."""
    held = tuple(Delete(one.key) for one in registered if one.is_registered)
    if held:
        coordinator.transact(Transaction((), held), lambda settled: done())
    else:
        done()


class Registration(Leased):
    def __init__(
        self,
        own: int,
        coordinator: Coordinator,
        view: View,
        membership: Membership,
        describe: Callable[[], NodeDocument],
    ) -> None:
        super().__init__(keys.node(own), coordinator, lambda: NODE.encode(describe()))
        self.own = own
        self.view = view
        self.membership = membership  # as it is to stand there
        self.reason = ""  # why it is refused
        self.replaces = 0  # uuid of the machine whose place this one takes; 0: none
        self._first = 0, 0  # restorations of the metadata, and the first revision in them

    def tick(self, mono_ns: int, is_current: bool) -> None:
        if is_current and self._is_lost:
            self.is_registered = False
        super().tick(mono_ns, is_current)

    @property
    def _is_lost(self) -> bool:
        """What etcd had of it was lost, and the restored metadata has not: only the view does."""
        held = self.view.memberships.get(self.own)
        return held is not None and not held.revision

    def _may_begin(self) -> bool:
        """The start is registered."""
        if self._is_refused():
            return False
        if not self.entered_revision:
            self._enter()
            return False
        return True

    def _is_refused(self) -> bool:
        held = self.view.memberships.get(self.own)
        if held is None:
            return False
        known = held.document
        if known.uuid not in (self.membership.uuid, self.replaces):
            self.reason = f"another machine has the id {self.own}: {known.uuid:032x}"
        elif self._was_set_back(known):
            self.reason = (
                f"this is generation {self.membership.generation} of node {self.own}, "
                f"and generation {known.generation} was there"
            )
        else:
            return False
        return True

    def _was_set_back(self, known: Membership) -> bool:
        own = self.membership
        is_taken = known.generation == own.generation and known.incarnation != own.incarnation
        return known.generation > own.generation or is_taken

    @property
    def entered_revision(self) -> int:
        """The revision at which this start was registered, as far as is known; 0: it is not. What
        others write there, and the floor of ids, come later."""
        held = self.view.memberships.get(self.own)
        if held is None or not held.revision or held.document != self._as_in(held.document):
            return 0
        restorations, first = self._first
        if not first or restorations != self.view.restorations:
            first = held.revision
            self._first = self.view.restorations, first
        return first

    def _as_in(self, document: Membership) -> Membership:
        floor = max(document.id_floor, self.membership.id_floor)
        return self.membership._replace(state=document.state, id_floor=floor)

    def _enter(self) -> None:
        held = self.view.memberships.get(self.own)
        if held is not None:  # what others write there stays
            self.membership = self._as_in(held.document)
            if self.membership == held.document and not self._is_lost:
                return
        key = keys.member(self.own)
        change = Put(key, MEMBERSHIP.encode(self.membership))
        self._transact(Transaction((RevisionIs(key, revision_of(held)),), (change,)), self._entered)

    def _entered(self, settled: Settled) -> None:
        """A done change arrives through the view."""
        self._is_waiting = False
        if settled.outcome is Outcome.DONE:
            self._due_ns = self._now_ns
