"""TLS between nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.certificates import Certificates

from .processes import Cluster
from .test_stories import bring_back, check
from .traffic import Traffic

pytestmark = pytest.mark.long


def test_nodes_that_one_authority_vouches_for_and_a_stranger(tmp_path: Path) -> None:
    ours, others = Certificates(tmp_path / "ours"), Certificates(tmp_path / "others")
    (tmp_path / "cluster").mkdir()
    with Cluster(tmp_path / "cluster", 3, *flags(ours, ours)) as cluster:
        with Traffic(cluster, "secret") as traffic:
            leader = cluster.leader("secret")
            leader.kill()
            cluster.until(lambda: cluster.leader("secret") is not leader)
            bring_back(cluster, leader, "secret")
        check(traffic.told(leader))
        assert cluster.faults() == []
        stranger = cluster.nodes[2]
        stranger.stop()
        stranger.flags += flags(others, ours)
        stranger.start()
        cluster.until(lambda: "CERTIFICATE_VERIFY_FAILED" in cluster.nodes[0].stderr())
        assert cluster.links(cluster.nodes[0]) == 2


def flags(certificates: Certificates, authority: Certificates) -> list[str]:
    return [
        f"--cluster-tls-cert={certificates.cert}",
        f"--cluster-tls-key={certificates.key}",
        f"--cluster-tls-ca={authority.authority}",
    ]
