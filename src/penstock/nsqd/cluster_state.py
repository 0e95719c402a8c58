"""A node's report about its cluster (`/cluster` and `/metrics`), and the desired states of nodes.

Who leads and who is in sync is in the metadata, which each node has. How far followers are behind
is known to the leader alone. A partition is *under-replicated* while fewer replicas are in sync
than its topic wants, and *offline* while no node leads it that lives. The node that is named to
lead it says so too while it does not serve it.

By `POST /cluster/node?node=2&state=draining` an operator wants something of a node. The state goes
into the metadata. The controller acts on it, in an nsqlookupd with `--cluster` (docs/cluster.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from penstock.cluster import keys
from penstock.cluster.coordinator import Put, RevisionIs, Settled, Transaction
from penstock.cluster.documents import DRAINING, MEMBERSHIP, REMOVED, STATES, identity_text
from penstock.cluster.metadata_topics import target_for
from penstock.errors import StorageError
from penstock.limits import CLOCK_DIFFERS_NS, NODE_ID_MAX, SECOND
from penstock.net.api import EMPTY, Answer, HttpError, because, error_response
from penstock.net.exchange import Request
from penstock.net.query import parse_query, whole_number
from penstock.nsqd.stats import encode
from penstock.replication.leader import Outcome

if TYPE_CHECKING:
    from penstock.broker.replicas.replicated_partition import ReplicatedPartition
    from penstock.cluster.coordinator import Coordinator
    from penstock.cluster.documents import NodeDocument
    from penstock.cluster.keys import PartitionName
    from penstock.cluster.node import ClusterNode
    from penstock.cluster.view import View
    from penstock.replication.follower import LogView
    from penstock.replication.record import PartitionRecord


Row = dict[str, Any]
LOOK_NS = 3 * SECOND  # between two looks at all partitions, which take milliseconds


class ClusterState:
    """`look` is called now and then: it remembers since when a partition is unhealthy, and the
    address of a node that is down."""

    def __init__(self, cluster: ClusterNode, name: str) -> None:
        self._cluster = cluster
        self._name = name
        self._since: dict[PartitionName, int] = {}
        self._nodes: dict[int, NodeDocument] = {}  # as they were when they were last seen
        self._applied = (-1, -1, False, 0)  # at the last count
        self._due_ns = 0
        self.under_replicated = self.offline = 0
        self.lag = self.lag_bytes = 0  # of the follower that is most behind

    # --- counts ---

    def look(self, mono_ns: int) -> None:
        if mono_ns < self._due_ns:
            return
        self._due_ns = mono_ns + LOOK_NS
        participant = self._cluster.participant
        view, machines = participant.view, participant.proposals.machines
        serving = sum(self._serves(name, machine.record) for name, machine in machines.items())
        # Not `revision_seen`, which runs ahead of what was applied.
        applied = view.restorations, view.revision, view.is_pending, serving
        if applied != self._applied:
            self._applied = applied
            self._count(mono_ns)
        behind = [
            (machine, max(peer.counted, 0))
            for machine in machines.values()
            for peer in machine.peers.values()
            if peer.replica and peer.counted < machine.end
        ]
        self.lag = max((machine.end - counted for machine, counted in behind), default=0)
        self.lag_bytes = max((_bytes_from(machine.log, at) for machine, at in behind), default=0)

    def _count(self, mono_ns: int) -> None:
        nodes = self._cluster.participant.view.nodes
        self._nodes |= {number: held.document for number, held in nodes.items()}
        since, self._since = self._since, {}
        self.under_replicated = self.offline = 0
        for name, record, replicas in self._records():
            short, offline = len(record.members) < replicas, self._is_offline(name, record)
            self.under_replicated += short
            self.offline += offline
            if short or offline:
                self._since[name] = since.get(name, mono_ns)

    def _records(self) -> Iterator[tuple[PartitionName, PartitionRecord, int]]:
        """The records of topics that exist, with the wanted number of replicas."""
        view = self._cluster.participant.view
        for topic, one in sorted(view.topics.items()):
            for name, held in view.records_of(topic):
                yield name, held.document, one.document.replicas

    def _is_offline(self, name: PartitionName, record: PartitionRecord) -> bool:
        """A restarted node leads nothing before it is elected anew."""
        leader = record.leader
        if leader is None or leader.incarnation != self._incarnation(leader.node):
            return True
        return leader.node == self._cluster.own and not self._serves(name, record)

    def _serves(self, name: PartitionName, record: PartitionRecord) -> bool:
        target = target_for(record.identity, name.number)
        return self._cluster.replica_host.leader(target) is not None

    def _incarnation(self, node: int) -> int | None:
        if node == self._cluster.own:  # its key may be gone while etcd is away
            return self._cluster.participant.proposals.incarnation
        held = self._cluster.participant.view.nodes.get(node)
        return held.document.incarnation if held is not None else None

    @property
    def clock_ahead_ns(self) -> int:
        return self._cluster.participant.clock_ahead_ns

    @property
    def leader_changes(self) -> int:
        """Leaderships that began on this node."""
        return self._cluster.began_count

    # --- documents ---

    def document(self, generation: int, trouble: str, health: str) -> Iterator[bytes]:
        """In pieces, since publishes go on beside it."""
        self._due_ns = 0
        self.look(time.monotonic_ns())
        view = self._cluster.participant.view
        head = {
            "cluster": self._own_name(),
            "node": self._cluster.own,
            "generation": generation,
            "trouble": trouble,
            "health": health,
            "nodes": [self._node(number) for number in sorted(view.memberships)],
        }
        yield encode(head)[:-1] + b',"partitions":['
        comma = b""
        for one in self._records():
            yield comma + encode(self._partition(*one))
            comma = b","
        yield b"]}"

    def elsewhere(self, is_wanted: Callable[[str], bool]) -> Row:
        """Partitions that this node does not serve, with the HTTP address of the leader, empty
        where none can be reached; and the addresses of all nodes that live."""
        nodes = self._cluster.participant.view.nodes
        addresses = {number: held.document.http_address for number, held in sorted(nodes.items())}
        topics: dict[str, Row] = {}
        for name, record, _ in self._records():
            target = target_for(record.identity, name.number)
            if not is_wanted(name.topic) or self._cluster.replica_host.leader(target) is not None:
                continue
            leader = record.leader.node if record.leader is not None else self._cluster.own
            address = addresses.get(leader, "") if leader != self._cluster.own else ""
            entry = {"identity": identity_text(record.identity), "partitions": {}}
            topics.setdefault(name.topic, entry)["partitions"][str(name.number)] = address
        return {"cluster": self._own_name(), "elsewhere": topics, "nodes": list(addresses.values())}

    def _own_name(self) -> Row:
        return {"name": self._name, "uuid": f"{self._cluster.participant.view.uuid:032x}"}

    def _node(self, number: int) -> Row:
        participant = self._cluster.participant
        membership = participant.view.memberships[number].document
        row: Row = {"node": number, "state": membership.state, "generation": membership.generation}
        row["alive"] = number in participant.view.nodes
        row["linked"] = number in participant.links or number == self._cluster.own
        node = self._nodes.get(number)
        if node is not None:
            row |= {"host": node.host, "tcp_port": node.tcp_port, "http_port": node.http_port}
            row["replication_address"] = f"{node.replication_host}:{node.replication_port}"
            row |= {"version": node.version, "zone": node.zone}
        return row

    def _partition(self, name: PartitionName, record: PartitionRecord, replicas: int) -> Row:
        since_ns = self._since.get(name)
        waited_ns = time.monotonic_ns() - since_ns if since_ns is not None else 0
        replicated = self._cluster.replica_host.replica(target_for(record.identity, name.number))
        return {
            "topic": name.topic,
            "partition": name.number,
            "leader": record.leader.node if record.leader is not None else None,
            "epoch": record.epoch,
            "in_sync": [member.node for member in record.members],
            "min_in_sync": record.members_min,
            "preferred": list(record.wanted),
            "replicas": replicas,
            "under_replicated": len(record.members) < replicas,
            "offline": self._is_offline(name, record),
            "since_seconds": round(waited_ns / SECOND, 1),
            "end_offset": replicated.replica.log.written_end if replicated is not None else None,
            "committed_offset": replicated.assignment.committed if replicated is not None else None,
            "followers": self._followers(replicated),
        }

    def _followers(self, replicated: ReplicatedPartition | None) -> list[Row]:
        leadership = replicated.leadership if replicated is not None else None
        if leadership is None:
            return []
        machine = leadership.machine
        readmission = self._cluster.participant.proposals.members.readmission
        rows = []
        for node, peer in sorted(machine.peers.items()):
            if peer.replica:
                counted = max(peer.counted, 0)
                row: Row = {"node": node, "end_offset": counted, "lag": machine.end - counted}
                if node in readmission.held_off:
                    left_ns = readmission.left_ns(node, time.monotonic_ns())
                    row["held_off_seconds"] = round(left_ns / SECOND, 1)
                rows.append(row)
        return rows


def _bytes_from(log: LogView, offset: int) -> int:
    try:
        return log.bytes_from(max(offset, log.extent().start))
    except StorageError:  # reported where it is read for a follower
        return 0


def change_node(view: View, coordinator: Coordinator, request: Request, answer: Answer) -> None:
    parameters = parse_query(request.query)
    text, state = parameters.get("node", ""), parameters.get("state", "")
    number = whole_number(text, NODE_ID_MAX)
    if number is None:
        raise because(400, "INVALID_NODE", f"node {text!r}: a number is needed")
    if state not in STATES:
        raise because(400, "INVALID_STATE", f"state {state!r}: one of {', '.join(STATES)}")
    held = view.memberships.get(number)
    if held is None:
        raise because(404, "NODE_NOT_FOUND", f"the cluster has no node {number}")
    if state == REMOVED:
        _check_gone(view, number)
    key = keys.member(number)
    put = Put(key, MEMBERSHIP.encode(held.document._replace(state=state)))
    coordinator.transact(
        Transaction((RevisionIs(key, held.revision),), (put,)),
        lambda settled: _answer(settled, answer),
    )


def _check_gone(view: View, number: int) -> None:
    if number in view.nodes:
        raise because(409, "NODE_LIVES", f"node {number} lives: stop it first")
    for name, held in view.partitions.items():
        record = held.document
        if number in record.wanted or record.member_on(number) is not None:
            where = f"{name.topic}/{name.number}"
            is_draining = view.memberships[number].document.state == DRAINING
            do = "add a node that takes it" if is_draining else "drain it first"
            reason = f"node {number} has a replica of {where}: {do}"
            raise because(409, "NODE_HAS_REPLICAS", reason)


def _answer(settled: Settled, answer: Answer) -> None:
    if settled.outcome is Outcome.DONE:
        answer(EMPTY)
    elif settled.outcome is Outcome.REFUSED:
        reason = "its entry has just been changed by another: try again"
        answer(error_response(because(409, "NODE_CHANGED", reason)))
    else:
        details = {"changed": "unknown"}
        answer(error_response(HttpError(503, "FAILED etcd does not answer", details=details)))


def clock_difference(ahead_ns: int) -> str:
    """The difference between this node's clock and most of the others, for people; empty: none that
    matters."""
    seconds = round(abs(ahead_ns) / SECOND)
    if abs(ahead_ns) < CLOCK_DIFFERS_NS:
        return ""
    units = (("days", 86_400), ("hours", 3_600), ("minutes", 60), ("seconds", 1))
    amount = next(f"{seconds // unit} {name}" for name, unit in units if seconds >= 2 * unit)
    way = "ahead of" if ahead_ns > 0 else "behind"
    return (
        f"the clock is {amount} {way} those of most other nodes: set it right. Timestamps and due "
        "times of messages jump with each change of leadership"
    )
