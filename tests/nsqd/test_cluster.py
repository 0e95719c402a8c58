"""What a daemon with `--cluster` checks before it asks for the cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.daemon import Daemon, DaemonFailed
from e2e.ports import kept_port


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
    assert "topics that are of no cluster (orders)" in start_with_cluster(tmp_path / "data")
    with Daemon(tmp_path / "data", "--node-id=1") as alone:
        assert alone.topic_stats("orders")["depth"] == 1


def test_the_data_of_an_official_nsqd_is_not_taken_over_in_a_cluster(tmp_path: Path) -> None:
    official = tmp_path / "data" / "nsqd.dat"
    official.parent.mkdir()
    official.write_text('{"version": "1.3.0", "topics": [{"name": "orders", "channels": []}]}')
    assert "the data of an nsqd without a cluster" in start_with_cluster(tmp_path / "data")
    assert official.exists()
