"""How many partitions are not well, by the metadata that was applied."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from penstock import limits
from penstock.cluster.keys import PartitionName
from penstock.nsqd.cluster_state import ClusterState

ORDERS = PartitionName("orders", 0)


def test_a_partition_is_counted_when_its_record_was_applied_and_not_when_it_was_seen() -> None:
    topic = SimpleNamespace(deleted=False, identity="a", replicas=2)
    record: Any = SimpleNamespace(identity="a", leader=None, members=("one", "two"))
    view = SimpleNamespace(
        restorations=0, revision=7, revision_seen=7, is_pending=False, nodes={},
        topics={"orders": SimpleNamespace(document=topic)},
        partitions={ORDERS: SimpleNamespace(document=record)},
    )  # fmt: skip
    proposals = SimpleNamespace(machines={}, incarnation=1)
    cluster: Any = SimpleNamespace(
        own=0, participant=SimpleNamespace(view=view, proposals=proposals)
    )
    state = ClusterState(cluster, "main")
    state.look(limits.SECOND)
    assert (state.offline, state.under_replicated) == (1, 0)
    view.revision_seen = 8  # read with another document: the change itself is on its way
    state.look(10 * limits.SECOND)
    record.leader, record.members = SimpleNamespace(node=0, incarnation=1), ("one",)
    view.revision = 8
    state.look(20 * limits.SECOND)
    assert (state.offline, state.under_replicated) == (0, 1)
