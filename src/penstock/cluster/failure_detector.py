"""Who is gone: what a node may conclude from silence, and what it may not.

A life of a node's process is over, as far as this node may act on it, when

| sign | and |
|---|---|
| its key in `nodes/` has another incarnation | |
| it has no link to this node | its key is gone, and absence may be acted on |
| it has no link to this node | its address refused a connection, to this node and to another one |

**FailureDetector may be acted on** when this node has followed the coordinator, without a gap, for
the time of a lease and ABSENCE_GRACE_NS. After an outage of the coordinator all keys are gone at
first: who acted then would take every leadership for the first node that came back.

**A refused connection** is quick and may lie: a firewall, a proxy, an address that belongs to
another machine now. So it counts from the address of an authenticated link of that life, seen by
two nodes within REFUSAL_NS, and once in REFUSAL_PAUSE_NS for a node. Who acts on it removes the
node's key in the same transaction, and a node that lives after all registers again.

Nothing here guards commits: a wrong conclusion costs an election.
"""

from __future__ import annotations

from penstock.cluster.view import View
from penstock.limits import (
    ABSENCE_GRACE_NS,
    NODE_LEASE_NS,
    REFUSAL_NS,
    REFUSAL_PAUSE_NS,
)

NEVER_NS = -(1 << 62)
WITNESSES_MIN = 2


class FailureDetector:
    def __init__(self, own: int, view: View, lease_ns: int = NODE_LEASE_NS) -> None:
        self.own = own
        self.view = view
        self.wait_ns = lease_ns + ABSENCE_GRACE_NS
        self.links: dict[int, int] = {}  # to the incarnation of the process on the other side
        self._followed_since_ns: int | None = None
        self._witnesses: dict[tuple[int, int], dict[int, int]] = {}  # (node, life): witness, when
        self._refused: dict[int, int] = {}  # node: the life that two found refusing
        self._refusal_ns: dict[int, int] = {}  # when that was concluded last

    # --- what is seen ---

    def linked(self, node: int, incarnation: int) -> None:
        self.links[node] = incarnation
        self._refused.pop(node, None)
        for key in [key for key in self._witnesses if key[0] == node]:
            del self._witnesses[key]

    def unlinked(self, node: int) -> None:
        self.links.pop(node, None)

    def followed(self, mono_ns: int) -> None:
        """The view is current, and the own key is there."""
        if self._followed_since_ns is None:
            self._followed_since_ns = mono_ns

    def away(self) -> None:
        """The coordinator is not followed, or the own lease was lost."""
        self._followed_since_ns = None

    def refused(self, witness: int, node: int, incarnation: int, mono_ns: int) -> None:
        """The node's address, known from a link to that life, refused a connection."""
        seen = self._witnesses.setdefault((node, incarnation), {})
        seen[witness] = mono_ns
        fresh = [one for one, at_ns in seen.items() if mono_ns - at_ns <= REFUSAL_NS]
        if self.own not in fresh or len(fresh) < WITNESSES_MIN or node in self._refused:
            return
        if mono_ns - self._refusal_ns.get(node, NEVER_NS) >= REFUSAL_PAUSE_NS:
            self._refusal_ns[node] = mono_ns
            self._refused[node] = incarnation

    # --- what follows from it ---

    def may_act(self, mono_ns: int) -> bool:
        since_ns = self._followed_since_ns
        if since_ns is None:
            return False
        return mono_ns - since_ns >= self.wait_ns

    def why_gone(self, node: int, incarnation: int, mono_ns: int) -> str:
        """Why this incarnation is over; empty: it is not known to be."""
        held = self.view.nodes.get(node)
        if held is not None and held.document.incarnation != incarnation:
            return f"node {node} has started again"
        if node == self.own or self.links.get(node) == incarnation:
            return ""
        if held is None and self.may_act(mono_ns):
            return f"node {node} has no link, and its key is gone"
        if self.is_refused(node, incarnation):
            return f"node {node} refuses connections"
        return ""

    def is_refused(self, node: int, incarnation: int) -> bool:
        return self._refused.get(node) == incarnation

    def is_missing(self, node: int, mono_ns: int) -> bool:
        """No life of this node is known."""
        if node == self.own or node in self.links:
            return False
        return node not in self.view.nodes and self.may_act(mono_ns)
