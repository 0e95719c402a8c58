"""Who is gone, and who should not lead: what a node may conclude from silence, and from what others
say of their replicas.

An incarnation of a node is over, as far as this node may act on it, when

| sign | and |
|---|---|
| its key in `nodes/` has another incarnation | |
| it has no link to this node | its key is gone, and absence may be acted on |
| it has no link to this node | its address refused a connection, to this node and to another one |
| it has a link to this node | its key is gone for KEYLESS_NS, and absence may be acted on |

A node that has lost its lease and keeps its links may be busy, and registers again. One that stays
without a key does not reach the coordinator: no lookup finds it, and it can change no set.

**An absence may be acted on** when this node has followed the coordinator, without a gap, for
the time of a lease and ABSENCE_GRACE_NS. After an outage of the coordinator all keys are gone at
first: who acted then would take every leadership for the first node that came back.

**A refused connection** is quick and may lie: a firewall, a proxy, an address that belongs to
another machine now. So it counts from the address of an authenticated link of that incarnation,
seen by two nodes within REFUSAL_NS, and once in REFUSAL_PAUSE_NS for an incarnation. Who acts on it
removes the node's key in the same transaction, and a node that lives after all registers again. A
new incarnation shows that the last one was over: it is believed at once when that refuses, too.

Nothing here guards commits: a wrong conclusion costs an election.

**Corrupt replicas** should not lead where an intact one could. A node whose disk is full takes no
publishes: all its replicas are named as if they were corrupt. A corrupt replica is still a member:
what it holds that is intact counts, and so does what it writes from now on. But where it leads,
channels wait at the corrupt range, and an intact member could serve it. So a node says to all that
it is linked to which of its replicas are corrupt, when that changes and on each new link. One that
has failed, since its disk takes nothing or its file cannot be read, acknowledges nothing: no commit
should wait for it.

| | |
|---|---|
| a leadership is vacant | a corrupt member waits for INTACT_FIRST_NS, if it reaches an intact one |
| the leadership is to be handed over | not to a corrupt member |
| a leader is corrupt | it hands over to an intact member, if it is linked to one |
| a follower has failed | its leader leaves it out, if the minimum allows |

An intact member that has not asked in that time cannot: then a corrupt one leads, and serves what
is intact.
"""

from collections.abc import Collection

from penstock.cluster.keys import PartitionName
from penstock.cluster.view import View
from penstock.limits import (
    ABSENCE_GRACE_NS,
    KEYLESS_NS,
    NODE_LEASE_NS,
    REFUSAL_NS,
    REFUSAL_PAUSE_NS,
)
from penstock.replication.authority import NEVER_NS
from penstock.replication.record import PartitionRecord

WITNESSES_MIN = 2


class FailureDetector:
    def __init__(self, own: int, view: View) -> None:
        self.own = own
        self.view = view
        self.wait_ns = NODE_LEASE_NS + ABSENCE_GRACE_NS
        self.links: dict[int, int] = {}  # to the incarnation of the process on the other side
        self._followed_since_ns: int | None = None
        self._witnesses: dict[tuple[int, int], dict[int, int]] = {}  # when, by witness
        self.refused_incarnations: dict[int, int] = {}  # node: that two found refusing
        self._concluded: dict[int, tuple[int, int]] = {}  # node: the last such one, and when
        self._keyless_ns: dict[int, int] = {}  # since when a node's key is gone

    # --- observations ---

    def linked(self, node: int, incarnation: int) -> None:
        self.links[node] = incarnation
        self.refused_incarnations.pop(node, None)
        for key in [key for key in self._witnesses if key[0] == node]:
            del self._witnesses[key]

    def unlinked(self, node: int) -> None:
        self.links.pop(node, None)

    def key_changed(self, node: int, is_there: bool, mono_ns: int) -> None:
        if is_there:
            self._keyless_ns.pop(node, None)
        else:
            self._keyless_ns[node] = mono_ns

    def followed(self, mono_ns: int) -> None:
        """The view is current, and this node's key exists."""
        if self._followed_since_ns is None:
            self._followed_since_ns = mono_ns

    def away(self) -> None:
        """The coordinator is not followed, or this node's lease was lost."""
        self._followed_since_ns = None

    def refused(self, witness: int, node: int, incarnation: int, mono_ns: int) -> None:
        """The address of that incarnation, known from a link, refused a connection."""
        seen = self._witnesses.setdefault((node, incarnation), {})
        seen[witness] = mono_ns
        fresh = [one for one, at_ns in seen.items() if mono_ns - at_ns <= REFUSAL_NS]
        if self.own not in fresh or len(fresh) < WITNESSES_MIN or node in self.refused_incarnations:
            return
        last, at_ns = self._concluded.get(node, (incarnation, NEVER_NS))
        if last != incarnation or mono_ns - at_ns >= REFUSAL_PAUSE_NS:
            self._concluded[node] = incarnation, mono_ns
            self.refused_incarnations[node] = incarnation

    # --- conclusions ---

    def may_act(self, mono_ns: int) -> bool:
        since_ns = self._followed_since_ns
        if since_ns is None:
            return False
        return mono_ns - since_ns >= self.wait_ns

    def why_gone(self, node: int, incarnation: int, mono_ns: int) -> str:
        """Why this incarnation is over; empty: it may be alive."""
        held = self.view.nodes.get(node)
        if held is not None and held.document.incarnation != incarnation:
            return f"node {node} has started again"
        if node == self.own:
            return ""
        if self.links.get(node) == incarnation:
            return f"node {node} does not reach etcd" if self.is_keyless(node, mono_ns) else ""
        if held is None and self.may_act(mono_ns):
            return f"node {node} has no link, and its key is gone"
        if self.is_refused(node, incarnation):
            return f"node {node} refuses connections"
        return ""

    def is_keyless(self, node: int, mono_ns: int) -> bool:
        since_ns = self._keyless_ns.get(node)
        if since_ns is None or mono_ns - since_ns < KEYLESS_NS:
            return False
        return self.may_act(mono_ns)

    def is_refused(self, node: int, incarnation: int) -> bool:
        return self.refused_incarnations.get(node) == incarnation

    def is_missing(self, node: int, mono_ns: int) -> bool:
        """No incarnation of this node is known."""
        if node == self.own or node in self.links:
            return False
        return node not in self.view.nodes and self.may_act(mono_ns)


_NONE: frozenset[PartitionName] = frozenset()


class CorruptReplicas:
    """Which replicas should not lead because they are corrupt, as their nodes report, and which
    should replace them."""

    def __init__(self, own: int) -> None:
        self.own = own
        self.corrupt: frozenset[PartitionName] = _NONE  # here
        self.failed: frozenset[PartitionName] = _NONE  # here, and among those
        self._of_node: dict[int, frozenset[PartitionName]] = {}
        self.failed_of_node: dict[int, frozenset[PartitionName]] = {}

    def reported(
        self, node: int, corrupt: Collection[PartitionName], failed: Collection[PartitionName] = ()
    ) -> None:
        self._of_node[node] = frozenset(corrupt)
        self.failed_of_node[node] = frozenset(failed)

    def unlinked(self, node: int) -> None:
        self._of_node.pop(node, None)
        self.failed_of_node.pop(node, None)

    def may_be_given(self, name: PartitionName, node: int) -> bool:
        return name not in self._of_node.get(node, _NONE)

    def successor(
        self, name: PartitionName, record: PartitionRecord, reached: Collection[int]
    ) -> int | None:
        """The intact member that should lead instead of this node; by preference. None: this node
        is as good as any that it reaches."""
        if name not in self.corrupt:
            return None
        intact = [
            member.node
            for member in record.members
            if member.node != self.own
            and member.node in reached
            and self.may_be_given(name, member.node)
        ]
        return next(iter(record.preferred(intact)), None)
