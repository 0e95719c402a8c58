"""The controller of the cluster, carried out: the one party that looks at all partitions.

Every nsqlookupd of a cluster runs this; the one that holds the key `controller` acts
(`penstock.cluster.controller` decides what). The cluster serves without any of them.

A node whose key is gone is asked over HTTP whether it lives: an outage of etcd lets all leases run
out at once, and a node that answers is not missing.
"""

import logging
import secrets
from collections.abc import Callable, Collection

from penstock import limits
from penstock.clock import Clock
from penstock.cluster import keys
from penstock.cluster.controller import (
    Controller,
    Duty,
    NodeSeen,
    PartitionChange,
    PartitionSeen,
    Situation,
    transaction_of,
)
from penstock.cluster.coordinator import Coordinator, Put, RevisionIs, Settled, Transaction
from penstock.cluster.documents import CONTROLLER, DRAINING, MAINTENANCE, REMOVED, NodeDocument
from penstock.cluster.documents import Controller as ControllerDocument
from penstock.cluster.placement import NodeStanding
from penstock.cluster.registration import Leased
from penstock.cluster.view import View, ViewChange, revision_of
from penstock.errors import FetchFailed
from penstock.net.fetch import Fetcher
from penstock.net.tasks import Tasks
from penstock.replication.leader import Outcome

log = logging.getLogger("penstock.nsqlookupd")

_STANDINGS = {DRAINING: NodeStanding.DRAINING, MAINTENANCE: NodeStanding.MAINTENANCE}


class _ControllerKey(Leased):
    """The key `controller`, put only where there is none."""

    def __init__(self, coordinator: Coordinator, view: View, value: Callable[[], bytes]) -> None:
        super().__init__(keys.CONTROLLER, coordinator, value)
        self._view = view

    def _may_begin(self) -> bool:
        return self._view.controller is None

    def _register(self) -> None:
        change = Put(self.key, self._value(), self._lease)
        self._transact(Transaction((RevisionIs(self.key, 0),), (change,)), self._registered)


class ControllerService:
    """`name`: of this nsqlookupd, as operators know it."""

    def __init__(
        self,
        name: str,
        view: View,
        coordinator: Coordinator,
        clock: Clock,
        fetcher: Fetcher,
        tasks: Tasks,
    ) -> None:
        self._view = view
        self._coordinator = coordinator
        self._clock = clock
        self._fetcher = fetcher
        self._tasks = tasks
        incarnation = secrets.randbits(63) | 1
        own = CONTROLLER.encode(ControllerDocument(name, incarnation))
        self.key = _ControllerKey(coordinator, view, lambda: own)
        self._controller = Controller(incarnation)
        self._documents: dict[int, NodeDocument] = {}  # as each node said when it last registered
        self._reachable: set[int] = set()
        self._asking: set[int] = set()
        self._due_ns = 0
        self._was_current = False

    @property
    def acts(self) -> bool:
        return self._controller.duty is not Duty.IDLE

    def look(self, changes: Collection[ViewChange], is_current: bool) -> None:
        """Ten times a second; it decides once in CONTROLLER_TICK_NS."""
        mono_ns = self._clock.mono_ns()
        if not is_current and self._was_current:
            self._controller.watch_broken(mono_ns)
        self._was_current = is_current
        if any(key == keys.CONTROLLER and after is None for key, _, after in changes):
            self.key.key_gone()
        self.key.tick(mono_ns, is_current)
        if not is_current or mono_ns < self._due_ns:
            return
        self._due_ns = mono_ns + limits.CONTROLLER_TICK_NS
        self._look_for_nodes()
        before = self._controller.duty
        self._controller.tick(self._situation(), mono_ns)
        if self._controller.duty is not before:
            log.info("controller of the cluster: %s", self._controller.duty.name.lower())
        self._carry_out()

    def _carry_out(self) -> None:
        effects, self._controller.out = self._controller.out, []
        for effect in effects:
            for change in effect.changes:
                log.info("partition %s/%d: %s", *change.partition, _words(change))
            self._coordinator.transact(transaction_of(effect), self._settled)

    def _settled(self, settled: Settled) -> None:
        """A done change arrives through the view. Anything else is decided anew."""
        if settled.outcome is not Outcome.DONE:
            log.info("controller of the cluster: a change was not made (%s)", settled.outcome.name)
            self._controller.plan_again()

    # --- observations ---

    def _situation(self) -> Situation:
        """Only the holder of the key watches all partitions."""
        held = self._view.controller
        if held is None or not self.key.is_held(self._clock.mono_ns()):
            return Situation(held.document.incarnation if held is not None else None, 0, {}, {})
        return Situation(
            held.document.incarnation,
            held.created,
            self._nodes(),
            partitions_of(self._view),
            self._reachable,
        )

    def _nodes(self) -> dict[int, NodeSeen]:
        found = {}
        for number, held in self._view.memberships.items():
            member, node = held.document, self._view.nodes.get(number)
            if member.state == REMOVED:
                continue
            known = self._documents.get(number)
            found[number] = NodeSeen(
                known.zone if known is not None else "",
                _STANDINGS.get(member.state, NodeStanding.SERVES),
                member.generation,
                member.memory_lost_generation,
                node.document.incarnation if node is not None else None,
            )
        return found

    def _look_for_nodes(self) -> None:
        for number, held in self._view.nodes.items():
            self._documents[number] = held.document
            self._reachable.discard(number)
        for number, node in self._documents.items():
            if number not in self._view.nodes and number not in self._asking and node.http_port:
                self._asking.add(number)
                self._tasks.begin(self._ask(number, node))

    async def _ask(self, number: int, node: NodeDocument) -> None:
        try:
            await self._fetcher.request("GET", f"http://{node.http_address}/ping")
        except FetchFailed:
            self._reachable.discard(number)
        else:
            self._reachable.add(number)
        finally:
            self._asking.discard(number)


def partitions_of(view: View) -> dict[keys.PartitionName, PartitionSeen]:
    """The partitions of existing topics that may be changed."""
    found = {}
    for topic_name, topic in view.topics.items():
        waits = dict(topic.document.settings).get("durability") == "disk"
        for name, held in view.records_of(topic_name):
            move = view.moves.get(name)
            if not view.refusal(name):
                found[name] = PartitionSeen(
                    held.document,
                    held.revision,
                    topic.document.replicas,
                    waits,
                    move.document if move is not None else None,
                    revision_of(move),
                )
    return found


def _words(change: PartitionChange) -> str:
    seen, record, move = change.seen.record, change.record, change.move
    if move is not None:
        return f"is to go from nodes {_listed(move.origin)} to {_listed(move.target)}"
    if record is None:
        return f"is on nodes {_listed(seen.wanted)}"
    if record.leader is not None and record.leader != seen.leader:
        return f"node {record.leader.node} is to lead it"
    return f"replicas are wanted on nodes {_listed(record.wanted)}"


def _listed(nodes: Collection[int]) -> str:
    return ", ".join(map(str, nodes)) or "none"
