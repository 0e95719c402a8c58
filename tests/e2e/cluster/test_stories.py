"""What befalls a cluster of three nodes, with publishers and consumers at each: nothing that was
acknowledged is lost, and what was refused is not stored.

The nodes are the same in all stories, each has a topic of its own. Times are not asserted but where
a failure would be one of kind: a machine may be slow.
"""

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from e2e.lookupd import Lookupd
from e2e.test_clock import SHIFTED
from e2e.v2client import V2Client
from penstock.nsqd.http.routes import ROUTES

from .processes import Cluster, Node
from .traffic import KeyedPublisher, Publisher, Report, Traffic


@pytest.fixture(scope="module")
def three_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster
        assert cluster.faults() == []


@pytest.fixture
def cluster(three_nodes: Cluster) -> Cluster:
    """All nodes live again, also after a story that failed: else the topic of the next one is put
    on fewer."""
    for node in three_nodes.nodes:
        if not node.is_up:
            node.start()
    three_nodes.wait_until_linked()
    return three_nodes


def check(report: Report, acked_min: int = 100) -> None:
    print(report._replace(lost=report.lost[:5], order_broken=report.order_broken[:5]))
    assert report.lost == []
    assert report.refused_yet_stored == []
    assert report.acked >= acked_min


def bring_back(cluster: Cluster, node: Node, topic: str) -> None:
    node.start()
    cluster.until(lambda: cluster.is_whole(topic))


def test_a_topic_that_nobody_knows_is_made_by_the_first_publish(cluster: Cluster) -> None:
    with Traffic(cluster, "fresh") as traffic:
        time.sleep(1)
    report = traffic.report()
    check(report)
    assert not any(one.refused or one.unknown for one in traffic.publishers)
    assert cluster.is_whole("fresh")


@pytest.mark.parametrize(
    ("topic", "partitions", "order", "publisher"),
    [("strict", 1, "strict", Publisher), ("keyed", 3, "key", KeyedPublisher)],
)
def test_the_leader_is_killed(
    cluster: Cluster, topic: str, partitions: int, order: str, publisher: type[Publisher]
) -> None:
    """The order of a channel lasts over it."""
    cluster.make(f"/topic/create?topic={topic}&partition_num={partitions}")
    cluster.make(f"/channel/create?topic={topic}&channel=work")
    cluster.nodes[0].ask(f"/channel/config?topic={topic}&channel=work&order={order}", "POST")
    with Traffic(cluster, topic, publisher=publisher) as traffic:
        leader = cluster.leader(topic)
        leader.kill()
        cluster.until(lambda: cluster.leader(topic) is not leader)
        time.sleep(2)
        bring_back(cluster, leader, topic)
    report = traffic.report(leader)
    check(report)
    assert report.order_broken == []


def test_the_leader_stops_in_order(cluster: Cluster) -> None:
    """It hands its partitions over, one after the other: its publishers elsewhere are never
    refused, and each row has an outcome."""
    cluster.make("/topic/create?topic=stopped&partition_num=12")
    with Traffic(cluster, "stopped") as traffic:
        leader = cluster.leader("stopped")
        assert leader.stop() == 0
        assert not cluster.is_alive(leader)  # no lease has to run out
        assert cluster.row(leader)["http_port"] == leader.ports[1]  # for who has to look after it
        time.sleep(1)
        bring_back(cluster, leader, "stopped")
    check(traffic.report(leader))
    assert leader.lines_with("is copied again") == [], "rows that came as it stopped did harm"
    others = [one for one in traffic.publishers if one.node is not leader]
    assert not any(one.refused or one.unknown for one in others)


def test_publishes_that_wait_for_the_disk_wait_for_nothing_else(cluster: Cluster) -> None:
    """A follower that has synced says so, and not when its next tick comes: these would take a
    minute then."""
    cluster.make("/topic/create?topic=synced")
    cluster.nodes[0].ask("/topic/config?topic=synced&durability=disk", "POST")
    client, began_s = V2Client(cluster.leader("synced").ports[0]), time.monotonic()
    for _ in range(100):
        client.command("PUB synced", b"x")
        client.ok()
    client.close()
    assert time.monotonic() - began_s < 20


def test_the_leader_hangs(cluster: Cluster) -> None:
    with Traffic(cluster, "hung") as traffic:
        leader = cluster.leader("hung")
        with leader.paused():
            others = [node for node in cluster.nodes if node is not leader]
            cluster.until(lambda: others[0].leads("hung") is not leader.number)
            time.sleep(1)
        cluster.until(lambda: cluster.is_whole("hung"))
    check(traffic.report(leader))


def test_all_nsqlookupds_name_the_next_leader(cluster: Cluster, tmp_path: Path) -> None:
    flag = f"--cluster=etcd://{cluster.etcd.endpoint}/stories"
    with Lookupd(tmp_path / "one", flag) as one, Lookupd(tmp_path / "two", flag) as two:
        both = one, two
        assert one.http("POST", "/topic/create?topic=found&replicator=3") == (200, b"")
        leader = cluster.leader("found")
        cluster.until(lambda: all(each.knows("found", leader) for each in both))
        leader.kill()
        # 4 s, and mostly 1; whoever is elected may hand over to the preferred one at once
        cluster.until(lambda: _agreed(one, two, leader), 40)
        assert len(one.get("/listlookup")["lookupdnodes"]) == 2
        assert one.stop() == 0
        cluster.until(lambda: len(two.get("/listlookup")["lookupdnodes"]) == 1)
    bring_back(cluster, leader, "found")


def _agreed(one: Lookupd, two: Lookupd, killed: Node) -> bool:
    answer = one.get("/lookup?topic=found")
    ports = [producer["tcp_port"] for producer in answer.get("producers", [])]
    return ports not in ([], [killed.ports[0]]) and answer == two.get("/lookup?topic=found")


def test_etcd_is_away_and_all_goes_on(cluster: Cluster) -> None:
    with Traffic(cluster, "alone") as traffic:
        before = cluster.leader("alone")
        cluster.etcd.kill()
        time.sleep(4)
        cluster.etcd.start()
        time.sleep(2)
        cluster.etcd.pause()
        time.sleep(7)  # longer than a lease: all have run out when it goes on
        cluster.etcd.resume()
        time.sleep(3)
        assert cluster.leader("alone") is before
    report = traffic.report()
    check(report)
    assert not any(one.refused or one.unknown for one in traffic.publishers)


@pytest.mark.long
def test_etcd_is_away_for_a_minute_and_a_leader_is_killed_meanwhile(cluster: Cluster) -> None:
    """Nobody can be elected until etcd is back; then somebody is."""
    with Traffic(cluster, "minute") as traffic:
        leader = cluster.leader("minute")
        cluster.etcd.kill()
        time.sleep(30)
        acked = [len(one.acked) for one in traffic.publishers]
        leader.kill()
        time.sleep(30)
        cluster.etcd.start()
        cluster.until(lambda: cluster.leader("minute") is not leader)
        bring_back(cluster, leader, "minute")
        time.sleep(2)
    check(traffic.report(leader), sum(acked))
    assert min(acked) > 100  # it was away, and all went on


def test_a_verb_at_any_node_reaches_all_partitions(cluster: Cluster) -> None:
    node = cluster.nodes[0]
    cluster.make("/topic/create?topic=spread&partition_num=3")
    cluster.make("/channel/create?topic=spread&channel=work")
    cluster.until(lambda: None not in [cluster.partition("spread", n)["leader"] for n in range(3)])
    pub = "/pubtrace?topic=spread&trace_id=7&partition="
    ids = [node.ask(f"{pub}{number}", "POST", b"m")["id"] for number in range(3)]
    assert _depth(cluster, "spread") == 3
    stats = json.loads(penstock([node], "stats", "spread", "--json"))["topics"]["spread"]
    assert stats["channels"]["work"]["depth"] == 3
    assert penstock([node], "topic", "peek", "spread").count(" m\n") == 3
    assert len(json.loads(penstock([node], "node", "list", "--json"))["nodes"]) == 3
    cluster.until(lambda: _traced(node) == set(range(3)))  # events are written after the answers
    assert node.ask("/topic/concede?topic=spread", "POST")["conceded"] == []
    cluster.nodes[1].ask("/channel/empty?topic=spread&channel=work", "POST")
    assert _depth(cluster, "spread") == 0
    seek = "/channel/setoffset?topic=spread&channel=work&position="
    assert node.status(f"{seek}offset:0") == 400
    assert node.ask(f"{seek}id:{ids[1]:016x}", "POST")["partitions"][0]["partition"] == 1
    assert node.ask(f"{seek}timestamp:1700000000", "POST")["offset"] is None
    cluster.until(lambda: _depth(cluster, "spread") == 3)
    assert node.status("/topic/delete?topic=spread") == 200
    assert {one.status("/topic/delete?topic=spread") for one in cluster.nodes} <= {200, 404}
    cluster.until(lambda: _ends(cluster, "spread") == dict.fromkeys(map(str, range(3)), 1))
    cluster.make("/topic/create?topic=spread")
    assert penstock([node], "topic", "peek", "spread") == ""


# After these there is nothing left to ask about, or nobody publishes to the node any more.
_ENDING = ("/topic/delete", "/channel/delete", "/disable/write")


def test_no_route_fails_where_a_topic_is_led_elsewhere(cluster: Cluster) -> None:
    """Nor where it was made again."""
    names = "topic=alone&channel=work"
    more = "offset=0&from=0&timestamp=0&ratekilobytes=1&ready=1&msgid=1&format=json"
    queries = f"{names}&{more}", f"{names}&{more}&partition=0"
    for _ in range(2):
        cluster.make("/topic/create?topic=alone")
        cluster.make("/channel/create?topic=alone&channel=work")
        leader = cluster.leader("alone")
        others = [node for node in cluster.nodes if node is not leader]
        failed = [
            (method, path, query)
            for path, (methods, _) in ROUTES.items()
            if path not in _ENDING
            for method in methods
            for query in queries
            for node in others
            if node.status(f"{path}?{query}", method) == 500
        ]
        assert failed == []
        assert others[0].status("/topic/delete?topic=alone") == 200
        cluster.until(lambda: cluster.partition("alone")["leader"] is None)


def _ends(cluster: Cluster, topic: str) -> dict[str, int]:
    """Where the partitions of a deleted topic ended: each node knows it of what it led."""
    found = [one.ask(f"/log/positions?topic={topic}") for one in cluster.nodes]
    logs = [ends for one in found for ends in one["ended_partitions"].get(topic, {}).values()]
    return {partition: end for ends in logs for partition, end in ends.items()}


def _traced(node: Node) -> set[int]:
    """Partitions whose message `penstock trace` finds."""
    events = json.loads(run_penstock([node], "trace", "--trace-id", "7", "--json").stdout)
    return {one["partition"] for one in events if one["kind"] == "published"}


def _depth(cluster: Cluster, topic: str) -> int:
    """Of the channel, over the nodes: each counts what it leads."""
    return sum(
        channel["depth"]
        for node in cluster.nodes
        for row in node.ask(f"/stats?format=json&topic={topic}")["topics"]
        for channel in row["channels"]
    )


def test_an_empty_machine_takes_the_place_of_another(cluster: Cluster, tmp_path: Path) -> None:
    """Only where it is told to: else a second machine could answer for what it does not have."""
    with Traffic(cluster, "replaced") as traffic:
        time.sleep(1)
        node = cluster.leader("replaced")
        node.kill()
        node.data_path.rename(tmp_path / "burnt")
        node.spawn()
        assert node.wait() == 1
        assert f"another machine has the id {node.number}" in node.stderr()
        node.forget_faults()
        shutil.rmtree(node.data_path)
        node.flags.append("--cluster-replace")
        bring_back(cluster, node, "replaced")
    check(traffic.report(node))


def test_etcd_is_set_back(cluster: Cluster, tmp_path: Path) -> None:
    """Records that are older than what was acted upon are not believed; all is served as it was,
    until the metadata is made again from what the nodes remember."""
    etcd, old = cluster.etcd, tmp_path / "old"
    etcd.kill()
    shutil.copytree(etcd.path / "data", old)
    etcd.start()
    cluster.until(lambda: all(node.ask("/cluster")["trouble"] == "" for node in cluster.nodes))
    with Traffic(cluster, "believed") as traffic:
        cluster.until(lambda: cluster.is_whole("believed"))
        etcd.kill()
        shutil.rmtree(etcd.path / "data")
        shutil.copytree(old, etcd.path / "data")
        etcd.start()
        cluster.until(
            lambda: all("not trusted" in node.ask("/cluster")["trouble"] for node in cluster.nodes)
        )
        time.sleep(2)
        report = penstock(cluster.nodes[:1], "cluster", "restore", "--yes")
        assert re.search(r"partitions are put back: .*believed/0", report)
        cluster.until(lambda: all(node.ask("/cluster")["trouble"] == "" for node in cluster.nodes))
        cluster.until(lambda: cluster.is_whole("believed"))
    check(traffic.report())


def penstock(nodes: Iterable[Node], *words: str) -> str:
    """What the command says, asked at these nodes; it succeeds."""
    run = run_penstock(nodes, *words)
    assert run.returncode == 0, run.stderr
    return run.stdout


def run_penstock(nodes: Iterable[Node], *words: str) -> subprocess.CompletedProcess[str]:
    addresses = [f"--nsqd-http-address=127.0.0.1:{node.ports[1]}" for node in nodes]
    command = [sys.executable, "-m", "penstock.tools.main", *words, *addresses]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.long
def test_etcd_has_lost_everything_and_all_nodes_were_started_again(cluster: Cluster) -> None:
    with Traffic(cluster, "rebuilt") as traffic:
        for node in cluster.nodes:
            node.kill()
        cluster.etcd.kill()
        shutil.rmtree(cluster.etcd.path / "data")
        cluster.etcd.start()
        for node in cluster.nodes:
            node.spawn()
        for node in cluster.nodes:
            node.wait_until_ready()
        assert "rebuilt" in penstock(cluster.nodes, "cluster", "restore", "--yes")
        cluster.until(lambda: all(node.ask("/cluster")["trouble"] == "" for node in cluster.nodes))
        cluster.until(lambda: cluster.is_whole("rebuilt"))
        leader = cluster.leader("rebuilt")
        leader.kill()
        cluster.until(lambda: cluster.leader("rebuilt") is not leader)
        bring_back(cluster, leader, "rebuilt")
    check(traffic.report(leader))


def test_a_clock_that_is_ahead_of_the_others_is_named(cluster: Cluster, tmp_path: Path) -> None:
    node, shift = cluster.nodes[2], tmp_path / "shift"
    shift.write_text("70")
    usual = node.command()
    node.stop()
    with pytest.MonkeyPatch.context() as patch:
        command = [sys.executable, "-Wignore::ResourceWarning", "-c", SHIFTED, str(shift)]
        patch.setattr(node, "command", lambda: [*command, *usual[3:]])
        node.start()
    message = r"the clock is (6|7)\d seconds ahead of those of most other nodes"
    cluster.until(lambda: re.search(message, str(node.ask("/ping"))))
    (ahead,) = re.findall(rb"^nsqd_cluster_clock_ahead_seconds (\S+)$", node.ask("/metrics"), re.M)
    assert float(ahead) == pytest.approx(70, abs=5)
    node.stop()
    node.start()
    cluster.until(lambda: "the clock is" not in str(node.ask("/ping")))


@pytest.mark.long
def test_topics_with_many_partitions_are_made_at_once(cluster: Cluster) -> None:
    """A node comes to some of them when others have elected a leader. All are served."""
    names, node = [f"many{number}" for number in range(16)], cluster.nodes[2]
    makes = [f"/topic/create?topic={name}&partition_num=64" for name in names]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(cluster.make, makes))
    for path in [f"/pub?topic={name}&partition={n}" for name in names for n in range(64)]:
        cluster.until(lambda path=path: node.status(path, body=b"one") == 200)
