"""A history of brokers as a person can read it: each trouble, and each change of a record."""

from functools import partial

from penstock.limits import SECOND
from sim.brokers.histories import play
from sim.brokers.node import JoinedNode
from sim.brokers.world import BrokersWorld
from sim.histories import Breach
from sim.timeline import Moments, Timeline, record_text


class _Recorded(BrokersWorld):
    def __init__(self, moments: Moments, seed: int, canary: bool) -> None:
        self._moments = moments
        self._number = 0
        super().__init__(seed, canary)
        self.happened("the beginning")

    def happened(self, event: str) -> None:
        seconds = self.cluster.clock.since_ns / SECOND
        nodes = [self._state(node) for node in self.cluster.nodes]
        records = "; ".join(
            f"{key.partition('/')[2]}: {record_text(record)}"
            for key, record in sorted(self.records.items())
        )
        self._moments.happened(self._number, f"{seconds:.2f} s: {event}", records, nodes)
        self._number += 1

    def _state(self, node: JoinedNode) -> str:
        if not node.is_up:
            return "down"
        where = "hung, " if node.number in self.cluster.hung else ""
        found = []
        for name, number in self.topics.all_partitions():
            replicated = node.replicated(name, number)
            if replicated is not None:
                role, log = (replicated.assignment.role, replicated.replica.log)
                found.append(f"{name}/{number} {role} {log.start_offset}-{log.written_end}")
        return f"{where}life {node.incarnation}: {', '.join(found)}"


def brokers_timeline(seed: int) -> Timeline:
    moments, breach, summary = Moments(), "", "3 nodes"
    try:
        tally = play(seed, make=partial(_Recorded, moments)).tally
    except Breach as error:
        breach = str(error)
    else:
        summary = f"3 nodes, {tally.answered} messages answered OK"
    return Timeline(seed, summary, tuple(moments.found), breach)
