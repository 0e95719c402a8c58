"""A cluster's report about its replicas (`/cluster` of any of its nodes): the leader of each
partition, the in-sync set, and faults."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.nsqadmin.words import count
from penstock.nsqdapi.calls import bracketed


class Copies(NamedTuple):
    topic: str
    partition: int
    leader: int | None  # a node
    epoch: int
    in_sync: tuple[int, ...]
    preferred: tuple[int, ...]
    under_replicated: bool
    offline: bool
    since_s: float  # it has been so
    blocked: bool = False  # fewer in-sync replicas live than a publish needs

    @property
    def fault(self) -> str:
        """The worst of its states in a word or two."""
        if self.offline:
            return "no leader"
        return "no publishes" if self.blocked else "under-replicated" * self.under_replicated

    @property
    def missing(self) -> list[int]:
        return [node for node in self.preferred if node not in self.in_sync]


class NodeRole(NamedTuple):
    number: int
    state: str  # "active", "maintenance", "draining"
    leads: int = 0  # partitions
    in_sync: int = 0  # replicas


class Replication(NamedTuple):
    name: str = ""  # of the cluster; "": there is none
    addresses: Mapping[int, str] = {}  # HTTP addresses of nodes that live
    known: Mapping[int, str] = {}  # of all nodes that have been seen
    states: Mapping[int, str] = {}
    silent: tuple[int, ...] = ()  # nodes that do not
    partitions: tuple[Copies, ...] = ()

    def of_topic(self, topic: str) -> list[Copies]:
        return [one for one in self.partitions if one.topic == topic]

    def of_node(self, address: str) -> list[Copies]:
        """The partitions that a node leads or follows."""
        numbers = {node for node, at in self.addresses.items() if at == address}
        return [one for one in self.partitions if numbers & {one.leader, *one.in_sync}]

    def epochs(self) -> dict[tuple[str, int], int]:
        return {(one.topic, one.partition): one.epoch for one in self.partitions}

    def roles(self) -> dict[str, NodeRole]:
        """By address, of the live nodes."""
        leads = Counter(one.leader for one in self.partitions)
        in_sync = Counter(node for one in self.partitions for node in one.in_sync)
        return {at: NodeRole(node, self.states[node], leads[node], in_sync[node])
                for node, at in self.addresses.items()}  # fmt: skip

    def named(self, node: int) -> str:
        return f"{node} ({self.known[node]})" if node in self.known else str(node)

    @property
    def trouble(self) -> str:
        """A sentence; empty without a fault."""
        parts = []
        if self.silent:
            parts.append(f"{count(len(self.silent), 'node')} silent"
                        f" ({', '.join(map(str, self.silent))})")  # fmt: skip
        offline = sum(one.offline for one in self.partitions)
        blocked = sum(one.fault == "no publishes" for one in self.partitions)
        short = sum(one.under_replicated for one in self.partitions)
        if offline:
            parts.append(f"{count(offline, 'partition')} without a leader")
        if blocked:
            parts.append(f"{count(blocked, 'partition')} refusing publishes")
        if short:
            parts.append(f"{count(short, 'partition')} under-replicated")
        return f"Cluster {self.name}: {', '.join(parts)}." if parts else ""


def read(document: Mapping[str, Any]) -> Replication:
    """Raises KeyError, TypeError and ValueError where it is not a cluster's."""
    nodes = [row for row in document["nodes"] if row["state"] != "removed"]
    known = {row["node"]: f"{bracketed(row['host'])}:{row['http_port']}"
             for row in nodes if "host" in row}  # fmt: skip
    live = {row["node"] for row in nodes if row["alive"]}
    return Replication(
        str(document["cluster"]["name"]),
        {node: known[node] for node in live},
        known,
        {row["node"]: str(row["state"]) for row in nodes},
        tuple(row["node"] for row in nodes if not row["alive"]),
        tuple(_copies(row, live) for row in document["partitions"]),
    )


def _copies(row: Mapping[str, Any], live: set[int]) -> Copies:
    in_sync, preferred = tuple(row["in_sync"]), tuple(row["preferred"])
    return Copies(
        str(row["topic"]), int(row["partition"]), row["leader"], int(row["epoch"]), in_sync,
        preferred, bool(row["under_replicated"]), bool(row["offline"]),
        float(row["since_seconds"]), len(live.intersection(in_sync)) < row.get("min_in_sync", 0),
    )  # fmt: skip
