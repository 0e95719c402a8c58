"""What a daemon with `--cluster` checks before it asks for the cluster."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from e2e.daemon import Daemon, DaemonFailed
from e2e.ports import kept_port
from penstock import limits
from penstock.cluster import keys
from penstock.cluster.coordinator import Failed, KeyValue, Reading
from penstock.cluster.documents import CLUSTER, Cluster, Topic
from penstock.cluster.keys import PartitionName
from penstock.cluster.metadata_topics import target_for
from penstock.cluster.view import Versioned, View
from penstock.errors import ConfigError, WriteRefused
from penstock.log.disk import OsDisk
from penstock.net.api import HttpError
from penstock.net.exchange import Response
from penstock.nsqd.cluster import ClusterMember, shared_secrets
from penstock.nsqd.cluster_state import ClusterState
from penstock.nsqd.fanout import join_answers
from penstock.nsqd.http.log import positions
from penstock.nsqd.options import read_options
from penstock.replication.leader import UNMATCHED


def start_with_cluster(data_path: Path) -> str:
    """Why it does not start. Nothing answers at the address of its etcd."""
    cluster = f"--cluster=etcd://127.0.0.1:{kept_port()}"
    replication = f"--replication-address=127.0.0.1:{kept_port()}"
    with pytest.raises(DaemonFailed) as failed:
        Daemon(data_path, "--node-id=1", cluster, replication).start()
    return str(failed.value)


def test_topics_of_a_node_by_itself_are_not_taken_into_a_cluster(tmp_path: Path) -> None:
    """They would be published to with one replica, and no lookup would find them."""
    with Daemon(tmp_path / "data", "--node-id=1") as alone:
        alone.post("/pub?topic=orders", b"one")
    assert "of no cluster (orders). With --cluster-import-topics" in start_with_cluster(
        tmp_path / "data"
    )
    with Daemon(tmp_path / "data", "--node-id=1") as alone:
        assert alone.topic_stats("orders")["depth"] == 1


def test_the_data_of_an_official_nsqd_is_not_taken_over_in_a_cluster(tmp_path: Path) -> None:
    official = tmp_path / "data" / "nsqd.dat"
    official.parent.mkdir()
    official.write_text('{"version": "1.3.0", "topics": [{"name": "orders", "channels": []}]}')
    assert "the data of an nsqd without a cluster" in start_with_cluster(tmp_path / "data")
    assert official.exists()


async def test_a_start_says_once_that_it_waits_for_etcd(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "COORDINATOR_RETRY_NS", 0)
    found = KeyValue(keys.CLUSTER, CLUSTER.encode(Cluster(7, 1, 1, 0)), 1, 1)
    answers = [Failed("it is away")] * 5 + [Reading(1, found), Reading(1, None)]
    coordinator = SimpleNamespace(endpoint="etcd1:2379", reason="")

    def read(key: str, done: Callable[[object], None]) -> None:
        coordinator.reason = "it is away"
        done(answers.pop(0))

    coordinator.read = read
    options = read_options(["--cluster=etcd://etcd1:2379"], {})
    node = Mock()
    node.ports.disk = OsDisk()
    member: Any = ClusterMember(options, node, Mock())
    member.coordinator = coordinator
    await member.prepare(tmp_path)
    assert caplog.text.count("waiting for etcd at etcd1:2379: it is away") == 1


@pytest.mark.parametrize("is_tidy", [True, False])
async def test_only_a_tidy_stop_closes_the_ledger(is_tidy: bool) -> None:
    """Where the disk is full it goes on without the last record."""
    close = Mock(side_effect=WriteRefused("ledger", "No space left on device"))
    ledger, coordinator = SimpleNamespace(stopped="", close=close), AsyncMock()
    member: Any = SimpleNamespace(coordinator=coordinator, ledger=ledger)
    await ClusterMember.stop(member, is_tidy)
    assert (coordinator.close.called, close.called) == (True, is_tidy)


# --- answers of several nodes, put together ---


def joined(*documents: object) -> object:
    found = join_answers(
        [Response(200, json.dumps(one).encode() if one else b"") for one in documents]
    )
    return json.loads(found.body) if found.body else None


def test_numbers_are_added_and_tables_by_partition_joined() -> None:
    assert joined(
        {"count": 2, "partitions": [{"offset": 5}], "dry": False, "offset": 5},
        {"count": 3, "partitions": [{"offset": 7}], "dry": False, "offset": 7},
    ) == {"count": 5, "partitions": [{"offset": 5}, {"offset": 7}], "dry": False, "offset": None}


def test_empty_answers_stay_empty() -> None:
    assert joined(None, None) is None
    assert joined(None, {"count": 1}) == {"count": 1}


# --- how many partitions are not well, by the metadata that was applied ---


ORDERS = PartitionName("orders", 0)


def test_a_partition_is_counted_when_its_record_was_applied_and_not_when_it_was_seen() -> None:
    record: Any = SimpleNamespace(identity=1, leader=None, members=("one", "two"))
    view = View()
    view.revision = view.revision_seen = 7
    view.topics["orders"] = Versioned(Topic(1, 2, 1, False, (), False, ()), 7, 7)
    view.partitions[ORDERS] = Versioned(record, 7, 7)
    proposals = SimpleNamespace(machines={}, incarnation=1)
    served = {target_for(1, 0): None}
    participant = SimpleNamespace(view=view, proposals=proposals)
    host = SimpleNamespace(leader=served.get)
    cluster: Any = SimpleNamespace(own=0, participant=participant, replica_host=host)
    state = ClusterState(cluster, "main")
    state.look(limits.SECOND)
    assert (state.offline, state.under_replicated) == (1, 0)
    view.revision_seen = 8  # read with another document: the change itself is on its way
    state.look(10 * limits.SECOND)
    record.leader, record.members = SimpleNamespace(node=0, incarnation=1), ("one",)
    view.revision = 8
    state.look(20 * limits.SECOND)
    assert (state.offline, state.under_replicated) == (1, 1)  # elected, and it does not serve
    proposals.machines[ORDERS] = SimpleNamespace(record=record, peers={}, end=0, log=None)
    served[target_for(1, 0)] = "the leader"
    state.look(30 * limits.SECOND)
    assert (state.offline, state.under_replicated) == (0, 1)


@pytest.mark.parametrize(("is_listed", "nodes"), [(False, {1: 1}), (True, {})])
def test_positions_wait_for_the_metadata(is_listed: bool, nodes: dict[int, int]) -> None:
    member = SimpleNamespace(view=SimpleNamespace(is_listed=is_listed, nodes=nodes))
    call: Any = SimpleNamespace(deps=SimpleNamespace(member=member))
    with pytest.raises(HttpError, match="503 FAILED this node has not read"):
        positions(call)


def test_the_lag_is_that_of_the_follower_furthest_behind() -> None:
    def machine(end: int, *counted: int) -> Any:
        log = SimpleNamespace(
            extent=lambda: SimpleNamespace(start=5), bytes_from=lambda offset: 10 * (end - offset)
        )
        peers = {n: SimpleNamespace(replica=1, counted=at) for n, at in enumerate(counted)}
        return SimpleNamespace(end=end, log=log, peers=peers, record=SimpleNamespace(identity=1))

    machines = {ORDERS: machine(20, 20, 17), PartitionName("orders", 1): machine(9, 9, UNMATCHED)}
    participant = SimpleNamespace(view=View(), proposals=SimpleNamespace(machines=machines))
    host = SimpleNamespace(leader=lambda target: None)
    cluster: Any = SimpleNamespace(participant=participant, replica_host=host)
    state = ClusterState(cluster, "main")
    state.look(limits.SECOND)
    assert state.lag == 9  # messages; the log begins at 5 by now
    assert state.lag_bytes == 40


# --- a secret between nodes ---


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.10", "::1", "localhost"])
def test_nodes_of_one_machine_need_no_secret(host: str) -> None:
    assert shared_secrets(read_options([], {}), host) == ()


@pytest.mark.parametrize("host", ["", "0.0.0.0", "10.0.0.1", "nsqd-1.example"])
def test_nodes_elsewhere_prove_that_they_know_the_secret_or_show_a_certificate(host: str) -> None:
    with pytest.raises(ConfigError, match="nodes need -cluster-secret-file or -cluster-tls-cert"):
        shared_secrets(read_options([], {}), host)
    assert shared_secrets(read_options(["--cluster-tls-cert=node.pem"], {}), host) == ()
