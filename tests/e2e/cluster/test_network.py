"""Networks that lose packets: each node in a namespace of its own, all of them on one bridge.

A pair that is cut has no route to one another, and both still reach etcd and the third node; a node
that is unplugged reaches nobody.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from e2e.certificates import Certificates
from e2e.lookupd import Lookupd
from e2e.v2client import Refused, V2Client
from net.etcd.server import Etcd

from .processes import Cluster, Node
from .test_stories import bring_back, check
from .traffic import Traffic

pytestmark = pytest.mark.long

SECRET = "0123456789abcdef0123456789abcdef"


class Network:
    """It is made and removed as a whole. Raises CalledProcessError where that is not allowed."""

    def __init__(self, count: int) -> None:
        self.name = f"pk{os.getpid() % 100_000}"
        self.net = f"10.213.{os.getpid() % 250}"
        self.count = count

    def host(self, number: int) -> str:
        return f"{self.net}.{10 + number}"

    def inside(self, number: int) -> str:
        return f"{self.name}-{number}"

    def __enter__(self) -> Network:
        try:
            ip(f"link add {self.name} type bridge")
            ip(f"addr add {self.net}.1/24 dev {self.name}")
            ip(f"link set {self.name} up")
            for number in range(self.count):
                self._plug(number)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _plug(self, number: int) -> None:
        inside, outer = self.inside(number), f"{self.name}v{number}"
        ip(f"netns add {inside}")
        ip(f"link add {outer} type veth peer name eth0 netns {inside}")
        ip(f"link set {outer} master {self.name} up")
        ip(f"-n {inside} addr add {self.host(number)}/24 dev eth0")
        ip(f"-n {inside} link set eth0 up")
        ip(f"-n {inside} link set lo up")

    def __exit__(self, *_: object) -> None:
        for number in range(self.count):
            subprocess.run(["ip", "netns", "del", self.inside(number)], capture_output=True)
        subprocess.run(["ip", "link", "del", self.name], capture_output=True)

    @contextmanager
    def unplugged(self, number: int) -> Iterator[None]:
        outer = f"{self.name}v{number}"
        ip(f"link set {outer} down")
        try:
            yield
        finally:
            ip(f"link set {outer} up")

    @contextmanager
    def slow(self, number: int, rate: str) -> Iterator[None]:
        """What goes to this node; `tc` names the rate."""
        outer = f"{self.name}v{number}"
        tc(f"qdisc add dev {outer} root tbf rate {rate} burst 16kbit latency 2000ms")
        try:
            yield
        finally:
            tc(f"qdisc del dev {outer} root")

    @contextmanager
    def cut(self, one: int, other: int) -> Iterator[None]:
        pairs = (one, other), (other, one)
        for here, there in pairs:
            ip(f"-n {self.inside(here)} route add blackhole {self.host(there)}/32")
        try:
            yield
        finally:
            for here, there in pairs:
                ip(f"-n {self.inside(here)} route del blackhole {self.host(there)}/32")


def ip(arguments: str) -> None:
    subprocess.run(["ip", *arguments.split()], check=True, capture_output=True)


def tc(arguments: str) -> None:
    subprocess.run(["tc", *arguments.split()], check=True, capture_output=True)


class NetworkCluster(Cluster):
    def __init__(self, path: Path, network: Network) -> None:
        self.network = network
        secret = path / "secret"
        secret.write_text(SECRET)
        secret.chmod(0o600)
        etcd = Etcd(path / "etcd", host=f"{network.net}.1")
        super().__init__(path, network.count, f"--cluster-secret-file={secret}", etcd=etcd)

    def node(self, number: int, *flags: str) -> Node:
        host, inside = self.network.host(number), self.network.inside(number)
        path = self.path / str(number)
        return Node(path, number, self.etcd, *flags, host=host, inside=inside)


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    network = Network(3)
    try:
        network.__enter__()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no network namespaces here: {error}")
    try:
        yield network
    finally:
        network.__exit__()


@pytest.fixture(scope="module")
def cluster(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NetworkCluster]:
    with NetworkCluster(tmp_path_factory.mktemp("cluster"), network) as cluster:
        yield cluster
        assert cluster.faults() == []


def test_the_leader_is_unplugged(cluster: NetworkCluster) -> None:
    with Traffic(cluster, "unplugged") as traffic:
        leader = cluster.leader("unplugged")
        others = [node for node in cluster.nodes if node is not leader]
        with cluster.network.unplugged(leader.number):
            cluster.until(lambda: others[0].leads("unplugged") not in (None, leader.number))
            time.sleep(2)
        cluster.until(lambda: cluster.is_whole("unplugged"))
        time.sleep(2)
    check(traffic.report(leader))


def test_the_leader_and_a_follower_do_not_reach_one_another(cluster: NetworkCluster) -> None:
    """Who does not reach the leader is not in sync; the two others go on."""
    cluster.wait_until_linked()
    with Traffic(cluster, "cut") as traffic:
        leader = cluster.leader("cut")
        follower = next(node for node in cluster.nodes if node is not leader)
        with cluster.network.cut(leader.number, follower.number):
            time.sleep(12)
        cluster.until(lambda: cluster.is_whole("cut"))
    check(traffic.report(follower))


def test_the_link_to_a_follower_is_slow(cluster: NetworkCluster) -> None:
    """Slower than what is published: it is left out, catches up once it can, and comes back."""
    cluster.wait_until_linked()
    with Traffic(cluster, "slow") as traffic:
        cluster.until(lambda: cluster.is_whole("slow"))
        leader = cluster.leader("slow")
        follower = next(node for node in cluster.nodes if node is not leader)
        others = [one for one in traffic.publishers if one.node is not follower]
        with cluster.network.slow(follower.number, "32kbit"):
            cluster.until(lambda: not cluster.is_whole("slow"))
            before = [len(one.acked) for one in others]
            time.sleep(5)
            after = [len(one.acked) for one in others]
        cluster.until(lambda: cluster.is_whole("slow"))
    check(traffic.report(follower))
    assert all(now - then > 100 for then, now in zip(before, after, strict=True))


# --- TLS between nodes ---


def test_nodes_of_one_authority_and_a_stranger(tmp_path: Path) -> None:
    ours, others = Certificates(tmp_path / "ours"), Certificates(tmp_path / "others")
    (tmp_path / "cluster").mkdir()
    with Cluster(tmp_path / "cluster", 3, *flags(ours, ours)) as cluster:
        with Traffic(cluster, "secret") as traffic:
            leader = cluster.leader("secret")
            leader.kill()
            cluster.until(lambda: cluster.leader("secret") is not leader)
            bring_back(cluster, leader, "secret")
        check(traffic.report(leader))
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


# --- the controller at work ---


@pytest.fixture
def five(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, 4) as five:
        flag = f"--cluster=etcd://{five.etcd.endpoint}/stories"
        with Lookupd(tmp_path / "lookupd", flag):
            yield five
        assert five.faults() == []


def test_a_node_is_drained_and_forgotten(five: Cluster) -> None:
    """Nothing is lost, and no publish is refused anywhere; then it has nothing to be asked for."""
    drained = five.nodes[1]
    five.nodes[0].ask("/topic/create?topic=drained&partition_num=6", "POST")
    with Traffic(five, "drained") as traffic:
        time.sleep(1)
        five.nodes[0].ask("/cluster/node?node=1&state=draining", "POST")
        rows = partial(five.nodes[0].ask, "/cluster")
        of = ("in_sync", "preferred")
        five.until(lambda: not any(1 in row[n] for row in rows()["partitions"] for n in of), 240)
        time.sleep(1)
        with V2Client(drained.ports[0]) as client, pytest.raises(Refused) as refused:
            client.sub("drained", "work")
        assert refused.value.data.startswith(b"E_FAILED_ON_NOT_LEADER SUB: no partition of topic")
    report = traffic.report(drained)
    check(report)
    assert not any(one.refused for one in traffic.publishers)
    assert drained.stop() == 0
    five.until(lambda: not five.is_alive(drained))
    five.nodes[0].ask("/cluster/node?node=1&state=removed", "POST")
