"""The in-sync sets of the partitions that this node leads: drops, readmissions, resignations.

| a member | is dropped, if the set's minimum allows |
|---|---|
| has not acknowledged an append for `--replica-timeout` | from that partition |
| is a learner for which commits wait, and the same | it is waited for no more, at any minimum |
| has had no link for as long | from all |
| is the one for which commits wait, half of the time (`Slowness`) | from all |
| says that its replica has failed | at once |

Where the minimum does not allow it, and nothing could be committed for twice the timeout, this node
gives the leadership up: another member may reach those that it does not. If no other member does
better, the leadership comes back, and the time before it is given up the next time is doubled; a
commit ends that.

Time in which this process itself stood still is not counted: what members sent meanwhile was not
read yet, and a leader that wakes would drop all of them.

**Readmission.** A node that is dropped and level again a second later, for ever, costs two
transactions a partition each time. So it is fed, and not demanded, until its link has been steady
for READMISSION_NS times two to the power of how often it was dropped lately. A first drop because
the link broke costs no waiting: mostly the process was started again. Nor does an orderly stop,
which the node announces, however often. Nor is anybody held off while a set is at its minimum and
one of its members is away: then nothing can be committed without a newcomer. An hour without a
drop, and it begins at its shortest.

**Slowness.** A member that is merely slow is never late. A disk that takes half a second for each
sync, or a link that brings less than is published, stays below `--replica-timeout` for ever, and
each commit waits for it. So it is looked ten times a second for which nodes commits wait: an append
that has waited from one look to the next, and that all members but one have, waits for that one. A
node for which some append waited so in half of the last SLOW_LOOKS looks is slow. Where two are,
none is: then it is the network, or the load. A node without a link never is.
Where all members have an append and only this node's own disk has not, this node counts as the slow
one: it hands over what it leads (`take_slow_here`).
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass

from penstock.cluster.keys import PartitionName
from penstock.limits import (
    PEER_STALL_NS,
    READMISSION_DOUBLINGS_MAX,
    READMISSION_FORGET_NS,
    READMISSION_NS,
    REPLICA_TIMEOUT_NS,
    RESIGN_DOUBLINGS_MAX,
    SECOND,
    SLOW_LOOKS,
    SLOW_LOOKS_MIN,
)
from penstock.replication.leader import PartitionLeader

HERE = -1  # this node, among those that commits wait for


class Members:
    def __init__(
        self,
        resign: Callable[[PartitionName, str], None],
        moved: set[PartitionName],
        timeout_ns: int = REPLICA_TIMEOUT_NS,
    ) -> None:
        """`moved`: the shared set of partitions whose machines want something done."""
        self.machines: dict[PartitionName, PartitionLeader] = {}
        self.timeout_ns = timeout_ns
        self.readmission = Readmission()
        self.slowness = Slowness()
        self._resign = resign
        self._moved = moved
        self._links: set[int] = set()
        self._leavers: set[int] = set()  # nodes that have said that they stop
        self.unlinked_ns: dict[int, int] = {}  # nodes without a link, and since when
        self._busy_ns: dict[PartitionName, int] = {}  # since when an append waits
        self._resigned: dict[PartitionName, int] = {}  # how often, since the last commit
        self._slow_due_ns = 0
        self._is_slow_here = False
        self._looked_ns: int | None = None  # when it was last looked who is late

    # --- events ---

    def leadership_began(self, name: PartitionName, machine: PartitionLeader, mono_ns: int) -> None:
        self.machines[name] = machine
        machine.held_off = self.readmission.held_off
        if machine.end > machine.committed:
            self._busy_ns[name] = mono_ns
        for node in self._leavers:
            self._drop_from(name, node, mono_ns)

    def leadership_ended(self, name: PartitionName) -> None:
        self.machines.pop(name, None)
        self._busy_ns.pop(name, None)

    def wrote(self, name: PartitionName, mono_ns: int) -> None:
        """An append is in flight."""
        self._busy_ns[name] = mono_ns

    def waited(self, names: Iterable[PartitionName]) -> None:
        """The appends of these partitions have been in flight since the last tick, or longer."""
        slow = set[int]()
        for machine in [self.machines[name] for name in names]:
            late, count = machine.late_members(), len(machine.record.members)
            if len(late) == 1 and count > 2:
                slow.update(self._links.intersection(late))
            elif not late and count > 1:
                slow.add(HERE)
        self.slowness.looked(slow)

    def take_slow_here(self) -> bool:
        """Do commits wait for this node's own disk? The answer resets it."""
        is_slow, self._is_slow_here = self._is_slow_here, False
        return is_slow

    def committed(self, name: PartitionName) -> None:
        """All appends are committed."""
        self._busy_ns.pop(name, None)
        self._resigned.pop(name, None)

    def linked(self, node: int, mono_ns: int) -> None:
        self._links.add(node)
        self._leavers.discard(node)
        self.unlinked_ns.pop(node, None)
        self.readmission.linked(node, mono_ns)
        for name in tuple(self._busy_ns):
            machine = self.machines[name]
            if machine.end == machine.committed:
                del self._busy_ns[name]  # it waited for members, not for an append

    def unlinked(self, node: int, mono_ns: int) -> None:
        self._links.discard(node)
        self.unlinked_ns[node] = mono_ns
        self.readmission.unlinked(node)
        self.slowness.forget(node)

    def leaving(self, node: int, mono_ns: int) -> None:
        """The node is about to stop, through no fault of its own: it counts again as soon as it is
        back."""
        self._leavers.add(node)
        self.readmission.leaving(node)
        self.drop_from_all(node, mono_ns)

    def failed(self, name: PartitionName, node: int, mono_ns: int) -> None:
        """The replica on that node reports a failure: it is not to blame for being slow."""
        machine = self.machines[name]
        if machine.record.member_on(node) is not None and not machine.is_changing:
            self._drop(name, (node,), mono_ns)

    # --- conclusions ---

    def tick(self, mono_ns: int) -> None:
        """Call about ten times a second, after the input was read."""
        self._excuse(mono_ns)
        for node in self._leavers:  # again: the records of some were just changing
            self.drop_from_all(node, mono_ns)
        for node, since_ns in tuple(self.unlinked_ns.items()):
            if mono_ns - since_ns >= self.timeout_ns:
                self.drop_from_all(node, mono_ns)
        for name, since_ns in tuple(self._busy_ns.items()):
            if mono_ns - since_ns >= self.timeout_ns:
                self._drop_late(name, mono_ns - since_ns, mono_ns)
        if mono_ns >= self._slow_due_ns:
            self._slow_due_ns = mono_ns + self.timeout_ns
            for node in self.slowness.slow_nodes():
                if node == HERE:
                    self._is_slow_here = True
                else:
                    self.drop_from_all(node, mono_ns)
                self.slowness.forget(node)
        for node in self.readmission.admitted(mono_ns):
            self._moved.update(self.machines)
            for machine in self.machines.values():
                machine.admit(node)

    def _excuse(self, mono_ns: int) -> None:
        since_ns = mono_ns if self._looked_ns is None else self._looked_ns
        self._looked_ns = mono_ns
        stood_ns = mono_ns - since_ns
        if stood_ns < PEER_STALL_NS:
            return
        for node, unlinked_ns in self.unlinked_ns.items():
            self.unlinked_ns[node] = min(unlinked_ns + stood_ns, mono_ns)
        for name, busy_ns in self._busy_ns.items():
            self._busy_ns[name] = min(busy_ns + stood_ns, mono_ns)

    def drop_from_all(self, node: int, mono_ns: int) -> None:
        for name in tuple(self.machines):
            self._drop_from(name, node, mono_ns)

    def _drop_from(self, name: PartitionName, node: int, mono_ns: int) -> None:
        machine = self.machines[name]
        if machine.record.member_on(node) is None or machine.is_changing:
            return
        if not self._drop(name, (node,), mono_ns):
            self._busy_ns.setdefault(name, mono_ns)
            if len(machine.record.members) <= machine.record.members_min:
                self.readmission.need()

    def _drop_late(self, name: PartitionName, waited_ns: int, mono_ns: int) -> None:
        machine = self.machines[name]
        late = machine.late_members()
        learner = machine.withdraw(late)
        if learner is not None:
            self._moved.add(name)  # what it waited for may be committed now
            self.readmission.dropped(learner, learner in self._links, mono_ns)
            return
        if late and self._drop(name, late, mono_ns):
            return
        doublings = min(self._resigned.get(name, 0), RESIGN_DOUBLINGS_MAX)
        if waited_ns >= 2 * self.timeout_ns << doublings and not machine.is_changing:
            self._resigned[name] = self._resigned.get(name, 0) + 1
            nodes = ", ".join(f"node {node}" for node in sorted(late)) or "this node"
            waited = f"{nodes} stored nothing for {waited_ns // SECOND} s"
            self._resign(name, f"nothing could be committed: {waited}")

    def _drop(self, name: PartitionName, nodes: Iterable[int], mono_ns: int) -> bool:
        """Drops as many as the minimum allows. True: it was proposed."""
        machine = self.machines[name]
        record = machine.record
        members = [node for node in nodes if record.member_on(node) is not None]
        gone = tuple(members[: max(len(record.members) - record.members_min, 0)])
        if not machine.drop(gone):
            return False
        self._moved.add(name)
        for node in set(gone) - self._leavers:
            self.readmission.dropped(node, node in self._links, mono_ns)
        return True


@dataclass(slots=True, eq=False)
class _Past:
    count: int = 0
    dropped_ns: int = 0
    hold_ns: int = 0
    is_away: bool = False  # it was dropped, and not linked since
    steady_since_ns: int | None = None


class Readmission:
    """Readmission to in-sync sets, by node, for all partitions that this node leads."""

    def __init__(self) -> None:
        self.held_off: set[int] = set()  # shared with each `PartitionLeader`
        self._past: dict[int, _Past] = {}

    def dropped(self, node: int, is_linked: bool, mono_ns: int) -> None:
        """Dropped from one partition. All drops of a node without a link count as one."""
        past = self._past.setdefault(node, _Past())
        if past.is_away and not is_linked:
            return
        past.is_away = not is_linked
        if past.count and mono_ns - past.dropped_ns > READMISSION_FORGET_NS:
            past.count = 0
        if node not in self.held_off:
            past.count += 1
            doublings = past.count - (1 if is_linked else 2)
            if doublings >= 0:
                past.hold_ns = READMISSION_NS << min(doublings, READMISSION_DOUBLINGS_MAX)
                self.held_off.add(node)
        past.dropped_ns = mono_ns
        past.steady_since_ns = mono_ns if is_linked else None

    def leaving(self, node: int) -> None:
        """The node is fed again once it has a link, and then at once."""
        if node not in self.held_off:
            self.held_off.add(node)
            past = self._past.setdefault(node, _Past())
            past.hold_ns, past.steady_since_ns = 0, None

    def need(self) -> None:
        """Nothing can be committed without a new member: every linked node is admitted at once."""
        for node in self.held_off:
            self._past[node].hold_ns = 0

    def linked(self, node: int, mono_ns: int) -> None:
        past = self._past.get(node)
        if past is not None:
            past.is_away, past.steady_since_ns = False, mono_ns

    def unlinked(self, node: int) -> None:
        past = self._past.get(node)
        if past is not None:
            past.steady_since_ns = None

    def admitted(self, mono_ns: int) -> list[int]:
        """Nodes whose pause is over."""
        linked = [one for one in self.held_off if self._past[one].steady_since_ns is not None]
        steady = [node for node in linked if not self.left_ns(node, mono_ns)]
        self.held_off.difference_update(steady)
        return sorted(steady)

    def left_ns(self, node: int, mono_ns: int) -> int:
        """The time for which a node that is held off has to stay linked."""
        past = self._past[node]
        since_ns = mono_ns if past.steady_since_ns is None else past.steady_since_ns
        return max(past.hold_ns - (mono_ns - since_ns), 0)


class Slowness:
    def __init__(self) -> None:
        self._looks: deque[Set[int]] = deque(maxlen=SLOW_LOOKS)

    def looked(self, waited_for: Set[int]) -> None:
        self._looks.append(waited_for)

    def forget(self, node: int) -> None:
        for look in range(len(self._looks)):
            self._looks[look] = self._looks[look] - {node}

    def slow_nodes(self) -> list[int]:
        counts = Counter(node for look in self._looks for node in look)
        slow = [node for node, count in counts.items() if count >= SLOW_LOOKS_MIN]
        return slow if len(slow) == 1 else []
